"""Folders held open, and every call that changes a file.

A `Folder` is opened once, and names are looked up relative to it, so another user of
a shared folder cannot redirect a call by putting a link in its place. Windows has no
such calls, so there a `Folder` joins its path and the name.

Every call that changes a file goes through `change`. Tests replace it to make the
n-th change fail.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")

_RELATIVE = os.open in os.supports_dir_fd
_OPEN_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_PLAIN = _NO_LINK | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)

_UNSUPPORTED = {
    *(errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK),
    errno.EPERM,  # links on FAT, and containers that forbid a call
    errno.EINVAL,  # links of Windows on exFAT and on network shares, too
}
"""Errors of calls that some systems or file systems lack."""


def change(call: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Make a call that changes a file."""
    return call(*arguments, **keywords)


def free(folder: Path) -> int:
    """Return how many bytes are free on the file system of a folder."""
    return shutil.disk_usage(folder).free


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
    call = _fallocate()
    while call is not None and call(file, _KEEP_SIZE, 0, size):
        import ctypes

        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


_KEEP_SIZE = 1


@functools.cache
def _fallocate() -> Callable[..., int] | None:
    """Return ``fallocate`` from Linux's C library, or None if it has none."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    call = getattr(library, "fallocate64", None) or getattr(library, "fallocate", None)
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return call


@contextlib.contextmanager
def _tolerated() -> Iterator[None]:
    """Ignore errors of calls that the system does not support."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise


class Folder:
    """An open folder.

    Parameters
    ----------
    path : Path
    parent : Folder, optional
        The folder that holds this one, which then must not be a link.

    Raises
    ------
    OSError
        If there is no such folder, or if it is a link and `parent` is given.
    """

    def __init__(self, path: Path, parent: Folder | None = None) -> None:
        self.path = path
        self.fd: int | None = None
        if _RELATIVE:
            place = (path, None) if parent is None else (path.name, parent.fd)
            flags = os.O_RDONLY | _OPEN_FOLDER | (0 if parent is None else _NO_LINK)
            try:
                self.fd = os.open(place[0], flags, dir_fd=place[1])
            except OSError as error:
                error.filename = str(path)
                raise
        elif not stat.S_ISDIR(path.stat().st_mode if parent is None else path.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the folder."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def _place(self, name: str) -> str | Path:
        return name if _RELATIVE else self.path / name

    def folder(self, name: str) -> Folder:
        """Open a folder in this folder. It must not be a link."""
        return Folder(self.path / name, self)

    def has(self, name: str) -> bool:
        """Return whether a name exists, be it a broken link."""
        try:
            os.stat(self._place(name), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def open(self, name: str, flags: int) -> int:
        """Open a file, which must not be a link, and return its descriptor."""
        opened = self._place(name), flags | _PLAIN, 0o666
        if flags & (os.O_CREAT | os.O_TRUNC):
            return change(os.open, *opened, dir_fd=self.fd)
        return os.open(*opened, dir_fd=self.fd)

    def mkdir(self, name: str, mode: int = 0o777) -> None:
        """Make a folder."""
        change(os.mkdir, self._place(name), mode, dir_fd=self.fd)

    def rmdir(self, name: str) -> None:
        """Remove an empty folder."""
        change(os.rmdir, self._place(name), dir_fd=self.fd)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        change(os.unlink, self._place(name), dir_fd=self.fd)

    def replace(self, name: str, folder: Folder, target: str) -> None:
        """Rename a file. This replaces an existing target."""
        places = self._place(name), folder._place(target)
        change(os.replace, *places, src_dir_fd=self.fd, dst_dir_fd=folder.fd)

    def link(self, name: str, folder: Folder, target: str) -> bool:
        """Give a file a second name. Return False if the file system has no hard links.

        Raises
        ------
        FileExistsError
            If the target exists.
        """
        places = self._place(name), folder._place(target)
        follow = {"follow_symlinks": False} if os.link in os.supports_follow_symlinks else {}
        with _tolerated():
            change(os.link, *places, src_dir_fd=self.fd, dst_dir_fd=folder.fd, **follow)
            return True
        return False

    def sync(self) -> None:
        """Wait until the names in this folder are on disk, if the system can tell."""
        if self.fd is not None:
            with _tolerated():  # some file systems cannot sync folders
                change(flush, self.fd)


class NewFile(io.FileIO):
    """A file to write, whose errors name its target.

    Parameters
    ----------
    file : int
    target : Path
        The name of the file in errors.
    """

    def __init__(self, file: int, target: Path) -> None:
        super().__init__(file, "wb")
        self._target = target

    def write(self, data: Any) -> int:
        """Write all bytes or the first few, and return how many."""
        with self._named_errors(memoryview(data).nbytes):
            return change(super().write, data) or 0

    def write_all(self, data: bytes | memoryview) -> None:
        """Write bytes."""
        while data:
            data = data[self.write(data) :]

    def allocate(self, size: int) -> None:
        """Reserve space on the disk for a whole file, if the file system can.

        The file keeps its size. On ext4, a split of 300 MB along axis 0 took a tenth longer when
        the file system had to allocate blocks as it wrote.
        """
        if size and sys.platform == "linux":
            with self._named_errors(size), _tolerated():
                change(fallocate, self.fileno(), size)

    def copy(self, source: int, start: int, nbytes: int) -> int:
        """Let the system copy bytes from another open file, without reading them.

        On ext4, this takes a tenth less CPU time than reading and writing them. File systems that
        share blocks between files copy nothing at all.

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
            How many bytes the system copied before it gave up; 0 if it cannot copy these.
        """
        call, done, count = getattr(os, "copy_file_range", None), 0, 1
        while call and count and done < nbytes:
            count = 0
            with self._named_errors(nbytes - done), _tolerated():
                count = change(call, source, self.fileno(), nbytes - done, start + done)
            done += count
        return done

    def flush_early(self, start: int, nbytes: int) -> None:
        """Start writeback early, so that it overlaps our work. Only Linux does this.

        Without it, a split of 300 MB took 1.1 to 1.6 times as long on ext4.
        """
        if sys.platform == "linux":
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
            need = f"{nbytes} more bytes are needed, {free(self._target.parent)} bytes are free"
            raise OSError(error.errno, f"no space for {self._target}: {need}") from error
