"""Whether two paths are the same place, and whether new files may go there."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from splitjit.errors import SplitError

StrPath = str | os.PathLike[str]
"""A path as users give it."""

Place = tuple[int, int, str]

_REFUSED_BY_WINDOWS = re.compile(
    r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?"  # devices
    r'|.*[<>:"|?*\0-\x1f].*'  # `a:b` is a stream of the file `a`
    r"|.*[. ]",  # Windows drops these
    re.IGNORECASE | re.DOTALL,
)
"""Names that Windows refuses or changes."""


def places(paths: Iterable[Path]) -> list[Place]:
    """Return the place of each path. Paths to the same place have equal results.

    Links to folders are followed. A link at the path itself is not, because a new file
    replaces it. If a folder ignores case, so does the result.

    Parameters
    ----------
    paths : iterable of Path
        The files and their folders need not exist.
    """
    folders: dict[Path, tuple[os.stat_result, Path, bool]] = {}
    found = []
    for path in paths:
        if path.parent not in folders:
            resolved = Path(os.path.realpath(path.parent))
            there = next(p for p in (resolved, *resolved.parents) if p.is_dir())
            folders[path.parent] = there.stat(), resolved.relative_to(there), _ignores_case(there)
        status, missing, ignores_case = folders[path.parent]
        name = (missing / path.name).as_posix()
        if ignores_case:
            name = unicodedata.normalize("NFC", name).casefold()
        found.append((status.st_dev, status.st_ino, name))
    return found


def _ignores_case(folder: Path) -> bool:
    """Return whether a folder finds its files, or is found itself, in the other case."""
    for place in (folder, folder.parent):
        with contextlib.suppress(OSError):
            names = os.listdir(place)
            for name in [folder.name] if place != folder else names:
                other = name.swapcase()
                if other != name:
                    return other not in names and os.path.samestat(
                        os.lstat(place / name), os.lstat(place / other)
                    )
    return False


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
            raise FileExistsError(f"{target} exists; force=True overwrites it")


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
    replaced = dict(zip(places(inputs), inputs, strict=True))
    replaced |= dict(zip(places([path.resolve() for path in inputs]), inputs, strict=True))
    owners: dict[Place, Path] = {}
    for paths, targets in files:
        for target, place in zip(targets, places(targets), strict=True):
            if place in replaced:
                rule = f"{target} would replace an input, {replaced[place]}"
                raise SplitError("split", str(paths[0]), rule)
            if place in owners:
                rule = f"both would write {target}; write them into different folders"
                raise SplitError("split", f"{owners[place]} and {paths[0]}", rule)
            owners[place] = paths[0]
