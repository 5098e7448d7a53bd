"""Files that exist only as parts, read as if they were joined.

`splitting` and `writing` read these files as they read others, so a checkpoint is split again
in one pass: no whole file is ever on disk, and of each tensor a few tiles are in memory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, cast

import numpy as np

from splitjit.files.checkpoint import Checkpoint
from splitjit.files.formats.base import Data, FileWriter, Run, Tensor, TensorFile, arrays
from splitjit.files.joined import JoinedFile
from splitjit.files.joining import make_index, match_parts
from splitjit.files.patterns import Choice
from splitjit.files.reading import Readers, assemble, make_buffers
from splitjit.files.splitting import Chooser
from splitjit.files.staging import Staged


class WholeFile(TensorFile):
    """A file whose tensors are assembled from parts while they are read.

    Parameters
    ----------
    joined : JoinedFile
    """

    def __init__(self, joined: JoinedFile) -> None:
        self._like = like = joined.like
        self.path = like.path.with_name(joined.target.name)
        self.status = like.status
        self.suffix = like.suffix
        self.compressed = like.compressed
        self.metadata = joined.metadata
        self.names = like.names
        self._joined = {one.plan.name: one for one in joined.tensors}
        self._tensors = {tensor.name: tensor for tensor in joined.whole}

    @property
    def data_order(self) -> tuple[str, ...]:
        """Names of the tensors, in the order of their data."""
        return tuple(self._joined)

    @property
    def inputs(self) -> tuple[TensorFile, ...]:
        """The files of the parts."""
        return tuple(dict.fromkeys(file for one in self._joined.values() for file, _ in one.parts))

    def tensor(self, name: str) -> Tensor:
        """Return the description of a whole tensor."""
        return self._tensors[name]

    def choice(self, name: str) -> Choice | None:
        """Return how the parts of a tensor were split, but not into how many."""
        choice = self._joined[name].plan.choice
        return choice and replace(choice, pattern=name, lengths=None, planned=True)

    def streams(self, tensors: Sequence[Tensor]) -> Generator[IO[bytes]]:
        """Open the parts and yield the data of each tensor."""
        joined = [self._joined[tensor.name] for tensor in tensors]
        with contextlib.ExitStack() as stack:
            readers = Readers(stack, [part for one in joined for part in one.parts])
            buffers = make_buffers()
            for one in joined:
                yield cast(IO[bytes], _Stream(assemble(one, readers, buffers)))
            readers.check()

    def run(self, nbytes: int, stream: IO[bytes], buffer: np.ndarray) -> Data:
        """Return the next bytes of a tensor, as many as asked or fewer."""
        return cast(_Stream, stream).next(nbytes)

    def create(
        self, file: Staged, tensors: Sequence[Tensor], metadata: Mapping[str, str] | None
    ) -> FileWriter:
        """Create a file of the format of the parts."""
        return self._like.create(file, tensors, metadata)


class _Stream:
    """The data of a tensor, read as a file."""

    def __init__(self, assembled: Iterator[Data]) -> None:
        self._assembled = assembled
        self._rest: Data = np.empty(0, np.uint8)

    def next(self, nbytes: int) -> Data:
        """Return the next bytes, as many as asked or fewer; none at the end."""
        while not self._rest.nbytes:
            data = next(self._assembled, None)
            if data is None:
                break
            self._rest = data if isinstance(data, Run) else data.reshape(-1).view(np.uint8)
        rest = self._rest
        first, self._rest = (
            rest.cut(nbytes) if isinstance(rest, Run) else (rest[:nbytes], rest[nbytes:])
        )
        return first

    def readinto(self, room: memoryview) -> int:
        """Fill the first bytes of a buffer, and return how many; 0 at the end."""
        data = self.next(len(room))
        for array in arrays(data):
            room[: array.nbytes] = array.data
            room = room[array.nbytes :]
        return data.nbytes


def read_parts(parts: Sequence[Checkpoint], choose: Chooser | None) -> Checkpoint:
    """Return the checkpoint of which these are the parts.

    Parameters
    ----------
    parts : sequence of Checkpoint
    choose : callable or None
        As for `joining.match_parts`.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    ordered, joined = match_parts(parts, choose, "reshard")
    first = ordered[0]
    index: dict[str, Any] | None = None
    for _, content in make_index(first, joined):
        index = json.loads(content)
    known = joined[0].record
    files = tuple([WholeFile(one) for one in joined])
    return Checkpoint(
        first.path, files, index, first.index_name, known.checkpoint if known else None
    )
