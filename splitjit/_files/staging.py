"""Write new files in a staging folder, then move them into place.

Each output folder holds a staging folder ``.splitjit-…`` meanwhile. Once all new files are on disk,
they are moved one by one. Without `force`, a file is hard-linked to its target, since a link never
replaces a file. With `force`, it is renamed, so the target is always either the old file or the new
one. Whatever ends the process, an error, Ctrl-C, a kill or a power loss: until the first move, no
target has changed; from then on, each is complete, old or new, and the same call with `force`
finishes.

A process removes its own staging folders, and no others: it names those that a killed one has left.
"""

from __future__ import annotations

import contextlib
import functools
import io
import operator
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from splitjit._files import places
from splitjit._files.disk import Folder, NewFile, change, flush
from splitjit._runtime.events import warn

_PREFIX = ".splitjit-"

COMPLETE = "all files are complete"
PARTLY = "each file is complete, old or new; the same call with force=True finishes"
"""Notes on an error or an interrupt that came after the first move."""


@contextlib.contextmanager
def stage(
    targets: Mapping[Path, Sequence[str]],
    *,
    force: bool = False,
    needed: Mapping[Path, int] | None = None,
) -> Iterator[Mapping[Path, Staged]]:
    """Write new files: the ``with`` block writes them, and then they are moved.

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
    _name_leftovers(targets)
    given = [folder / name for folder, names in targets.items() for name in names]
    places.check_targets(given, force)
    note = ""
    try:
        with contextlib.closing(_Place()) as place:
            place.make(targets)
            yield {file.path: file for file in place.files}
            for file in place.files:
                file.finish()
            places.check_targets(given, force)  # again, before the first move
            note = PARTLY
            place.move(force)
            note = COMPLETE
    except BaseException as error:
        if note:
            error.add_note(note)
        raise


def _name_leftovers(folders: Iterable[Path]) -> None:
    """Say which staging folders there are, and how to remove them."""
    found = []
    for folder in {Path(os.path.realpath(folder)): None for folder in folders}:
        with contextlib.suppress(OSError):
            names = sorted(os.listdir(folder))
            found += [str(folder / name) for name in names if name.startswith(_PREFIX)]
    if found:
        said = (
            "an earlier command was killed, unless it still runs; this removes its files: rm -r %s"
        )
        warn(said, shlex.join(found))


class Staged:
    """A new file that is not yet in place.

    Attributes
    ----------
    path : Path
        The target, as the user names it.
    """

    def __init__(self, path: Path, inner: Folder, number: int, folder: Folder) -> None:
        self.path = path
        self._inner, self._new, self._folder = inner, f"{number}.new", folder
        self._inputs: list[os.stat_result] = []

    def open(self) -> IO[bytes]:
        """Open the file for writing from its start."""
        return io.BufferedWriter(self._opened(os.O_WRONLY | os.O_CREAT | os.O_TRUNC))

    def append(self, start: int) -> NewFile:
        """Reopen the file to append at its end, which is at `start`."""
        file = self._opened(os.O_WRONLY)
        file.seek(start)
        return file

    def _opened(self, flags: int) -> NewFile:
        return NewFile(self._inner.open(self._new, flags), self.path)

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
        file = self._inner.open(self._new, os.O_WRONLY | os.O_CREAT)
        try:
            self._set_permissions(file)
            change(flush, file)
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
        inner, folder, name = self._inner, self._folder, self.path.name
        try:
            if force or not inner.link(self._new, folder, name):
                if not force and folder.has(name):
                    raise FileExistsError
                inner.replace(self._new, folder, name)
        except FileExistsError:
            raise FileExistsError(f"{self.path} exists: it appeared meanwhile") from None

    def remove(self) -> None:
        """Remove the file from the staging folder."""
        with contextlib.suppress(OSError):
            self._inner.unlink(self._new)


class _Place:
    """The folders of all targets, with a staging folder in each folder the user names.

    Attributes
    ----------
    files : list of Staged
    """

    def __init__(self) -> None:
        self.files: list[Staged] = []
        self._folders: dict[Path, Folder] = {}
        self._stagings: dict[Path, Folder] = {}
        self._cleanup = contextlib.ExitStack()  # the last callback runs first

    def make(self, targets: Mapping[Path, Sequence[str]]) -> None:
        """Make and open all folders."""
        for folder, names in targets.items():
            root = Path(os.path.realpath(folder))
            outer = self._root(root)
            if root not in self._stagings:
                name = os.path.basename(change(tempfile.mkdtemp, prefix=_PREFIX, dir=root))
                self._cleanup.callback(_remove_empty, outer, name)
                self._stagings[root] = self._cleanup.enter_context(outer.folder(name))
            for name in names:
                parent = outer
                for part in Path(name).parts[:-1]:
                    parent = self._below(parent, part)
                file = Staged(folder / name, self._stagings[root], len(self.files), parent)
                self.files.append(file)

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
        if not parent.has(name):
            with contextlib.suppress(FileExistsError):  # another process has just made it
                parent.mkdir(name)
                self._cleanup.callback(_remove_empty, parent, name)
        return self._keep(parent.folder(name))

    def move(self, force: bool) -> None:
        """Move all files into their places, and wait until all names are on disk."""
        for file in self.files:
            file.move(force)
        for folder in self._folders.values():
            folder.sync()

    def close(self) -> None:
        """Remove the staging folders, and the folders that were made in vain."""
        for file in self.files:
            file.remove()
        self._cleanup.close()


def _remove_empty(outer: Folder, name: str) -> None:
    """Remove a folder if it is empty."""
    with contextlib.suppress(OSError):
        outer.rmdir(name)
