"""Rules: from a rule's value and an axis length to the sizes of the parts.

The functions here take integers and return integers. `splitjit._plan.plan` calls them,
and `splitjit._kernels` compiles the same functions for users' ``@njit`` code. So a function
neither raises an error nor builds text. It returns a *fault*, which is 0 or a key of
``FAULTS[kind]``, and its caller raises the error.

========================  =======================  ===============================
rule                      value                    function
========================  =======================  ===============================
``split=[a, b, …]``       length of each part      `check_lengths`
``indices=[i, j, …]``     where to cut             `lengths_between`
``split=k``               length of a part         `size_of_part`
``num_outputs=n``         number of parts          `size_of_part`
``num_splits=n``          number of parts          `size_of_part`
``num_sections=n``        number of parts          `size_of_part`
========================  =======================  ===============================
"""

from collections.abc import MutableSequence, Sequence

from splitjit.errors import param

PARAMETERS = "split", "split", "num_outputs", "num_splits", "indices", "num_sections"
"""The public parameter that gives each kind of rule."""

LENGTHS, CHUNK, NUM_OUTPUTS, NUM_SPLITS, INDICES, NUM_SECTIONS = range(len(PARAMETERS))
"""The kinds of rules: the index of each in `PARAMETERS`."""

NAMES = tuple(dict.fromkeys(PARAMETERS))
"""The parameters in the order in which functions take them."""

COUNTS = {
    "num_outputs": "N parts; the last ones are smaller if the axis length is not a multiple of N",
    "num_splits": "N equal parts; refused if the axis length is not a multiple of N",
    "num_sections": "N parts whose lengths differ by at most one, longer ones first",
}
"""The help of the command for each rule whose value is the number of parts."""

ONE_RULE = f"exactly one of {', '.join(NAMES)} must be given"

MAX_PARTS = 2**31 - 1
"""The largest number of outputs that the ONNX schemas of Split allow."""


Rule = tuple[int, int | tuple[int, ...]]
"""The kind of a rule, and its value as plain integers.

This is a plain tuple, because every call makes one as part of a cache key. A NamedTuple
would add a tenth to the time of the smallest split.
"""


# ---- faults: why a rule refuses a value --------------------------------------------------

WRONG_VALUE, TOO_MANY, WRONG_LENGTH, NO_REST, SEVERAL_RESTS = range(1, 6)
"""The value is out of range; there are too many parts; the value does not fit the axis length;
the lengths beside a -1 leave no rest; several lengths are -1."""

FAULTS = [
    {
        WRONG_VALUE: f"{param(parameter)} must be at least 1",
        TOO_MANY: f"{{2}} parts are more than the {MAX_PARTS} that a split may have",
    }
    for parameter in PARAMETERS
]
FAULTS[LENGTHS] |= {
    WRONG_VALUE: "lengths must be at least 0, not {0}",
    WRONG_LENGTH: "lengths must sum to the axis length {1}, not to {0}",
    NO_REST: "lengths other than -1 must sum to at most the axis length {1}, not to {0}",
    SEVERAL_RESTS: "at most one length may be -1",
}
FAULTS[NUM_SPLITS][WRONG_LENGTH] = "the axis length {1} must be a multiple of {0}"
FAULTS[INDICES][WRONG_VALUE] = "indices must not descend, but {0} cuts before the preceding index"
"""The text of each fault of each rule.

Fields: ``{0}`` is the value of the rule, ``{1}`` the axis length, ``{2}`` the number of parts.
For lengths, ``{0}`` is the negative length of a `WRONG_VALUE`, and otherwise the sum of the
lengths other than -1.
For indices, ``{0}`` is the index of a `WRONG_VALUE`.
"""

_INDICES_INSTEAD = "if these are indices to cut at, pass them as \0indices=\0 in ascending order"

HINTS: dict[tuple[int, ...], str] = {
    (NUM_SPLITS, WRONG_LENGTH): "\0num_outputs={0}\0 allows a shorter last part",
    (LENGTHS, WRONG_LENGTH): _INDICES_INSTEAD,
    (LENGTHS, WRONG_VALUE): _INDICES_INSTEAD,
    (CHUNK, WRONG_VALUE, -1): "one length of a list may be -1, for the rest that the others leave",
}
"""A likely fix for a fault, for users of `splitjit.split`; fields as in `FAULTS`.

A key may end with the value of ``{0}`` for which its fix is meant.
"""

OVERLAP_FAULT = "its elements must not share memory; each stride must span the dims below it"

AXIS_FAULT = "\0axis\0 must be in [-{1}, {2}]"
"""Fields: ``{0}`` is the axis, ``{1}`` is the rank, ``{2}`` is the last axis."""


def wrap_axis(axis: int, rank: int) -> tuple[int, int]:
    """Return the axis counted from the front, and 0 or a fault."""
    if axis < -rank or axis >= rank:
        return 0, WRONG_VALUE
    return axis % rank, 0


# ---- lengths: each part has its own ------------------------------------------------------


def check_lengths(
    lengths: MutableSequence[int], count: int, length: int, most: int
) -> tuple[int, int]:
    """Replace a length of -1 by the rest of the axis; return a number, and 0 or a fault.

    The number is a negative length, or the sum of the `count` lengths other than -1. The sum stops
    at `most`, so that it does not overflow in compiled code.
    """
    total, rest = 0, -1
    for i in range(count):
        n = lengths[i]
        if n == -1 and rest < 0:
            rest = i
        elif n < 0:
            return n, SEVERAL_RESTS if n == -1 else WRONG_VALUE
        else:
            total = total + n if n <= most - total else most
    if rest < 0:
        return total, 0 if total == length else WRONG_LENGTH
    if total > length:
        return total, NO_REST
    lengths[rest] = length - total
    return total, 0


def lengths_between(
    indices: Sequence[int], count: int, length: int, lengths: MutableSequence[int]
) -> tuple[int, int]:
    """Write the length of each part between `count` indices; return an index, and 0 or a fault.

    Negative indices count from the end of the axis. Indices beyond an end of the axis are
    clamped to it. `lengths` has one item more than there are indices, and may be in their place.
    """
    start = 0
    for i in range(count):
        index = indices[i]
        stop = min(max(index + length if index < 0 else index, 0), length)
        if stop < start:
            return index, WRONG_VALUE
        lengths[i] = stop - start
        start = stop
    lengths[count] = length - start
    return 0, 0


# ---- one integer: the length of each part follows from it --------------------------------


def count_parts(kind: int, value: int, length: int) -> tuple[int, int]:
    """Return the number of parts, and 0 or a fault."""
    if value < 1:
        return 0, WRONG_VALUE
    if kind == NUM_SPLITS and length % value != 0:
        return value, WRONG_LENGTH
    count = -(-length // value) if kind == CHUNK else value
    return count, TOO_MANY if count > MAX_PARTS else 0


def size_of_part(kind: int, value: int, i: int, length: int) -> int:
    """Return the length of part i.

    The divisions stand before the cases, so that compiled loops divide once for all parts.
    """
    whole, rest = length // value, length % value
    if kind == NUM_SPLITS:
        return whole
    if kind == NUM_SECTIONS:
        return whole + (i < rest)
    chunk = value if kind == CHUNK else whole + (rest > 0)
    return max(min(chunk, length - i * chunk), 0)


def sizes_of_parts(kind: int, value: int, count: int, length: int) -> tuple[int, ...]:
    """Return `size_of_part` for all parts, without a call for each of equal parts."""
    first = size_of_part(kind, value, 0, length)
    if kind == NUM_SECTIONS:
        longer = length % value
        return (first,) * longer + (length // value,) * (count - longer)
    whole = length // first if first else 0
    rest = length - whole * first
    return (first,) * whole + (rest,) * (rest > 0) + (0,) * (count - whole - (rest > 0))
