"""Join files: plan how the parts of each tensor are put together, and read them as one file."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from splitjit._plan.arguments import normalize_axis
from splitjit._plan.rules import CHUNK, LENGTHS, NUM_OUTPUTS, NUM_SECTIONS, Rule
from splitjit.errors import SplitError
from splitjit.files.file_plan import TensorPlan
from splitjit.files.formats.base import Data, FileWriter, Metadata, Source, Tensor, TensorFile
from splitjit.files.parts import plan_tensor
from splitjit.files.patterns import Choice
from splitjit.files.staging import Staged
from splitjit.files.tiles import Readers, assemble


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


class JoinedFile(TensorFile):
    """A file that exists only as parts, which are joined while it is read.

    A join is the plan of this file as one part, and resharding splits it. So resharding puts no
    whole file on disk, and only a few tiles of each tensor are in memory.

    Parameters
    ----------
    like : TensorFile
        The first part of the file. The joined file has its format.
    metadata : dict of str to str or None
    name : str
        The name of the whole file.
    tensors : sequence of JoinedTensor
        In the order of their data in the joined file.
    """

    def __init__(
        self,
        like: TensorFile,
        metadata: Metadata,
        name: str,
        tensors: Sequence[JoinedTensor],
    ) -> None:
        self._like = like
        self.path = like.path.with_name(name)
        self.status, self.suffix = like.status, like.suffix
        self.metadata = metadata
        self._by_name = {one.plan.name: one for one in tensors}
        self.names = tuple(self._by_name)
        self.inputs = tuple(dict.fromkeys([file for one in tensors for file, _ in one.parts]))

    def tensor(self, name: str) -> Tensor:
        """Return the description of a whole tensor."""
        return self.plan_of(name).tensor

    def plan_of(self, name: str) -> TensorPlan:
        """Return the split of a whole tensor that made the parts."""
        return self._by_name[name].plan

    def sources(self, tensors: Sequence[Tensor]) -> Generator[Source]:
        """Open the parts, and yield the data of each tensor."""
        joined = [self._by_name[tensor.name] for tensor in tensors]
        with contextlib.ExitStack() as stack:
            readers = Readers(stack, [part for one in joined for part in one.parts])
            for one in joined:
                yield Source(_read(one, readers))
            readers.check()

    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create a file of the format of the parts."""
        return self._like.create(file, tensors, metadata)


def choice_of_parts(name: str, file: TensorFile) -> Choice | None:
    """Return how a tensor of a `JoinedFile` was split, but not into how many parts."""
    assert isinstance(file, JoinedFile)
    choice = file.plan_of(name).choice
    return choice and replace(choice, pattern=name, lengths=None, planned=True)


def _read(one: JoinedTensor, readers: Readers) -> Iterator[Data]:
    """Yield the next bytes of a whole tensor, and check that all copies in parts are equal."""

    def differ(first: int, second: int) -> SplitError:
        paths = [one.parts[i][0].path for i in (first, second)]
        received = f"{one.plan.name or 'the array'} in {paths[0]} and {paths[1]}"
        return SplitError("join", received, "a tensor that was copied must be equal in all parts")

    return assemble(one.plan, [readers.next(part) for part, _ in one.parts], differ)


def plan_joined(
    name: str, files: Sequence[TensorFile], choice: Choice | None, rule: Rule | None
) -> JoinedTensor:
    """Plan how the parts of one tensor are joined.

    Parameters
    ----------
    name : str
    files : sequence of TensorFile
        The file of each part.
    choice : Choice or None
        How the tensor is split; None if it is copied.
    rule : Rule or None
        The rule that the parts record. None if they have no record: then `choice` is the user's.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    if choice and rule is None and not choice.applies(files[0], name):
        choice = None
    try:
        tensors = [one.tensor(name) if choice else one.verbatim(name) for one in files]
        first = tensors[0]
        axis = None
        if choice is not None:
            axis = normalize_axis(choice.axis, first.shape)
        for i, tensor in enumerate(tensors):
            _check_alike(first, tensor, axis, i)
        if choice is None or axis is None:
            plan = TensorPlan(first, files[0], None, (), len(files))
        else:
            lengths = [tensor.shape[axis] for tensor in tensors]
            plan = _plan_parts(first, files[0], replace(choice, axis=axis), lengths, rule)
        plan.runs()
    except SplitError as error:
        where = f"join {files[0].path}" + (f", {name}" if name else "")
        raise error.named(where) from None
    return JoinedTensor(plan, tuple(zip(files, tensors, strict=True)))


def _check_alike(first: Tensor, tensor: Tensor, axis: int | None, i: int) -> None:
    """Check that part `i` differs from part 0 at most in its length along the axis."""

    def frame(shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])

    if tensor.dtype != first.dtype or len(tensor.shape) != len(first.shape):
        rule = "all parts must have the same dtype and as many axes"
    elif frame(tensor.shape) != frame(first.shape):
        rest = "; no pattern matches it" if axis is None else f", except along axis {axis}"
        rule = f"must have the same shape in all parts{rest}"
    elif tensor.fortran_order != first.fortran_order:
        rule = "all parts must be in C order, or all in Fortran order"
    else:
        return
    described = [f"part {n} {one.shape} {one.dtype}" for n, one in ((0, first), (i, tensor))]
    raise SplitError("join", ", ".join(described), rule)


def _plan_parts(
    first: Tensor, file: TensorFile, choice: Choice, lengths: list[int], own: Rule | None
) -> TensorPlan:
    """Return the split of a whole tensor into parts of these lengths."""
    sections = choice.sections or (sum(lengths),)
    before, after = first.shape[: choice.axis], first.shape[choice.axis + 1 :]
    whole = replace(first, shape=(*before, sum(sections), *after))
    refusal = None
    for rule in _rules(choice, lengths) if own is None else [own]:
        kind, value = rule
        chunk = max(value, 1) if kind == CHUNK and isinstance(value, int) else 0
        if chunk and {-(-length // chunk) for length in sections} != {len(lengths)}:
            continue  # a stranger's record may ask for more parts than fit in memory
        try:
            plan = plan_tensor(whole, file, choice, rule)
        except SplitError as error:
            refusal = error
            continue
        if [shape[choice.axis] for shape in plan.part_shapes] == lengths:
            return plan
    reason = "no rule splits the sections into parts of these lengths"
    if own is not None:
        reason = "the record of the parts says otherwise" + (f": {refusal.rule}" if refusal else "")
    elif choice.lengths is not None:
        reason = f"must be {list(choice.lengths)}"
    raise SplitError("join", f"lengths {lengths} of sections {sections}", reason)


def _rules(choice: Choice, lengths: list[int]) -> list[Rule]:
    """Return the rules that could make parts of these lengths."""
    if choice.sections is None:
        return [(LENGTHS, tuple(lengths))]
    by_length = tuple([length // len(choice.sections) for length in lengths])
    count = len(lengths)
    return [(NUM_OUTPUTS, count), (NUM_SECTIONS, count), (LENGTHS, by_length)]
