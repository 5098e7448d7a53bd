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
    both_ways,
    instruction,
    pointer_to,
    prefetch_line,
    shuffled,
    store,
    variants,
)
from splitjit._kernels.ir.records import call_at, part_at
from splitjit._kernels.loops.runs import move_runs
from splitjit._kernels.loops.transpose import offset_from_line

_AHEAD = 1 << 12  # how many bytes ahead of a load to prefetch


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

    The address to which part i is written is the word at ``targets + i * step``, plus `offset`. If
    `stream` is not 0, these addresses must be multiples of `LINE`, and the stores bypass the cache.
    """
    for kind in kinds(builder, parts, itemsize):
        for past_cache in both_ways(builder, stream):
            for line, start in each_line(builder, parts, count, offset, source):
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
def _copy_items(call, layout, first, last, move):
    """Copy the items [first, last) of every part, one by one; `move` is a `move_runs`."""
    for p in range(layout.count):
        part = part_at(layout, p)
        target = call.target + part.target_offset + first * part.run
        source = call.source + part.source_offset + first * layout.source_strides[0]
        move(target, source, part.run, last - first, part.run, layout.source_strides[0])


@jit
def copy_interleaved(task, tasks, call, layout, head, stream, move_lines, move):
    """Copy the share of one task: whole cache lines of each part, and the other items one by one.

    The shares of tasks meet at whole cache lines, so only the two ends of a copy are moved item by
    item. When each chunk had such ends, two threads took 43 us for a (480, 640, 3) image, not 33.

    Parameters
    ----------
    task, tasks : int
    call, layout : tuple
        The arguments of the loop, and the header of their layout record.
    head : int
        The number of items of each part before the first whole cache line.
    stream : int
        1 if stores of whole cache lines bypass the cache, else 0.
    move_lines, move : function
        `_deinterleave_lines` and `move_runs`, or functions like them.
    """
    part, lined = part_at(layout, 0), layout.runs - head
    first = head + lined * task // tasks // LINE * LINE
    last = head + lined * (task + 1) // tasks // LINE * LINE
    if task + 1 == tasks:
        last = layout.runs
    if head and task == 0:
        _copy_items(call, layout, 0, head, move)
    count = (last - first) * part.run // LINE
    source = call.source + part.source_offset + first * layout.source_strides[0]
    targets, offset = layout.rows + WORD * ROW.target_offset, call.target + first * part.run
    move_lines(layout.count, part.run, targets, layout.row, offset, source, count, stream)
    _copy_items(call, layout, first + count * LINE // part.run, last, move)
    if stream:
        fence()


@jit
def deinterleave(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call, layout = call_at(arguments)
    run, offset = part_at(layout, 0).run, offset_from_line(call, layout, 0, layout.count)
    stream = call.stream if offset >= 0 and offset % run == 0 else 0
    head = min(-offset % LINE // run, layout.runs) if stream else 0
    copy_interleaved(task, tasks, call, layout, head, stream, _deinterleave_lines, move_runs)
