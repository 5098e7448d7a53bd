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
from splitjit._kernels.ir.intrinsics import fence, out_of_line
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
def deinterleave_lines(
    builder, parts, itemsize, targets, step, offset, source, count, own_lines, stream
):
    """Copy the next `count` cache lines of each part.

    The address to which part i is written is the word at ``targets + i * step``, plus `offset`.
    With `own_lines`, it is the start of the cache line that holds this address. Stores across two
    lines take twice as long, and none can bypass the cache. But then each part has its own load,
    which costs up to a fifth where all parts begin at the same offset (Intel Xeon, 2026-11-28).
    """
    for kind in kinds(builder, parts, itemsize):
        for own in both_ways(builder, own_lines):
            for past_cache in both_ways(builder, stream):
                for line, start in each_line(builder, parts, count, offset, source):
                    _write_line(builder, kind, targets, step, line, start, own, past_cache)


def _write_line(builder, kind, targets, step, offset, source, own, stream):
    """Copy a line of each part: one load, or one per part, then a shuffle and a store per part."""
    parts, itemsize = kind
    for k in range(parts):
        prefetch_line(builder, builder.add(source, INT64(_AHEAD + k * LINE)))
    items = LINE // itemsize
    whole = ir.VectorType(ir.IntType(8 * itemsize), parts * items)
    value = None if own else builder.load(pointer_to(builder, source, whole), align=1)
    for part in range(parts):
        target = builder.add(builder.load(pointer_to(builder, targets, INT64)), offset)
        if own:
            back = builder.and_(target, INT64(LINE - itemsize))  # in whole items
            target = builder.sub(target, back)
            start = builder.sub(source, builder.mul(back, INT64(parts)))
            value = builder.load(pointer_to(builder, start, whole), align=1)
        places = range(part, parts * items, parts)
        line = shuffled(builder, value, ir.Constant(whole, ir.Undefined), places)
        store(builder, line, pointer_to(builder, target, line.type), LINE, stream)
        targets = builder.add(targets, step)


@jit
def _move_lines(copy_lines, call, layout, first, count, own_lines, stream):
    """Copy `count` cache lines of each part, from item `first` on."""
    out_of_line()
    run, source = part_at(layout, 0).run, call.source + first * layout.source_strides[0]
    targets, offset = layout.rows + WORD * ROW.target_offset, call.target + first * run
    copy_lines(layout.count, run, targets, layout.row, offset, source, count, own_lines, stream)


@jit
def copy_interleaved(task, tasks, call, layout, head, own_lines, stream, copy_lines, move):
    """Copy the share of one task: cache lines of each part.

    The shares of tasks meet at whole cache lines, and nothing is left over between them: when each
    chunk ended with single items, two threads took 43 us for a (480, 640, 3) image, not 33. At both
    ends of the parts, lines that begin at any item cover the rest. They overlap with the others.

    Parameters
    ----------
    task, tasks : int
    call, layout : tuple
        The arguments of the loop, and the header of their layout record.
    head : int
        The item with which whole cache lines begin, at most as many as there are in a line.
    own_lines, stream : int
        See `deinterleave_lines`.
    copy_lines, move : function
        `deinterleave_lines` and `move_runs`, or functions like them.
    """
    run, step, runs = part_at(layout, 0).run, layout.source_strides[0], layout.runs
    items = LINE // run  # of a line
    if runs < items:
        for p in range(0 if task else layout.count):
            part = part_at(layout, p)
            target, source = call.target + part.target_offset, call.source + part.source_offset
            move(target, source, run, runs, run, step)
        return
    first = head + (runs - head) * task // tasks // LINE * LINE
    last = head + (runs - head) * (task + 1) // tasks // LINE * LINE
    if task == 0:
        _move_lines(copy_lines, call, layout, 0, 1, 0, 0)
    if task + 1 == tasks:
        last = runs
        rest = min(runs // items, 2)  # lines that may be left over after a part's own lines
        _move_lines(copy_lines, call, layout, runs - rest * items, rest, 0, 0)
    _move_lines(copy_lines, call, layout, first, (last - first) // items, own_lines, stream)
    if stream:
        fence()


@jit
def deinterleave(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call, layout = call_at(arguments)
    first, run = part_at(layout, 0).target_offset, part_at(layout, 0).run
    differ = odd = 0
    for p in range(layout.count):
        offset = part_at(layout, p).target_offset
        differ |= (offset - first) % LINE
        odd |= (call.target + offset) % run
    own_lines, stream = int(differ != 0), 0 if odd else call.stream
    head = (LINE if differ else -(call.target + first) % LINE) // run
    copy_interleaved(
        task, tasks, call, layout, head, own_lines, stream, deinterleave_lines, move_runs
    )
