"""Sizes: the length of each part, from a shape, an axis and a rule, or a refusal."""

from __future__ import annotations

from splitjit._plan.arguments import Shape
from splitjit._plan.rules import (
    CHUNKED,
    FAULTS,
    HINTS,
    INDICES,
    LENGTHS,
    MAX_PARTS,
    NUM_SPLITS,
    PARAMETERS,
    TOO_MANY,
    WRONG_LENGTH,
    Rule,
    check_lengths,
    lengths_between,
    lengths_of_chunks,
)
from splitjit.errors import SplitError, describe, shorten


def sizes_of(shape: Shape, axis: int, rule: Rule, most: int) -> Shape:
    """Return the part sizes that a rule gives for an axis.

    Raises
    ------
    SplitError
        If the rule refuses the axis length.
    MemoryError
        If there are more than `most` parts.
    """
    kind, value = rule
    length = shape[axis]
    if isinstance(value, tuple):
        count = len(value) + (kind == INDICES)
        if kind == INDICES:
            lengths = [0] * count
            number, fault = lengths_between(value, length, lengths)
        elif value and sum(value) == length and min(value) >= 0 and count <= most:
            return value  # found by functions in C, faster than by `check_lengths`
        else:
            lengths = list(value)
            number, fault = check_lengths(lengths, length, sum(value) + len(value))
        value = tuple(lengths)
        if not fault and count > MAX_PARTS:
            fault = TOO_MANY
    else:
        number = value
        chunk, count, fault = CHUNKED[kind](value, length)
    if fault:
        numbers = [shorten(n) for n in (number, length, count)]
        raise SplitError(
            "split",
            describe_rule(shape, axis, rule),
            FAULTS[kind][fault].format(*numbers),
            hint=_hint(shape, axis, rule, fault, number).format(*numbers),
        )
    if count > most:
        received = describe_rule(shape, axis, rule)
        raise MemoryError(f"split: {received}: not enough memory for the plan")
    return value if isinstance(value, tuple) else lengths_of_chunks(chunk, count, length)


def _hint(shape: Shape, axis: int, rule: Rule, fault: int, number: int) -> str:
    """Return a likely fix; see `HINTS`."""
    kind = rule[0]
    if kind == LENGTHS and fault == WRONG_LENGTH and shape.count(number) == 1:
        other = shape.index(number)
        return f"the lengths sum to the length of axis {other}: pass axis={other}"
    if kind == NUM_SPLITS and fault == WRONG_LENGTH and number > 1:
        length = shape[axis]
        if length < number:
            return ""
        if -(-length // number) * (number - 1) >= length:  # the last part would be empty
            return "num_sections={0} makes parts whose lengths differ by one"
    return HINTS.get((kind, fault, number)) or HINTS.get((kind, fault), "")


def describe_rule(shape: Shape, axis: int, rule: Rule) -> str:
    """Return the values that a refusal names."""
    kind, value = rule
    return describe(**{PARAMETERS[kind]: value, "axis": axis, "shape": shape})
