"""Files that exist only as parts, read as if they were joined.

They are split as other files are, so a checkpoint is split again in one pass: no whole file is ever
on disk, and of each tensor a few tiles are in memory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from splitjit.checkpoints.index import Checkpoint
from splitjit.checkpoints.joining import make_index, match_parts
from splitjit.files.formats.base import FileWriter, Source, Tensor, TensorFile
from splitjit.files.joining import JoinedFile, read_joined
from splitjit.files.patterns import Choice
from splitjit.files.splitting import Chooser
from splitjit.files.staging import Staged
from splitjit.files.tiles import Readers


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
        self.data_order = tuple(self._joined)
        parts = [file for one in joined.tensors for file, _ in one.parts]
        self.inputs = tuple(dict.fromkeys(parts))

    def tensor(self, name: str) -> Tensor:
        """Return the description of a whole tensor."""
        return self._joined[name].plan.tensor

    def choice(self, name: str) -> Choice | None:
        """Return how the parts of a tensor were split, but not into how many."""
        choice = self._joined[name].plan.choice
        return choice and replace(choice, pattern=name, lengths=None, planned=True)

    def sources(self, tensors: Sequence[Tensor]) -> Generator[Source]:
        """Open the parts, and yield the data of each tensor."""
        joined = [self._joined[tensor.name] for tensor in tensors]
        with contextlib.ExitStack() as stack:
            readers = Readers(stack, [part for one in joined for part in one.parts])
            for one in joined:
                yield Source(read_joined(one, readers))
            readers.check()

    def create(
        self, file: Staged, tensors: Sequence[Tensor], metadata: Mapping[str, str] | None
    ) -> FileWriter:
        """Create a file of the format of the parts."""
        return self._like.create(file, tensors, metadata)


def read_parts(parts: Sequence[Checkpoint], choose: Chooser | None) -> Checkpoint:
    """Return the checkpoint of which these are the parts.

    Parameters
    ----------
    parts : sequence of Checkpoint
    choose : callable or None
        As for `match_parts`.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    ordered, joined, made_of = match_parts(parts, choose, "reshard")
    index: dict[str, Any] | None = None
    for _, content in make_index(ordered[0], joined):
        index = json.loads(content)
    files = tuple([WholeFile(one) for one in joined])
    return Checkpoint(ordered[0].path, files, index, ordered[0].index_name, made_of)
