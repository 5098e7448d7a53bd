"""The deinterleave loop: small items of the parts that are interleaved in the source.

The channels of an image are such parts. One vector load fetches a cache line's
worth of items for each part. Then one shuffle and one store per part write the
items to the part::

    source   a0 b0 c0 a1 b1 c1 a2 b2 c2 …
    part a   a0 a1 a2 …
    part b   b0 b1 b2 …
    part c   c0 c1 c2 …

`splitjit._abi.kernels.INTERLEAVED` lists the kinds: numbers of parts and item
sizes. The code for each kind and the switch between them are generated from that
list.
"""

from llvmlite import ir
from numba.core import cgutils

from splitjit._abi.calls import ROW, WORD
from splitjit._abi.kernels import INTERLEAVED, LINE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import fence
from splitjit._kernels.ir.llvm import (
    INT64,
    instruction,
    pointer_to,
    prefetch_line,
    shuffled,
    store,
    variants,
)
from splitjit._kernels.ir.records import call_at, part_at
from splitjit._kernels.loops.runs import move_runs

_AHEAD = 1 << 12  # how many bytes ahead of a load to prefetch

_PAST_CACHE = _SAME_LINES, _OWN_LINES = 1, 2
"""Ways in which stores bypass the cache: lines of all parts begin at the same items, or each part's
at its own. Two float32 parts of 32 MB that start at different offsets within a line took 5.6 ms
with ordinary stores, and take 2.6; one load per part alone would take a fifth longer for pixels of
three bytes (two cores of an Intel Xeon, 2026-11-28)."""


def kinds(builder, parts, itemsize):
    """Begin a branch for each kind, and yield it: a number of parts, and an item size."""
    known = {(n << 8) + size: (n, size) for n, size in INTERLEAVED}
    for key in variants(builder, known, builder.add(builder.shl(parts, INT64(8)), itemsize)):
        yield known[key]


def each_line(builder, parts, count, offset, source):
    """Write a loop over the next `count` cache lines of each part.

    Yield the offset of a line in its part, and the address in the source of the line's first item.
    """
    with cgutils.for_range(builder, count) as each:
        start = builder.mul(each.index, INT64(LINE))
        yield builder.add(offset, start), builder.add(source, builder.mul(start, parts))


@instruction
def _deinterleave_lines(builder, parts, itemsize, targets, step, offset, source, count, stream):
    """Copy the next `count` cache lines of each part.

    The address to which part i is written is the word at ``targets + i * step``, plus `offset`;
    see `copy_interleaved` for `stream`.
    """
    for kind in kinds(builder, parts, itemsize):
        for way in variants(builder, (0, *_PAST_CACHE), stream):
            for line, start in each_line(builder, parts, count, offset, source):
                _write_line(builder, kind, targets, step, line, start, way)


def _write_line(builder, kind, targets, step, offset, source, stream):
    """Copy a line of each part: one load, then one shuffle and one store per part.

    With `_OWN_LINES`, each part has its own load.
    """
    parts, itemsize = kind
    for k in range(parts):
        prefetch_line(builder, builder.add(source, INT64(_AHEAD + k * LINE)))
    items = LINE // itemsize
    whole = ir.VectorType(ir.IntType(8 * itemsize), parts * items)
    for part in range(parts):
        target = builder.add(builder.load(pointer_to(builder, targets, INT64)), offset)
        start = source
        if stream:
            back = builder.and_(target, INT64(LINE - 1))
            target = builder.sub(target, back)
            start = builder.sub(source, builder.mul(back, INT64(parts)))
        if part == 0 or stream == _OWN_LINES:
            value = builder.load(pointer_to(builder, start, whole), align=1)
        places = range(part, parts * items, parts)
        line = shuffled(builder, value, ir.Constant(whole, ir.Undefined), places)
        store(builder, line, pointer_to(builder, target, line.type), LINE, bool(stream))
        targets = builder.add(targets, step)


@jit
def _copy_items(call, layout, part, first, last, move):
    """Copy the items [first, last) of a part, one by one; `move` is a `move_runs`."""
    target = call.target + part.target_offset + first * part.run
    source = call.source + part.source_offset + first * layout.source_strides[0]
    move(target, source, part.run, last - first, part.run, layout.source_strides[0])


@jit
def copy_interleaved(task, tasks, call, layout, head, boundary, stream, move_lines, move):
    """Copy the share of one task: whole cache lines of each part, and the other items one by one.

    The shares of tasks meet at whole cache lines, so only the two ends of a copy are moved item by
    item. When each chunk had such ends, two threads took 43 us for a (480, 640, 3) image, not 33.

    Parameters
    ----------
    task, tasks : int
    call, layout : tuple
        The arguments of the loop, and the header of their layout record.
    head, boundary : int
        The first line of a part begins with its item `head`, or if that lies at no multiple of
        `boundary`, with the last item before it that does.
    stream : int
        0, or if stores of whole cache lines bypass the cache, `_SAME_LINES` or `_OWN_LINES`.
    move_lines, move : function
        `_deinterleave_lines` and `move_runs`, or functions like them.
    """
    run, lined = part_at(layout, 0).run, layout.runs - head
    first = head + lined * task // tasks // LINE * LINE
    last = head + lined * (task + 1) // tasks // LINE * LINE
    if task + 1 == tasks:
        last = layout.runs
    count = (last - first) * run // LINE
    source = call.source + part_at(layout, 0).source_offset + first * layout.source_strides[0]
    targets, offset = layout.rows + WORD * ROW.target_offset, call.target + first * run
    move_lines(layout.count, run, targets, layout.row, offset, source, count, stream)
    for p in range(layout.count):
        part = part_at(layout, p)
        back = (offset + part.target_offset) % boundary // run
        if task == 0:
            _copy_items(call, layout, part, 0, head - back, move)
        if task + 1 == tasks:
            _copy_items(call, layout, part, first + count * LINE // run - back, last, move)
    if stream:
        fence()


@jit
def _stream_of(call, layout, run):
    """Return how stores bypass the cache; see `copy_interleaved`."""
    first = (call.target + part_at(layout, 0).target_offset) % LINE
    if not call.stream or layout.runs * run < LINE:
        return 0
    stream = _SAME_LINES
    for p in range(layout.count):
        offset = (call.target + part_at(layout, p).target_offset) % LINE
        if offset % run:
            return 0
        if offset != first:
            stream = _OWN_LINES
    return stream


@jit
def deinterleave(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call, layout = call_at(arguments)
    run = part_at(layout, 0).run
    stream = _stream_of(call, layout, run)
    head, boundary = (LINE // run, LINE) if stream else (0, 1)
    copy_interleaved(
        task, tasks, call, layout, head, boundary, stream, _deinterleave_lines, move_runs
    )
