"""Plan the parts of one tensor: its axis, its sections, and heads that no cut goes through."""

from __future__ import annotations

import math
from dataclasses import replace

from splitjit._api.plan import cached_plan
from splitjit._plan.rules import CHUNK, INDICES, LENGTHS, Rule
from splitjit.errors import SplitError
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.plan import TensorPlan


def plan_tensor(tensor: Tensor, file: TensorFile, choice: Choice, rule: Rule) -> TensorPlan:
    """Plan the parts of one tensor.

    Raises
    ------
    SplitError
        If the choice or the rule does not fit the shape, or if a head would be cut.
    """
    if choice.lengths is not None:
        rule = (LENGTHS, choice.lengths)
    if choice.head and choice.sections is None:
        choice = replace(choice, sections=(tensor.shape[choice.axis],))
    if choice.sections is None:
        plan = cached_plan(tensor.shape, choice.axis, rule)
        return TensorPlan(tensor, file, plan.axis, (plan.sizes,), 1, choice)
    whole = cached_plan(tensor.shape, choice.axis, (LENGTHS, choice.sections))
    before, after = tensor.shape[: whole.axis], tensor.shape[whole.axis + 1 :]
    sections = []
    for length in whole.sizes:
        own = _rule_for_heads(length, choice, rule) if choice.head else rule
        sizes = cached_plan((*before, length, *after), whole.axis, own).sizes
        if choice.head and any(size % choice.head for size in sizes):
            rest = f"must be multiples of the {_length(choice)}"
            raise SplitError("split", f"parts of lengths {list(sizes)}", rest)
        sections.append(sizes)
    copies = _copies(choice, [len(sizes) for sizes in sections], rule)
    return TensorPlan(tensor, file, whole.axis, tuple(sections), copies, choice)


def num_parts(rule: Rule) -> int | None:
    """Return how many parts a rule makes of every axis, or None if this depends on the axis.

    Examples
    --------
    >>> num_parts(("num_splits", 3)), num_parts(("indices", (1, 4))), num_parts(("chunk", 4))
    (3, 3, None)
    """
    kind, value = rule
    if isinstance(value, tuple):
        return len(value) + (kind == INDICES)
    return None if kind == CHUNK else value


def _rule_for_heads(length: int, choice: Choice, rule: Rule) -> Rule:
    """Return the rule for a section of heads, which makes fewer pieces if parts share heads."""
    assert choice.head
    kind, parts = rule
    if length % choice.head:
        rest = f"must be a multiple of the {_length(choice)}"
        raise SplitError("split", f"section of length {length}", rest)
    if isinstance(parts, tuple) or kind == CHUNK or parts < 1:
        return rule
    heads = length // choice.head
    if heads % parts == 0:
        return rule
    if choice.shared and heads and parts % heads == 0:
        return kind, heads
    what = choice.block or f"heads of length {choice.head}"
    rest = f"its {heads} {what} do not go into {parts} parts whole"
    raise SplitError("split", f"section of length {length}", rest)


def _length(choice: Choice) -> str:
    """Name the length that all pieces must be multiples of, for refusals."""
    if choice.block:
        return f"length {choice.head}: its {choice.block} must be whole"
    return f"head length {choice.head}"


def _copies(choice: Choice, pieces: list[int], rule: Rule) -> int:
    """Return how many consecutive parts are equal, from the number of pieces of each section."""
    count = num_parts(rule)
    shared = choice.shared and count is not None
    if count is None:
        count = max(pieces)
    received = f"sections {choice.sections} into {pieces} parts"
    if any(own != count for own in pieces) and not shared:
        raise SplitError("split", received, "all sections must have the same number of parts")
    if count not in pieces and len(pieces) > 1:
        raise SplitError("split", received, "a section at least must have a head for each part")
    return math.gcd(*[count // own for own in pieces]) if count else 1
