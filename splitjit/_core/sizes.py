"""Sizes: the length of each part, from a shape, an axis and a rule, or a refusal."""

from __future__ import annotations

import sys

from splitjit._core.arguments import Shape
from splitjit._core.rules import (
    CHUNKED,
    FAULTS,
    HINTS,
    INDICES,
    MAX_PARTS,
    PARAMETERS,
    TOO_MANY,
    Rule,
    check_lengths,
    lengths_between,
    sizes_of_chunks,
)
from splitjit.errors import SplitError, describe, shorten


class TooManyPartsError(Exception):
    """There are more parts than the caller allows. `lru_cache` does not keep an exception."""


def sizes_of(shape: Shape, axis: int, rule: Rule, most: int = sys.maxsize) -> Shape:
    """Return the size of each part that a rule makes of an axis.

    Raises
    ------
    SplitError
        If the rule refuses the axis length.
    TooManyPartsError
        If there are more than `most` parts.
    """
    kind, value = rule
    length = shape[axis]
    if isinstance(value, tuple):
        count = len(value) + (kind == INDICES)
        if count > most:
            raise TooManyPartsError
        if kind == INDICES:
            lengths = [0] * count
            number, fault = lengths_between(value, length, lengths)
            value = tuple(lengths)
        else:
            number, fault = check_lengths(value, length, sum(value))
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
    if count > most:
        raise TooManyPartsError
    return value if isinstance(value, tuple) else sizes_of_chunks(chunk, count, length)


def describe_rule(shape: Shape, axis: int, rule: Rule) -> str:
    """Return the values that a refusal names."""
    kind, value = rule
    return describe(**{PARAMETERS[kind]: value, "axis": axis, "shape": shape})
