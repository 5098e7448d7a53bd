"""Write the parts of files, or the joined files: all of them, or none."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from splitjit.errors import SplitError
from splitjit.files import tiles
from splitjit.files.formats.base import Tensor, TensorFile, identity
from splitjit.files.joining import JoinedFile, JoinedFiles, JoinedTensor
from splitjit.files.plan import FilePlan, SplitFiles
from splitjit.files.transaction import Staged, transaction

Count = Callable[[int], object]
"""Called with the number of bytes written since the last call."""


def write_split(
    planned: SplitFiles, force: bool, count: Count, finished: Container[str] = ()
) -> None:
    """Write the parts of all files, and the indexes: all of them, or none.

    Parameters
    ----------
    planned : SplitFiles
    force : bool
        Whether parts may overwrite existing files.
    count : callable
    finished : container of str, optional
        The transactions that `recover` has finished. They are not repeated.

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
    inputs = [plan.file for file in planned.files for plan in file.tensors]
    key = _key(planned.targets, inputs, planned)
    if not planned.targets or key in finished:
        return
    targets = _by_folder(planned.targets, planned.levels)
    with transaction(targets, force=force, key=key, needed=needed) as staged:
        for file in planned.files:
            if file.targets:
                _split(file, [staged[target] for target in file.targets], count)
        _write_indexes(planned.indexes, staged)


def write_join(
    joined: JoinedFiles, force: bool, count: Count, finished: Container[str] = ()
) -> None:
    """Write the joined files, and their index: all of them, or none.

    The parameters are those of `write_split`.
    """
    needed = {
        file.target: 0 if file.like.compressed else sum(one.nbytes for one in file.whole)
        for file in joined.files
    }
    tensors = [one for file in joined.files for one in file.tensors]
    key = _key(
        joined.targets,
        [part for one in tensors for part, _ in one.parts],
        [one.plan for one in tensors],
    )
    if key in finished:
        return
    targets = _by_folder(joined.targets, 0)
    with transaction(targets, force=force, key=key, needed=needed) as staged:
        for file in joined.files:
            _join(file, staged[file.target], count)
        _write_indexes(joined.indexes, staged)


def _key(targets: Iterable[Path], files: Iterable[TensorFile], planned: object) -> str:
    """Return a digest of the inputs, and of all that decides what is made of them."""
    inputs = [(os.path.realpath(file.path), identity(file.status)) for file in dict.fromkeys(files)]
    described = inputs, [os.path.realpath(target) for target in targets], planned
    return hashlib.sha256(repr(described).encode("utf-8", "surrogatepass")).hexdigest()


def _by_folder(targets: Iterable[Path], levels: int) -> dict[Path, list[str]]:
    """Return the names of the files to write, by the folder from which `levels` folders lead."""
    names: dict[Path, list[str]] = {}
    for target in targets:
        folder = target.parents[levels]
        names.setdefault(folder, []).append(target.relative_to(folder).as_posix())
    return names


def _write_indexes(indexes: Iterable[tuple[Path, bytes]], staged: Mapping[Path, Staged]) -> None:
    for path, content in indexes:
        with staged[path].open() as file:
            file.write(content)


def _split(file: FilePlan, staged: Sequence[Staged], count: Count) -> None:
    """Write the parts of one file."""
    buffer = np.empty(tiles.TILE, np.uint8)
    with contextlib.ExitStack() as stack:
        create = file.tensors[0].file.create
        parts = [stack.enter_context(create(one, file.part(i))) for i, one in enumerate(staged)]
        readers = _Readers(stack, [(plan.file, plan.tensor) for plan in file.tensors])
        readers.protect(staged)
        for plan in file.tensors:
            for i, part in enumerate(parts):
                part.begin(plan.part(i))
            take = functools.partial(_take, plan.file, readers.next(plan.file), buffer)
            for piece, data in tiles.divide(plan, take):
                for part in parts[piece * plan.copies :][: plan.copies]:
                    part.write(data)
                    count(data.nbytes)
        readers.check()


def _take(file: TensorFile, stream: IO[bytes], buffer: np.ndarray, nbytes: int) -> np.ndarray:
    """Read the next bytes of a stream into the first bytes of a buffer."""
    return file.fill(buffer[:nbytes], stream)


def _join(file: JoinedFile, staged: Staged, count: Count) -> None:
    """Write one joined file."""
    with contextlib.ExitStack() as stack:
        whole = stack.enter_context(file.like.create(staged, file.whole))
        readers = _Readers(stack, [part for one in file.tensors for part in one.parts])
        readers.protect([staged])
        buffers = [np.empty(tiles.TILE, np.uint8) for _ in range(2)]
        for one in file.tensors:
            whole.begin(one.plan.tensor)
            streams = [readers.next(part) for part, _ in one.parts]
            for data in tiles.assemble(one.plan, _Taker(one, streams, buffers).take):
                whole.write(data)
                count(data.nbytes)
        readers.check()


class _Taker:
    """Read the pieces of a tensor, and check that copies are equal.

    Parameters
    ----------
    tensor : JoinedTensor
    streams : sequence of file object
        A stream for each part.
    buffers : sequence of ndarray
        Two arrays of `tiles.TILE` bytes.
    """

    def __init__(
        self, tensor: JoinedTensor, streams: Sequence[IO[bytes]], buffers: Sequence[np.ndarray]
    ) -> None:
        self._tensor = tensor
        self._streams = streams
        self._buffers = buffers

    def take(self, piece: int, nbytes: int) -> np.ndarray:
        """Read the next bytes of a piece."""
        copies = self._tensor.plan.copies
        first = piece * copies
        data = self._read(first, self._buffers[0][:nbytes])
        for i in range(first + 1, first + copies):
            if not np.array_equal(self._read(i, self._buffers[1][:nbytes]), data):
                paths = [self._tensor.parts[k][0].path for k in (first, i)]
                name = self._tensor.plan.name or "the array"
                received = f"{name} in {paths[0]} and {paths[1]}"
                rule = "a tensor that was copied must be equal in all parts"
                raise SplitError("join", received, rule)
        return data

    def _read(self, i: int, buffer: np.ndarray) -> np.ndarray:
        file, _ = self._tensor.parts[i]
        return file.fill(buffer, self._streams[i])


class _Readers:
    """Files that are read from tensor to tensor, and stay open meanwhile.

    Parameters
    ----------
    stack : ExitStack
        Closes the files.
    tensors : iterable of (TensorFile, Tensor)
        The tensors in the order in which each file is read.
    """

    def __init__(
        self, stack: contextlib.ExitStack, tensors: Iterable[tuple[TensorFile, Tensor]]
    ) -> None:
        wanted: dict[TensorFile, list[Tensor]] = {}
        for file, tensor in tensors:
            wanted.setdefault(file, []).append(tensor)
        self._streams = {
            file: stack.enter_context(contextlib.closing(file.streams(held)))
            for file, held in wanted.items()
        }

    def next(self, file: TensorFile) -> IO[bytes]:
        """Return a stream of the data of the next tensor of a file."""
        return next(self._streams[file])

    def protect(self, staged: Iterable[Staged]) -> None:
        """Let no user read or write new files who cannot read or write all of these files."""
        for one in staged:
            one.protect(*[file.status for file in self._streams])

    def check(self) -> None:
        """Check the ends of all files, and that no file was changed while it was read."""
        for file, stream in self._streams.items():
            next(stream, None)
            if file.changed():
                raise SplitError("files", str(file.path), "must not change while it is read")
