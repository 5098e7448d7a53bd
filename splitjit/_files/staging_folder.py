"""Staging folders: make one, tell whether a killed process has left one, remove it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from splitjit._files.disk import Folder, change, lock

_STAGING = re.compile(r"\.splitjit-[0-9a-f]{16}")
_LOCK = "lock"
_STAGED = re.compile(r"[0-9]+\.(new|old)")
"""Names of staging folders, and of the files in them."""


class StagingFolder:
    """A staging folder that exists.

    Parameters
    ----------
    outer : Folder
        The folder that holds it.
    name : str

    Attributes
    ----------
    inner : Folder
        The staging folder itself.

    Raises
    ------
    OSError
        If there is no such folder, or if it is a link.
    """

    def __init__(self, outer: Folder, name: str) -> None:
        self._outer = outer
        self._name = name
        self._lock = -1
        self.inner = outer.folder(name)

    @classmethod
    def make(cls, outer: Folder) -> StagingFolder:
        """Make a staging folder, lock it, and mark it."""
        while True:
            name = f".splitjit-{os.urandom(8).hex()}"
            outer.mkdir(name, 0o700)
            # Another process may have just removed the empty folder.
            with contextlib.ExitStack() as undo, contextlib.suppress(FileNotFoundError):
                undo.callback(remove_empty, outer, name)
                staging = cls(outer, name)
                undo.callback(staging.remove)
                staging._lock = staging.inner.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                if lock(staging._lock) is not False and staging.inner.status(_LOCK) is not None:
                    change(os.write, staging._lock, staging._mark())
                    undo.pop_all()
                    return staging

    def _mark(self) -> bytes:
        """Return the content of the lock file. A copy of the folder has another inode."""
        status = self.inner.status()
        return f"splitjit {status.st_ino if status else 0}".encode()

    def is_left(self) -> bool:
        """Return whether a killed process of this user left the folder; if so, lock it."""
        names = self.inner.names()
        held = [self.inner.status(name) for name in names]
        folder = self.inner.status()
        if hasattr(os, "geteuid"):
            of_others = [one for one in (folder, *held) if one and one.st_uid != os.geteuid()]
            if of_others or folder is None or folder.st_mode & 0o022:
                return False
        known = all(name == _LOCK or _STAGED.fullmatch(name) for name in names)
        if not known or not all(one and stat.S_ISREG(one.st_mode) for one in held):
            return False
        if not names:  # killed right after mkdir
            return True
        self._lock = self.inner.open(_LOCK, os.O_RDWR)
        if lock(self._lock) is not True:
            return False
        mark = os.read(self._lock, 64)
        return mark == self._mark() or (not mark and names == [_LOCK])  # killed before the mark

    def remove(self) -> None:
        """Remove the folder. The next command removes what cannot be removed now."""
        with contextlib.closing(self), contextlib.suppress(OSError):
            for name in self.inner.names():
                if _STAGED.fullmatch(name):
                    self.inner.unlink(name)
            # Unlink the lock while it is held. A process that is just making this folder could
            # otherwise lock it in between, and then lose it.
            if self._lock >= 0:
                if sys.platform == "win32":  # which cannot remove an open file
                    self._release()
                self.inner.unlink(_LOCK)
        remove_empty(self._outer, self._name)

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def close(self) -> None:
        """Close the folder, and release its lock."""
        self._release()
        self.inner.close()


def sweep(folders: Iterable[Path]) -> None:
    """Remove what killed processes left in these folders.

    This removes only what is surely a staging folder: its name is like ours, it is no link, only
    this user may write to it, and it holds only this user's files with names like ours. Its lock
    file is free and names its inode, unless the process was killed before it wrote that. All calls
    are relative to the open folder, and none follows a link or a path from a file.
    """
    for path in dict.fromkeys([Path(os.path.realpath(folder)) for folder in folders]):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), Folder(path) as outer:
            for name in outer.names():
                if _STAGING.fullmatch(name):
                    _sweep_one(outer, name)


def _sweep_one(outer: Folder, name: str) -> None:
    with contextlib.suppress(OSError), contextlib.closing(StagingFolder(outer, name)) as staging:
        if staging.is_left():
            staging.remove()


def remove_empty(outer: Folder, name: str) -> None:
    """Remove a folder if it is empty."""
    with contextlib.suppress(OSError):
        outer.rmdir(name)
