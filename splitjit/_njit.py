"""`split` and `split_into` inside users' own ``@njit`` code.

Numba imports this module through its entry point ``numba_extensions`` before it compiles
anything. The functions here apply the rules of `splitjit._plan.rules` to values that are
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
from numba import njit, types
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import intrinsic, register_jitable

import splitjit
from splitjit._copy.crossovers import stream_from
from splitjit._inlining import overload_and_inline
from splitjit._njit_rules import AXIS_FAULTS as _AXIS_FAULTS
from splitjit._njit_rules import intp as _intp
from splitjit._njit_rules import is_given as _is_given
from splitjit._njit_rules import is_integer as _is_integer
from splitjit._njit_rules import is_passed as _is_passed
from splitjit._njit_rules import item_of as _item_of
from splitjit._njit_rules import refuse as _refuse
from splitjit._njit_rules import rule as _rule
from splitjit._njit_rules import size as _size
from splitjit._njit_rules import wrap_axis as _wrap_axis
from splitjit._plan.arguments import most_parts
from splitjit.errors import SplitError

_MOST_PARTS = most_parts()
STREAM_FROM = stream_from(0)
_LONG = 1 << 12  # from this mean run length on, parts share too few cache lines for blocking to pay


def init():
    """Do nothing: importing this module has registered the overloads."""


# ---- split, and split_into -------------------------------------------------------------


@overload_and_inline(splitjit.split)
def _split(
    x,
    split=None,
    by_position=None,
    axis=0,
    num_outputs=None,
    num_splits=None,
    indices=None,
    num_sections=None,
    out=None,
    copy=True,
    dim=None,
):
    _check_array("split", x)
    _check_axis("split", axis, by_position, dim)
    if _is_given(out):
        _refuse("split", out=out, rule="compiled code takes no out=; call splitjit.split_into")
    said = (copy, getattr(copy, "value", None), getattr(copy, "literal_value", None))
    if not any(value is True for value in said):
        if copy == types.boolean:  # Numba tries types of literals next, if any
            raise TypingError("splitjit.split: copy= must be the literal True")
        _refuse("split", copy=copy, rule="compiled code takes no copy=; slice x for views")
    value_of, sizes_of, faults = _rule(
        "split", split, num_outputs, num_splits, indices, num_sections
    )
    copy_parts = _copy_parts()

    def implementation(
        x, split=None, by_position=None, axis=0, num_outputs=None, num_splits=None, indices=None,
        num_sections=None, out=None, copy=True, dim=None,
    ):  # fmt: skip
        d, fault = _wrap_axis(_intp(axis), x.ndim)
        if fault != 0:
            raise SplitError("split", "", _AXIS_FAULTS, +fault, _intp(axis), x.ndim, x.ndim - 1)
        value = value_of(split, num_outputs, num_splits, indices, num_sections)
        sizes, count, fault, number = sizes_of(value, x.shape[d])
        if fault != 0:
            raise SplitError("split", "", faults, +fault, number, x.shape[d], count)
        if count > _MOST_PARTS:
            raise MemoryError("splitjit.split: not enough memory for so many parts")
        parts = [
            np.empty(tuple_setitem(x.shape, d, _size(sizes, i, x.shape[d])), x.dtype)
            for i in range(count)
        ]
        # No streaming stores: the system has just zeroed these pages, so they are in the cache.
        copy_parts(x, parts, sizes, count, d, False)
        return parts

    return implementation


@overload_and_inline(splitjit.split_into)
def _split_into(
    x,
    outs,
    split=None,
    axis=0,
    by_position=None,
    num_outputs=None,
    num_splits=None,
    indices=None,
    num_sections=None,
    dim=None,
):
    _check_array("split_into", x)
    _check_axis("split_into", axis, None, dim)
    if _is_passed(by_position):
        _refuse("split_into", argument=by_position, rule="rules after axis must be given by name")
    _check_types_of_outs(x, outs)
    as_one_type = _as_one_type if _has_several_types(outs) else _unchanged
    value_of, sizes_of, faults = _rule(
        "split_into", split, num_outputs, num_splits, indices, num_sections
    )
    copy_parts = _copy_parts()

    def implementation(
        x, outs, split=None, axis=0, by_position=None, num_outputs=None, num_splits=None,
        indices=None, num_sections=None, dim=None,
    ):  # fmt: skip
        d, fault = _wrap_axis(_intp(axis), x.ndim)
        if fault != 0:
            raise SplitError(
                "split_into", "", _AXIS_FAULTS, +fault, _intp(axis), x.ndim, x.ndim - 1
            )
        value = value_of(split, num_outputs, num_splits, indices, num_sections)
        sizes, count, fault, number = sizes_of(value, x.shape[d])
        if fault != 0:
            raise SplitError("split_into", "", faults, +fault, number, x.shape[d], count)
        parts = as_one_type(outs)
        fault, i, j = _check_outs(x, parts, sizes, count, d)
        if fault != 0:
            raise SplitError("split_into", "", _OUT_FAULTS, +fault, i, j)
        copy_parts(x, parts, sizes, count, d, x.size * x.itemsize >= STREAM_FROM)

    return implementation


# ---- checks of types -----------------------------------------------------------------------


def _check_array(operator, x) -> None:
    if not isinstance(x, types.Array) or x.ndim == 0:
        _refuse(operator, x=x, rule="x must be an array of rank 1 or more")


def _check_axis(operator, axis, by_position, dim) -> None:
    for name, kind in {"axis": by_position, "dim": dim}.items():
        if _is_passed(kind):
            _refuse(operator, **{name: kind}, rule="the axis must be given by its name; pass axis=")
    if not _is_integer(axis):
        _refuse(operator, axis=axis, rule="axis must be an integer")


def _check_types_of_outs(x, outs) -> None:
    parts = {*outs} if isinstance(outs, types.BaseTuple) else {_item_of(outs)}
    if not parts or not all(isinstance(part, types.Array) for part in parts):
        _refuse("split_into", outs=outs, rule="outs must be a tuple or a list of arrays")
    if not all(part.mutable for part in parts):
        _refuse("split_into", outs=outs, rule="outs must be writeable")
    if {(part.dtype, part.ndim) for part in parts} != {(x.dtype, x.ndim)}:
        _refuse("split_into", outs=outs, x=x, rule="outs must have the dtype and rank of x")


# ---- outputs of several layouts ---------------------------------------------------------


def _has_several_types(outs) -> bool:
    return isinstance(outs, types.BaseTuple) and not isinstance(outs, types.UniTuple)


@register_jitable
def _unchanged(outs):
    return outs


@intrinsic
def _as_one_type(typing_context, outs):
    """Return a tuple of arrays of several layouts as a tuple of arrays of any layout.

    Compiled code can index a tuple by a variable only if all items have one type.
    """
    kind = types.UniTuple(outs[0].copy(layout="A"), outs.count)

    def generate(context, builder, signature, arguments):
        value = context.cast(builder, arguments[0], outs, kind)
        return impl_ret_borrowed(context, builder, kind, value)

    return kind(outs), generate


# ---- the copy ---------------------------------------------------------------------------


_OUT_FAULTS = "\n".join(
    [
        "outs of {0} arrays: must have an array for each of {1} parts",
        "outs[{0}]: must have the shape of its part",
        "outs[{0}] and x: must not share memory",
        "outs[{1}] and outs[{0}]: must not share memory",
    ]
)


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
