"""The folder for the kernels' object files."""

from __future__ import annotations

import os
import sys

from splitjit._kernels import table

SOURCE = os.path.dirname(table.__file__)
"""The folder of the kernels' source."""


def folder() -> str:
    """Return the cache folder.

    Like Numba's own cache, it is in ``NUMBA_CACHE_DIR`` if that is set, else in the
    ``__pycache__`` beside the source, else in the user's cache folder.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return os.path.join(chosen, "splitjit")
    beside = os.path.join(SOURCE, "__pycache__")
    if os.access(beside if os.path.isdir(beside) else SOURCE, os.W_OK):
        return beside
    return os.path.join(user_cache(), "splitjit")


def user_cache() -> str:
    """Return this user's cache folder."""
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches")
    return os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
