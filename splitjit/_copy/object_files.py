"""The object files of kernels in the cache folder.

A kernel is the file ``NAME-DIGEST.o``: a magic line, the SHA-256 of the rest, and the object. The
digest covers the source of all kernels, the versions of Python, NumPy and llvmlite, and the
processor. So no process runs code of another version or for another processor, and the hash keeps
it from running damaged code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import secrets
import sys

import numpy as np

from splitjit._copy.events import debug
from splitjit._kernels import table

_MAGIC = b"splitjit kernel 1\n"
_SOURCE = os.path.dirname(table.__file__)
_OLDER = (".nbi", ".nbc", ".sha256", ".lock")  # what splitjit 0.x left in Numba's cache


def read(name: str) -> bytes | None:
    """Return the object of a kernel, or None if the cache has no whole one."""
    try:
        with open(path(name), "rb") as file:
            content = file.read()
    except OSError:
        return None
    start = len(_MAGIC) + 32
    code = content[start:]
    if content[:start] != _MAGIC + hashlib.sha256(code).digest():
        debug("the cached kernel %s is damaged", path(name))
        return None
    return code


def write(name: str, code: bytes) -> None:
    """Put the object of a kernel into the cache, if the system allows it."""
    target = path(name)
    unfinished = f"{target}.{secrets.token_hex(8)}"
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(unfinished, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(code).digest() + code)
        os.replace(unfinished, target)
    except OSError as error:
        debug("the kernel %s is not cached: %s", name, error)
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


def path(name: str) -> str:
    """Return the path of a kernel's file. This imports llvmlite."""
    return os.path.join(folder(), f"{name}-{_digest()}.o")


def folder() -> str:
    """Return the cache folder.

    It is ``NUMBA_CACHE_DIR`` if that is set, else the ``__pycache__`` beside the source, else a
    folder of the user, as for Numba's own cache.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return os.path.join(chosen, "splitjit")
    beside = os.path.join(_SOURCE, "__pycache__")
    if os.access(beside if os.path.isdir(beside) else _SOURCE, os.W_OK):
        return beside
    return os.path.join(_user_cache(), "splitjit")


def _user_cache() -> str:
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches")
    return os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")


@functools.cache
def _digest() -> str:
    import llvmlite
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    target = platform.machine(), sys.platform, llvm.get_host_cpu_name(), features
    versions = sys.version, np.__version__, llvmlite.__version__
    identity = hashlib.sha256(repr((versions, target)).encode())
    try:
        for name in sorted(os.listdir(_SOURCE)):
            if name.endswith(".py"):
                with open(os.path.join(_SOURCE, name), "rb") as source:
                    identity.update(source.read())
    except OSError:  # a frozen application has no source
        identity.update(str(os.stat(sys.executable).st_mtime_ns).encode())
    return identity.hexdigest()[:24]


def remove_older() -> None:
    """Remove what earlier versions of splitjit left in Numba's cache folders."""
    named = f"_kernels_{hashlib.sha1(_SOURCE.encode()).hexdigest()}"
    numbas = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(_user_cache(), "numba")
    for place in (os.path.join(_SOURCE, "__pycache__"), os.path.join(numbas, named)):
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                if name.endswith(_OLDER):
                    os.unlink(os.path.join(place, name))
