"""The folders and the journal of a transaction, as they are on disk.

Each folder that gets new files holds a staging folder `.splitjit-…`:

    lock            locked by the process that writes these files
    journal         what the transaction moves; its name is the state, see `STATES`
    primary         instead of a journal: the staging folder that has the journal
    0.new, 1.new    new files
    0.old, 1.old    files that new files replace

The journal of several folders lies in the staging folder of the first one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import sys
from dataclasses import dataclass, field
from pathlib import Path

from splitjit.files.transaction.disk import Folder

PREFIX = ".splitjit-"

OPEN, MOVING, COMMITTED = STATES = ("journal", "moving", "committed")
"""Names of the journal: nothing was moved; files may have been moved; all of them were."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What a transaction moves.

    Attributes
    ----------
    key : str
        Identifies what the transaction writes.
    stagings : list of (str, str)
        Each folder, and the name of its staging folder.
    moves : list of (int, str)
        For ``i.new``, the index of its folder, and its place relative to this folder,
        with ``/`` between names.
    made : list of str
        Folders that were made for the new files, outermost first.
    """

    key: str
    stagings: list[tuple[str, str]]
    moves: list[tuple[int, str]]
    made: list[str] = field(default_factory=list)

    def dump(self) -> bytes:
        """Return the contents of the file."""
        # "homes" is the key of earlier versions, whose killed processes this one also recovers.
        fields = {"key": self.key, "homes": self.stagings, "moves": self.moves, "made": self.made}
        return json.dumps(fields).encode()

    @classmethod
    def load(cls, contents: bytes) -> Journal:
        """Parse the contents of the file."""
        fields = json.loads(contents)
        stagings = [(path, name) for path, name in fields["homes"]]
        moves = [(int(staging), target) for staging, target in fields["moves"]]
        return cls(fields["key"], stagings, moves, fields["made"])


class Staging:
    """A folder that gets new files, and a staging folder in it.

    Parameters
    ----------
    path : Path
    name : str
        The name of the staging folder, which exists.

    Attributes
    ----------
    path : Path
    name : str
    outer, inner : Folder
        The folder that gets new files, and the staging folder.
    place : Path
        The path of the staging folder.

    Raises
    ------
    OSError
        If there is no such staging folder, or if it is a link.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.place = path / name
        self._lock: int | None = None
        with contextlib.ExitStack() as stack:
            self.outer = stack.enter_context(Folder(path))
            self.inner = stack.enter_context(self.outer.folder(name))
            stack.pop_all()

    @classmethod
    def make(cls, path: Path) -> Staging:
        """Make a staging folder with a random name, and lock it."""
        while True:
            name = PREFIX + secrets.token_hex(8)
            with Folder(path) as root:
                root.mkdir(name, 0o700)
            try:
                staging = cls(path, name)
                if staging.lock() is not False:
                    return staging
                staging.close()
            except FileNotFoundError:  # another process has just cleared the empty folder
                continue

    def is_ours(self) -> bool:
        """Return whether the staging folder is this user's, and no other user can write to it."""
        status = self.inner.status()
        if status is None or not hasattr(os, "geteuid"):
            return status is not None
        return status.st_uid == os.geteuid() and not status.st_mode & 0o022

    def primary(self) -> tuple[Path, str] | None:
        """Return the folder and name of the staging folder with the journal, if not this one."""
        try:
            path, name = json.loads(self.inner.read("primary"))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return Path(path), name

    def lock(self) -> bool | None:
        """Lock the staging folder.

        Returns
        -------
        bool or None
            Whether this process now has the lock. None if the file system has no locks.

        Raises
        ------
        FileNotFoundError
            If another process has just removed the staging folder.
        """
        lock = self.inner.open("lock", os.O_RDWR | os.O_CREAT)
        try:
            locked = _lock(lock)
            if locked:
                there = self.inner.status("lock")
                if there is None or not os.path.samestat(there, os.fstat(lock)):
                    raise FileNotFoundError(errno.ENOENT, "No such file", "lock")
                self._lock, lock = lock, -1
            return locked
        finally:
            if lock >= 0:
                os.close(lock)

    def discard(self, journal: str) -> None:
        """Remove the staging folder, which holds only the journal and the lock."""
        with contextlib.suppress(FileNotFoundError):
            self.inner.unlink(journal)
        self._release()  # Windows does not remove open files
        with contextlib.suppress(FileNotFoundError):
            self.inner.unlink("lock")
        with contextlib.suppress(OSError):  # another process is removing it, too
            self.outer.rmdir(self.name)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        """Close the folders and release the lock."""
        self._release()
        self.inner.close()
        self.outer.close()


def _lock(file: int) -> bool | None:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except ImportError:
        return None
    except OSError as error:
        return False if error.errno in (errno.EACCES, errno.EAGAIN) else None
