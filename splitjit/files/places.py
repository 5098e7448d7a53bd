"""Whether two paths are one place: the same name in the same folder."""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path

Place = tuple[int, int, str]


def places(paths: Iterable[Path]) -> list[Place]:
    """Return the place of each path. Two paths of one place have equal results.

    Links to folders are followed. A link in the place itself is not followed, because
    a new file replaces the link. If a folder ignores case, so does the result.

    Parameters
    ----------
    paths : iterable of Path
        The files and their folders need not exist.
    """
    folders: dict[Path, tuple[Path, bool]] = {}
    found = []
    for path in paths:
        if path.parent not in folders:
            resolved = Path(os.path.realpath(path.parent))
            there = next(p for p in (resolved, *resolved.parents) if p.is_dir())
            folders[path.parent] = resolved, _ignores_case(there)
        resolved, ignores_case = folders[path.parent]
        there = next(p for p in (resolved, *resolved.parents) if p.is_dir())
        name = (resolved / path.name).relative_to(there).as_posix()
        if ignores_case:
            name = unicodedata.normalize("NFC", name).casefold()
        status = there.stat()
        found.append((status.st_dev, status.st_ino, name))
    return found


def _ignores_case(folder: Path) -> bool:
    """Return whether a folder finds its files, or is found, under names in the other case."""
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
