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

`dims` finds runs and dims; then this module chooses the loop. If the source is
transposed, the runs that lie side by side in a part are far apart in the source, and other runs lie
between them::

    source, row by row        part, row by row
       a  b  c  d                a  e  i         lines  a b c d …  are adjacent in the source
       e  f  g  h                b  f  j         steps  a e i …    are adjacent in the part
       i  j  k  l                c  g  k

For the transpose loop, the last dim holds the *steps*, and the last but one the *lines*: the dim
whose runs are nearest to each other in the source.
"""

from collections import namedtuple

from splitjit._abi.calls import HEADER, MAX_RANK, MOST, ROW, WORD, LayoutRequest
from splitjit._abi.kernels import INTERLEAVED, LINE, LOOPS, TILE
from splitjit._abi.thresholds import LONG_RUN
from splitjit._kernels.compiling import jit
from splitjit._kernels.core.dims import RUN_DIM, copy_of, extent_of_dim, merge, target_stride
from splitjit._kernels.ir.intrinsics import out_of_line, reserve, words_at
from splitjit._kernels.ir.records import aligned, read

_PLAIN, _STREAM, _DEINTERLEAVE, _TRANSPOSE = range(len(LOOPS))

_SHORT = 1 << 10  # longer runs are read equally fast in any order
_MANY = 3  # with fewer parts of single items, copying part by part is faster

_ROOM = WORD * (MAX_RANK + 1)

# ---- the loop --------------------------------------------------------------------------------


_Runs = namedtuple("_Runs", "parts shortest longest are_packed are_neighbours")
"""What the runs of the parts have in common.

parts
    The number of parts that are not empty.
shortest, longest
    The least and the most bytes of a run.
are_packed
    Whether the runs of each part are adjacent in the part.
are_neighbours
    Whether equal runs of neighbouring parts are adjacent in the source.
"""


@jit
def _runs_of(copy, dims):
    out_of_line()
    parts, shortest, longest = 0, MOST, 0
    are_packed = are_neighbours = True
    for i in range(copy.count):
        if copy.sizes[i] == 0:
            continue
        run = copy.itemsize * extent_of_dim(copy, dims, RUN_DIM, i)
        parts += 1
        shortest, longest = min(shortest, run), max(longest, run)
        are_packed &= dims.count > 0 and target_stride(copy, dims.steps[1], i) == run
        are_neighbours &= copy.sizes[i] * copy.strides[copy.axis] == run
    return _Runs(parts, shortest, longest, are_packed, are_neighbours)


@jit
def _nearest(copy, dims):
    """Return the dim but the innermost whose runs are nearest to each other in the source."""
    nearest = dims.count
    for dim in range(dims.count - 1, 1, -1):
        if abs(copy.strides[dims.steps[dim]]) < abs(copy.strides[dims.steps[nearest]]):
            nearest = dim
    return nearest


@jit
def _loop_for(copy, dims, runs):
    """Choose the loop; `lay_out` replaces the plain loop by the stream loop for large arrays."""
    if not runs.are_packed:
        return _PLAIN
    run, step = runs.shortest, copy.strides[dims.steps[1]]
    if dims.count > 1:
        line = abs(copy.strides[dims.steps[_nearest(copy, dims)]])
        is_dense = run == runs.longest == line and line < _SHORT
        pays = runs.longest < LINE or is_dense
        return _TRANSPOSE if 0 < line < abs(step) and pays else _PLAIN
    is_full = run == runs.longest and runs.are_neighbours and step == runs.parts * run
    if not is_full:
        return _PLAIN
    if (runs.parts, run) in INTERLEAVED:
        return _DEINTERLEAVE
    # Rows shorter than the vector of a transposed tile are copied faster part by part.
    is_word = run <= TILE and run & (run - 1) == 0
    return _TRANSPOSE if is_word and runs.parts >= _MANY and step >= TILE else _PLAIN


# ---- the record ------------------------------------------------------------------------------


@jit
def _order_dims(copy, dims, loop, columns):
    """Write the dims in the record's order, the outermost first; return how many there are.

    `RUN_DIM` stands for a dim of one run, in a copy that has too few dims.
    """
    if dims.count == 0 or (dims.count == 1 and loop == _TRANSPOSE):
        columns[0], columns[1] = RUN_DIM, 1
        return dims.count + 1
    for k in range(dims.count):
        columns[k] = dims.count - k
    if loop == _TRANSPOSE:  # its lines come last but one
        lines = _nearest(copy, dims)
        for k in range(dims.count - lines, dims.count - 2):
            columns[k] = columns[k + 1]
        columns[dims.count - 2] = lines
    return dims.count


@jit
def _write_row(copy, dims, columns, width, part, row):
    """Write the row of a part, all but its offsets; return the number of runs."""
    out_of_line()
    fields = words_at(row)
    extents, strides = words_at(row + WORD * len(ROW)), words_at(row + WORD * (len(ROW) + width))
    run, runs = copy.itemsize * extent_of_dim(copy, dims, RUN_DIM, part), 1
    for k in range(width):
        dim = columns[k]
        extents[k] = extent_of_dim(copy, dims, dim, part) if dim != RUN_DIM else 1
        strides[k] = target_stride(copy, dims.steps[dim], part) if dim != RUN_DIM else 0
        runs *= extents[k]
    fields[ROW.run], fields[ROW.nbytes] = run, run * runs
    return runs


@jit
def _write(copy, dims, columns, width, record):
    """Write the source strides and the rows; return the bytes of a block for the parts."""
    source_strides = words_at(record + WORD * len(HEADER))
    for k in range(width):
        dim = columns[k]
        source_strides[k] = copy.strides[dims.steps[dim]] if dim != RUN_DIM else 0
    row = record + WORD * (len(HEADER) + width)
    source_offset = place = parts = runs = 0
    for i in range(copy.count):
        if copy.sizes[i] == 0:
            continue
        runs_here = _write_row(copy, dims, columns, width, i, row)
        fields = words_at(row)
        fields[ROW.source_offset], fields[ROW.target_offset] = source_offset, place
        if copy.targets:
            fields[ROW.target_offset] = words_at(copy.targets + i * copy.pitch)[0]
        source_offset += copy.sizes[i] * copy.strides[copy.axis]
        place += aligned(fields[ROW.nbytes])
        runs = runs_here if parts == 0 or runs == runs_here else 0
        row += WORD * (len(ROW) + 2 * width)
        parts += 1
    header = words_at(record)
    header[HEADER.dims], header[HEADER.count], header[HEADER.runs] = width, parts, runs
    return place


@jit
def lay_out(address):
    """Write the layout record for the `LayoutRequest` at an address. The source has elements.

    Return the bytes of a block for the parts.
    """
    out_of_line()
    request = read(LayoutRequest, address)
    columns, of_axis = words_at(reserve(_ROOM, WORD)), words_at(reserve(_ROOM, WORD))
    steps = words_at(reserve(_ROOM, WORD))
    copy = copy_of(request)
    dims = merge(copy, columns, of_axis, steps)
    runs = _runs_of(copy, dims)
    loop = _loop_for(copy, dims, runs)
    width = _order_dims(copy, dims, loop, columns)
    block = _write(copy, dims, columns, width, request.record)
    is_long = runs.shortest >= LONG_RUN
    stream = block >= (request.stream_long_runs if is_long else request.stream_short_runs)
    if loop == _TRANSPOSE and dims.count == 1:  # its lines are the single runs of the parts
        words_at(request.record)[len(HEADER)] = runs.shortest
    header = words_at(request.record)
    header[HEADER.loop] = _STREAM if stream and loop == _PLAIN else loop
    header[HEADER.stream] = stream
    return block
