"""All new files or none: write them in a staging folder, then move them into place.

Meanwhile, each output folder holds a staging folder `.splitjit-…`:

    lock            locked by the process that writes; it names the inode of its folder
    0.new, 1.new    new files
    0.old, 1.old    hard links to the files that new files replace

Once all new files are on disk, they are moved one by one. Signals interrupt what writes the data.
Otherwise they wait until the last file is in place and the staging folder is gone. Without `force`,
a file is hard-linked to its target, since a link never replaces a file. With `force`, it is
renamed, so the target is always either the old file or the new one. If a move fails, this process
undoes the moves it remembers. No undo list is kept on disk: a stranger's folder could list
anything.

The next process that writes there removes what a killed one has left, see `staging_folder.sweep`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from splitjit._files import places, signals, staging_folder
from splitjit._files.disk import Folder, NewFile, change, flush
from splitjit._files.signals import Waiting
from splitjit._files.staging_folder import StagingFolder

COMPLETE = "all files are complete"
"""The note on an interrupt that came after the last file was in place."""


def write(
    targets: Mapping[Path, Sequence[str]],
    body: Callable[[Mapping[Path, Staged]], None],
    *,
    force: bool = False,
    needed: Mapping[Path, int] | None = None,
) -> None:
    """Write new files by `body`, all of them or none; signals interrupt only `body`."""
    complete = False

    def work(waiting: Waiting) -> None:
        nonlocal complete
        with stage(targets, force=force, needed=needed, waiting=waiting) as staged:
            try:
                waiting.waits = False
                waiting.pause()
                body(staged)
            finally:
                waiting.waits = True
        complete = True

    try:
        signals.deferred(work)
    except KeyboardInterrupt as interrupt:
        if complete:
            interrupt.add_note(COMPLETE)
        raise


@contextlib.contextmanager
def stage(
    targets: Mapping[Path, Sequence[str]],
    *,
    force: bool = False,
    needed: Mapping[Path, int] | None = None,
    waiting: Waiting | None = None,
) -> Iterator[Mapping[Path, Staged]]:
    """Write new files: all of them, or none.

    Parameters
    ----------
    targets : mapping of Path to sequence of str
        For each folder, the names of its new files. A name may contain folders, as
        in ``"rank-0/model.safetensors"``. Missing folders are made, and removed again
        if the files are not written.
    force : bool, default False
        Whether new files may replace existing files.
    needed : mapping of Path to int, optional
        The least size of each target in bytes, to check that there is space.
    waiting : Waiting, optional
        The signals that wait.

    Yields
    ------
    mapping of Path to Staged
        The file to write for each target, by folder and name joined.

    Raises
    ------
    SplitError
        If Windows would write to a device, or to a file of another name.
    FileExistsError
        If a target exists.
    OSError
        If something else prevents the files from being written.
    """
    places.check_names(targets)
    places.check_space(needed or {})
    staging_folder.sweep(targets)
    given = [folder / name for folder, names in targets.items() for name in names]
    places.check_targets(given, force)
    waiting = waiting or Waiting()
    with contextlib.closing(_Place(waiting)) as place:
        place.make(targets)
        yield {file.path: file for file in place.files}
        for file in place.files:
            waiting.pause()
            file.finish()
        waiting.pause()
        place.move(force)


class Staged:
    """A new file that is not yet in place.

    Attributes
    ----------
    path : Path
        The target, as the user names it.
    inner : Folder
        The staging folder.
    new, old : str
        The name of the new file there, and the second name of the file that it replaces.
    folder : Folder
        The folder of the target.
    name : str
        The name of the target there.
    """

    def __init__(
        self, path: Path, inner: Folder, number: int, folder: Folder, waiting: Waiting
    ) -> None:
        self.path = path
        self.inner = inner
        self.new, self.old = f"{number}.new", f"{number}.old"
        self.folder = folder
        self.name = path.name
        self._inputs: list[os.stat_result] = []
        self._status: os.stat_result | None = None
        self._lost = False
        self._waiting = waiting

    def open(self) -> IO[bytes]:
        """Open the file for writing from its start."""
        return io.BufferedWriter(self._opened(os.O_WRONLY | os.O_CREAT | os.O_TRUNC))

    def append(self, start: int) -> NewFile:
        """Reopen the file to append at its end, which is at `start`."""
        file = self._opened(os.O_WRONLY)
        file.seek(start)
        return file

    def _opened(self, flags: int) -> NewFile:
        return self._waiting.opened(lambda: NewFile(self.inner.open(self.new, flags), self.path))

    def write_bytes(self, contents: bytes) -> None:
        """Write the whole file."""
        with self.open() as file:
            file.write(contents)

    def protect(self, *inputs: os.stat_result) -> None:
        """Grant no more access than every input grants.

        If all inputs share an owner or a group, the file gets it if possible.
        """
        self._inputs += inputs

    def finish(self) -> None:
        """Set the permissions, and wait until the file is on disk."""
        file = self.inner.open(self.new, os.O_WRONLY | os.O_CREAT)
        try:
            self._set_permissions(file)
            change(flush, file)
            self._status = os.fstat(file)
        finally:
            os.close(file)

    def _set_permissions(self, file: int) -> None:
        if sys.platform == "win32" or not self._inputs:  # Windows has other permissions
            return
        owners = {given.st_uid for given in self._inputs}
        groups = {given.st_gid for given in self._inputs}
        own = os.fstat(file)
        with contextlib.suppress(OSError):  # users may give files only to their own groups
            if len(groups) == 1 and {own.st_gid} != groups:
                change(os.fchown, file, -1, *groups)
        with contextlib.suppress(OSError):  # only root may give files away
            if len(owners) == 1 and {own.st_uid} != owners:
                change(os.fchown, file, *owners, -1)
        mode = functools.reduce(operator.and_, (given.st_mode for given in self._inputs))
        if groups != {os.fstat(file).st_gid}:  # another group: it gets no more than others get
            mode &= ~0o070 | mode << 3
        change(os.fchmod, file, mode & 0o777)

    def move(self, force: bool) -> None:
        """Move the file into its place."""
        if force:
            if self.folder.status(self.name) is not None:
                self._lost = not self.folder.link(self.name, self.inner, self.old)
            self.inner.replace(self.new, self.folder, self.name)
            return
        try:
            if not self.inner.link(self.new, self.folder, self.name):
                if self.folder.status(self.name) is not None:
                    raise FileExistsError
                self.inner.replace(self.new, self.folder, self.name)
        except FileExistsError:
            raise FileExistsError(f"{self.path} exists: it appeared meanwhile") from None

    def undo(self) -> None:
        """Undo the move, unless another process has put its own file there."""
        there = self.folder.status(self.name)
        if there is None or self._status is None or not os.path.samestat(there, self._status):
            return
        if self.inner.status(self.old) is not None:
            self.inner.replace(self.old, self.folder, self.name)
        elif not self._lost:
            self.folder.unlink(self.name)


class _Place:
    """The folders of all targets, with a staging folder in each folder the user names.

    Attributes
    ----------
    files : list of Staged
    moved : bool
        Whether all files are in place.
    """

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self.files: list[Staged] = []
        self.moved = False
        self._folders: dict[Path, Folder] = {}
        self._stagings: dict[Path, StagingFolder] = {}
        self._cleanup = contextlib.ExitStack()  # the last callback runs first

    def make(self, targets: Mapping[Path, Sequence[str]]) -> None:
        """Make and open all folders."""
        for folder, names in targets.items():
            root = _resolved(folder)
            outer = self._root(root)
            if root not in self._stagings:
                self._stagings[root] = StagingFolder.make(outer)
                self._cleanup.callback(self._stagings[root].remove)
            for name in names:
                parent = outer
                for part in Path(name).parts[:-1]:
                    parent = self._below(parent, part)
                inner = self._stagings[root].inner
                numbered = inner, len(self.files), parent
                self.files.append(Staged(folder / name, *numbered, self._waiting))

    def _root(self, path: Path) -> Folder:
        try:
            return self._folders.get(path) or self._keep(Folder(path))
        except FileNotFoundError:
            return self._below(self._root(path.parent), path.name)

    def _keep(self, folder: Folder) -> Folder:
        self._folders[folder.path] = self._cleanup.enter_context(folder)
        return folder

    def _below(self, parent: Folder, name: str) -> Folder:
        """Open a folder in another one, and make it if it is missing. It must not be a link."""
        if parent.path / name in self._folders:
            return self._folders[parent.path / name]
        if parent.status(name) is None:
            with contextlib.suppress(FileExistsError):  # another process has just made it
                parent.mkdir(name)
                self._cleanup.callback(self._remove_made, parent, name)
        return self._keep(parent.folder(name))

    def _remove_made(self, parent: Folder, name: str) -> None:
        if not self.moved:
            staging_folder.remove_empty(parent, name)

    def move(self, force: bool) -> None:
        """Move all files into their places, and wait until all names are on disk."""
        begun: list[Staged] = []
        try:
            for file in self.files:
                begun.append(file)
                file.move(force)
            for folder in self._folders.values():
                folder.sync()
        except BaseException as error:
            for file in reversed(begun):
                try:
                    file.undo()
                except OSError as failure:  # go on with the others
                    error.add_note(f"{file.path} is new: {failure}")
            raise
        self.moved = True

    def close(self) -> None:
        """Remove the staging folders, and the folders that were made in vain."""
        self._cleanup.close()


def _resolved(folder: Path) -> Path:
    return Path(os.path.realpath(folder))
