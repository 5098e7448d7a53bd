"""The outputs of `split_into` in compiled code: one type for all, their shapes and their memory."""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core.imputils import impl_ret_borrowed
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import intrinsic, register_jitable

from splitjit._njit.rules import size


def has_several_types(outs) -> bool:
    """Return whether the type of `outs` is a tuple of several types."""
    return isinstance(outs, types.BaseTuple) and not isinstance(outs, types.UniTuple)


@register_jitable
def unchanged(outs):
    """Return `outs`, whose items have one type."""
    return outs


@intrinsic
def as_one_type(typing_context, outs):
    """Return a tuple of arrays of several layouts as a tuple of arrays of any layout.

    Compiled code can index a tuple by a variable only if all items have one type.
    """
    kind = types.UniTuple(outs[0].copy(layout="A"), outs.count)

    def generate(context, builder, signature, arguments):
        value = context.cast(builder, arguments[0], outs, kind)
        return impl_ret_borrowed(context, builder, kind, value)

    return kind(outs), generate


OUT_FAULTS = "\n".join(
    [
        "outs of {0} arrays: must have an array for each of {1} parts",
        "outs[{0}]: must have the shape of its part",
        "outs[{0}] and x: must not share memory",
        "outs[{1}] and outs[{0}]: must not share memory",
    ]
)


@register_jitable
def check_outs(x, outs, sizes, count, axis):
    """Return 0 or a fault of `OUT_FAULTS`, and two numbers for it."""
    if len(outs) != count:
        return 1, len(outs), count
    start_of_x, end_of_x = _span(x)
    in_order = True  # by address, so that neighbours alone need to be compared
    end_of_last = 0
    for i in range(count):
        shape = tuple_setitem(x.shape, axis, size(sizes, i, x.shape[axis]))
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
