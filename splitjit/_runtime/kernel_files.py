"""The kernels' object files in the cache folders.

A kernel is the file ``NAME-SOURCE-TARGET.o``: a magic line, a SHA-256, and the object. ``SOURCE``
is a digest of all files of `_kernels` and `_abi`, and of the rules. ``TARGET`` is one of everything
else that decides the code: versions of Python, NumPy, llvmlite and Numba, and the processor. The
SHA-256 covers the file's name and the object. So code that is damaged, or made for another version
or processor, never runs, even if somebody renames files.
"""

# All imports are here, but for llvmlite, which the loader has imported before: if another thread is
# importing a module at a fork, the child waits forever for that import.
import contextlib
import functools
import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from splitjit._abi.kernels import processor
from splitjit._runtime.events import debug

_PACKAGE = os.path.dirname(os.path.dirname(__file__))

FOLDER = os.path.join(_PACKAGE, "_kernels")
"""The folder of the kernels' source."""

_MAGIC = b"splitjit kernel 1\n"
_PATIENCE = 60.0
"""Seconds after which an unfinished file counts as left behind by a dead process."""

_NAME = re.compile(r"[a-z][a-z0-9_]*-[0-9a-f]{16}-[0-9a-f]{16}\.o(\..+)?")
"""The names of our files."""


def folders() -> list[str]:
    """Return the folders that may hold kernels; the first writable one gets new kernels.

    As in Numba's own cache, that is the one in ``NUMBA_CACHE_DIR`` if that is set. Otherwise,
    they are the ``__pycache__`` beside the source, and the user's cache folder. A process reads
    both, because root may have filled the first one for users who cannot write there.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [os.path.join(chosen, "splitjit")]
    beside = [os.path.join(FOLDER, "__pycache__")] if os.path.isdir(FOLDER) else []
    users = os.path.join(user_cache(), "splitjit")
    return beside + [users] * os.path.isabs(users)  # relative if this user has no home


def user_cache() -> str:
    """Return this user's cache folder."""
    if sys.platform == "win32":
        return os.environ.get("LOCALAPPDATA") or os.path.expanduser("~/AppData/Local")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches")
    return os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")


def read(name: str) -> bytes | None:
    """Return the object of a kernel, or None if the cache has no intact one."""
    for source in _paths(name):
        with contextlib.suppress(OSError), open(source, "rb") as file:
            content = file.read()
            code = content[len(_MAGIC) + 32 :]
            if content == _sealed(source, code):
                return code
            debug("the cached kernel %s is damaged", source)
    return None


def write(name: str, code: bytes) -> None:
    """Cache the object of a kernel in the first folder where the system allows it."""
    for target in _paths(name):
        if _made(target, _sealed(target, code)):
            return


def _made(target: str, content: bytes) -> bool:
    """Write a file in one step; return whether the system allows it."""
    unfinished = f"{target}.{os.urandom(8).hex()}"
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(unfinished, "wb") as file:
            file.write(content)
        os.replace(unfinished, target)
        return True
    except OSError as error:
        debug("the file %s cannot be made: %s", target, error)
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        return False


@contextlib.contextmanager
def compiling(name: str) -> Iterator[None]:
    """Mark a kernel as being compiled; raise BlockingIOError if another process compiles it."""
    marks = [f"{path}.compiling" for path in _paths(name)]
    if any(map(_is_in_use, marks)):
        raise BlockingIOError(f"another process compiles {name}")
    # Without a folder for a mark, there is no cache either.
    made = next((mark for mark in marks if _made(mark, b"")), "")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(made)


def _is_in_use(unfinished: str) -> bool:
    """Return whether a process made a file just now; not if its date is in the future."""
    with contextlib.suppress(OSError):
        return 0 <= time.time() - os.stat(unfinished).st_mtime < _PATIENCE
    return False


def files() -> dict[str, int]:
    """Return the paths of all our files in the cache folders, and their sizes in bytes."""
    found = {}
    for folder in folders():
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder):
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found[entry.path] = entry.stat().st_size
    return found


def remove(*, older: bool) -> dict[str, int]:
    """Remove our files from the cache folders, as far as the system allows it.

    Parameters
    ----------
    older : bool
        Whether to remove only kernels of other versions of splitjit, and what dead processes left.
        Kernels of this version for other processors, or for other versions of Python and Numba,
        stay: other processes may share the folder.

    Returns
    -------
    dict
        The paths of the removed files, and their sizes in bytes.
    """
    removed, source = {}, _digest().partition("-")[0]
    for path, size in files().items():
        is_current = f"-{source}-" in os.path.basename(path)
        is_left = not path.endswith(".o") and not _is_in_use(path)
        if older and is_current and not is_left:
            continue
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed[path] = size
    return removed


def _sealed(target: str, code: bytes) -> bytes:
    """Return the contents of an object's file."""
    return _MAGIC + hashlib.sha256(os.path.basename(target).encode() + code).digest() + code


def file_name(name: str) -> str:
    """Return the name of a kernel's file. This imports llvmlite."""
    return f"{name}-{_digest()}.o"


def _paths(name: str) -> list[str]:
    return [os.path.join(folder, file_name(name)) for folder in folders()]


@functools.cache
def _digest() -> str:
    """Return the digest of the kernels' source, and one of what else decides their code.

    This does not import Numba, whose own file says the version and the commit.
    `importlib.metadata` takes long to import.
    """
    import llvmlite

    paths = [os.path.join(_PACKAGE, "_plan", "rules.py")]
    for folder in (FOLDER, os.path.join(_PACKAGE, "_abi")):
        for inside, _, names in sorted(os.walk(folder)):
            paths += [os.path.join(inside, name) for name in sorted(names) if name.endswith(".py")]
    numba = os.path.dirname(getattr(find_spec("numba"), "origin", None) or "")
    facts = sys.version, sys.platform, np.__version__, llvmlite.__version__, platform.machine()
    target = _digest_of([os.path.join(numba, "_version.py")], *facts, *processor())
    return f"{_digest_of(paths)}-{target}"


def _digest_of(paths: list[str], *facts: object) -> str:
    """Return the digest of some facts, and of what files hold."""
    identity = hashlib.sha256(repr(facts).encode())
    try:
        for path in paths:
            with open(path, "rb") as file:
                identity.update(file.read())
    except OSError:  # a frozen application has no source, and no files of Numba
        identity.update(str(os.stat(sys.executable).st_mtime_ns).encode())
    return identity.hexdigest()[:16]
