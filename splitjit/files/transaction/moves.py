"""A transaction on disk: its steps, and the way back."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from splitjit.files.transaction import signals
from splitjit.files.transaction.disk import Folder, change
from splitjit.files.transaction.journal import COMMITTED, MOVING, OPEN, STATES, Journal, Staging


class Moves:
    """A transaction on disk, of this process or of a killed one.

    Parameters
    ----------
    stagings : list of Staging
        The staging folders. The first one holds the journal.
    journal : Journal

    Attributes
    ----------
    state : str
        The name of the journal.
    """

    def __init__(self, stagings: list[Staging], journal: Journal, state: str = OPEN) -> None:
        self.stagings = stagings
        self.journal = journal
        self.state = state
        self._open: dict[tuple[int, str], Folder] = {}

    @classmethod
    def load(cls, staging: Staging) -> Moves:
        """Read the journal of a killed process.

        Raises
        ------
        OSError
            If files were moved and a folder is missing, or if the journal is damaged.
        """
        names = staging.inner.names()
        state = next((state for state in STATES if state in names), OPEN)
        try:
            journal = Journal.load(staging.inner.read(state))
        except (FileNotFoundError, ValueError, KeyError, TypeError) as error:
            if state != OPEN:
                raise OSError(f"{staging.place / state} is damaged: {error!r}") from error
            return cls([staging], Journal("", [(str(staging.path), staging.name)], []))
        stagings = [staging]
        moves = cls(stagings, journal, state)
        for path, name in journal.stagings[1:]:
            try:
                stagings.append(Staging(Path(path), name))
            except OSError as error:
                if state == MOVING or not isinstance(error, FileNotFoundError):
                    moves.close()
                    raise OSError(
                        f"{Path(path, name)}, which {staging.place} names: {error}"
                    ) from error
        return moves

    @property
    def targets(self) -> list[Path]:
        """The target of each move."""
        return [Path(self.journal.stagings[i][0], name) for i, name in self.journal.moves]

    def close(self) -> None:
        """Close all folders."""
        for folder in self._open.values():
            folder.close()
        self._open.clear()
        for staging in self.stagings:
            staging.close()

    def _place(self, number: int, target: str) -> tuple[Folder, str]:
        """Return the open folder of a target, and its name there. No folder may be a link."""
        *folders, name = target.split("/")
        folder = self.stagings[number].outer
        for i, inner in enumerate(folders, 1):
            key = number, "/".join(folders[:i])
            if key not in self._open:
                self._open[key] = folder.folder(inner)
            folder = self._open[key]
        return folder, name

    def open_folders(self) -> None:
        """Open the folder of each target, before anything is written."""
        for number, target in self.journal.moves:
            self._place(number, target)

    def move(self, force: bool) -> None:
        """Move the new files into place, and wait until all names are on disk."""
        for path in self.journal.made:
            with Folder(Path(path).parent) as parent:
                parent.sync()
        self._sync()
        self._become(MOVING)
        for i, (number, target) in enumerate(self.journal.moves):
            staging = self.stagings[number].inner
            folder, name = self._place(number, target)
            if force and folder.status(name) is not None:
                folder.rename(name, staging, f"{i}.old")
            try:
                staging.put(f"{i}.new", folder, name)
            except FileExistsError:
                place = self.stagings[number].path / target
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
        number, target = self.journal.moves[i]
        staging = self.stagings[number].inner
        new, old = f"{i}.new", f"{i}.old"
        try:
            folder, name = self._place(number, target)
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
                path, kept = self.stagings[number].path / target, self.stagings[number].place / old
                raise FileExistsError(f"{path} is in the place of {kept}") from None

    def remove(self) -> None:
        """Remove the staging folders, the journal as the last; then folders that were made."""
        for staging in reversed(self.stagings):
            last = self.state if staging is self.stagings[0] else "primary"
            for name in staging.inner.names():
                if name not in (last, "lock"):
                    staging.inner.unlink(name)
            staging.discard(last)
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
                    what = f"{failure}; unfinished files are in {self.stagings[0].place}"
                    raise OSError(what) from error
            finally:
                self.close()

    def _become(self, state: str) -> None:
        """Rename the journal, and wait until this is on disk."""
        staging = self.stagings[0].inner
        staging.rename(self.state, staging, state)
        self.state = state
        staging.sync()

    def _sync(self) -> None:
        for staging in self.stagings:
            staging.outer.sync()
            staging.inner.sync()
        for folder in self._open.values():
            folder.sync()
