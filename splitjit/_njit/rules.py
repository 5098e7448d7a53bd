"""Rules in compiled code: from the types of arguments to the functions that compute sizes.

The functions compile those of `splitjit._plan.rules`, and make no array except of lengths.
While Numba compiles, wrong types are refused by a `SplitTypeError`. Numba hides the message of
a `TypingError` below a list of candidates, but passes on an error of another class.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import literal_unroll, types
from numba.extending import overload, register_jitable

from splitjit._plan import rules
from splitjit.errors import SplitError, SplitTypeError

_MOST = np.iinfo(np.intp).max

# ---- which types may be compiled --------------------------------------------------------


def refuse(operator, rule, **kinds):
    """Refuse the types of some arguments, while Numba compiles."""
    received = [f"{name} of type {kind}" for name, kind in kinds.items()]
    raise SplitTypeError(operator, ", ".join(received), rule)


def is_given(kind):
    return not (
        kind is None
        or isinstance(kind, types.NoneType)
        or (isinstance(kind, types.Omitted) and kind.value is None)
    )


def is_passed(kind):
    """Return whether an argument was passed, even if it is None."""
    return not (kind is None or isinstance(kind, types.Omitted))


def is_integer(kind):
    if isinstance(kind, types.Omitted):
        kind = kind.value
    return type(kind) is int or isinstance(types.unliteral(kind), types.Integer)


def item_of(kind):
    """Return the type of the items of a sequence, or None if there is no such type."""
    return (
        getattr(kind, "dtype", None) if isinstance(kind, types.Sequence | types.ListType) else None
    )


def _is_lengths(kind):
    if isinstance(kind, types.Array):
        return kind.ndim == 1 and isinstance(kind.dtype, types.Integer)
    if isinstance(kind, types.BaseTuple):
        return all(isinstance(types.unliteral(item), types.Integer) for item in kind)
    return isinstance(item_of(kind), types.Integer)


# ---- from a rule to sizes ----------------------------------------------------------------
#
# `sizes` is an array of lengths, or a tuple of the length of a chunk and the number of longer
# parts. In the second case the last parts are clamped to the rest of the axis.

wrap_axis = register_jitable(rules.wrap_axis)
_check_lengths = register_jitable(rules.check_lengths)
_lengths_between = register_jitable(rules.lengths_between)
_count_longer = register_jitable(rules.count_longer)
_size_of_part = register_jitable(rules.size_of_part)

AXIS_FAULTS = f"axis={{0}} of rank {{1}}: {rules.AXIS_FAULT}"


def _item(i):
    """Return the function that takes the values of all parameters, and returns the i-th one."""
    return register_jitable(lambda values: values[i])


_VALUE_OF = {name: _item(i) for i, name in enumerate(rules.NAMES)}
"""The functions that return the value of one parameter."""


def rule(operator, *values):
    """Choose the functions of a rule by the types of its parameters.

    Returns
    -------
    value_of : function
        Takes the values of all parameters, and returns the value of the rule.
    sizes_of : function
        Takes the value of the rule and the axis length. Returns the sizes, the number of
        parts, 0 or a fault, and the value for the text of the fault.
    faults : str
        The texts of the faults of the rule, one line each; see `SplitError`.
    """
    kinds = dict(zip(_VALUE_OF, values, strict=True))
    given = {name: kind for name, kind in kinds.items() if is_given(kind)}
    if len(given) != 1:
        received = [f"{name} of type {kind}" for name, kind in given.items()] or ["no rule"]
        raise SplitError(operator, ", ".join(received), rules.ONE_RULE)
    ((parameter, value),) = given.items()
    if parameter == "indices":
        if not _is_lengths(value):
            rule = "must be a tuple or list of integers or a 1-D integer array"
            refuse(operator, indices=value, rule=rule)
        kind, sizes_of = rules.INDICES, _by_indices(_reader(value))
    elif parameter != "split":
        if not is_integer(value):
            refuse(operator, **given, rule=f"{parameter} must be an integer")
        kind, sizes_of = parameter, _by_chunks(parameter)
    elif is_integer(value):
        kind, sizes_of = rules.CHUNK, _by_chunks(rules.CHUNK)
    elif isinstance(value, types.Array) and value.ndim == 0 and is_integer(value.dtype):
        kind, sizes_of = rules.CHUNK, _by_scalar
    elif _is_lengths(value):
        kind, sizes_of = rules.LENGTHS, _by_lengths(_reader(value))
    else:
        rule = "must be an integer, a tuple or list of integers or an integer array of rank 0 or 1"
        refuse(operator, split=value, rule=rule)
    received = {
        rules.LENGTHS: "split of {2} lengths",
        rules.INDICES: "indices of {2} parts",
    }.get(kind, f"{parameter}={{0}}")
    texts = [rules.FAULTS[kind].get(i + 1, "") for i in range(max(rules.FAULTS[kind]))]
    faults = "\n".join([f"{received}, axis length {{1}}: {text}" for text in texts])
    return _VALUE_OF[parameter], sizes_of, faults


@register_jitable
def intp(value):
    """Convert an integer to intp. Values above its range become the largest intp."""
    signed = np.intp(value)
    return signed if signed >= 0 or value < 0 else np.intp(_MOST)


def _reader(kind):
    """Return the function that makes an intp array of a sequence of integers of this type."""
    if not isinstance(kind, types.BaseTuple) or isinstance(kind, types.UniTuple):
        return _read
    return _read_several_types if kind.count else _read_nothing


@register_jitable
def _read(values):
    read = np.empty(len(values), np.intp)
    i = 0
    for n in values:
        read[i] = intp(n)
        i += 1  # noqa: SIM113  as below
    return read


@register_jitable
def _read_several_types(values):
    read = np.empty(len(values), np.intp)
    i = 0
    for n in literal_unroll(values):
        read[i] = intp(n)
        i += 1  # noqa: SIM113  Numba does not unroll enumerate
    return read


@register_jitable
def _read_nothing(values):
    return np.empty(0, np.intp)


@functools.cache
def _by_lengths(read):
    @register_jitable
    def by_lengths(split, length):
        lengths = read(split)
        number, fault = _check_lengths(lengths, length, _MOST)
        return lengths, len(lengths), fault, number

    return by_lengths


@functools.cache
def _by_indices(read):
    @register_jitable
    def by_indices(indices, length):
        cuts = read(indices)
        lengths = np.empty(len(cuts) + 1, np.intp)
        number, fault = _lengths_between(cuts, length, lengths)
        return lengths, len(lengths), fault, number

    return by_indices


@functools.cache
def _by_chunks(kind):
    """Make the function of a rule whose parts are chunks."""
    rule = register_jitable(rules.CHUNKED[kind])

    @register_jitable
    def by_chunks(value, length):
        number = intp(value)
        chunk, count, fault = rule(number, length)
        return (chunk, _count_longer(chunk, count, length)), count, fault, number

    return by_chunks


@register_jitable
def _by_scalar(split, length):
    return _by_chunk(split[()], length)


_by_chunk = _by_chunks(rules.CHUNK)


def size(sizes, i, length):
    """Return the length of part i. Numba compiles the overload for the type of `sizes`."""
    raise NotImplementedError


@overload(size)
def _size_overload(sizes, i, length):
    if isinstance(sizes, types.BaseTuple):
        return lambda sizes, i, length: _size_of_part(sizes[0], sizes[1], i, length)
    return lambda sizes, i, length: sizes[i]
