"""Whether two paths are the same place, and whether new files may go there."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from splitjit.errors import SplitError

FORCING = "force=True"
"""How a caller in Python says that new files may replace others."""

StrPath = str | os.PathLike[str]
"""A path as users give it."""

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


def check_targets(targets: Iterable[Path], force: bool, forcing: str = FORCING) -> None:
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
            raise FileExistsError(f"{target} exists; {forcing} overwrites it")


def check_names(targets: Mapping[Path, Sequence[str]]) -> None:
    """Check that the system keeps these names as they are."""
    if sys.platform != "win32":
        return
    for folder, names in targets.items():
        for name in names:
            if any(_REFUSED_BY_WINDOWS.fullmatch(one) for one in re.split(r"[/\\]", name)):
                rule = "Windows has no files of this name: it is a device, or has other characters"
                raise SplitError("files", f"{folder / name}", rule)


def check_places(files: Sequence[tuple[Sequence[Path], Sequence[Path]]]) -> None:
    """Check that no two outputs have the same place, and that no output replaces an input.

    Parameters
    ----------
    files : sequence of (sequence of Path, sequence of Path)
        Inputs, and the outputs made from them.

    Raises
    ------
    SplitError
        If two outputs have the same place, or if an output replaces an input.
    """
    inputs = [path for paths, _ in files for path in paths]
    replaced = {_place(path): given for given in inputs for path in (given, given.resolve())}
    owners: dict[tuple[int, int, str], Path] = {}
    for paths, targets in files:
        for target in targets:
            place = _place(target)
            if place in replaced:
                rule = f"{target} would replace an input, {replaced[place]}"
                raise SplitError("split", str(paths[0]), rule)
            if place in owners:
                rule = f"both would write {target} (case does not count); write them into "
                rule += "different folders"
                raise SplitError("split", f"{owners[place]} and {paths[0]}", rule)
            owners[place] = paths[0]
