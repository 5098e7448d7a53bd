"""Read the data of tensors: from one file, or assembled from the parts in several files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np

from splitjit.errors import SplitError
from splitjit.files import tiles
from splitjit.files.formats.base import Data, Tensor, TensorFile
from splitjit.files.joined import JoinedTensor
from splitjit.files.staging import Staged


class Readers:
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
            one.protect(*[read.status for file in self._streams for read in file.inputs])

    def check(self) -> None:
        """Check the ends of all files, and that no file was changed while it was read."""
        for stream in self._streams.values():
            next(stream, None)


def make_buffers() -> list[np.ndarray]:
    """Make the buffers that `assemble` needs."""
    return [make_buffer() for _ in range(3)]


def make_buffer() -> np.ndarray:
    """Make a buffer for the longest tile."""
    return np.empty(tiles.MOST * tiles.TILE, np.uint8)


def assemble(
    tensor: JoinedTensor, readers: Readers, buffers: Sequence[np.ndarray]
) -> Iterator[Data]:
    """Yield the next bytes of a whole tensor, and check that all copies in parts are equal.

    Parameters
    ----------
    tensor : JoinedTensor
    readers : Readers
        The files of the parts.
    buffers : sequence of ndarray
        Made by `make_buffers`.

    Yields
    ------
    Data
        The next iteration overwrites an array.
    """
    streams = [readers.next(part) for part, _ in tensor.parts]
    copies = tensor.plan.copies

    def read(i: int, buffer: np.ndarray) -> np.ndarray:
        return tensor.parts[i][0].fill(buffer, streams[i])

    def differ(first: int, second: int) -> SplitError:
        paths = [tensor.parts[i][0].path for i in (first, second)]
        received = f"{tensor.plan.name or 'the array'} in {paths[0]} and {paths[1]}"
        return SplitError("join", received, "a tensor that was copied must be equal in all parts")

    def take(group: int, nbytes: int, buffer: int) -> np.ndarray:
        first = group * copies
        data = read(first, buffers[buffer][:nbytes])
        for i in range(first + 1, first + copies):
            if not np.array_equal(read(i, buffers[2][:nbytes]), data):
                raise differ(first, i)
        return data

    def run(group: int, nbytes: int) -> Data:
        if copies > 1:  # must be equal
            return take(group, min(nbytes, tiles.TILE), 0)
        return tensor.parts[group][0].run(nbytes, streams[group], buffers[0][: tiles.TILE])

    return tiles.assemble(tensor.plan, take, run, lambda a, b: differ(a * copies, b * copies))
