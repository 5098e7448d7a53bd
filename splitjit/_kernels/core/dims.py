"""From the axes of arrays to the dims of a copy; the drawing is in `layouter`.

Axes merge into one dim if a step along the outer axis is as long as all of the inner axis, in the
source and in every part. Axes that are contiguous on both sides make up the run. Axes are taken in
the order of their strides in the first part, so that each part is written from front to back.
"""

from collections import namedtuple

from splitjit._abi.calls import WORD
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import out_of_line, words_at

RUN_DIM = 0
"""The number of the run, where others are numbers of dims."""

_ITEM = -1  # in place of an axis: the innermost loop is around single items
_NONE = -1  # in place of a dim: an axis of length 1, which needs no loop


Copy = namedtuple("Copy", "rank axis count itemsize shape strides sizes targets pitch")
"""The source and the parts of a split; see `splitjit._abi.calls.LayoutRequest`.

shape, strides, sizes
    Pointers.
"""

Dims = namedtuple("Dims", "count of_axis steps")
"""Which dim each axis belongs to.

count
    The number of dims. They have numbers from 1 on, the innermost first; 0 is the run.
of_axis
    A pointer to the dim of each axis.
steps
    For each dim, its innermost axis, whose strides are those of the dim; a pointer.
"""

# ---- what is copied --------------------------------------------------------------------------


@jit
def copy_of(request):
    return Copy(
        request.rank, request.axis, request.count, request.itemsize, words_at(request.shape),
        words_at(request.shape + WORD * request.rank), words_at(request.sizes),
        request.targets, request.pitch,
    )  # fmt: skip


@jit
def _extent(copy, axis, part):
    return copy.sizes[part] if axis == copy.axis else copy.shape[axis]


@jit
def target_stride(copy, axis, part):
    if copy.targets:
        return words_at(copy.targets + part * copy.pitch)[1 + copy.rank + axis]
    stride = copy.itemsize  # of a C-contiguous part
    for inner in range(axis + 1, copy.rank):
        stride *= _extent(copy, inner, part)
    return stride


# ---- from axes to dims -----------------------------------------------------------------------


@jit
def _order_axes(copy, order):
    """Order the axes by their strides in the first part, outermost first; equal ones stay."""
    first = 0
    while copy.sizes[first] == 0:
        first += 1
    for axis in range(copy.rank):
        stride = abs(target_stride(copy, axis, first))
        k = axis
        while k > 0 and abs(target_stride(copy, order[k - 1], first)) < stride:
            order[k] = order[k - 1]
            k -= 1
        order[k] = axis


@jit
def _has_one_item(copy, axis):
    """Return whether an axis has length 1 in all parts."""
    for i in range(copy.count):  # noqa: SIM110 - a generator is slow in compiled code
        if _extent(copy, axis, i) > 1:
            return False
    return True


@jit
def _steps_over(copy, axis, inner):
    """Return whether a step along `axis` is as long as all of axis `inner`, on both sides."""
    for i in range(copy.count):
        if copy.sizes[i] == 0:
            continue
        source = target = copy.itemsize
        if inner != _ITEM:
            extent = _extent(copy, inner, i)
            source, target = extent * copy.strides[inner], extent * target_stride(copy, inner, i)
        if copy.strides[axis] != source or target_stride(copy, axis, i) != target:
            return False
    return True


@jit
def merge(copy, order, of_axis, steps):
    """Merge axes into as few dims as the strides of both sides allow."""
    out_of_line()
    _order_axes(copy, order)
    count, inner = 0, _ITEM
    for k in range(copy.rank - 1, -1, -1):
        axis = order[k]
        of_axis[axis] = _NONE
        if _has_one_item(copy, axis):
            continue
        if not _steps_over(copy, axis, inner):
            count += 1
            steps[count] = axis
        of_axis[axis] = count
        inner = axis
    return Dims(count, of_axis, steps)


@jit
def extent_of_dim(copy, dims, dim, part):
    """Return how many runs a dim has in a part; of the run, how many items."""
    extent = 1
    for axis in range(copy.rank):
        if dims.of_axis[axis] == dim:
            extent *= _extent(copy, axis, part)
    return extent
