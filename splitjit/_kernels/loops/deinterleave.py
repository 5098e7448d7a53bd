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

from splitjit._abi.calls import ROW, WORD, Arguments
from splitjit._abi.kernels import INTERLEAVED, LINE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import fence
from splitjit._kernels.ir.llvm import (
    INT64,
    both_ways,
    instruction,
    pointer_to,
    prefetch_line,
    shuffled,
    store,
    variants,
)
from splitjit._kernels.ir.records import layout_at, part_at, read
from splitjit._kernels.loops.runs import move_runs
from splitjit._kernels.loops.transpose import offset_from_line

_AHEAD = 1 << 12  # how many bytes ahead of a load to prefetch


def kinds(builder, parts, itemsize):
    """Begin a branch for each kind, and yield it: a number of parts, and an item size."""
    known = {(n << 8) + size: (n, size) for n, size in INTERLEAVED}
    for key in variants(builder, known, builder.add(builder.shl(parts, INT64(8)), itemsize)):
        yield known[key]


@instruction
def _deinterleave_lines(builder, parts, itemsize, targets, step, offset, source, count, stream):
    """Copy the next `count` cache lines of each part.

    The address to which part i is written is the word at ``targets + i * step``, plus `offset`. If
    `stream` is not 0, these addresses must be multiples of `LINE`, and the stores bypass the cache.
    """
    for kind in kinds(builder, parts, itemsize):
        for past_cache in both_ways(builder, stream):
            with cgutils.for_range(builder, count) as lines:
                whole = builder.mul(lines.index, INT64(LINE))
                start = builder.add(source, builder.mul(whole, parts))
                line = builder.add(offset, whole)
                _write_line(builder, kind, targets, step, line, start, past_cache)


def _write_line(builder, kind, targets, step, offset, source, stream):
    """Copy a line of each part: one load, then one shuffle and one store per part."""
    parts, itemsize = kind
    for k in range(parts):
        prefetch_line(builder, builder.add(source, INT64(_AHEAD + k * LINE)))
    items = LINE // itemsize
    whole = ir.VectorType(ir.IntType(8 * itemsize), parts * items)
    value = builder.load(pointer_to(builder, source, whole), align=1)
    for part in range(parts):
        places = range(part, parts * items, parts)
        line = shuffled(builder, value, ir.Constant(whole, ir.Undefined), places)
        target = builder.add(builder.load(pointer_to(builder, targets, INT64)), offset)
        store(builder, line, pointer_to(builder, target, line.type), LINE, stream)
        targets = builder.add(targets, step)


@jit
def copy_items(call, layout, first, last, move):
    """Copy the items [first, last) of every part, one by one; `move` is a `move_runs`."""
    for p in range(layout.count):
        part = part_at(layout, p)
        target = call.target + part.target_offset + first * part.run
        source = call.source + part.source_offset + first * layout.source_strides[0]
        move(target, source, part.run, last - first, part.run, layout.source_strides[0])


@jit
def lines_of(task, tasks, head, runs):
    """Return the range of items that a task copies, as a start and a stop.

    Ranges meet at whole cache lines of the parts, so only the two ends of a copy are moved item by
    item. When each chunk had such ends, two threads took 43 us for a (480, 640, 3) image, not 33.
    """
    first = head + (runs - head) * task // tasks // LINE * LINE
    last = head + (runs - head) * (task + 1) // tasks // LINE * LINE
    return first, last if task + 1 < tasks else runs


@jit
def deinterleave(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = read(Arguments, arguments)
    layout = layout_at(call.layout)
    part = part_at(layout, 0)
    skew = -(call.target + part.target_offset) % LINE
    do_lines_coincide = offset_from_line(call, layout, 0, layout.count) >= 0
    stream = call.stream if skew % part.run == 0 and do_lines_coincide else 0
    head = min(skew // part.run, layout.runs) if stream else 0
    first, last = lines_of(task, tasks, head, layout.runs)
    if head and task == 0:  # the items before the first cache line are copied one by one
        copy_items(call, layout, 0, head, move_runs)
    count = (last - first) * part.run // LINE
    source = call.source + part.source_offset + first * layout.source_strides[0]
    targets, offset = layout.rows + WORD * ROW.target_offset, call.target + first * part.run
    _deinterleave_lines(layout.count, part.run, targets, layout.row, offset, source, count, stream)
    copy_items(call, layout, first + count * LINE // part.run, last, move_runs)
    if stream:
        fence()
