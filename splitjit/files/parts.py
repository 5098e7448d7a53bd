"""Split files: plan the parts of each tensor, and write the parts of one file."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from splitjit._plan.arguments import MOST_IN_MEMORY, Shape, normalize_axis
from splitjit._plan.plan import sizes_of
from splitjit._plan.rules import CHUNK, INDICES, LENGTHS, Rule
from splitjit.errors import SplitError
from splitjit.files.file_plan import FilePlan, TensorPlan
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.staging import Staged
from splitjit.files.tiles import divide, open_sources

Chooser = Callable[[str, TensorFile], Choice | None]
"""Returns how to split a named tensor of a file, or None if the tensor is not split."""

Progress = Callable[[int, int], object]
"""Called with the number of bytes written so far, and the total."""


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
    copies = _copies(choice, whole, [len(sizes) for sizes in sections], rule)
    lengths = None if choice.lengths is None else sections[0]
    choice = replace(choice, axis=axis, sections=whole, lengths=lengths)
    return TensorPlan(tensor, file, axis, tuple(sections), copies, choice)


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


def _copies(choice: Choice, sections: Shape, pieces: list[int], rule: Rule) -> int:
    """Return how many consecutive parts are equal, from the number of pieces of each section."""
    count = num_parts(rule)
    shared = choice.shared and count is not None
    if count is None:
        count = max(pieces)
    received = f"sections {sections} into {pieces} parts"
    if any(own != count for own in pieces) and not shared:
        raise SplitError("split", received, "all sections must have the same number of parts")
    if count not in pieces and len(pieces) > 1:
        raise SplitError("split", received, "at least one section must have a head for each part")
    return math.gcd(*[count // own for own in pieces]) if count else 1


def plan_tensors(
    file: TensorFile,
    rule: Rule,
    choose: Chooser,
    copy_others: bool,
    is_alone: Callable[[str], bool],
    scalars: bool = False,
) -> list[TensorPlan]:
    """Plan the parts of the tensors of a file; `scalars` also plans those that cannot be split.

    Only the refusal of a tensor that `is_alone` proposes another rule, which might cut the scales
    of a weight, for example, at other features than the weight.

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
                raise error.named("split", where, keeps_hint=is_alone(name), **own) from None
            plans.append(plan)
        elif copy_others:
            plans.append(TensorPlan(file.verbatim(name), file, None, (), 1))
    return plans


def count_parts(plans: list[TensorPlan], rule: Rule) -> int:
    """Return the number of parts that all tensors have."""
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


def write_parts(file: FilePlan, staged: Sequence[Staged], count: Callable[[int], object]) -> None:
    """Write the parts of one file; call `count` with the bytes written since the last call."""
    with contextlib.ExitStack() as stack:
        parts = []
        inputs = [read.status for plan in file.tensors for read in plan.file.inputs]
        for i, one in enumerate(staged):
            one.protect(*inputs)
            parts.append(file.like.create(one, file.part(i), file.metadata(i)))
            stack.callback(parts[-1].close)
        tensors = [(plan.file, plan.tensor) for plan in file.tensors]
        opened = stack.enter_context(open_sources(tensors))
        for plan in file.tensors:
            for i, part in enumerate(parts):
                part.begin(plan.part(i))
            for group, data in divide(plan, next(opened[plan.file])):
                for part in parts[group * plan.copies :][: plan.copies]:
                    part.write(data)
                    count(data.nbytes)
