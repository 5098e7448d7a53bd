"""The planned join of parts, as data: which parts each tensor has, and where the whole goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.plan import TensorPlan
from splitjit.files.record import Record


@dataclass(frozen=True, slots=True)
class JoinedTensor:
    """A tensor to join.

    Attributes
    ----------
    plan : TensorPlan
        The split of the whole tensor that made the parts.
    parts : tuple of (TensorFile, Tensor)
        Each part of the tensor, with its file.
    """

    plan: TensorPlan
    parts: tuple[tuple[TensorFile, Tensor], ...]


@dataclass(frozen=True, slots=True)
class JoinedFile:
    """A file to write.

    Attributes
    ----------
    like : TensorFile
        The first part of the file. The joined file has its format.
    metadata : dict of str to str or None
    target : Path
    tensors : tuple of JoinedTensor
        In the order of their data in the joined file.
    record : Record, optional
        What the first part says about itself.
    """

    like: TensorFile
    metadata: dict[str, str] | None
    target: Path
    tensors: tuple[JoinedTensor, ...]
    record: Record | None = None

    @property
    def whole(self) -> list[Tensor]:
        """The tensors as the header of the joined file describes them."""
        return [one.plan.tensor for one in self.tensors]


@dataclass(frozen=True, slots=True)
class JoinedFiles:
    """The planned join of parts.

    Attributes
    ----------
    files : tuple of JoinedFile
    indexes : tuple of (Path, bytes)
        The index of the joined files, if there is one.
    notes : tuple of str
        What the user should know, for example that the parts were sorted.
    """

    files: tuple[JoinedFile, ...]
    indexes: tuple[tuple[Path, bytes], ...]
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size of the data to write, in bytes."""
        return sum(tensor.nbytes for file in self.files for tensor in file.whole)

    @property
    def targets(self) -> tuple[Path, ...]:
        """All files that the join writes."""
        return (*[file.target for file in self.files], *[path for path, _ in self.indexes])
