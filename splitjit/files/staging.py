"""Write new files in a staging folder, then move them into place.

Each folder of new files holds a staging folder ``.splitjit-…`` meanwhile. Once all new files are on
disk, they are moved one by one. Without `force`, a file is hard-linked to its target, since a link
never replaces a file. With `force`, it is renamed, so the target is always either the old file or
the new one. Whatever ends the process, an error, Ctrl-C, a kill or a power loss: until the first
move, no target has changed; from then on, each is complete, old or new, and the same call with
`force` finishes.

A process removes its own staging folders, and no others: it names those that a killed one has left.
No two new files may have the same place, and none may replace an input.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from splitjit.errors import SplitError
from splitjit.files import disk
from splitjit.files.disk import NewFile, change, flush

StrPath = str | os.PathLike[str]
"""A path as users give it."""

_PREFIX = ".splitjit-"

COMPLETE = "all files are complete"
PARTLY = "each file is complete, old or new; the same call with force=True, or --force, finishes"
"""Notes on an error or an interrupt that came after the first move."""


@contextlib.contextmanager
def stage(targets: Sequence[Path], force: bool = False) -> Iterator[Mapping[Path, Staged]]:
    """Write new files: the ``with`` block writes them, and then they are moved.

    Parameters
    ----------
    targets : sequence of Path
        The new files, in the order in which they are moved. If `force`, one may be given twice:
        first it is empty. Missing folders are made, and removed again if the files are not
        written.
    force : bool, default False
        Whether new files may replace existing files.

    Yields
    ------
    mapping of Path to Staged
        The file to write for each target.

    Raises
    ------
    SplitError
        If Windows would write to a device, or to a file of another name.
    FileExistsError
        If a target exists.
    OSError
        If something else prevents the files from being written.
    """
    check_names(targets)
    folders = dict.fromkeys([path.parent for path in targets])
    _name_leftovers(folders)
    check_targets(targets, force)
    note = ""
    try:
        with contextlib.ExitStack() as cleanup:  # the last callback runs first
            made = {folder: _make_staging(folder, cleanup) for folder in folders}
            files = [Staged(one, made[one.parent] / f"{i}.new") for i, one in enumerate(targets)]
            yield {file.path: file for file in files}
            for file in files:
                file.finish()
            check_targets(targets, force)  # again, before the first move
            note = PARTLY
            for file in files:
                file.move(force)
            for folder in folders:
                disk.sync(folder)
            note = COMPLETE
    except BaseException as error:
        if note:
            error.add_note(note)
        raise


def _name_leftovers(folders: Iterable[Path]) -> None:
    """Say which staging folders there are, and how to remove them."""
    roots = dict.fromkeys(map(os.path.realpath, folders))
    found = [str(path) for root in roots for path in sorted(Path(root).glob(f"{_PREFIX}*"))]
    if found:
        import logging

        said = "an earlier command was killed, unless it still runs; this removes its files: rm -r"
        logging.getLogger("splitjit").warning(f"{said} %s", shlex.join(found))


class Staged:
    """A new file that is not yet in place.

    Attributes
    ----------
    path : Path
        The target, as the user names it.
    """

    def __init__(self, path: Path, new: Path) -> None:
        self.path, self._new = path, new
        self._inputs: list[os.stat_result] = []

    def open(self, start: int = 0) -> NewFile:
        """Open the file for writing from its start, or at its end, which is at `start`."""
        return change(NewFile, self._new, self.path, start)

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
        with open(self._new, "ab", buffering=0) as file:
            self._set_permissions(file.fileno())
            change(flush, file.fileno())

    def _set_permissions(self, file: int) -> None:
        if sys.platform == "win32" or not self._inputs:  # Windows has other permissions
            return
        owners = {given.st_uid for given in self._inputs}
        groups = {given.st_gid for given in self._inputs}
        own = os.fstat(file)
        # Users may give files only to their own groups, and only root may give files away.
        for ids, held in (((-1, *groups), own.st_gid), ((*owners, -1), own.st_uid)):
            if len(ids) == 2 and held not in ids:
                with contextlib.suppress(OSError):
                    change(os.fchown, file, *ids)
        mode = 0o777
        for given in self._inputs:
            mode &= given.st_mode
        if groups != {os.fstat(file).st_gid}:  # another group: it gets no more than others get
            mode &= ~0o070 | mode << 3
        change(os.fchmod, file, mode)

    def move(self, force: bool) -> None:
        """Move the file into its place."""
        try:
            if not force:
                with disk.tolerated():
                    change(os.link, self._new, self.path)
                    return
                if os.path.lexists(self.path):  # this file system has no hard links
                    raise FileExistsError
            change(os.replace, self._new, self.path)
        except FileExistsError:
            raise FileExistsError(f"{self.path} exists: it appeared meanwhile") from None


def _make_staging(folder: Path, cleanup: contextlib.ExitStack) -> Path:
    """Make a folder if it is missing, and a staging folder in it."""
    root = Path(os.path.realpath(folder))
    _make_folder(root, cleanup)
    staging = Path(change(tempfile.mkdtemp, prefix=_PREFIX, dir=root))
    cleanup.callback(_tried, shutil.rmtree, staging)
    return staging


def _make_folder(folder: Path, cleanup: contextlib.ExitStack) -> None:
    """Make a folder and those above it, as far as they are missing."""
    if not folder.is_dir():
        _make_folder(folder.parent, cleanup)
        with contextlib.suppress(FileExistsError):  # another process has just made it
            change(os.mkdir, folder)
            cleanup.callback(_tried, os.rmdir, folder)  # if it stays empty
        if not folder.is_dir():
            raise NotADirectoryError(f"{folder} must be a folder")
        disk.sync(folder.parent)


def _tried(remove: Callable[[Path], None], path: Path) -> None:
    """Remove a folder if possible."""
    with contextlib.suppress(OSError):
        change(remove, path)


# ---- where new files may go ---------------------------------------------------------------

_REFUSED_BY_WINDOWS = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?"  # devices
    r'|.*[<>:"|?*\0-\x1f].*'  # `a:b` is a stream of the file `a`
    r"|.*[. ]",  # Windows drops these
    re.IGNORECASE | re.DOTALL,
)
"""Names that Windows refuses or changes."""


def _place(path: Path) -> tuple[int, int, str]:
    """Return the place of a path, which need not exist. Paths to the same place have the same.

    Links to folders are followed. A link at the path itself is not, because a new file replaces
    it. Names that differ only in case are the same place, as they are on some file systems.
    """
    folder = Path(os.path.realpath(path.parent))
    there = next(one for one in (folder, *folder.parents) if one.is_dir())
    status, name = there.stat(), os.path.relpath(folder / path.name, there)
    return status.st_dev, status.st_ino, unicodedata.normalize("NFC", name).casefold()


def check_targets(targets: Iterable[Path], force: bool) -> None:
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
            raise FileExistsError(f"{target} exists; force=True, or --force, overwrites it")


def check_names(targets: Iterable[Path]) -> None:
    """Check that the system keeps the names of new files as they are."""
    for target in targets:
        if sys.platform == "win32" and _REFUSED_BY_WINDOWS.fullmatch(target.name):
            rule = "Windows has no files of this name: it is a device, or has other characters"
            raise SplitError("files", str(target), rule)


def check_places(inputs: Iterable[Path], made: Iterable[tuple[Path, Path]]) -> None:
    """Check that no two outputs have the same place, and that no output replaces an input.

    Parameters
    ----------
    inputs : iterable of Path
    made : iterable of (Path, Path)
        For each output, the input from which it is made, and the output.

    Raises
    ------
    SplitError
        If two outputs have the same place, or if an output replaces an input.
    """
    replaced = {_place(path): given for given in inputs for path in (given, given.resolve())}
    owners: dict[tuple[int, int, str], Path] = {}
    for source, target in made:
        place = _place(target)
        if place in replaced:
            rule = f"{target} would replace an input, {replaced[place]}"
            raise SplitError("split", str(source), rule)
        if place in owners:
            rule = f"both would write {target} (case does not count); write them into "
            rule += "different folders"
            raise SplitError("split", f"{owners[place]} and {source}", rule)
        owners[place] = source
