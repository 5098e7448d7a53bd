"""Cut a transposed source into bands, strips and batches; `transpose.py` says what these are."""

from __future__ import annotations

from collections import namedtuple

from splitjit._abi.kernels import LINE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import out_of_line
from splitjit._kernels.ir.records import part_at
from splitjit._kernels.loops.tiles import has_tiles

STRIP = 1 << 7
"""Source bytes of a strip per step; also the most lines of a strip."""
ROOM = 1 << 15
"""Bytes of a piece, and of the buffer for one: a larger one would leave the L1 cache."""

_BROAD_STRIP = 1 << 10  # bytes of a strip, if runs are a cache line or longer
_TILED = 4  # in the cache, tiles of larger items are no faster than single items …
_CONFLICT = 1 << 9  # … unless steps are a multiple of this apart, and so share few cache sets


Band = namedtuple("Band", "first end lines width batch early again direct coincide tiled pieces")
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
coincide
    Whether all lines start at the same offset within a cache line.
tiled
    Whether pieces are written in tiles.
pieces
    The number of strips, times batches, times indices into the outer dims.
"""


@jit
def _end_of_band(layout, first):
    """Return the end of the band that starts with part `first`."""
    dims = layout.dims
    part = part_at(layout, first)
    for p in range(first + 1, layout.count):
        end = part.source_offset + part.extents[dims - 2] * layout.source_strides[dims - 2]
        after = part_at(layout, p)
        if after.source_offset != end or after.run != part.run:
            return p
        for d in range(dims):
            if d != dims - 2 and after.extents[d] != part.extents[d]:
                return p
        part = after
    return layout.count


@jit
def _offset_from_line(call, layout, first, end):
    """Return the offset within a cache line at which all lines of a band start, or -1."""
    dims = layout.dims
    offset = (call.target + part_at(layout, first).target_offset) % LINE
    for p in range(first, end):
        part = part_at(layout, p)
        if (call.target + part.target_offset) % LINE != offset:
            return -1
        for d in range(dims - 1):
            if part.extents[d] > 1 and part.target_strides[d] % LINE != 0:
                return -1
    return offset


@jit
def band_at(call, layout, first, stage):
    """Return the band that starts with part `first`.

    `stage` is the address of the buffer, or 0 if stores do not bypass the cache.
    """
    out_of_line()
    dims = layout.dims
    end = _end_of_band(layout, first)
    part, last = part_at(layout, first), part_at(layout, end - 1)
    lines = (last.source_offset - part.source_offset) // layout.source_strides[dims - 2]
    lines += last.extents[dims - 2]
    run, steps = part.run, part.extents[dims - 1]
    offset = _offset_from_line(call, layout, first, end)
    coincide = offset >= 0 and offset % run == 0 and LINE % run == 0
    step = layout.source_strides[dims - 1]
    tiled = has_tiles(run, layout.source_strides[dims - 2], lines)
    tiled = tiled and (stage != 0 or run <= _TILED or step % _CONFLICT == 0)
    direct = stage == 0 or (coincide and tiled)
    early = offset // run if coincide else 0
    again = 0 if direct or coincide else -(-LINE // run)
    width = min(max((STRIP if run < LINE else _BROAD_STRIP) // run, 1), lines)
    if direct and tiled:
        width = min(STRIP, lines)
        batch = ROOM // (width * run)
    elif direct:  # the cache lines of all steps of a line must stay in the L1 cache
        batch = ROOM // 2 // min(abs(step), LINE)
        width = min(max(ROOM // (min(batch, steps) * run), width), min(STRIP, lines))
    else:
        batch = ROOM // (width * run) - again
    whole = max(LINE // run, 1) if direct else LINE
    if batch > whole:
        batch -= batch % whole
    outer = part.nbytes // (run * steps * part.extents[dims - 2])
    pieces = outer * -(-lines // width) * -(-(steps + early) // batch)
    return Band(first, end, lines, width, batch, early, again, direct, coincide, tiled, pieces)


@jit
def line_of_strip(layout, band, strip):
    """Return the part, and the line of this part, at which a strip of a band starts."""
    p, line = band.first, strip * band.width
    part = part_at(layout, p)
    while line >= part.extents[layout.dims - 2]:
        line -= part.extents[layout.dims - 2]
        p += 1
        part = part_at(layout, p)
    return p, line
