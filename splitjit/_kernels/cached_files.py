"""The cached files of one compiled function, with a hash and a lock of our own.

Numba checks no sum of the files that it loads, so a flipped bit could run as wrong
code. And processes that start at once would all compile the same function. So
beside Numba's files lie two more::

    NAME….nbi, NAME….1.nbc    Numba's index and code
    NAME.sha256               the hash of both; without it they are compiled anew
    NAME.lock                 locked while a process compiles; then deleted
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from numba.core.caching import FunctionCache

try:
    from fcntl import LOCK_EX, LOCK_NB, lockf
except ImportError:  # Windows
    import msvcrt

    def _lock(file):
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:

    def _lock(file):
        lockf(file, LOCK_EX | LOCK_NB)


def _delete(path):
    try:
        path.unlink()
    except OSError:
        return False
    return True


PATIENCE = 60.0
"""Seconds after which this process compiles a function that another process still compiles.
The system releases the lock of a process that ends, so only a stopped process holds one so long."""

_first_refused: dict[str, float] = {}
"""When this process first found a function locked."""


class CachedFiles:
    """The cached files of a function.

    Parameters
    ----------
    function : function
        Its qualified name must be unique to its source; see `compiling.named`.

    Raises
    ------
    Exception
        If no folder can hold a cache.
    """

    def __init__(self, function):
        self.name = function.__qualname__
        self.folder = Path(FunctionCache(function).cache_path)
        self._hash_file = self.folder / f"{self.name}.sha256"

    def are_intact(self):
        """Return whether there are files and they have the hash that was saved with them."""
        try:
            return self._hash_file.read_bytes() == self._hash()
        except OSError:
            return False

    def seal(self):
        """Save the hash of the files. If that fails, they are compiled anew next time."""
        unfinished = self._hash_file.with_suffix(f".tmp{os.getpid()}")
        try:
            unfinished.write_bytes(self._hash())
            unfinished.replace(self._hash_file)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()

    def discard(self):
        """Delete the files, as far as the system allows."""
        for file in [*self._files(), self._hash_file]:
            with contextlib.suppress(OSError):
                file.unlink()

    @contextlib.contextmanager
    def lock(self, *, wait):
        """Let no other process compile the function in the ``with`` block.

        Parameters
        ----------
        wait : bool
            Whether to wait while another process compiles, for `PATIENCE` at most.

        Raises
        ------
        BlockingIOError
            If another process compiles the function, unless `wait`.
        """
        path = self.folder / f"{self.name}.lock"
        try:
            file = path.open("ab")
        except OSError:  # no space, or no rights
            yield
            return
        is_deleted = True
        try:
            with file:
                self._acquire(file, wait)
                try:
                    yield
                finally:
                    # Before the file is closed: afterwards, another process may have the lock.
                    is_deleted = _delete(path)
        finally:
            if not is_deleted:  # Windows deletes no open file, and hence no lock that is taken
                _delete(path)

    def _acquire(self, file, wait):
        while True:
            try:
                return _lock(file)
            except (BlockingIOError, PermissionError):  # another process compiles
                now = time.monotonic()
            except OSError:  # a file system without locks
                return None
            if now - _first_refused.setdefault(self.name, now) > PATIENCE:
                return None
            if not wait:
                raise BlockingIOError
            time.sleep(0.01)

    def _files(self):
        return sorted(self.folder.glob(f"*{self.name}*.nb[ci]"))

    def _hash(self):
        digest = hashlib.sha256()
        for file in self._files():
            digest.update(file.read_bytes())
        return digest.hexdigest().encode()
