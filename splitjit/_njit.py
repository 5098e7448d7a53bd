"""`split` and `split_into` inside users' own ``@njit`` code.

Numba imports this module through its entry point ``numba_extensions`` before it compiles
anything. The functions here apply the rules of `splitjit._core.rules` to values that are
known only when compiled code runs. They copy on the thread that calls, because compiled
code may already run in a parallel region.

Only the implementations of the overloads raise, and Numba inlines them, see
`splitjit._inlining`. A function that they call returns a fault instead. One raise
statement serves all faults of a rule, which is faster to compile. The statement passes
``+fault``: if the condition ``fault != 0`` has tested a variable, Numba before 0.67 passes
0 for it.
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
from splitjit._inlining import overload_and_inline
from splitjit.errors import SplitError

_MOST = np.iinfo(np.intp).max
_MOST_PARTS = most_parts()
_LONG = 1 << 12  # from this mean run length on, parts share too few cache lines for blocking to pay


def init():
    """Do nothing: importing this module has registered the overloads."""


# ---- split, and split_into -------------------------------------------------------------


@overload_and_inline(splitjit.split)
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
    cut, faults = _cut(split, num_outputs, num_splits)
    fresh_parts = _fresh_parts()

    def implementation(
        x, split=None, axis=0, num_outputs=None, num_splits=None, out=None, copy=True
    ):
        d, sizes, count, fault, a, b, c = cut(x.shape, axis, split, num_outputs, num_splits)
        if fault != 0:
            raise SplitError("split", "", faults, +fault, a, b, c)
        if count > _MOST_PARTS:
            raise MemoryError("splitjit.split: not enough memory for so many parts")
        return fresh_parts(x, sizes, count, d)

    return implementation


@overload_and_inline(splitjit.split_into)
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
    cut, faults = _cut(split, None, None)
    faults = f"{_OUT_FAULTS}\n{faults}"
    copy_parts = _copy_parts()

    def implementation(x, outs, split, axis=0):
        d, sizes, count, fault, a, b, c = cut(x.shape, axis, split, None, None)
        if fault != 0:
            fault += _OUT_FAULT_COUNT
        else:
            fault, a, b = _check_outs(x, outs, sizes, count, d)
        if fault != 0:
            raise SplitError("split_into", "", faults, +fault, a, b, c)
        copy_parts(x, outs, sizes, count, d, x.size * x.itemsize >= STREAM_FROM)

    return implementation


# ---- which types may be compiled --------------------------------------------------------


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
# `sizes` is an array of lengths, or a single chunk length. In the second case the last parts
# are clamped to the rest of the axis.

_wrap_axis = register_jitable(rules.wrap_axis)
_check_lengths = register_jitable(rules.check_lengths)
_size_of_part = register_jitable(rules.size_of_part)

_AXIS_FAULTS = f"axis={{0}} of rank {{1}}: {rules.AXIS_FAULT}"


def _cut(split, num_outputs, num_splits):
    """Make the function that cuts a shape by a rule.

    Returns
    -------
    cut : function
        Takes a shape, an axis and the parameters of the rule. Returns the axis counted from
        the front, the sizes, the number of parts, 0 or a fault, and three values for the text
        of the fault.
    faults : str
        The texts of the faults, one line each; see `SplitError`.
    """
    sizes_of, faults = _rule(split, num_outputs, num_splits)

    @register_jitable
    def cut(shape, axis, split, num_outputs, num_splits):
        d, fault = _wrap_axis(_intp(axis), len(shape))
        length = shape[d]
        sizes, count, wrong, number = sizes_of(split, num_outputs, num_splits, length)
        if fault:
            return d, sizes, count, fault, _intp(axis), len(shape), len(shape) - 1
        return d, sizes, count, wrong + (wrong > 0), number, length, count

    return cut, f"{_AXIS_FAULTS}\n{faults}"


def _rule(split, num_outputs, num_splits):
    """Choose the function of a rule by the types of its parameters.

    Returns
    -------
    sizes_of : function
        Takes `split`, `num_outputs`, `num_splits` and the axis length. Returns the sizes, the
        number of parts, 0 or a fault, and the value for the text of the fault.
    faults : str
        The texts of the faults of the rule, one line each; see `SplitError`.
    """
    given = {"split": split, "num_outputs": num_outputs, "num_splits": num_splits}
    parameters = [name for name, kind in given.items() if _is_given(kind)]
    if len(parameters) != 1:
        return _no_rule, f"{', '.join(given)}: {rules.ONE_RULE}"
    (parameter,) = parameters
    if parameter != "split":
        kind, sizes_of = parameter, _by_chunks(parameter)
    elif _is_integer(split):
        kind, sizes_of = rules.CHUNK, _by_chunks(rules.CHUNK)
    elif isinstance(split, types.Array) and split.ndim == 0 and _is_integer(split.dtype):
        kind, sizes_of = rules.CHUNK, _by_scalar
    elif _is_lengths(split):
        kind, sizes_of = rules.LENGTHS, _by_lengths
        if isinstance(split, types.BaseTuple) and not isinstance(split, types.UniTuple):
            sizes_of = _by_lengths_of_several_types if split.count else _by_no_lengths
    else:
        raise TypingError(
            "splitjit.split: split must be an integer, a tuple or list of integers or an integer "
            f"array of rank 0 or 1, not {split}"
        )
    received = "split of {2} lengths" if kind == rules.LENGTHS else f"{parameter}={{0}}"
    texts = [rules.FAULTS[kind].get(i + 1, "") for i in range(max(rules.FAULTS[kind]))]
    return sizes_of, "\n".join([f"{received}, axis length {{1}}: {text}" for text in texts])


@register_jitable
def _intp(value):
    """Convert an integer to intp. Values above its range become the largest intp."""
    return np.intp(value) if value <= _MOST else np.intp(_MOST)


@register_jitable
def _no_rule(split, num_outputs, num_splits, length):
    return length, length, 1, length


@register_jitable
def _by_lengths(split, num_outputs, num_splits, length):
    lengths = np.empty(len(split), np.intp)
    i = 0
    for n in split:
        lengths[i] = _intp(n)
        i += 1  # noqa: SIM113  as below
    number, fault = _check_lengths(lengths, length, _MOST)
    return lengths, len(lengths), fault, number


@register_jitable
def _by_lengths_of_several_types(split, num_outputs, num_splits, length):
    lengths = np.empty(len(split), np.intp)
    i = 0
    for n in literal_unroll(split):
        lengths[i] = _intp(n)
        i += 1  # noqa: SIM113  Numba does not unroll enumerate
    number, fault = _check_lengths(lengths, length, _MOST)
    return lengths, len(lengths), fault, number


@register_jitable
def _by_no_lengths(split, num_outputs, num_splits, length):
    lengths = np.empty(0, np.intp)
    number, fault = _check_lengths(lengths, length, _MOST)
    return lengths, 0, fault, number


@functools.cache
def _by_chunks(kind):
    """Make the function of a rule whose parts are chunks."""
    rule = register_jitable(rules.CHUNKED[kind])

    @register_jitable
    def by_split(split, num_outputs, num_splits, length):
        chunk, count, fault = rule(_intp(split), length)
        return chunk, count, fault, _intp(split)

    @register_jitable
    def by_num_outputs(split, num_outputs, num_splits, length):
        chunk, count, fault = rule(_intp(num_outputs), length)
        return chunk, count, fault, _intp(num_outputs)

    @register_jitable
    def by_num_splits(split, num_outputs, num_splits, length):
        chunk, count, fault = rule(_intp(num_splits), length)
        return chunk, count, fault, _intp(num_splits)

    by = {"split": by_split, "num_outputs": by_num_outputs, "num_splits": by_num_splits}
    return by[rules.PARAMETERS[kind]]


@register_jitable
def _by_scalar(split, num_outputs, num_splits, length):
    return _by_chunk(split[()], num_outputs, num_splits, length)


_by_chunk = _by_chunks(rules.CHUNK)


def _size(sizes, i, length):
    """Return the length of part i. Numba compiles the overload for the type of `sizes`."""
    raise NotImplementedError


@overload(_size)
def _size_overload(sizes, i, length):
    if _is_integer(sizes):
        return lambda sizes, i, length: _size_of_part(sizes, i, length)
    return lambda sizes, i, length: sizes[i]


# ---- the copy ---------------------------------------------------------------------------


_OUT_FAULTS = "\n".join(
    [
        "outs of {0} arrays: must have an array for each of {1} parts",
        "outs[{0}]: must have the shape of its part",
        "outs[{0}] and x: must not share memory",
        "outs[{1}] and outs[{0}]: must not share memory",
    ]
)

_OUT_FAULT_COUNT = len(_OUT_FAULTS.split("\n"))


@register_jitable
def _check_outs(x, outs, sizes, count, axis):
    """Return 0 or a fault of `_OUT_FAULTS`, and two numbers for it."""
    if len(outs) != count:
        return 1, len(outs), count
    start_of_x, end_of_x = _span(x)
    in_order = True  # by address, so that neighbours alone need to be compared
    end_of_last = 0
    for i in range(count):
        shape = tuple_setitem(x.shape, axis, _size(sizes, i, x.shape[axis]))
        if outs[i].shape != shape:
            return 2, i, i
        start, end = _span(outs[i])
        if start < end_of_x and start_of_x < end:
            return 3, i, i
        if start < end:
            if start < end_of_last:
                in_order = False
            end_of_last = end
    if in_order:
        return 0, 0, 0
    order = _by_address(outs, count)
    last = -1
    for i in order:
        start, end = _span(outs[i])
        if start == end:
            continue
        if last >= 0 and start < _span(outs[last])[1]:
            return 4, max(i, last), min(i, last)
        last = i
    return 0, 0, 0


@register_jitable
def _by_address(outs, count):
    """Return the numbers of the arrays in the order of their addresses, by a heap sort.

    `np.argsort` does the same, but takes two seconds to compile.
    """
    order = np.arange(count)
    starts = np.array([_span(out)[0] for out in outs])
    for step in range(count + count // 2 - 1, 0, -1):
        root, end = max(step - count, 0), min(step, count)
        if step < count:  # the heap is complete: move its largest item behind it
            order[0], order[step] = order[step], order[0]
        child = 2 * root + 1
        while child < end:
            if child + 1 < end and starts[order[child]] < starts[order[child + 1]]:
                child += 1
            if starts[order[root]] >= starts[order[child]]:
                break
            order[root], order[child] = order[child], order[root]
            root, child = child, 2 * child + 1
    return order


@register_jitable
def _span(array):
    """Return the start and the end of a contiguous array in memory, or 0, 0 for other arrays."""
    if array.size == 0 or not array.flags.c_contiguous:
        return 0, 0
    return array.ctypes.data, array.ctypes.data + array.size * array.itemsize


@functools.cache
def _fresh_parts():
    """Make the function that returns new parts."""
    copy_parts = _copy_parts()

    @njit(inline="always")
    def fresh_parts(x, sizes, count, axis):
        length = x.shape[axis]
        parts = [
            np.empty(tuple_setitem(x.shape, axis, _size(sizes, i, length)), x.dtype)
            for i in range(count)
        ]
        # No streaming stores: the system has just zeroed these pages, so they are in the cache.
        copy_parts(x, parts, sizes, count, axis, False)
        return parts

    return fresh_parts


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
