"""The transpose loop: runs that are adjacent in a part but far apart in the source.

The last two dims of such a layout are *lines* and *steps*. Lines are adjacent
in the source and apart in the target; steps are the other way round::

    source                             target
             line 0  1  2  3 …                  step 0  1  2  3 …
    step 0        a  b  c  d           line 0        a  e  i  …
    step 1        e  f  g  h           line 1        b  f  j  …
    step 2        i  j  k  l           line 2        c  g  k  …

If the lines of neighbouring parts are adjacent in the source, these parts form
a *band*. A band is cut into *strips* of lines, and a strip into *batches* of
steps. A task copies one batch of one strip, a *piece*, at a time, so that the
loop reads and writes whole cache lines on both sides:

- If stores do not bypass the cache, pieces are written straight to the parts, as
  `splitjit._kernels.loops.tiles` describes.
- If stores bypass the cache, they must fill cache lines. So tiles are written to the parts only
  if the cache lines of all parts begin at the same steps.
- Otherwise the task gathers the piece in a buffer on the heap, and then writes
  its lines to their parts.
"""

from collections import namedtuple

from splitjit._abi.calls import WORD, Arguments
from splitjit._abi.kernels import LINE, PAGE, TILE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import allocate, fence, out_of_line, release, reserve, words_at
from splitjit._kernels.ir.records import call_at, part_at, read
from splitjit._kernels.loops.runs import stream_runs
from splitjit._kernels.loops.tiles import Piece, write_piece

_STRIP = 1 << 7
"""Source bytes of a strip per step; also the most lines of a strip."""
_ROOM = 1 << 15
"""Bytes of a piece, and of the buffer for one: a larger one would leave the L1 cache."""

_BROAD_STRIP = 1 << 10  # bytes of a strip, if runs are a cache line or longer
_TILED = 4  # in the cache, tiles of larger items are no faster than single items …
_CONFLICT = 1 << 9  # … unless steps are a multiple of this apart, and so share few cache sets
_TABLES = 2 * _STRIP * WORD  # the addresses of the lines of a strip, in the parts and in the buffer

_Band = namedtuple("_Band", "first end lines width batch early again direct tiled pieces")
"""Neighbouring parts whose lines are adjacent in the source.

first, end
    The parts of the band are [first, end).
lines
    Lines of all parts of the band together.
width
    Lines of a strip; the last strip may have fewer.
batch
    Steps of a batch; the first and the last batch may have fewer.
early
    Steps by which the first batch is shorter, so that batches end where the parts' cache
    lines end, if all lines start at the same offset within one.
again
    If the offsets differ, a piece also gathers the last `again` steps of the piece before
    it, and each line is written up to its last full cache line.
direct
    Whether pieces are written straight to the parts, without gathering in the buffer.
tiled
    Whether pieces are written in tiles.
pieces
    The number of strips, times batches, times indices into the outer dims.
"""


# ---- bands -----------------------------------------------------------------------------------


@jit
def _end_of_band(layout, first):
    """Return the end of the band that starts with part `first`, and whether its lines coincide.

    They do if all of them start at the same offset within a cache line.
    """
    lines = layout.dims - 2
    part = part_at(layout, first)
    start, end = part.target_offset, part.source_offset
    nbytes = part.nbytes // part.extents[lines]  # of a line, in all outer dims
    differ = 0
    for p in range(first, layout.count):
        part = part_at(layout, p)
        if part.source_offset != end or part.nbytes // part.extents[lines] != nbytes:
            return p, differ % LINE == 0
        end += part.extents[lines] * layout.source_strides[lines]
        differ |= part.target_offset - start
        for d in range(layout.dims - 1):
            if part.extents[d] > 1:
                differ |= part.target_strides[d]
    return layout.count, differ % LINE == 0


@jit
def _band_at(call, layout, first, stage):
    """Return the band that starts with part `first`.

    `stage` is the address of the buffer, or 0 if stores do not bypass the cache.
    """
    out_of_line()
    dims = layout.dims
    end, coincide = _end_of_band(layout, first)
    part, last = part_at(layout, first), part_at(layout, end - 1)
    line, step = layout.source_strides[dims - 2], layout.source_strides[dims - 1]
    lines = (last.source_offset - part.source_offset) // line + last.extents[dims - 2]
    run, steps = part.run, part.extents[dims - 1]
    offset = (call.target + part.target_offset) % LINE
    coincide = coincide and offset % run == 0 and LINE % run == 0
    # Lines must be adjacent power-of-two items, and enough to fill a tile.
    tiled = line == run and lines * run >= TILE and TILE % run == 0
    tiled = tiled and (stage != 0 or run <= _TILED or step % _CONFLICT == 0)
    direct = stage == 0 or (coincide and tiled)
    early = offset // run if coincide else 0
    again = 0 if direct or coincide else -(-LINE // run)
    width = min(max((_STRIP if run < LINE else _BROAD_STRIP) // run, 1), lines)
    if direct and tiled:
        width = min(_STRIP, lines)
        batch = _ROOM // (width * run)
    elif direct:  # the cache lines of all steps of a line must stay in the L1 cache
        batch = _ROOM // 2 // min(abs(step), LINE)
        width = min(max(_ROOM // (min(batch, steps) * run), width), min(_STRIP, lines))
    else:
        batch = _ROOM // (width * run) - again
    whole = max(LINE // run, 1) if direct else LINE
    if batch > whole:
        batch -= batch % whole
    outer = part.nbytes // (run * steps * part.extents[dims - 2])
    pieces = outer * -(-lines // width) * -(-(steps + early) // batch)
    return _Band(first, end, lines, width, batch, early, again, direct, tiled, pieces)


# ---- pieces ----------------------------------------------------------------------------------


@jit
def _outer_offset(index, dims, extents, strides):
    """Return the byte offset of a flat index into the dims before lines and steps."""
    offset = 0
    for d in range(dims - 3, -1, -1):
        outer = index // extents[d]
        offset += (index - outer * extents[d]) * strides[d]
        index = outer
    return offset


@jit
def _find_targets(call, layout, band, targets, index, p, line, width):
    """Write the addresses of `width` lines to a table, from line `line` of part `p` on.

    Return the part and the line after them. `line` may lie in a later part; the lines of a band
    follow each other in a circle.
    """
    dims = layout.dims
    k = 0
    while k < width:
        part = part_at(layout, p)
        if line >= part.extents[dims - 2]:
            line -= part.extents[dims - 2]
            p = p + 1 if p + 1 < band.end else band.first
            continue
        apart = part.target_strides[dims - 2]
        target = call.target + part.target_offset + line * apart
        target += _outer_offset(index, dims, part.extents, part.target_strides)
        n = min(width - k, part.extents[dims - 2] - line)
        for _ in range(n):
            words_at(targets)[k] = target
            target += apart
            k += 1
        line += n
    return p, line


@jit
def _copy_pieces(call, layout, stage, targets, band, first, last, write):
    """Copy the pieces [first, last) of a band: all strips of a batch, then the next batch."""
    dims = layout.dims
    part = part_at(layout, band.first)
    run, steps = part.run, part.extents[dims - 1]
    source_line, source_step = layout.source_strides[dims - 2], layout.source_strides[dims - 1]
    origin = call.source + part.source_offset
    strips = -(-band.lines // band.width)
    batches = -(-(steps + band.early) // band.batch)
    pitch = (band.batch + band.again) * run
    staged = targets + _STRIP * WORD
    for k in range(band.width):
        words_at(staged)[k] = stage + k * pitch
    p, line = band.first, first % strips * band.width
    for piece in range(first, last):
        strip = piece % strips
        index = piece // strips // batches
        start = piece // strips % batches * band.batch - band.early
        end = min(start + band.batch, steps)
        start = max(start, 0)
        gathered = max(start - band.again, 0)
        width = min(band.width, band.lines - strip * band.width)
        source = origin + strip * band.width * source_line + gathered * source_step
        source += _outer_offset(index, dims, part.extents, layout.source_strides)
        if strips > 1 or dims > 2 or piece == first:  # else the targets are the same
            p, line = _find_targets(call, layout, band, targets, index, p, line, width)
        ahead = source + width * source_line  # prefetch the next piece
        if strip + 1 == strips:
            ahead = source - strip * band.width * source_line + (end - gathered) * source_step
        taken = Piece(source, run, width, end - gathered, source_line, source_step)
        if stage == 0 or band.direct:  # the first is known when this is compiled for a join
            skew = -(start + band.early) * run % LINE
            write(band.tiled, stage != 0, targets, start * run, skew, ahead, taken)
        else:
            write(band.tiled, False, staged, 0, 0, ahead, taken)
            for k in range(width):
                target = words_at(targets)[k]
                a, b = start * run, end * run
                a = max(a - (target + a) % LINE, 0)
                b -= (target + b) % LINE if end < steps else 0
                stream_runs(target + a, stage + k * pitch + a - gathered * run, b - a, 1, 0, 0)


@jit
def copy_bands(task, tasks, arguments, stage, write):
    """Copy the share of one task, band by band.

    Parameters
    ----------
    task, tasks, arguments : int
        As for all loops.
    stage : int
        The address of the buffer, or 0 if stores do not bypass the cache.
    write : function
        `write_piece`, or a function like it.
    """
    call, layout = call_at(arguments)
    targets = reserve(_TABLES, LINE)
    start = p = 0  # pieces of the bands before
    while p < layout.count:
        band = _band_at(call, layout, p, stage)
        # The remainder keeps the shares even, if all bands have fewer pieces than there are tasks.
        first = (band.pieces * task + start % tasks) // tasks
        last = (band.pieces * (task + 1) + start % tasks) // tasks
        if first < last:
            _copy_pieces(call, layout, stage, targets, band, first, last, write)
        start += band.pieces
        p = band.end


@jit
def transpose(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    # On the heap, because stacks may have only 32 KB. If memory runs out, ordinary stores copy.
    memory = allocate(_ROOM + PAGE) if read(Arguments, arguments).stream else 0
    stage = memory + -memory % PAGE
    copy_bands(task, tasks, arguments, stage, write_piece)
    release(memory)
    if stage:
        fence()
