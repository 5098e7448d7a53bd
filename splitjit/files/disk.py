"""The calls that change files.

All of them go through `change`. Tests replace it to make the n-th change fail.
"""

import contextlib
import ctypes
import errno
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_UNSUPPORTED = {
    *(errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK),
    errno.EPERM,  # links on FAT, and containers that forbid a call
    errno.EINVAL,  # links of Windows on exFAT and on network shares, too
    errno.EINTR,  # a signal ended a reservation, which need not succeed
}
"""Errors of calls that some systems or file systems lack."""

_KEEP_SIZE = 1
"""The mode of fallocate in which a file keeps its size."""

_LARGE = 1 << 18
"""Bytes from which early writeback, or reserving space, pays."""


def change(call: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Make a call that changes a file."""
    return call(*arguments, **keywords)


def flush(file: int) -> None:
    """Wait until an open file or folder is on disk."""
    if sys.platform == "darwin":  # os.fsync would not wait for the disk's own cache
        import fcntl

        with contextlib.suppress(OSError):  # network file systems support only os.fsync
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
            return
    os.fsync(file)


def fallocate(file: int, size: int) -> None:
    """Reserve disk blocks for an open file without changing its size.

    `os.posix_fallocate` would write to every block if the file system cannot reserve them.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if call is not None:  # some C libraries lack it
        call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        if call(file, _KEEP_SIZE, 0, size):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))


@contextlib.contextmanager
def tolerated() -> Iterator[None]:
    """Ignore errors of calls that the system does not support."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on disk, if the system can tell. Windows cannot."""
    if sys.platform != "win32":
        # Some file systems cannot sync folders, and some users may not read them.
        with contextlib.suppress(PermissionError), tolerated():
            file = os.open(folder, os.O_RDONLY)
            try:
                change(flush, file)
            finally:
                os.close(file)


class NewFile(io.FileIO):
    """A file to write, whose errors name its target.

    Parameters
    ----------
    path : Path
    target : Path
        The name of the file in errors.
    start : int, default 0
        Where to write: from 0 on a new file, or at this position of a file that exists.
    """

    def __init__(self, path: Path, target: Path, start: int = 0) -> None:
        super().__init__(path, "r+b" if start else "wb")
        self.seek(start)
        self._target = target

    def write(self, data: Any) -> int:
        """Write all bytes, and return how many."""
        rest = memoryview(data)
        while rest:
            with self._named_errors(rest.nbytes):
                rest = rest[change(super().write, rest) :]
        return len(data)

    def allocate(self, size: int) -> None:
        """Reserve space on the disk for a whole file if it is large and the file system can.

        The file keeps its size. Writing takes longer if the file system has to allocate blocks
        meanwhile.
        """
        if size >= _LARGE and sys.platform == "linux":
            with self._named_errors(size), tolerated():
                change(fallocate, self.fileno(), size)

    def copy(self, source: int, start: int, nbytes: int) -> int:
        """Let the system copy bytes from another open file, without reading them.

        This takes less CPU time than reading and writing them. File systems that share blocks
        between files copy nothing at all.

        Parameters
        ----------
        source : int
            The descriptor of the other file.
        start : int
            The first byte to copy. It goes to this file's current position.
        nbytes : int
            The most bytes to copy.

        Returns
        -------
        int
            How many bytes the system copied, from the first; 0 if it cannot copy these.
        """
        if hasattr(os, "copy_file_range"):
            with self._named_errors(nbytes), tolerated():
                return change(os.copy_file_range, source, self.fileno(), nbytes, start)
        return 0

    def flush_early(self, start: int, nbytes: int) -> None:
        """On Linux, start writeback of many bytes early, so that it overlaps our work."""
        if nbytes >= _LARGE and sys.platform == "linux":
            os.posix_fadvise(self.fileno(), start, nbytes, os.POSIX_FADV_DONTNEED)

    @contextlib.contextmanager
    def _named_errors(self, nbytes: int) -> Iterator[None]:
        """Name the target in errors, and say how much space is free."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                error.filename = error.filename or str(self._target)
                raise
            free = shutil.disk_usage(self._target.parent).free
            need = f"{nbytes} more bytes are needed, {free} bytes are free"
            raise OSError(error.errno, f"no space for {self._target}: {need}") from error
