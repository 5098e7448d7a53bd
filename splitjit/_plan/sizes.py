"""Sizes: the length of each part, from a shape, an axis and a rule, or a refusal."""

from __future__ import annotations

from splitjit._plan.arguments import Shape
from splitjit._plan.rules import (
    CHUNKED,
    FAULTS,
    HINTS,
    INDICES,
    MAX_PARTS,
    PARAMETERS,
    TOO_MANY,
    Rule,
    Runs,
    check_lengths,
    lengths_between,
    runs_of_chunks,
)
from splitjit.errors import SplitError, describe, shorten


def sizes_of(shape: Shape, axis: int, rule: Rule) -> tuple[Shape | None, Runs]:
    """Return the part sizes that a rule gives for an axis.

    Returns
    -------
    lengths : tuple of int or None
        The size of each part; None if the rule gives only runs.
    runs : tuple
        The runs of equal sizes, if `lengths` is None.

    Raises
    ------
    SplitError
        If the rule refuses the axis length.
    """
    kind, value = rule
    length = shape[axis]
    if isinstance(value, tuple):
        count = len(value) + (kind == INDICES)
        if kind == INDICES:
            lengths = [0] * count
            number, fault = lengths_between(value, length, lengths)
            value = tuple(lengths)
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
        hint = HINTS.get((kind, fault, number)) or HINTS.get((kind, fault), "")
        raise SplitError(
            "split",
            describe_rule(shape, axis, rule),
            FAULTS[kind][fault].format(*numbers),
            hint=hint.format(*numbers),
        )
    if isinstance(value, tuple):
        return value, ()
    return None, runs_of_chunks(chunk, count, length)


def describe_rule(shape: Shape, axis: int, rule: Rule) -> str:
    """Return the values that a refusal names."""
    kind, value = rule
    return describe(**{PARAMETERS[kind]: value, "axis": axis, "shape": shape})
