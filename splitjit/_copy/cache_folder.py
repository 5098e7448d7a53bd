"""Which folder holds the object files of kernels."""

from __future__ import annotations

import os
import sys

from splitjit._kernels import table

SOURCE = os.path.dirname(table.__file__)
"""The folder of the source of the kernels."""


def folder() -> str:
    """Return the cache folder.

    It is ``NUMBA_CACHE_DIR`` if that is set, else the ``__pycache__`` beside the source, else a
    folder of the user, as for Numba's own cache.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return os.path.join(chosen, "splitjit")
    beside = os.path.join(SOURCE, "__pycache__")
    if os.access(beside if os.path.isdir(beside) else SOURCE, os.W_OK):
        return beside
    return os.path.join(user_cache(), "splitjit")


def user_cache() -> str:
    """Return the folder for the caches of this user."""
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches")
    return os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
