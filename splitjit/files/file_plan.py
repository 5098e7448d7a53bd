"""The planned split of files, as data: which parts each tensor has, and where they go."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitjit._plan.arguments import Shape
from splitjit.errors import SplitError
from splitjit.files.formats.base import Metadata, Tensor, TensorFile
from splitjit.files.patterns import Choice


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """The parts of one tensor.

    Parameters
    ----------
    tensor : Tensor
        The whole tensor, as its file describes it.
    file : TensorFile
        The file of the tensor.
    axis : int or None
        The axis that is split, counted from 0. None if each part holds a copy of the
        whole tensor.
    sections : tuple of tuple of int
        The lengths of the pieces along the axis, section by section. A tensor that is
        not fused has one section, and a tensor that is copied has none. If a section has
        fewer pieces than another one, several parts hold the same piece of it.
    copies : int
        Number of consecutive parts that are equal. A tensor that is copied has as many
        copies as there are parts.
    choice : Choice, optional
        How the pattern or the plan divides the tensor, with all lengths. None if it is copied.
    """

    tensor: Tensor = field(repr=False)
    file: TensorFile = field(repr=False)
    axis: int | None
    sections: tuple[tuple[int, ...], ...]
    copies: int
    choice: Choice | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Name of the tensor."""
        return self.tensor.name

    @property
    def shape(self) -> Shape:
        """Shape of the whole tensor."""
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        """Name of the dtype."""
        return str(self.tensor.dtype)

    @property
    def part_shapes(self) -> tuple[Shape, ...]:
        """Shape of each part."""
        return tuple([self.part(i).shape for i in range(self.count)])

    @property
    def groups(self) -> int:
        """Number of parts that differ."""
        return math.lcm(*map(len, self.sections))

    @property
    def count(self) -> int:
        """Number of parts."""
        return self.groups * self.copies

    def part(self, i: int) -> Tensor:
        """Return part `i` as the header of its file describes it."""
        if self.axis is None:
            return self.tensor
        group, groups = i // self.copies, self.groups
        length = sum([sizes[group * len(sizes) // groups] for sizes in self.sections])
        return self.tensor.resized(self.axis, length)

    def runs(self) -> tuple[int, list[tuple[range, int]]]:
        """Return the number of rows in memory order, and the runs of bytes in a row.

        A row is the part of the tensor that one index into the axes before the split
        axis selects. It holds the pieces of the first section, then the pieces of the
        next section. Each run comes with the groups whose parts hold it.

        Raises
        ------
        SplitError
            If a run of elements smaller than a byte does not fill whole bytes.
        """
        if self.axis is None or self.groups == 1:  # all parts are whole
            return 1, [(range(1), self.tensor.nbytes)]
        shape, axis = self.shape, self.axis
        if self.tensor.fortran_order:
            shape, axis = shape[::-1], len(shape) - 1 - axis
        bits = math.prod(shape[axis + 1 :]) * self.tensor.bits
        if any(size * bits % 8 for sizes in self.sections for size in sizes):
            sizes = self.sections[0] if len(self.sections) == 1 else self.sections
            received = f"{self.dtype} of shape {self.shape} into {sizes}"
            rule = "parts of elements smaller than a byte must be whole bytes"
            raise SplitError("split", received, rule)
        runs = []
        for sizes in self.sections:
            for i, size in enumerate(sizes):
                share = self.groups // len(sizes)
                runs.append((range(i * share, (i + 1) * share), size * bits // 8))
        return math.prod(shape[:axis]), runs


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The parts of one file, or of several files whose tensors go into the same parts.

    Parameters
    ----------
    paths : tuple of Path
        The files to split.
    targets : tuple of Path
        The file of each part. Empty if no part has a tensor.
    tensors : tuple of TensorPlan
        The tensors that each part holds, in this order.
    left_out : tuple of str
        Names of tensors that no part holds.
    like : TensorFile
        The first of the files. The parts have its format.
    record : Record, optional
        What the parts say about themselves: a record of ``splitjit.files.checkpoints``.
    joined : tuple of TensorPlan
        If the file is joined, the splits that made the parts of its tensors.
    """

    paths: tuple[Path, ...]
    targets: tuple[Path, ...]
    tensors: tuple[TensorPlan, ...]
    left_out: tuple[str, ...]
    like: TensorFile = field(repr=False)
    record: Any = field(default=None, repr=False)
    joined: tuple[TensorPlan, ...] = field(default=(), repr=False)

    def part_nbytes(self, part: int) -> int:
        """Return the size of the data of a part, in bytes.

        Parameters
        ----------
        part : int
            The number of the part.

        Returns
        -------
        int
            Headers do not count.
        """
        return sum(tensor.nbytes for tensor in self.part(part))

    def metadata(self, i: int) -> Metadata:
        """Return the metadata of part `i`."""
        whole = self.like.metadata
        own: Metadata = self.record and self.record.attached(whole, i)
        return own or whole

    def part(self, i: int) -> list[Tensor]:
        """Return the tensors of part `i` as its header describes them."""
        return [plan.part(i) for plan in self.tensors]


def percent(share: float) -> str:
    """Format a share. Only 0 is 0%, and only 1 is 100%.

    Examples
    --------
    >>> percent(0.994), percent(0.996), percent(1.0), percent(0.001)
    ('99%', 'more than 99%', '100%', 'less than 1%')
    """
    nearest = f"{share:.0%}"
    if nearest == "100%" and share < 1:
        return "more than 99%"
    return "less than 1%" if nearest == "0%" and share > 0 else nearest


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The planned split of files; or their join, in which each file is its only part.

    Parameters
    ----------
    files : tuple of FilePlan
        The parts of each file.
    indexes : tuple of (Path, bytes)
        The indexes and manifests of the ranks, with their contents.
    warnings : tuple of str
        Weights that are split although their bias, scale or zero point is copied, or
        split at other features, and vice versa.
    copies : tuple of (Path, Path)
        The copies of configurations and tokenizers, and their sources.
    levels : int, default 0
        Number of folder levels that the split makes per part: 1 for rank folders.
    notes : tuple of str
        What else the user should know, for example that parts were sorted.
    operator : str, default "split"
        What is planned: "split", "reshard" or "join".
    """

    files: tuple[FilePlan, ...]
    indexes: tuple[tuple[Path, bytes], ...]
    warnings: tuple[str, ...]
    copies: tuple[tuple[Path, Path], ...] = ()
    levels: int = field(default=0, repr=False)
    notes: tuple[str, ...] = ()
    operator: str = field(default="split", repr=False)

    @property
    def nbytes(self) -> int:
        """Size of the data of all parts together, in bytes."""
        return sum(file.part_nbytes(i) for file in self.files for i in range(len(file.targets)))

    @property
    def share_split(self) -> float:
        """Share of the data that is split; each part holds a copy of the rest."""
        plans = [plan for file in self.files for plan in file.tensors]
        total = sum(plan.tensor.nbytes for plan in plans)
        split = sum(plan.tensor.nbytes for plan in plans if plan.axis is not None)
        return split / total if total else 1.0

    @property
    def targets(self) -> tuple[Path, ...]:
        """All files that are written."""
        parts = [target for file in self.files for target in file.targets]
        return (*parts, *[path for path, _ in (*self.indexes, *self.copies)])
