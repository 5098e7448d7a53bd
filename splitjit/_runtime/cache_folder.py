"""The folders for the kernels' object files."""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(__file__))

SOURCE = os.path.join(_PACKAGE, "_kernels")
"""The folder of the kernels' source."""

SHARED_SOURCES = (os.path.join(_PACKAGE, "_abi"), os.path.join(_PACKAGE, "_plan", "rules.py"))
"""What else decides the code of kernels: a folder, and a file."""


def folders() -> list[str]:
    """Return the folders that may hold kernels; the first writable one gets new kernels.

    As in Numba's own cache, that is the one in ``NUMBA_CACHE_DIR`` if that is set. Otherwise,
    they are the ``__pycache__`` beside the source, and the user's cache folder. A process reads
    both, because root may have filled the first one for users who cannot write there.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [os.path.join(chosen, "splitjit")]
    beside = [os.path.join(SOURCE, "__pycache__")] if os.path.isdir(SOURCE) else []
    users = os.path.join(user_cache(), "splitjit")
    return beside + [users] * os.path.isabs(users)  # relative if this user has no home


def user_cache() -> str:
    """Return this user's cache folder."""
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches")
    return os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
