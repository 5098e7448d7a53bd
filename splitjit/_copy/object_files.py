"""The kernels' object files in the cache folder.

A kernel is the file ``NAME-DIGEST.o``: a magic line, a SHA-256, and the object. The digest covers
the source of all kernels, the versions of Python, NumPy and llvmlite, and the processor. The
SHA-256 covers the file's name and the object. So code that is damaged, or made for another version
or processor, never runs, even if somebody renames files.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator

import numpy as np

from splitjit._copy import cache_folder
from splitjit._copy.events import debug
from splitjit._plan import rules

_MAGIC = b"splitjit kernel 1\n"
_PATIENCE = 60.0
"""Seconds after which a mark counts as left behind by a dead process."""


def read(name: str) -> bytes | None:
    """Return the object of a kernel, or None if the cache has no intact one."""
    source = path(name)
    try:
        with open(source, "rb") as file:
            content = file.read()
    except OSError:
        return None
    code = content[len(_MAGIC) + 32 :]
    if content != _sealed(source, code):
        debug("the cached kernel %s is damaged", source)
        return None
    return code


def write(name: str, code: bytes) -> None:
    """Cache the object of a kernel, if the system allows it."""
    target = path(name)
    unfinished = f"{target}.{os.urandom(8).hex()}"
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(unfinished, "wb") as file:
            file.write(_sealed(target, code))
        os.replace(unfinished, target)
    except OSError as error:
        debug("the kernel %s is not cached: %s", name, error)
        with contextlib.suppress(OSError):
            os.unlink(unfinished)


@contextlib.contextmanager
def compiling(name: str) -> Iterator[None]:
    """Mark a kernel as being compiled; raise BlockingIOError if another process compiles it."""
    mark = f"{path(name)}.compiling"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        if time.time() - os.stat(mark).st_mtime < _PATIENCE:
            raise BlockingIOError(mark)
    with contextlib.suppress(OSError):  # without a folder for the mark, there is no cache either
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        with open(mark, "wb"):
            pass
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(mark)


def _sealed(target: str, code: bytes) -> bytes:
    """Return the contents of an object's file."""
    import hashlib  # here, because `import splitjit` does not need it

    return _MAGIC + hashlib.sha256(os.path.basename(target).encode() + code).digest() + code


def path(name: str) -> str:
    """Return the path of a kernel's file. This imports llvmlite."""
    return os.path.join(cache_folder.folder(), f"{name}-{_digest()}.o")


@functools.cache
def _digest() -> str:
    import hashlib
    import platform

    import llvmlite
    import llvmlite.binding as llvm

    processor = platform.machine(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    versions = sys.version, sys.platform, np.__version__, llvmlite.__version__
    identity = hashlib.sha256(repr((versions, processor)).encode())
    try:
        names = [name for name in sorted(os.listdir(cache_folder.SOURCE)) if name.endswith(".py")]
        for path in (*[os.path.join(cache_folder.SOURCE, name) for name in names], rules.__file__):
            with open(path, "rb") as source:
                identity.update(source.read())
    except OSError:  # a frozen application has no source
        identity.update(str(os.stat(sys.executable).st_mtime_ns).encode())
    return identity.hexdigest()[:24]
