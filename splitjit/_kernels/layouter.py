"""Lay out a copy: from shapes and strides to the record that a loop reads.

The layouter turns a split of arrays with any number of axes into a few nested loops around moves of
contiguous bytes. Here, a float32 array of shape (8, 16, 2304) is split into three parts along its
last axis::

                    part 0           part 1           part 2
    source    |─── 3072 B ────|─── 3072 B ────|─── 3072 B ────|   row 0
              |─── 3072 B ────|─── 3072 B ────|─── 3072 B ────|   row 1
                                     …                              …
              |─── 3072 B ────|─── 3072 B ────|─── 3072 B ────|   row 127

                             axis 0    axis 1    axis 2
    extents of part 1             8        16       768
    strides in the source    147456      9216         4       bytes
    strides in part 1         49152      3072         4

- A *run* is a piece of a part that is contiguous on both sides. The items of axis 2 are, so a run
  has 768 * 4 = 3072 bytes.
- A *dim* is a loop around runs. Axes 0 and 1 make up one dim: on both sides, a step along axis 0 is
  as long as 16 steps along axis 1. So there is one dim of 8 * 16 = 128 runs, and its strides are
  those of axis 1.
- All parts have the same dims, but extents and target strides of their own. The source strides are
  the same for all parts. A part that starts later along the split axis has a *source offset*.

Axes are taken in the order of their strides in the first part, so that each part is written from
its front to its back. Then the loop is chosen. If the source is transposed, the runs that lie side
by side in a part are far apart in the source, and other runs lie between them::

    source, row by row        part, row by row
       a  b  c  d                a  e  i         lines  a b c d …  are adjacent in the source
       e  f  g  h                b  f  j         steps  a e i …    are adjacent in the part
       i  j  k  l                c  g  k

For the transpose loop, the last dim holds the *steps*, and the last but one the *lines*: the dim
whose runs are nearest to each other in the source.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import types

from splitjit._abi.kernels import COLLECTED, INTERLEAVED, LINE, LONG_RUN, LOOPS, TILE
from splitjit._abi.layout_record import (
    COUNT,
    DIMS,
    FIXED,
    HEADER,
    LOOP,
    MAX_RANK,
    NBYTES,
    RUN,
    RUNS,
    SOURCE_OFFSET,
    STREAM,
    TARGET_OFFSET,
    WORD,
    aligned,
)
from splitjit._kernels.c_api import as_integer, integer_object
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import greatest, least, out_of_line, reserve, words_at
from splitjit._kernels.records import request_at

_PLAIN, _STREAM, _DEINTERLEAVE, _TRANSPOSE = range(len(LOOPS))

_SHORT = 1 << 10  # longer runs are read equally fast in any order
_MANY = 3  # with fewer parts of single items, copying part by part is faster
_FEW_ITEMS = 7  # in large arrays, collecting lines of fewer items beats transposing tiles

_ITEM = -1  # in place of an axis: the bytes of one item
_NONE = -1  # in place of a dim: an axis of length 1, which needs no loop
_RUN = 0  # in place of a dim: the run
_ROOM = WORD * (MAX_RANK + 1)

_MOST = (1 << 63) - 1
_aligned = jit(aligned)


class _Copy(NamedTuple):
    """The source and the parts of a split; see `splitjit._abi.calls.LayoutRequest`.

    Attributes
    ----------
    rank, axis, count, itemsize, targets, target_strides, pitch : int
    shape, strides, sizes : pointer
    inner : pointer
        The strides of C-contiguous parts; before the split axis, those of a part of length 1.
    """

    rank: int
    axis: int
    count: int
    itemsize: int
    shape: Any
    strides: Any
    sizes: Any
    inner: Any
    targets: int
    target_strides: int
    pitch: int


class _Dims(NamedTuple):
    """Which dim each axis belongs to.

    Attributes
    ----------
    count : int
        The number of dims. They have numbers from 1 on, the innermost first; 0 is the run.
    of_axis : pointer
        The dim of each axis.
    steps : pointer
        For each dim, its innermost axis, whose strides are those of the dim.
    """

    count: int
    of_axis: Any
    steps: Any


# ---- what is copied --------------------------------------------------------------------------


@jit
def _copy_of(request, inner):
    shape = words_at(request.shape)
    nbytes = request.itemsize
    for axis in range(request.rank - 1, -1, -1):
        inner[axis] = nbytes
        if axis != request.axis:
            nbytes *= shape[axis]
    return _Copy(
        request.rank, request.axis, request.count, request.itemsize, shape,
        words_at(request.strides), words_at(request.sizes), inner,
        request.targets, request.target_strides, request.pitch,
    )  # fmt: skip


@jit
def _extent(copy, axis, part):
    if axis == _ITEM:
        return 1
    return copy.sizes[part] if axis == copy.axis else copy.shape[axis]


@jit
def _source_stride(copy, axis):
    return copy.itemsize if axis == _ITEM else copy.strides[axis]


@jit
def _target_stride(copy, axis, part):
    if axis == _ITEM:
        return copy.itemsize
    if copy.targets:
        return words_at(copy.target_strides + part * copy.pitch)[axis]
    return copy.inner[axis] * (copy.sizes[part] if axis < copy.axis else 1)


# ---- from axes to dims -----------------------------------------------------------------------


@jit
def _order_axes(copy, order):
    """Order the axes by their strides in the first part, outermost first; equal ones stay."""
    first = 0
    while copy.sizes[first] == 0:
        first += 1
    for axis in range(copy.rank):
        stride = abs(_target_stride(copy, axis, first))
        k = axis
        while k > 0 and abs(_target_stride(copy, order[k - 1], first)) < stride:
            order[k] = order[k - 1]
            k -= 1
        order[k] = axis


@jit
def _has_one_item(copy, axis):
    """Return whether an axis has length 1 in all parts."""
    if axis != copy.axis:
        return copy.shape[axis] == 1
    for i in range(copy.count):  # noqa: SIM110 - a generator is slow in compiled code
        if copy.sizes[i] > 1:
            return False
    return True


@jit
def _steps_over(copy, axis, inner):
    """Return whether a step along `axis` is as long as all of axis `inner`, on both sides."""
    for i in range(copy.count):
        if copy.sizes[i] == 0:
            continue
        extent = _extent(copy, inner, i)
        if _source_stride(copy, axis) != extent * _source_stride(copy, inner):
            return False
        if _target_stride(copy, axis, i) != extent * _target_stride(copy, inner, i):
            return False
    return True


@jit
def _merge(copy, order, of_axis, steps):
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
    return _Dims(count, of_axis, steps)


@jit
def _extent_of_dim(copy, dims, dim, part):
    """Return how many runs a dim has in a part; of the run, how many items."""
    extent = 1
    for axis in range(copy.rank):
        if dims.of_axis[axis] == dim:
            extent *= _extent(copy, axis, part)
    return extent


# ---- the loop --------------------------------------------------------------------------------


class _Runs(NamedTuple):
    """What the runs of the parts have in common.

    Attributes
    ----------
    parts : int
        The number of parts that are not empty.
    first, shortest, longest : int
        The bytes of a run: of the first part, and the least and the most.
    are_packed : bool
        Whether the runs of each part are adjacent in the part.
    are_neighbours : bool
        Whether equal runs of neighbouring parts are adjacent in the source.
    """

    parts: int
    first: int
    shortest: int
    longest: int
    are_packed: bool
    are_neighbours: bool


@jit
def _runs_of(copy, dims):
    out_of_line()
    parts = first = longest = 0
    shortest = _MOST
    are_packed, are_neighbours = dims.count > 0, True
    for i in range(copy.count):
        if copy.sizes[i] == 0:
            continue
        run = copy.itemsize * _extent_of_dim(copy, dims, _RUN, i)
        parts += 1
        first = first if parts > 1 else run
        shortest, longest = least(shortest, run), greatest(longest, run)
        if dims.count > 0 and _target_stride(copy, dims.steps[1], i) != run:
            are_packed = False
        if copy.sizes[i] * copy.strides[copy.axis] != run:
            are_neighbours = False
    return _Runs(parts, first, shortest, longest, are_packed, are_neighbours)


@jit
def _nearest(copy, dims):
    """Return the dim but the innermost whose runs are nearest to each other in the source."""
    nearest = dims.count
    for dim in range(dims.count - 1, 1, -1):
        if abs(copy.strides[dims.steps[dim]]) < abs(copy.strides[dims.steps[nearest]]):
            nearest = dim
    return nearest


@jit
def _is_interleaved(parts, itemsize):
    for count, nbytes in INTERLEAVED:  # noqa: SIM110 - a generator is slow in compiled code
        if parts == count and itemsize == nbytes:
            return True
    return False


@jit
def _is_collected(run):
    for nbytes in COLLECTED:  # noqa: SIM110
        if run == nbytes:
            return True
    return False


@jit
def _loop_for(copy, dims, runs, is_large):
    """Choose the loop; `is_large` says whether stores of short runs bypass the cache."""
    if not runs.are_packed:
        return _PLAIN
    run, step = runs.first, copy.strides[dims.steps[1]]
    if dims.count > 1:
        line = abs(copy.strides[dims.steps[_nearest(copy, dims)]])
        is_dense = runs.shortest == runs.longest == line and line < _SHORT
        pays = runs.longest < LINE or is_dense
        return _TRANSPOSE if 0 < line < abs(step) and pays else _PLAIN
    is_full = runs.shortest == runs.longest and runs.are_neighbours and step == runs.parts * run
    if not is_full:
        return _PLAIN
    if _is_interleaved(runs.parts, run):
        return _DEINTERLEAVE
    # Rows shorter than the vector of a transposed tile are copied faster part by part.
    is_word = run <= TILE and run & (run - 1) == 0
    if not is_word or runs.parts < _MANY or step < TILE:
        return _PLAIN
    if is_large and _is_collected(run) and runs.parts < _FEW_ITEMS:
        return _PLAIN
    return _TRANSPOSE


# ---- the record ------------------------------------------------------------------------------


@jit
def _order_dims(copy, dims, loop, columns):
    """Write the dims in the record's order, the outermost first; return how many there are.

    `_RUN` stands for a dim of one run, in a copy that has too few dims.
    """
    if dims.count == 0 or (dims.count == 1 and loop == _TRANSPOSE):
        columns[0], columns[1] = _RUN, 1
        return dims.count + 1
    k, lines = 0, _nearest(copy, dims)
    for dim in range(dims.count, 1, -1):
        if dim != lines or loop != _TRANSPOSE:
            columns[k] = dim
            k += 1
    if loop == _TRANSPOSE:
        columns[k] = lines
        k += 1
    columns[k] = 1
    return k + 1


@jit
def _write_row(copy, dims, columns, width, part, row):
    """Write the row of a part, all but its offsets; return the number of runs."""
    out_of_line()
    fields = words_at(row)
    extents, strides = words_at(row + WORD * FIXED), words_at(row + WORD * (FIXED + width))
    run, runs = copy.itemsize * _extent_of_dim(copy, dims, _RUN, part), 1
    for k in range(width):
        dim = columns[k]
        extents[k], strides[k] = 1, 0
        if dim != _RUN:
            extents[k] = _extent_of_dim(copy, dims, dim, part)
            strides[k] = _target_stride(copy, dims.steps[dim], part)
        runs *= extents[k]
    fields[RUN], fields[NBYTES] = run, run * runs
    return runs


@jit
def _write(copy, dims, columns, width, record):
    """Write the source strides and the rows; return the bytes of a block for the parts."""
    source_strides = words_at(record + WORD * HEADER)
    for k in range(width):
        source_strides[k] = 0
        if columns[k] != _RUN:
            source_strides[k] = copy.strides[dims.steps[columns[k]]]
    row = record + WORD * (HEADER + width)
    source_offset = place = parts = runs = 0
    for i in range(copy.count):
        if copy.sizes[i] == 0:
            continue
        runs_here = _write_row(copy, dims, columns, width, i, row)
        fields = words_at(row)
        fields[SOURCE_OFFSET], fields[TARGET_OFFSET] = source_offset, place
        if copy.targets:
            fields[TARGET_OFFSET] = words_at(copy.targets + i * copy.pitch)[0]
        source_offset += copy.sizes[i] * copy.strides[copy.axis]
        place += _aligned(fields[NBYTES])
        runs = runs_here if parts == 0 or runs == runs_here else 0
        row += WORD * (FIXED + 2 * width)
        parts += 1
    header = words_at(record)
    header[DIMS], header[COUNT], header[RUNS] = width, parts, runs
    return place


@jit
def _lay_out(address):
    out_of_line()
    request = request_at(address)
    inner, columns = words_at(reserve(_ROOM, WORD)), words_at(reserve(_ROOM, WORD))
    of_axis, steps = words_at(reserve(_ROOM, WORD)), words_at(reserve(_ROOM, WORD))
    copy = _copy_of(request, inner)
    dims = _merge(copy, columns, of_axis, steps)
    runs = _runs_of(copy, dims)
    nbytes = copy.itemsize
    for axis in range(copy.rank):
        nbytes *= copy.shape[axis]
    stream_from = request.stream_short_runs
    loop = _loop_for(copy, dims, runs, nbytes >= stream_from)
    if runs.shortest >= LONG_RUN:
        stream_from = request.stream_long_runs
    stream = 1 if nbytes >= stream_from else 0
    width = _order_dims(copy, dims, loop, columns)
    block = _write(copy, dims, columns, width, request.record)
    if loop == _TRANSPOSE and dims.count == 1:  # its lines are the single runs of the parts
        words_at(request.record)[HEADER] = runs.first
    header = words_at(request.record)
    header[LOOP] = _STREAM if stream and loop == _PLAIN else loop
    header[STREAM] = stream
    return block


def lay_out(address):
    """Write the layout record for the `LayoutRequest` at an address. The source has elements.

    Return the bytes of a block for the parts.
    """
    return _lay_out(address)


def layout(module, address):
    """``layout(address)``: `lay_out` for Python."""
    return integer_object(_lay_out(as_integer(address)))


FUNCTIONS = {
    "lay_out": (types.intp(types.intp), jit(lay_out)),
    "layout": (types.intp(types.intp, types.intp), jit(layout)),
}
