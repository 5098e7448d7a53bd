"""Write the parts of files, or the joined files: all of them, or none."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from splitjit.files import tiles
from splitjit.files.formats.base import TensorFile
from splitjit.files.joined import JoinedFile, JoinedFiles
from splitjit.files.plan import FilePlan, SplitFiles
from splitjit.files.reading import Readers, assemble, make_buffer, make_buffers
from splitjit.files.record import MANIFEST
from splitjit.files.staging import Staged, stage

Count = Callable[[int], object]
"""Called with the number of bytes written since the last call."""


def write_split(planned: SplitFiles, force: bool, count: Count) -> None:
    """Write the parts of all files, and the indexes: all of them, or none.

    Parameters
    ----------
    planned : SplitFiles
    force : bool
        Whether parts may overwrite existing files.
    count : callable

    Raises
    ------
    OSError
        If a target exists, or if the parts cannot be written.
    SplitError
        If a file is damaged, or changes while it is read.
    """
    needed = {
        target: 0 if file.tensors[0].file.compressed else file.part_nbytes(i)
        for file in planned.files
        for i, target in enumerate(file.targets)
    }
    if not planned.targets:
        return
    targets = _by_folder(planned.targets, planned.levels)
    with stage(targets, force=force, needed=needed) as staged:
        for file in planned.files:
            if file.targets:
                _split(file, [staged[target] for target in file.targets], count)
        _write_indexes(planned.indexes, staged)
        _copy_files(planned.copies, staged)


def write_join(joined: JoinedFiles, force: bool, count: Count) -> None:
    """Write the joined files, and their index: all of them, or none.

    The parameters are those of `write_split`.
    """
    needed = {
        file.target: 0 if file.like.compressed else sum(one.nbytes for one in file.whole)
        for file in joined.files
    }
    targets = _by_folder(joined.targets, 0)
    with stage(targets, force=force, needed=needed) as staged:
        for file in joined.files:
            _join(file, staged[file.target], count)
        _write_indexes(joined.indexes, staged)


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


def _write_indexes(indexes: Iterable[tuple[Path, bytes]], staged: Mapping[Path, Staged]) -> None:
    for path, content in indexes:
        with staged[path].open() as file:
            file.write(content)


def _copy_files(copies: Iterable[tuple[Path, Path]], staged: Mapping[Path, Staged]) -> None:
    """Write the copies of small files, such as configurations."""
    for target, path in copies:
        with open(path, "rb") as read, staged[target].open() as file:
            staged[target].protect(os.fstat(read.fileno()))
            shutil.copyfileobj(read, file)


def _split(file: FilePlan, staged: Sequence[Staged], count: Count) -> None:
    """Write the parts of one file."""
    buffer = make_buffer()
    with contextlib.ExitStack() as stack:
        create = file.tensors[0].file.create
        parts = [
            stack.enter_context(create(one, file.part(i), file.metadata(i)))
            for i, one in enumerate(staged)
        ]
        readers = Readers(stack, [(plan.file, plan.tensor) for plan in file.tensors])
        readers.protect(staged)
        for plan in file.tensors:
            for i, part in enumerate(parts):
                part.begin(plan.part(i))
            stream = readers.next(plan.file)
            take = functools.partial(_take, plan.file, stream, buffer)
            run = functools.partial(plan.file.run, stream=stream, buffer=buffer[: tiles.TILE])
            for group, data in tiles.divide(plan, take, run):
                for part in parts[group * plan.copies :][: plan.copies]:
                    part.write(data)
                    count(data.nbytes)
        readers.check()


def _take(file: TensorFile, stream: IO[bytes], buffer: np.ndarray, nbytes: int) -> np.ndarray:
    """Read the next bytes of a stream into the first bytes of a buffer."""
    return file.fill(buffer[:nbytes], stream)


def _join(file: JoinedFile, staged: Staged, count: Count) -> None:
    """Write one joined file."""
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(file.like.create(staged, file.whole, file.metadata))
        readers = Readers(stack, [part for one in file.tensors for part in one.parts])
        readers.protect([staged])
        buffers = make_buffers()
        for one in file.tensors:
            whole.begin(one.plan.tensor)
            for data in assemble(one, readers, buffers):
                whole.write(data)
                count(data.nbytes)
        readers.check()
