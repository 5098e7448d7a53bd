"""A transaction on disk: its steps, and the way back."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from splitjit._files import signals
from splitjit._files.disk import Folder, change
from splitjit._files.journal import COMMITTED, MOVING, OPEN, STATES, Home, Journal


class Work:
    """A transaction on disk, of this process or of a killed one.

    Parameters
    ----------
    homes : list of Home
        The staging folders. The first one holds the journal.
    journal : Journal

    Attributes
    ----------
    state : str
        The name of the journal.
    """

    def __init__(self, homes: list[Home], journal: Journal, state: str = OPEN) -> None:
        self.homes = homes
        self.journal = journal
        self.state = state
        self._open: dict[tuple[int, str], Folder] = {}

    @classmethod
    def load(cls, home: Home) -> Work:
        """Read the journal of a killed process.

        Raises
        ------
        OSError
            If files were moved and a folder is missing, or if the journal is damaged.
        """
        names = home.staging.names()
        state = next((state for state in STATES if state in names), OPEN)
        try:
            journal = Journal.load(home.staging.read(state))
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            if state != OPEN:
                raise OSError(f"{home.place / state} is damaged: {error!r}") from error
            return cls([home], Journal("", [(str(home.path), home.name)], []))
        homes = [home]
        work = cls(homes, journal, state)
        for path, name in journal.homes[1:]:
            try:
                homes.append(Home(Path(path), name))
            except OSError as error:
                if state == MOVING or not isinstance(error, FileNotFoundError):
                    work.close()
                    raise OSError(
                        f"{Path(path, name)}, which {home.place} names: {error}"
                    ) from error
        return work

    @property
    def targets(self) -> list[Path]:
        """The target of each move."""
        return [Path(self.journal.homes[home][0], name) for home, name in self.journal.moves]

    def close(self) -> None:
        """Close all folders."""
        for folder in self._open.values():
            folder.close()
        self._open.clear()
        for home in self.homes:
            home.close()

    def _place(self, home: int, target: str) -> tuple[Folder, str]:
        """Return the open folder of a target, and its name there. No folder may be a link."""
        *folders, name = target.split("/")
        folder = self.homes[home].root
        for i, inner in enumerate(folders, 1):
            key = home, "/".join(folders[:i])
            if key not in self._open:
                self._open[key] = folder.folder(inner)
            folder = self._open[key]
        return folder, name

    def open_folders(self) -> None:
        """Open the folder of each target, before anything is written."""
        for home, target in self.journal.moves:
            self._place(home, target)

    def move(self, force: bool) -> None:
        """Move the new files into place, and wait until all names are on disk."""
        for path in self.journal.made:
            with Folder(Path(path).parent) as parent:
                parent.sync()
        self._sync()
        self._become(MOVING)
        for i, (home, target) in enumerate(self.journal.moves):
            staging = self.homes[home].staging
            folder, name = self._place(home, target)
            if force and folder.status(name) is not None:
                folder.rename(name, staging, f"{i}.old")
            try:
                staging.put(f"{i}.new", folder, name)
            except FileExistsError:
                place = self.homes[home].path / target
                raise FileExistsError(f"{place} exists: it appeared meanwhile") from None
        self._sync()

    def commit(self) -> None:
        """Make the moves final. If this fails, they are not."""
        try:
            self._become(COMMITTED)
        except OSError:
            if self.state == COMMITTED:  # perhaps not on disk
                self._become(MOVING)
            raise

    def undo(self) -> None:
        """Undo the moves.

        Raises
        ------
        FileExistsError
            If a file of another process is in the place of an old file.
        """
        if self.state != MOVING:
            return
        for i in reversed(range(len(self.journal.moves))):
            self._undo(i)
        self._sync()
        self._become(OPEN)

    def _undo(self, i: int) -> None:
        home, target = self.journal.moves[i]
        staging = self.homes[home].staging
        new, old = f"{i}.new", f"{i}.old"
        try:
            folder, name = self._place(home, target)
        except OSError:
            if staging.status(old) is None:  # its folder was removed, and nothing is lost
                return
            raise
        if (there := folder.status(name)) is not None:
            staged, aside = staging.status(new), staging.status(old)
            if aside is not None and os.path.samestat(there, aside):
                return  # is back already
            if staged is None:  # `put` renamed it
                folder.rename(name, staging, new)
            elif os.path.samestat(there, staged):
                folder.unlink(name)
        if staging.status(old) is not None:
            try:
                staging.put(old, folder, name)
            except FileExistsError:
                path, kept = self.homes[home].path / target, self.homes[home].place / old
                raise FileExistsError(f"{path} is in the place of {kept}") from None

    def remove(self) -> None:
        """Remove the staging folders, the journal as the last; then folders that were made."""
        for home in reversed(self.homes):
            last = self.state if home is self.homes[0] else "primary"
            for name in home.staging.names():
                if name not in (last, "lock"):
                    home.staging.unlink(name)
            home.discard(last)
        if self.state == OPEN:
            for path in reversed(self.journal.made):
                with contextlib.suppress(OSError):  # another process uses it
                    change(os.rmdir, path)

    def end(self, kind: object = None, error: BaseException | None = None, *_: object) -> None:
        """Undo the moves unless they were committed, remove all staging folders, close."""
        with signals.deferred():
            try:
                self.undo()
                self.remove()
            except OSError as failure:
                if self.state != COMMITTED:  # otherwise, `recover` finishes
                    what = f"{failure}; unfinished files are in {self.homes[0].place}"
                    raise OSError(what) from error
            finally:
                self.close()

    def _become(self, state: str) -> None:
        """Rename the journal, and wait until this is on disk."""
        staging = self.homes[0].staging
        staging.rename(self.state, staging, state)
        self.state = state
        staging.sync()

    def _sync(self) -> None:
        for home in self.homes:
            home.root.sync()
            home.staging.sync()
        for folder in self._open.values():
            folder.sync()
