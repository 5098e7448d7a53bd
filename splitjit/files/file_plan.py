"""The planned split of files: which parts each tensor has, and where they go."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from splitjit._plan.arguments import MOST_IN_MEMORY, Shape, normalize_axis
from splitjit._plan.plan import sizes_of
from splitjit._plan.rules import CHUNK, INDICES, LENGTHS, Rule
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
        fewer pieces than there are parts, several consecutive parts hold the same piece.
    count : int
        Number of parts.
    choice : Choice, optional
        How the pattern or the plan divides the tensor, with all lengths. None if it is copied.
    """

    tensor: Tensor = field(repr=False)
    file: TensorFile = field(repr=False)
    axis: int | None
    sections: tuple[tuple[int, ...], ...]
    count: int
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
    def copies(self) -> int:
        """Number of consecutive parts that are equal."""
        return self.count // (math.lcm(*map(len, self.sections)) or 1)

    def part(self, i: int) -> Tensor:
        """Return part `i` as the header of its file describes it."""
        if self.axis is None:
            return self.tensor
        length = sum([sizes[i * len(sizes) // self.count] for sizes in self.sections])
        return self.tensor.resized(self.axis, length)

    def runs(self) -> tuple[int, list[tuple[range, int]]]:
        """Return the number of rows in memory order, and the runs of bytes in a row.

        A row is the part of the tensor that one index into the axes before the split
        axis selects. It holds the pieces of the first section, then the pieces of the
        next section. Each run comes with the numbers of the parts that hold it.

        Raises
        ------
        SplitError
            If a run of elements smaller than a byte does not fill whole bytes.
        """
        if self.axis is None or all(len(sizes) == 1 for sizes in self.sections):
            return 1, [(range(self.count), self.tensor.nbytes)]  # all parts are whole
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
                share = self.count // len(sizes)
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

    @property
    def statuses(self) -> list[os.stat_result]:
        """What the system says of the files that the tensors are read from."""
        return [read.status for plan in self.tensors for read in plan.file.inputs]

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
        return self.record.attached(whole, i) if self.record else whole

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
        The new indexes and manifests, with their contents.
    warnings : tuple of str
        Likely mistakes. For example, a bias is not split as its weight is, a fused weight is split
        as if it were one, a file has no tensors, or each part holds a copy of most bytes.
    copies : tuple of (Path, Path)
        The copies of configurations and tokenizers, and their sources.
    notes : tuple of str
        What else the user should know, for example that parts were sorted.
    operator : str, default "split"
        What is planned: "split", "reshard" or "join".
    """

    files: tuple[FilePlan, ...]
    indexes: tuple[tuple[Path, bytes], ...]
    warnings: tuple[str, ...]
    copies: tuple[tuple[Path, Path], ...] = ()
    notes: tuple[str, ...] = ()
    operator: str = field(default="split", repr=False)

    @property
    def nbytes(self) -> int:
        """Size of the data of all parts together, in bytes."""
        return sum(file.part_nbytes(i) for file in self.files for i in range(len(file.targets)))

    @property
    def share_split(self) -> float:
        """Share of the data that is split; each part holds a copy of the rest."""
        plans = [plan for file in self.files for plan in file.joined or file.tensors]
        total = sum(plan.tensor.nbytes for plan in plans)
        split = sum(plan.tensor.nbytes for plan in plans if plan.axis is not None)
        return split / total if total else 1.0

    @property
    def targets(self) -> tuple[Path, ...]:
        """All files that are written."""
        parts = [target for file in self.files for target in file.targets]
        return (*parts, *[path for path, _ in (*self.indexes, *self.copies)])


# ---- the plan of one tensor --------------------------------------------------------------

Chooser = Callable[[str, TensorFile], Choice | None]
"""Returns how to split a named tensor of a file, or None if the tensor is not split."""


def plan_tensor(tensor: Tensor, file: TensorFile, choice: Choice, rule: Rule) -> TensorPlan:
    """Plan the parts of one tensor.

    Raises
    ------
    SplitError
        If the choice or the rule does not fit the shape, or if a head would be cut.
    """
    if choice.lengths is not None:
        rule = (LENGTHS, choice.lengths)
    shape, axis, most = tensor.shape, normalize_axis(choice.axis, tensor.shape), MOST_IN_MEMORY
    try:
        whole = sizes_of(shape, axis, (LENGTHS, choice.sections or shape[axis : axis + 1]), most)
    except SplitError as error:
        raise error.named(error.operator, split="sections") from None
    sections = []
    for length, head in zip(whole, choice.heads, strict=True):
        own = _rule_for_heads(length, head, choice, rule) if head else rule
        sizes = sizes_of(tensor.resized(axis, length).shape, axis, own, most)
        if head and len(sizes) > 1 and any(size % head for size in sizes):
            rest = f"must be multiples of the {_length(head, choice)}"
            raise SplitError("split", f"parts of lengths {list(sizes)}", rest)
        sections.append(sizes)
    count = _count(choice, whole, [len(sizes) for sizes in sections], rule)
    lengths = None if choice.lengths is None else sections[0]
    choice = replace(choice, axis=axis, sections=whole, lengths=lengths)
    return TensorPlan(tensor, file, axis, tuple(sections), count, choice)


def num_parts(rule: Rule) -> int | None:
    """Return how many parts a rule makes, or None if this depends on the axis length.

    Examples
    --------
    >>> from splitjit._plan.rules import NUM_SPLITS
    >>> num_parts((NUM_SPLITS, 3)), num_parts((INDICES, (1, 4))), num_parts((CHUNK, 4))
    (3, 3, None)
    """
    kind, value = rule
    if isinstance(value, tuple):
        return len(value) + (kind == INDICES)
    return None if kind == CHUNK else value


def _rule_for_heads(length: int, head: int, choice: Choice, rule: Rule) -> Rule:
    """Return the rule for a section of heads, with fewer pieces if parts share heads."""
    kind, parts = rule
    if isinstance(parts, tuple) or kind == CHUNK or parts <= 1:
        return rule
    if length % head:
        rest = f"must be a multiple of the {_length(head, choice)}"
        raise SplitError("split", f"section of length {length}", rest)
    heads = length // head
    if heads % parts == 0:
        return rule
    if choice.shared and heads and parts % heads == 0:
        return kind, heads
    what = choice.block or f"heads of length {head}"
    rest = f"its {heads} {what} do not go into {parts} parts whole"
    hint = f"a number that divides {heads} does"
    raise SplitError("split", f"section of length {length}", rest, hint=hint)


def _length(head: int, choice: Choice) -> str:
    """Name the length that all pieces must be multiples of, for refusals."""
    if choice.block:
        return f"length {head}: its {choice.block} must be whole"
    return f"head length {head}"


def _count(choice: Choice, sections: Shape, pieces: list[int], rule: Rule) -> int:
    """Return the number of parts, from the number of pieces of each section."""
    asked = num_parts(rule)
    count = max(pieces) if asked is None else asked
    received = f"sections {sections} into {pieces} parts"
    if any(own != count for own in pieces) and not (choice.shared and asked is not None):
        raise SplitError("split", received, "all sections must have the same number of parts")
    if count not in pieces and len(pieces) > 1:
        raise SplitError("split", received, "at least one section must have a head for each part")
    return count


def plan_tensors(
    file: TensorFile, rule: Rule, choose: Chooser, alone: set[str], scalars: bool = False
) -> list[TensorPlan]:
    """Plan the parts of the tensors of a file; `scalars` also plans those that cannot be split.

    Only the refusal of a tensor that is `alone` in its module proposes another rule. That might cut
    the scales of a weight, for example, at other features than the weight.

    Raises
    ------
    SplitError
        If the rule does not fit a tensor.
    """
    plans = []
    for name in file.tensors:
        choice = choose(name, file)
        if choice and (scalars or choice.applies(file, name)):
            tensor = file.tensor(name)
            try:
                plan = plan_tensor(tensor, file, choice, rule)
                plan.runs()
            except SplitError as error:
                where = f" {file.path}" + (f", {name}" if name else "")
                own = {} if choice.lengths is None else {"split": "lengths"}
                raise error.named("split", where, keeps_hint=name in alone, **own) from None
            plans.append(plan)
        else:
            plans.append(TensorPlan(file.verbatim(name), file, None, (), 1))
    return plans


def count_parts(plans: list[TensorPlan], rule: Rule) -> int:
    """Return the number of parts that all tensors have, or 0 if no tensor is split."""
    counts = {plan.count: plan.name or plan.file.path for plan in plans if plan.axis is not None}
    if len(counts) > 1:
        received = ", ".join(f"{what} into {count}" for count, what in sorted(counts.items())[:2])
        rest = "all tensors must have the same number of parts; "
        raise SplitError("split", received, rest + "use \0num_outputs\0 or \0num_splits\0")
    asked = num_parts(rule)
    for count, what in counts.items():
        if asked not in (None, count):
            rest = f"the rule makes {asked} parts of each tensor"
            raise SplitError("split", f"{what} into {count}", rest)
    return next(iter(counts), 0)
