"""`split` and `split_into` inside users' own ``@njit`` code.

Numba imports this module by its entry point ``numba_extensions`` before it
compiles anything. What is here applies the rules of `splitjit._core.plan` to
values that are known only when compiled code runs, and copies by a loop of
`splitjit._kernels.copy`, on the thread that calls: compiled code may be in a parallel
region already.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import literal_unroll, njit, types
from numba.core.errors import TypingError
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import overload, register_jitable

import splitjit
from splitjit._core.plan import MAX_PARTS, most_parts
from splitjit._core.routes import STREAM_FROM
from splitjit.errors import SplitError

_MOST = np.iinfo(np.intp).max
_MOST_PARTS = most_parts()
_LONG = 1 << 12  # bytes of runs that share too little


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
        raise TypingError("splitjit.split: in compiled code, split_into takes the place of out=")
    said = (copy, getattr(copy, "value", None), getattr(copy, "literal_value", None))
    if not any(value is True for value in said):
        raise TypingError("splitjit.split: compiled code takes no copy=; slice x for views")
    rule = _rule(split, num_outputs, num_splits)
    _check_integers(axis=axis, num_outputs=num_outputs, num_splits=num_splits)
    copy_parts = _copy_parts()

    def implementation(
        x, split=None, axis=0, num_outputs=None, num_splits=None, out=None, copy=True
    ):
        d = _normalize_axis(axis, x.ndim)
        sizes, count = rule(split, num_outputs, num_splits, x.shape[d])
        if count > _MOST_PARTS:
            raise MemoryError("splitjit.split: no memory for so many parts")
        parts = [
            np.empty(tuple_setitem(x.shape, d, _size(sizes, i, x.shape[d])), x.dtype)
            for i in range(count)
        ]
        # Past the cache is no gain: the system has just zeroed these pages in it.
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
    rule = _rule(split, None, None)
    _check_integers(axis=axis)
    copy_parts = _copy_parts()

    def implementation(x, outs, split, axis=0):
        d = _normalize_axis(axis, x.ndim)
        sizes, count = rule(split, None, None, x.shape[d])
        _check_outs(x, outs, sizes, count, d)
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
    """Return the type of what a sequence holds, None where that is not one type."""
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


# ---- the rules of the planner -----------------------------------------------------------
#
# Lengths are as they were given, or a chunk: an integer, of which parts take what is left.


def _rule(split, num_outputs, num_splits):
    """Choose the function that checks a rule and tells the sizes and the number of parts."""
    given = [_is_given(kind) for kind in (split, num_outputs, num_splits)]
    if sum(given) != 1:
        return _no_rule
    if given[1]:
        return _by_num_outputs
    if given[2]:
        return _by_num_splits
    if isinstance(split, types.Array) and split.ndim == 0 and _is_integer(split.dtype):
        return _by_scalar
    if _is_integer(split):
        return _by_chunk
    if _is_lengths(split):
        if isinstance(split, types.BaseTuple) and not isinstance(split, types.UniTuple):
            return _by_tuple if split.count else _by_nothing
        return _by_lengths
    raise TypingError(
        "splitjit.split: split must be an integer, a tuple or list of integers or an array of "
        f"them of rank 0 or 1, not {split}"
    )


@register_jitable
def _intp(value):
    """Convert an integer; what is above the range is above any length, too."""
    return np.intp(value) if value <= _MOST else np.intp(_MOST)


@register_jitable
def _no_rule(split, num_outputs, num_splits, length):
    if length >= 0:
        raise SplitError(
            "split", "split, num_outputs, num_splits", "exactly one of the three must be given"
        )
    return length, length


@register_jitable
def _by_lengths(split, num_outputs, num_splits, length):
    total = 0
    for size in split:
        n = _intp(size)
        if n < 0:
            raise SplitError("split", "split with %d", "lengths must be at least 0", n)
        if n > length - total:  # a sum could overflow
            raise SplitError(
                "split", "split of more than %d", "lengths must sum to the axis length", length
            )
        total += n
    if total != length:
        raise SplitError(
            "split", "split of %d for %d", "lengths must sum to the axis length", total, length
        )
    return split, len(split)


@register_jitable
def _by_tuple(split, num_outputs, num_splits, length):
    """Take lengths of different integer types."""
    sizes = np.empty(len(split), np.intp)
    i = 0
    for size in literal_unroll(split):
        sizes[i] = _intp(size)
        i += 1  # noqa: SIM113  enumerate takes no such loop
    return _by_lengths(sizes, num_outputs, num_splits, length)


@register_jitable
def _by_nothing(split, num_outputs, num_splits, length):
    return _by_lengths(np.empty(0, np.intp), num_outputs, num_splits, length)


@register_jitable
def _by_chunk(split, num_outputs, num_splits, length):
    chunk = _intp(split)
    if chunk < 1:
        raise SplitError("split", "split=%d", "split must be at least 1", chunk)
    count = length // chunk + (length % chunk != 0)
    if count > MAX_PARTS:
        raise SplitError("split", "split=%d", "parts must be fewer than 2**31", chunk)
    return chunk, count


@register_jitable
def _by_scalar(split, num_outputs, num_splits, length):
    return _by_chunk(split[()], num_outputs, num_splits, length)


@register_jitable
def _by_num_outputs(split, num_outputs, num_splits, length):
    count = _intp(num_outputs)
    if not 1 <= count <= MAX_PARTS:
        raise SplitError(
            "split", "num_outputs=%d", "num_outputs must be at least 1, and below 2**31", count
        )
    return length // count + (length % count != 0), count


@register_jitable
def _by_num_splits(split, num_outputs, num_splits, length):
    count = _intp(num_splits)
    if not 1 <= count <= MAX_PARTS:
        raise SplitError(
            "split", "num_splits=%d", "num_splits must be at least 1, and below 2**31", count
        )
    if length % count != 0:
        raise SplitError(
            "split",
            "num_splits=%d for %d",
            "the axis length must be a multiple of num_splits",
            count,
            length,
        )
    return length // count, count


@register_jitable
def _normalize_axis(axis, rank):
    d = _intp(axis)
    if not -rank <= d < rank:
        raise SplitError(
            "split", "axis=%d for rank %d", "axis must be in [-rank, rank - 1]", d, rank
        )
    return d + rank if d < 0 else d


def _size_of_part(sizes, i, length):
    """Tell the length of part `i`; only compiled code has it."""
    raise NotImplementedError


@overload(_size_of_part, inline="always")
def _size_overload(sizes, i, length):
    if _is_integer(sizes):
        return lambda sizes, i, length: min(sizes, length - min(i * sizes, length))
    return lambda sizes, i, length: np.intp(sizes[i])


@register_jitable
def _size(sizes, i, length):
    return _size_of_part(sizes, i, length)


# ---- the copy ---------------------------------------------------------------------------


@register_jitable
def _check_outs(x, outs, sizes, count, axis):
    if len(outs) != count:
        raise SplitError(
            "split_into",
            "outs of %d arrays for %d parts",
            "must have one for each",
            len(outs),
            count,
        )
    for i in range(count):
        out = outs[i]
        for d in range(x.ndim):
            if out.shape[d] != (_size(sizes, i, x.shape[d]) if d == axis else x.shape[d]):
                raise SplitError("split_into", "outs[%d]", "must have the shape of its part", i)
        if _overlap(x, out):
            raise SplitError("split_into", "outs[%d] and x", "must not share memory", i)
        for j in range(i):
            if _overlap(outs[j], out):
                raise SplitError(
                    "split_into", "outs[%d] and outs[%d]", "must not share memory", j, i
                )


@register_jitable
def _overlap(a, b):
    """Whether two arrays share memory, as far as contiguous ones tell."""
    if a.size == 0 or b.size == 0 or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return False
    start, other = a.ctypes.data, b.ctypes.data
    return start < other + b.size * b.itemsize and other < start + a.size * a.itemsize


@functools.cache
def _copy_parts():
    """Make the function that copies the parts; this loads the loop of `kernels`."""
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
        # Cache lines and pages that parts share are fetched once, where it matters.
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
