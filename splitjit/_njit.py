"""`split` and `split_into` inside users' own ``@njit`` code.

Numba imports this module through its entry point ``numba_extensions`` before it compiles
anything. The functions here apply the rules of `splitjit._core.rules` to values that are
known only when compiled code runs. They copy on the thread that calls, because compiled
code may already run in a parallel region.

Only the implementations of the overloads raise: if a function that they call raised,
Numba would not free the arrays that are alive. Such a function returns a fault instead.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import literal_unroll, njit, types
from numba.core.errors import TypingError
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import overload, register_jitable

import splitjit
from splitjit._core import rules
from splitjit._core.arguments import most_parts
from splitjit._core.routes import STREAM_FROM
from splitjit.errors import SplitError

_MOST = np.iinfo(np.intp).max
_MOST_PARTS = most_parts()
_LONG = 1 << 12  # from this mean run length on, parts share too few cache lines for blocking to pay
_WRONG_VALUE, _TOO_MANY, _WRONG_LENGTH = rules.WRONG_VALUE, rules.TOO_MANY, rules.WRONG_LENGTH
_AXIS, _AXIS_FAULT = "axis={0} of rank {1}", rules.AXIS_FAULT


def init():
    """Do nothing: importing this module has registered the overloads."""


# ---- split, and split_into -------------------------------------------------------------


@overload(splitjit.split)
def _split(
    x,
    split=None,
    axis=0,
    num_outputs=None,
    num_splits=None,
    out=None,
    copy=True,
):
    _check_array(x)
    if _is_given(out):
        raise TypingError("splitjit.split: compiled code takes no out=; call splitjit.split_into")
    said = (copy, getattr(copy, "value", None), getattr(copy, "literal_value", None))
    if not any(value is True for value in said):
        raise TypingError("splitjit.split: compiled code takes no copy=; slice x for views")
    _check_integers(axis=axis, num_outputs=num_outputs, num_splits=num_splits)
    sizes_of, received, wrong_value, too_many, wrong_length = _rule(split, num_outputs, num_splits)
    copy_parts = _copy_parts()

    def implementation(
        x, split=None, axis=0, num_outputs=None, num_splits=None, out=None, copy=True
    ):
        d, fault = _wrap_axis(_intp(axis), x.ndim)
        if fault != 0:
            raise SplitError("split", _AXIS, _AXIS_FAULT, _intp(axis), x.ndim, x.ndim - 1)
        length = x.shape[d]
        sizes, number, count, fault = sizes_of(split, num_outputs, num_splits, length)
        if fault == _WRONG_VALUE:
            raise SplitError("split", received, wrong_value, number, length, count)
        if fault == _TOO_MANY:
            raise SplitError("split", received, too_many, number, length, count)
        if fault == _WRONG_LENGTH:
            raise SplitError("split", received, wrong_length, number, length, count)
        if count > _MOST_PARTS:
            raise MemoryError("splitjit.split: not enough memory for so many parts")
        parts = [
            np.empty(tuple_setitem(x.shape, d, _size(sizes, i, length)), x.dtype)
            for i in range(count)
        ]
        # No streaming stores: the system has just zeroed these pages, so they are in the cache.
        copy_parts(x, parts, sizes, count, d, False)
        return parts

    return implementation


@overload(splitjit.split_into)
def _split_into(x, outs, split, axis=0):
    _check_array(x)
    part = _item_of(outs)
    if not isinstance(part, types.Array):
        raise TypingError(f"splitjit.split_into: outs must be arrays of one type, not {outs}")
    if not part.mutable:
        raise TypingError("splitjit.split_into: outs must be writeable")
    if (part.dtype, part.ndim) != (x.dtype, x.ndim):
        raise TypingError(
            f"splitjit.split_into: outs must have the dtype and rank of x, {x}, not {part}"
        )
    _check_integers(axis=axis)
    sizes_of, received, wrong_value, too_many, wrong_length = _rule(split, None, None)
    copy_parts = _copy_parts()

    def implementation(x, outs, split, axis=0):
        d, fault = _wrap_axis(_intp(axis), x.ndim)
        if fault != 0:
            raise SplitError("split_into", _AXIS, _AXIS_FAULT, _intp(axis), x.ndim, x.ndim - 1)
        length = x.shape[d]
        sizes, number, count, fault = sizes_of(split, None, None, length)
        if fault == _WRONG_VALUE:
            raise SplitError("split_into", received, wrong_value, number, length, count)
        if fault == _TOO_MANY:
            raise SplitError("split_into", received, too_many, number, length, count)
        if fault == _WRONG_LENGTH:
            raise SplitError("split_into", received, wrong_length, number, length, count)
        if len(outs) != count:
            raise SplitError("split_into", _OUTS, _ONE_OUT_PER_PART, len(outs), count)
        fault, i, j = _check_outs(x, outs, sizes, count, d)
        if fault == _WRONG_SHAPE:
            raise SplitError("split_into", "outs[{0}]", "must have the shape of its part", i)
        if fault == _SHARES_WITH_X:
            raise SplitError("split_into", "outs[{0}] and x", "must not share memory", i)
        if fault == _SHARES_WITH_OUT:
            raise SplitError("split_into", "outs[{1}] and outs[{0}]", "must not share memory", i, j)
        copy_parts(x, outs, sizes, count, d, x.size * x.itemsize >= STREAM_FROM)

    return implementation


# ---- what may be compiled ---------------------------------------------------------------


def _is_given(kind):
    return not (
        kind is None
        or isinstance(kind, types.NoneType)
        or (isinstance(kind, types.Omitted) and kind.value is None)
    )


def _is_integer(kind):
    if isinstance(kind, types.Omitted):
        kind = kind.value
    return type(kind) is int or isinstance(types.unliteral(kind), types.Integer)


def _item_of(kind):
    """Return the type of the items of a sequence, or None if there is no such type."""
    return (
        getattr(kind, "dtype", None) if isinstance(kind, types.Sequence | types.ListType) else None
    )


def _is_lengths(kind):
    if isinstance(kind, types.Array):
        return kind.ndim == 1 and isinstance(kind.dtype, types.Integer)
    if isinstance(kind, types.BaseTuple):
        return all(isinstance(types.unliteral(item), types.Integer) for item in kind)
    return isinstance(_item_of(kind), types.Integer)


def _check_array(x) -> None:
    if not isinstance(x, types.Array) or x.ndim == 0:
        raise TypingError(f"splitjit.split: x must be an array of rank 1 or more, not {x}")


def _check_integers(**kinds) -> None:
    for name, kind in kinds.items():
        if _is_given(kind) and not _is_integer(kind):
            raise TypingError(f"splitjit.split: {name} must be an integer, not {kind}")


# ---- from a rule to sizes ----------------------------------------------------------------
#
# Sizes are an array of lengths, or one chunk length; the last parts are clamped to the rest.

_wrap_axis = register_jitable(rules.wrap_axis)
_check_lengths = register_jitable(rules.check_lengths)
_size_of_part = register_jitable(rules.size_of_part)


def _rule(split, num_outputs, num_splits):
    """Choose the function from a rule to sizes, and the texts of its refusals, by types alone.

    Returns
    -------
    sizes_of : function
        From `split`, `num_outputs`, `num_splits` and the axis length to the sizes, the
        number of a refusal, the number of parts, and 0 or a fault of `rules.FAULTS`.
    received, wrong_value, too_many, wrong_length : str
        The values received, and the text of each fault; fields as in `rules.FAULTS`.
    """
    given = {"split": split, "num_outputs": num_outputs, "num_splits": num_splits}
    given = {name: kind for name, kind in given.items() if _is_given(kind)}
    if len(given) != 1:
        return _no_rule, "split, num_outputs, num_splits", rules.ONE_RULE, "", ""
    (parameter,) = given
    if parameter != "split":
        kind, value_of = parameter, _VALUE_OF[parameter]
    elif _is_lengths(split):
        kind, value_of = rules.LENGTHS, None
    elif _is_integer(split):
        kind, value_of = rules.CHUNK, _VALUE_OF["split"]
    elif isinstance(split, types.Array) and split.ndim == 0 and _is_integer(split.dtype):
        kind, value_of = rules.CHUNK, _VALUE_OF["split[()]"]
    else:
        raise TypingError(
            "splitjit.split: split must be an integer, a tuple or list of integers or an integer "
            f"array of rank 0 or 1, not {split}"
        )
    received = "split of {2} lengths" if kind == rules.LENGTHS else f"{parameter}={{0}}"
    faults = rules.FAULTS[kind]
    return (
        _by_lengths if kind == rules.LENGTHS else _by_chunks(kind, value_of),
        f"{received}, axis length {{1}}",
        *[faults.get(fault, "") for fault in (_WRONG_VALUE, _TOO_MANY, _WRONG_LENGTH)],
    )


_VALUE_OF = {
    "split": register_jitable(lambda split, num_outputs, num_splits: split),
    "split[()]": register_jitable(lambda split, num_outputs, num_splits: split[()]),
    "num_outputs": register_jitable(lambda split, num_outputs, num_splits: num_outputs),
    "num_splits": register_jitable(lambda split, num_outputs, num_splits: num_splits),
}


@register_jitable
def _intp(value):
    """Convert an integer to intp. A value above the range exceeds any length, too."""
    return np.intp(value) if value <= _MOST else np.intp(_MOST)


@register_jitable
def _no_rule(split, num_outputs, num_splits, length):
    return length, length, length, _WRONG_VALUE


@register_jitable
def _by_lengths(split, num_outputs, num_splits, length):
    lengths = _as_lengths(split)
    fault = _check_lengths(lengths, length)
    number = 0
    if fault == _WRONG_VALUE:
        number = lengths.min()
    elif fault != 0:
        for n in lengths:
            number = number + n if n <= _MOST - number else _MOST
    return lengths, number, len(lengths), fault


@functools.cache
def _by_chunks(kind, value_of):
    """Make the function of a rule whose parts are chunks."""
    apply = register_jitable(rules.CHUNKED[kind])

    @register_jitable
    def by_chunks(split, num_outputs, num_splits, length):
        value = _intp(value_of(split, num_outputs, num_splits))
        chunk, count, fault = apply(value, length)
        return chunk, value, count, fault

    return by_chunks


# The two functions below are stubs: Numba compiles an overload for the types that it meets.


def _as_lengths(split):
    """Copy lengths of any integer types to an array of intp."""
    raise NotImplementedError


@overload(_as_lengths)
def _as_lengths_overload(split):
    def of_items_of_one_type(split):
        lengths = np.empty(len(split), np.intp)
        i = 0
        for length in split:
            lengths[i] = _intp(length)
            i += 1  # noqa: SIM113  as below
        return lengths

    def of_items_of_several_types(split):
        lengths = np.empty(len(split), np.intp)
        i = 0
        for length in literal_unroll(split):
            lengths[i] = _intp(length)
            i += 1  # noqa: SIM113  Numba does not unroll enumerate
        return lengths

    if not isinstance(split, types.BaseTuple) or isinstance(split, types.UniTuple):
        return of_items_of_one_type
    if split.count:
        return of_items_of_several_types
    return lambda split: np.empty(0, np.intp)


def _size(sizes, i, length):
    """Return the length of part i."""
    raise NotImplementedError


@overload(_size)
def _size_overload(sizes, i, length):
    if _is_integer(sizes):
        return lambda sizes, i, length: _size_of_part(sizes, i, length)
    return lambda sizes, i, length: sizes[i]


# ---- the copy ---------------------------------------------------------------------------


_OUTS, _ONE_OUT_PER_PART = "outs of {0} arrays", "must have an array for each of {1} parts"
_WRONG_SHAPE, _SHARES_WITH_X, _SHARES_WITH_OUT = 1, 2, 3


@register_jitable
def _check_outs(x, outs, sizes, count, axis):
    """Return 0 or why parts cannot be written to `outs`, and the indices of the arrays."""
    for i in range(count):
        out = outs[i]
        for d in range(x.ndim):
            if out.shape[d] != (_size(sizes, i, x.shape[d]) if d == axis else x.shape[d]):
                return _WRONG_SHAPE, i, i
        if _overlap(x, out):
            return _SHARES_WITH_X, i, i
        for j in range(i):
            if _overlap(outs[j], out):
                return _SHARES_WITH_OUT, i, j
    return 0, 0, 0


@register_jitable
def _overlap(a, b):
    """Return whether two contiguous arrays share memory; of others, return False."""
    if a.size == 0 or b.size == 0 or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return False
    start, other = a.ctypes.data, b.ctypes.data
    return start < other + b.size * b.itemsize and other < start + a.size * a.itemsize


@functools.cache
def _copy_parts():
    """Make the function that copies the parts, and load the compiled loop that it calls."""
    from splitjit._kernels.part import copy_part, lay_out_part, scratch
    from splitjit._kernels.table import BLOCK

    loop = copy_part()

    @njit(inline="always")
    def copy_parts(x, parts, sizes, count, axis, stream):
        nbytes = x.size * x.itemsize
        if nbytes == 0:
            return
        rows = 1
        for d in range(axis):
            rows *= x.shape[d]
        length = x.shape[axis]
        bytes_of_row = nbytes // rows
        # Copy blocks of rows, so that cache lines and pages that parts share are fetched once.
        block = max(1, BLOCK // bytes_of_row) if bytes_of_row < _LONG * count else rows
        record = scratch()
        for row in range(0, rows, block):
            end = min(row + block, rows)
            source = x.ctypes.data
            for i in range(count):
                size = _size(sizes, i, length)
                if size:
                    part = parts[i]
                    lay_out_part(record, x.shape, x.strides, part.strides, axis, size, x.itemsize)
                    run = bytes_of_row // length * size
                    loop(
                        np.intp(stream), part.ctypes.data, source, record,
                        row * run, end * run,
                    )  # fmt: skip
                source += size * x.strides[axis]

    return copy_parts
