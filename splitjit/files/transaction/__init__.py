"""All new files or none: stage them, move them into place, commit.

Each folder that gets new files holds a staging folder while this happens; `journal.py`
describes it. A transaction takes these steps:

1. Write a journal that lists all moves, and then the new files, beside it.
2. Wait until all new files are on disk. Rename the journal to `moving`.
3. Put the files aside that new files replace, and link the new files into place.
   A link never replaces a file.
4. Wait until all folders are on disk. Rename the journal to `committed`.
5. Remove the files that were put aside, the staging folders, and the journal as the last.

Until step 4 is done, a failure undoes all steps. Afterwards, step 5 is finished.
`recover` does the same for a process that was killed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import operator
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from splitjit.errors import SplitError
from splitjit.files.transaction import signals
from splitjit.files.transaction.disk import Changing, change, flush
from splitjit.files.transaction.journal import COMMITTED, OPEN, PREFIX, Journal, Staging
from splitjit.files.transaction.moves import Moves

_REFUSED_BY_WINDOWS = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?"  # devices
    r'|.*[<>:"|?*\0-\x1f].*'  # `a:b` is a stream of the file `a`
    r"|.*[. ]",  # Windows leaves these out
    re.IGNORECASE | re.DOTALL,
)
"""Names that Windows does not take as they are."""


@contextlib.contextmanager
def transaction(
    targets: Mapping[Path, Sequence[str]],
    *,
    force: bool = False,
    key: str = "",
    needed: Mapping[Path, int] | None = None,
) -> Iterator[Mapping[Path, Staged]]:
    """Write new files: all of them, or none.

    Parameters
    ----------
    targets : mapping of Path to sequence of str
        For each folder, the names of its new files. A name may contain folders, as
        in ``"rank-0/model.safetensors"``. Missing folders are made, and removed again
        if the transaction fails.
    force : bool, default False
        Whether new files may replace existing files.
    key : str, optional
        Identifies what is written. If a process is killed after the commit, `recover`
        returns the key, and the caller knows that nothing is left to be done.
    needed : mapping of Path to int, optional
        The least size of each target in bytes, to check that there is space.

    Yields
    ------
    mapping of Path to Staged
        The file to write for each target, by folder and name joined.

    Raises
    ------
    SplitError
        If Windows would write to a device, or to a file of another name.
    FileExistsError
        If a target exists, or if another process is writing one.
    OSError
        If something else prevents the files from being written.
    """
    _check_names(targets)
    _check_space(needed or {})
    with contextlib.ExitStack() as stack:
        stack.push(lambda kind, error, trace: _say_how_it_ended(error, moves))
        moves: Moves | None = None
        with signals.deferred():
            moves = _begin(targets, key)
            stack.push(moves.end)
        own = [(staging.path, staging.name) for staging in moves.stagings]
        busy = recover(targets, own).busy
        for target in moves.targets:
            if target in busy:
                raise FileExistsError(busy[target])
        check(moves.targets, force)
        moves.open_folders()
        given = [folder / name for folder, names in targets.items() for name in names]
        staged = [Staged(moves, i, target) for i, target in enumerate(given)]
        yield dict(zip(given, staged, strict=True))
        for file in staged:
            file.finish()
        with signals.deferred():
            moves.move(force)
            moves.commit()


COMPLETE = "all files are complete"
"""A note of the error if an interrupt came after the commit."""


def _say_how_it_ended(error: BaseException | None, moves: Moves | None) -> None:
    if isinstance(error, KeyboardInterrupt) and moves and moves.state == COMMITTED:
        error.add_note(COMPLETE)


def check(targets: Iterable[Path], force: bool) -> None:
    """Check that no target exists, or if `force`, that no target is a directory.

    Raises
    ------
    FileExistsError
        If a target exists.
    """
    for target in targets:
        if target.is_dir():
            raise FileExistsError(f"{target} is a directory")
        if os.path.lexists(target) and not force:
            raise FileExistsError(f"{target} exists; --force overwrites it")


def _check_names(targets: Mapping[Path, Sequence[str]]) -> None:
    """Check that the system makes files of these very names."""
    if sys.platform != "win32":
        return
    for folder, names in targets.items():
        for name in names:
            if any(_REFUSED_BY_WINDOWS.fullmatch(one) for one in re.split(r"[/\\]", name)):
                rule = "Windows has no files of this name: it is a device, or has other characters"
                raise SplitError("files", f"{folder / name}", rule)


def _check_space(needed: Mapping[Path, int]) -> None:
    """Check that each file system has space for all of its new files."""
    total: dict[int, int] = {}
    for target, nbytes in needed.items():
        folder = next(path for path in target.absolute().parents if path.is_dir())
        device = folder.stat().st_dev
        total[device] = total.get(device, 0) + nbytes
        free = shutil.disk_usage(folder).free
        if total[device] > free:
            need = f"this file and the files before it need {total[device]} bytes"
            raise OSError(errno.ENOSPC, f"no space for {target}: {need}, {free} bytes are free")


class Staged:
    """A new file that is not yet in its place."""

    def __init__(self, moves: Moves, index: int, target: Path) -> None:
        self._target = target
        self._folder = moves.stagings[moves.journal.moves[index][0]].inner
        self._name = f"{index}.new"
        self._inputs: list[os.stat_result] = []

    def open(self) -> IO[bytes]:
        """Open the file to write it from its start."""
        file = self._folder.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        return io.BufferedWriter(Changing(file, "wb", self._target))

    def append(self, start: int) -> Changing:
        """Open the file to go on at its end, which is known to be here."""
        file = Changing(self._folder.open(self._name, os.O_WRONLY), "wb", self._target)
        file.seek(start)
        return file

    def write_bytes(self, contents: bytes) -> None:
        """Write the whole file."""
        with self.open() as file:
            file.write(contents)

    def protect(self, *inputs: os.stat_result) -> None:
        """Let no user read or write the file who cannot read or write all of these files.

        If all of them have one owner or one group, the file gets it if possible.
        """
        self._inputs += inputs

    def finish(self) -> None:
        """Set the permissions, and wait until the file is on disk."""
        file = self._folder.open(self._name, os.O_WRONLY | os.O_CREAT)
        try:
            if self._inputs:
                self._set_permissions(file)
            change(flush, file)
        finally:
            os.close(file)

    def _set_permissions(self, file: int) -> None:
        if sys.platform == "win32":  # files have other permissions there
            return
        owners = {given.st_uid for given in self._inputs}
        groups = {given.st_gid for given in self._inputs}
        own = os.fstat(file)
        with contextlib.suppress(OSError):  # users may give files only to groups of theirs
            if len(groups) == 1 and {own.st_gid} != groups:
                change(os.fchown, file, -1, *groups)
        with contextlib.suppress(OSError):  # only root may give files away
            if len(owners) == 1 and {own.st_uid} != owners:
                change(os.fchown, file, *owners, -1)
        mode = functools.reduce(operator.and_, (given.st_mode for given in self._inputs))
        if groups != {os.fstat(file).st_gid}:  # the file has a group that could not read these
            mode &= ~0o070 | mode << 3
        change(os.fchmod, file, mode & 0o777)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover` found in folders.

    Attributes
    ----------
    finished : frozenset of str
        Keys of the committed transactions that it has finished.
    busy : dict of Path to str
        Targets that other processes are writing, and a message for each.
    """

    finished: frozenset[str]
    busy: dict[Path, str]


def recover(folders: Iterable[Path], own: Sequence[tuple[Path, str]] = ()) -> Recovered:
    """Undo or finish the transactions of killed processes in these folders.

    Parameters
    ----------
    folders : iterable of Path
        Folders that get new files. They need not exist.
    own : sequence of (Path, str), optional
        Folders and names of the staging folders of this process.

    Raises
    ------
    OSError
        If a transaction can be neither undone nor finished. The message names its folder.
    """
    finished: set[str] = set()
    busy: dict[Path, str] = {}
    for folder in dict.fromkeys([_resolved(folder) for folder in folders]):
        for name in os.listdir(folder) if folder.is_dir() else ():
            if name.startswith(PREFIX) and (folder, name) not in own:
                _recover(folder, name, finished, busy)
    return Recovered(frozenset(finished), busy)


def _recover(path: Path, name: str, finished: set[str], busy: dict[Path, str]) -> None:
    """Undo or finish one transaction, unless its process lives."""
    try:
        staging = Staging(path, name)
    except OSError:  # a file, a link, a folder of another user, or it was just removed
        return
    with contextlib.closing(staging), contextlib.suppress(FileNotFoundError):  # just removed
        if not staging.is_ours():
            return
        primary = staging.primary()
        if primary is not None:
            _recover(*primary, finished, busy)
        locked = staging.lock()
        if primary is not None:
            if locked and staging.inner.names() != ["lock", "primary"]:
                raise OSError(f"the journal of {staging.place} is missing: {Path(*primary)}")
            moves = Moves([staging], Journal("", [], []), state="primary")
        else:
            moves = Moves.load(staging)
        with contextlib.closing(moves), signals.deferred():
            if not locked:
                what = f"another process is writing into {staging.place}"
                if locked is None:  # a file system without locks
                    what += "; if none is running, move its .old files back and delete it"
                busy.update({target: f"{target}: {what}" for target in moves.targets})
                return
            if moves.state == COMMITTED:
                finished.add(moves.journal.key)
            moves.undo()
            moves.remove()


def _resolved(folder: Path) -> Path:
    return Path(os.path.realpath(folder))


def _begin(targets: Mapping[Path, Sequence[str]], key: str) -> Moves:
    """Make the folders and the staging folders, and write the journal."""
    folders = [*dict.fromkeys([_resolved(folder) for folder in targets])]
    moves: list[tuple[int, str]] = []
    for folder, names in targets.items():
        moves += [(folders.index(_resolved(folder)), name) for name in names]
    made: list[str] = []
    stagings: list[Staging] = []
    try:
        for folder in dict.fromkeys([*folders, *[(folders[i] / name).parent for i, name in moves]]):
            _make(folder, made)
        for folder in folders:
            stagings.append(Staging.make(folder))
            if len(stagings) > 1:
                pointer = str(stagings[0].path), stagings[0].name
                stagings[-1].inner.write("primary", json.dumps(pointer).encode())
        journal = Journal(
            key, [(str(staging.path), staging.name) for staging in stagings], moves, made
        )
        stagings[0].inner.write(OPEN, journal.dump())
        return Moves(stagings, journal)
    except BaseException:
        Moves(stagings, Journal(key, [], [], made)).end()
        raise


def _make(folder: Path, made: list[str]) -> None:
    """Make a folder and its parents, and append those that did not exist."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    for path in reversed(missing):
        try:
            change(os.mkdir, path)
            made.append(str(path))
        except FileExistsError:  # another process has just made it
            if not path.is_dir():
                raise
