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

- If stores do not bypass the cache, short runs are written straight to the parts. If they
  are adjacent items, *tiles* of the piece, or smaller squares, are transposed in registers.
- If stores bypass the cache, they must fill cache lines. So tiles are written to the parts only
  if the cache lines of all parts begin at the same steps.
- Otherwise the task gathers the piece in a buffer on the heap, and then writes
  its lines to their parts.
"""

from __future__ import annotations

from splitjit._abi.calls import Arguments
from splitjit._abi.kernels import LINE, PAGE
from splitjit._abi.layout_record import WORD
from splitjit._kernels.bands import LONG, STRIP, band_at, line_of_strip, suits_tiles
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    allocate,
    fence,
    greatest,
    least,
    prefetch,
    release,
    reserve,
    words_at,
)
from splitjit._kernels.records import layout_at, part_at, read
from splitjit._kernels.runs import STAGE, move_runs, put_bytes, staging_buffer
from splitjit._kernels.tiles import Strip, write_items, write_tiles

_ROOM = 1 << 15  # bytes of the buffer for a piece: a larger one would leave the L1 cache
_SPARE = 2 * LINE  # after the piece, because the last line is moved as a whole
_TABLES = 2 * STRIP * WORD  # the addresses of the lines of a strip, in the parts and in the buffer


@jit
def _write_piece(stream, targets, offset, skew, ahead, strip):
    """Write a piece to its parts: whole tiles, and the items before and after them.

    The first cache line of each target begins after `skew` bytes.
    """
    run, lines, steps, step = strip.run, strip.lines, strip.steps, strip.step
    head = done = 0
    if stream or suits_tiles(run, step):
        head = least(skew // run, steps)
        rest = Strip(strip.source + head * step, run, lines, steps - head, strip.line, step)
        done = head + write_tiles(stream, targets, offset + head * run, ahead + head * step, rest)
    if head:
        write_items(targets, offset, Strip(strip.source, run, lines, head, strip.line, step))
    if done < steps:
        source = strip.source + done * step
        rest = Strip(source, run, lines, steps - done, strip.line, step)
        write_items(targets, offset + done * run, rest)


@jit
def _gather(stage, pitch, table, ahead, strip):
    """Gather a piece: line k starts at ``stage + k * pitch``, which is word k of the table.

    The loop prefetches from the address `ahead`, in the piece's byte steps.
    """
    run, lines = strip.run, strip.lines
    done = write_tiles(0, table, 0, ahead, strip)
    if 0 < done < strip.steps:  # the last tile repeats steps of the tile before it
        start = strip.steps - LINE // run
        source = strip.source + start * strip.step
        last = Strip(source, run, lines, LINE // run, strip.line, strip.step)
        done = start + write_tiles(0, table, start * run, ahead + start * strip.step, last)
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

    Return the part and the line after them; the lines of a band follow each other in a circle.
    """
    dims = layout.dims
    part = part_at(layout, p)
    k = 0
    while k < width:
        apart = part.target_strides[dims - 2]
        target = call.target + part.target_offset + line * apart
        target += _outer_offset(index, dims, part.extents, part.target_strides)
        n = least(width - k, part.extents[dims - 2] - line)
        for _ in range(n):
            words_at(targets)[k] = target
            target += apart
            k += 1
        line += n
        if line == part.extents[dims - 2]:
            p = p + 1 if p + 1 < band.end else band.first
            line = 0
            part = part_at(layout, p)
    return p, line


@jit
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
    staged = targets + STRIP * WORD
    for k in range(band.width):
        words_at(staged)[k] = stage + k * pitch
    strip = first % strips
    p, line = line_of_strip(layout, band, strip)
    for piece in range(first, last):
        index = piece // strips // batches
        start = piece // strips % batches * band.batch - band.early
        end = least(start + band.batch, steps)
        start = greatest(start, 0)
        gathered = greatest(start - band.again, 0)
        width = least(band.width, band.lines - strip * band.width)
        source = origin + strip * band.width * source_line + gathered * source_step
        source += _outer_offset(index, dims, part.extents, layout.source_strides)
        if strips > 1 or dims > 2 or piece == first:  # else the targets are the same
            p, line = _find_targets(call, layout, band, targets, index, p, line, width)
        ahead = source + width * source_line  # prefetch the next piece
        if strip + 1 == strips:
            ahead = source - strip * band.width * source_line + (end - gathered) * source_step
        taken = Strip(source, run, width, end - gathered, source_line, source_step)
        if band.direct:
            skew = -(words_at(targets)[0] + start * run) % LINE if band.coincide else 0
            _write_piece(call.stream, targets, start * run, skew, ahead, taken)
        else:
            _gather(stage, pitch, staged, ahead, taken)
            for k in range(width):
                target = words_at(targets)[k]
                a, b = start * run, end * run
                if band.again:
                    a = greatest(a - (target + a) % LINE, 0)
                    b -= (target + b) % LINE if end < steps else 0
                put_bytes(call.stream, target + a, stage + k * pitch + a - gathered * run, b - a)
        strip = strip + 1 if strip + 1 < strips else 0


@jit
def _gathers(call, layout):
    """Return whether some pieces may be gathered in the buffer."""
    if call.stream:
        return True
    longest = 0
    for p in range(layout.count):
        longest = greatest(longest, part_at(layout, p).run)
    return longest >= LONG


@jit
def transpose(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = read(Arguments, arguments)
    layout = layout_at(call.layout)
    memory, stage, room = 0, 0, _ROOM
    if _gathers(call, layout):
        # On the heap, because stacks may have only 32 KB. If memory runs out, pieces are smaller.
        memory = allocate(_ROOM + _SPARE + PAGE)
        stage, room = staging_buffer(), STAGE - _SPARE
        if memory:
            stage, room = memory + -memory % PAGE, _ROOM
    targets = reserve(_TABLES, LINE)
    total = p = 0
    while p < layout.count:
        band = band_at(call, layout, p, room)
        total += band.pieces
        p = band.end
    start = p = 0
    while p < layout.count:
        band = band_at(call, layout, p, room)
        first = least(greatest(total * task // tasks - start, 0), band.pieces)
        last = least(greatest(total * (task + 1) // tasks - start, 0), band.pieces)
        if first < last:
            _copy_pieces(call, layout, stage, targets, band, first, last)
        start += band.pieces
        p = band.end
    release(memory)
    if call.stream:
        fence()
