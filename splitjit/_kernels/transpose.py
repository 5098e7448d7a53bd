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

- If the cache lines of all parts begin at the same steps, and runs are items of
  1 to 16 bytes, *tiles* of the piece are transposed in registers and written to
  the parts, a cache line at a time.
- Otherwise the task gathers the piece in a buffer on the heap, and then writes
  its lines to their parts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    allocate,
    fence,
    out_of_line,
    prefetch,
    release,
    reserve,
    transpose_tile,
    words_at,
)
from splitjit._kernels.records import arguments_at, layout_at, part_at
from splitjit._kernels.runs import STAGE, move_runs, put_bytes, staging_buffer
from splitjit._kernels.table import LINE, PAGE, TILE, WORD

_ROOM = 1 << 15  # bytes of the buffer for a piece: a larger one would leave the L1 cache
_SPARE = 2 * LINE  # after the piece, since the last line is moved as a whole
_STRIP = 1 << 7  # source bytes of a strip at each step
_BROAD_STRIP = 1 << 10  # the same, if runs are a cache line or longer
_TABLES = 2 * _STRIP * WORD  # the addresses of the lines of a strip, in the parts and in the buffer
_TILES = 4  # tiles that are written to the same lines before other lines get theirs
_ZERO = np.intp(0)  # for a literal 0, Numba compiles a function once more
_LEAST = 4 * LINE  # bytes of each line of a piece, at least


class Band(NamedTuple):
    """Neighbouring parts whose lines are adjacent in the source.

    Attributes
    ----------
    first, end : int
        The parts of the band are [first, end).
    lines : int
        Lines of all parts of the band together.
    width : int
        Lines of a strip; the last strip may have fewer.
    batch : int
        Steps of a batch; the first and the last batch may have fewer.
    early : int
        Steps by which the first batch is shorter. So if all lines start at the same offset
        from a cache line, batches end where cache lines of the parts end.
    again : int
        If the offsets differ, a piece also gathers the last `again` steps of the piece before
        it, and each line is written up to its last full cache line.
    direct : bool
        Whether tiles are written to the parts, and not gathered in the buffer before.
    pieces : int
        The number of strips, times batches, times indices into the outer dims.
    """

    first: int
    end: int
    lines: int
    width: int
    batch: int
    early: int
    again: int
    direct: bool
    pieces: int


class Strip(NamedTuple):
    """A piece to copy, one batch of a strip: its first run, its size, and its byte steps."""

    source: int
    run: int
    lines: int
    steps: int
    line: int
    step: int


@jit(inline="always")
def _has_tiles(run, line, lines):
    """Return whether lines are adjacent items of a power of two, and fill a tile."""
    return line == run and lines * run >= TILE and TILE % run == 0


def _tiles_of(nbytes):
    """Make the loop that writes the whole tiles of items of `nbytes`; see `_write_tiles`."""
    tile, width = LINE // nbytes, TILE // nbytes  # steps and lines of a tile
    together = LINE // TILE  # tiles that share cache lines of the source

    @jit(tag=nbytes)
    def write_tiles(stream, table, offset, ahead, source, lines, steps, step):
        out_of_line()
        # A block is read once for each tile that shares its lines, so it must stay in the L1 cache.
        is_near = abs(step) * tile * _TILES <= _ROOM
        block = (_TILES if is_near else 1) * tile
        for group in range(0, lines, together * width):
            for start in range(0, steps - tile + 1, block):
                count = min(steps - start, block) // tile
                fetch = ahead + group * nbytes + start * step
                for k in range(group, min(group + together * width, lines), width):
                    line = min(k, lines - width)  # the last tile may repeat lines
                    place = offset + start * nbytes
                    column = source + line * nbytes + start * step
                    for _ in range(count):
                        # The tiles that share cache lines prefetch an equal share of them each.
                        for _ in range(tile // together):
                            prefetch(fetch)
                            fetch += step
                        lines_at = table + line * WORD
                        transpose_tile(lines_at, place, k - line, column, step, nbytes, stream)
                        place += LINE
                        column += tile * step

    return write_tiles


_tiles_of_1, _tiles_of_2, _tiles_of_4 = _tiles_of(1), _tiles_of(2), _tiles_of(4)
_tiles_of_8, _tiles_of_16 = _tiles_of(8), _tiles_of(16)


@jit
def _write_tiles(stream, table, offset, ahead, strip):
    """Write the steps of a piece that fill whole tiles; return their number.

    Line k is written to the address in word k of the table, plus `offset`. If `stream`, this is
    a multiple of `LINE`. The loop prefetches from the address `ahead`, with the steps of the piece.
    """
    out_of_line()
    source, run, lines, steps, step = strip.source, strip.run, strip.lines, strip.steps, strip.step
    if not _has_tiles(run, strip.line, lines):
        return 0
    if run == 1:
        _tiles_of_1(stream, table, offset, ahead, source, lines, steps, step)
    elif run == 2:
        _tiles_of_2(stream, table, offset, ahead, source, lines, steps, step)
    elif run == 4:
        _tiles_of_4(stream, table, offset, ahead, source, lines, steps, step)
    elif run == 8:
        _tiles_of_8(stream, table, offset, ahead, source, lines, steps, step)
    else:
        _tiles_of_16(stream, table, offset, ahead, source, lines, steps, step)
    return steps - steps % (LINE // run)


@jit(inline="always")
def _write_piece(stream, targets, offset, ahead, strip):
    """Write a piece to its parts: whole cache lines, and the items before and after them."""
    run, lines, steps, step = strip.run, strip.lines, strip.steps, strip.step
    head = min(-(words_at(targets)[0] + offset) % LINE // run, steps)
    rest = Strip(strip.source + head * step, run, lines, steps - head, strip.line, step)
    done = head + _write_tiles(stream, targets, offset + head * run, ahead + head * step, rest)
    if head == 0 and done == steps:
        return
    for k in range(lines):
        target = words_at(targets)[k] + offset
        source = strip.source + k * strip.line
        move_runs(target, source, run, head, run, step)
        move_runs(target + done * run, source + done * step, run, steps - done, run, step)


@jit(inline="always")
def _gather(stage, pitch, table, ahead, strip):
    """Gather a piece: line k starts at ``stage + k * pitch``, which is word k of the table.

    The loop prefetches from the address `ahead`, with the byte steps of the piece.
    """
    run, lines = strip.run, strip.lines
    done = _write_tiles(_ZERO, table, _ZERO, ahead, strip)
    if 0 < done < strip.steps:  # the last tile repeats steps of the tile before it
        start = strip.steps - LINE // run
        source = strip.source + start * strip.step
        last = Strip(source, run, lines, LINE // run, strip.line, strip.step)
        done = start + _write_tiles(_ZERO, table, start * run, ahead + start * strip.step, last)
    stage += done * run
    source = strip.source + done * strip.step
    steps = strip.steps - done
    if lines * run < LINE:
        for k in range(lines):
            move_runs(stage + k * pitch, source + k * strip.line, run, steps, run, strip.step)
    else:
        ahead += done * strip.step
        for i in range(steps):
            for k in range(0, lines * run, LINE):
                prefetch(ahead + i * strip.step + k)
            move_runs(stage + i * run, source + i * strip.step, run, lines, pitch, strip.line)


@jit(inline="always")
def _outer_offset(index, dims, extents, strides):
    """Return the byte offset of a flat index into the dims before lines and steps."""
    offset = 0
    for d in range(dims - 3, -1, -1):
        outer = index // extents[d]
        offset += (index - outer * extents[d]) * strides[d]
        index = outer
    return offset


@jit(inline="always")
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


@jit(inline="always")
def _offset_from_line(call, layout, first, end):
    """Return the offset from a cache line at which all lines of a band start, or -1."""
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
def _band_at(call, layout, first, room):
    """Return the band that starts with part `first`; a piece has at most `room` bytes."""
    out_of_line()
    dims = layout.dims
    end = _end_of_band(layout, first)
    part, last = part_at(layout, first), part_at(layout, end - 1)
    lines = (last.source_offset - part.source_offset) // layout.source_strides[dims - 2]
    lines += last.extents[dims - 2]
    run, steps = part.run, part.extents[dims - 1]
    offset = _offset_from_line(call, layout, first, end)
    coincide = offset >= 0 and offset % run == 0 and LINE % run == 0
    direct = coincide and _has_tiles(run, layout.source_strides[dims - 2], lines)
    if direct:
        width = min(_STRIP, lines)
    else:
        width = min(max((_STRIP if run < LINE else _BROAD_STRIP) // run, 1), lines)
        width = min(width, room // _LEAST)
    early = offset // run if coincide and (direct or call.stream) else 0
    again = -(-LINE // run) if call.stream and not coincide else 0
    batch = room // (width * run) - again
    if direct:
        batch = max(batch - batch % (LINE // run), LINE // run)
    elif batch > LINE:
        batch -= batch % LINE
    outer = part.nbytes // (run * steps * part.extents[dims - 2])
    pieces = outer * -(-lines // width) * -(-(steps + early) // batch)
    return Band(first, end, lines, width, batch, early, again, direct, pieces)


@jit(inline="always")
def _line_of_strip(layout, band, strip):
    """Return the part, and the line of this part, at which a strip of a band starts."""
    p, line = band.first, strip * band.width
    part = part_at(layout, p)
    while line >= part.extents[layout.dims - 2]:
        line -= part.extents[layout.dims - 2]
        p += 1
        part = part_at(layout, p)
    return p, line


@jit(inline="always")
def _copy_pieces(call, layout, stage, targets, band, first, last):
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
    strip = first % strips
    p, line = _line_of_strip(layout, band, strip)
    part = part_at(layout, p)
    for piece in range(first, last):
        index = piece // strips // batches
        start = piece // strips % batches * band.batch - band.early
        end = min(start + band.batch, steps)
        start = max(start, 0)
        gathered = max(start - band.again, 0)
        width = min(band.width, band.lines - strip * band.width)
        source = origin + strip * band.width * source_line + gathered * source_step
        source += _outer_offset(index, dims, part.extents, layout.source_strides)
        if strips > 1 or dims > 2 or piece == first:  # else the targets are the same
            for k in range(width):
                target = call.target + part.target_offset
                target += line * part.target_strides[dims - 2]
                target += _outer_offset(index, dims, part.extents, part.target_strides)
                words_at(targets)[k] = target
                line += 1
                if line == part.extents[dims - 2]:
                    p = p + 1 if p + 1 < band.end else band.first
                    line = 0
                    part = part_at(layout, p)
        ahead = source + width * source_line  # prefetch the next piece
        if strip + 1 == strips:
            ahead = source - strip * band.width * source_line + (end - gathered) * source_step
        taken = Strip(source, run, width, end - gathered, source_line, source_step)
        if band.direct:
            _write_piece(call.stream, targets, start * run, ahead, taken)
        else:
            _gather(stage, pitch, staged, ahead, taken)
            for k in range(width):
                target = words_at(targets)[k]
                a, b = start * run, end * run
                if band.again:
                    a = max(a - (target + a) % LINE, 0)
                    b -= (target + b) % LINE if end < steps else 0
                put_bytes(call.stream, target + a, stage + k * pitch + a - gathered * run, b - a)
        strip = strip + 1 if strip + 1 < strips else 0


def transpose(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = arguments_at(arguments)
    layout = layout_at(call.layout)
    # On the heap, because stacks may have 32 KB. With too little memory, pieces are smaller.
    memory = allocate(_ROOM + _SPARE + PAGE)
    stage, room = staging_buffer(), STAGE - _SPARE
    if memory:
        stage, room = memory + -memory % PAGE, _ROOM
    targets = reserve(_TABLES, LINE)
    total = p = _ZERO
    while p < layout.count:
        band = _band_at(call, layout, p, room)
        total += band.pieces
        p = band.end
    start = p = _ZERO
    while p < layout.count:
        band = _band_at(call, layout, p, room)
        first = min(max(total * task // tasks - start, 0), band.pieces)
        last = min(max(total * (task + 1) // tasks - start, 0), band.pieces)
        if first < last:
            _copy_pieces(call, layout, stage, targets, band, first, last)
        start += band.pieces
        p = band.end
    release(memory)
    if call.stream:
        fence()
