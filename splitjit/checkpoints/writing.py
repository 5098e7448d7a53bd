"""Write planned files, their indexes and the copies of small files: all of them, or none."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from splitjit.checkpoints.record import MANIFEST
from splitjit.files.plan import FilePlan, SplitFiles
from splitjit.files.splitting import Count, Progress, write_parts
from splitjit.files.staging import stage

if TYPE_CHECKING:
    from splitjit.checkpoints.joining import JoinedFiles


def write(planned: SplitFiles | JoinedFiles, force: bool, progress: Progress | None = None) -> None:
    """Write all files of a plan, or none.

    Parameters
    ----------
    planned : SplitFiles or JoinedFiles
    force : bool
        Whether new files may overwrite existing files.
    progress : callable, optional

    Raises
    ------
    OSError
        If a target exists, or if the files cannot be written.
    SplitError
        If a file is damaged, or changes while it is read.
    """
    if not planned.targets:
        return
    needed = {target: size for file in planned.files for target, size in file.sizes.items()}
    count = _counter(progress, planned.nbytes)
    folders = _by_folder(planned.targets, planned.levels)
    with stage(folders, force=force, needed=needed) as staged:
        for file in planned.files:
            if not isinstance(file, FilePlan):
                from splitjit.files.joining import write_joined

                write_joined(file, staged[file.target], count)
            elif file.targets:
                write_parts(file, [staged[target] for target in file.targets], count)
        for path, content in planned.indexes:
            staged[path].write_bytes(content)
        for target, path in planned.copies:
            import shutil  # takes 2 ms

            with open(path, "rb") as read, staged[target].open() as written:
                staged[target].protect(os.fstat(read.fileno()))
                shutil.copyfileobj(read, written)


def _counter(progress: Progress | None, total: int) -> Count:
    """Return a function that adds up the bytes written, and reports the sum."""
    written = 0

    def count(nbytes: int) -> None:
        nonlocal written
        written += nbytes
        if progress is not None:
            progress(written, total)

    return count


def _by_folder(targets: Iterable[Path], levels: int) -> dict[Path, list[str]]:
    """Return the names of the files to write, by the folder from which `levels` folders lead.

    They are moved in this order: the manifest of the first rank before all others, that of the last
    rank after them. If the process is killed in between, these two manifests contradict each other,
    and `join` refuses the ranks.
    """
    names: dict[Path, list[str]] = {}
    for target in targets:
        folder = target.parents[levels]
        names.setdefault(folder, []).append(target.relative_to(folder).as_posix())
    for own in names.values():
        first, *others = [name for name in own if name.endswith(f"/{MANIFEST}")] or [""]
        own.sort(key=lambda name: (name == first, name not in others[-1:]), reverse=True)
    return names
