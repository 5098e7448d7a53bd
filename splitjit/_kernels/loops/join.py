"""The loops in the other direction, for `splitjit.join`: from the parts to the whole.

A join is a split read backwards. The layout record is that of a split of the whole into the parts,
and these loops write where that split would read. So here, too, *source* is the whole, and
*targets* are the parts.
"""

from llvmlite import ir

from splitjit._abi.kernels import LINE, PAGE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import copy_bytes, fence, move_line, reserve
from splitjit._kernels.ir.llvm import INT64, both_ways, instruction, pointer_to, shuffled, store
from splitjit._kernels.ir.records import call_at, part_at
from splitjit._kernels.loops.deinterleave import copy_interleaved, each_line, kinds
from splitjit._kernels.loops.plain import LONG, copy_blocks, copy_range
from splitjit._kernels.loops.runs import move_runs, move_runs_back, stream_runs
from splitjit._kernels.loops.tiles import items_mover, joined
from splitjit._kernels.loops.transpose import copy_bands

_LANE = 16  # bytes that one instruction can shuffle freely


@jit
def join_plain(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    copy_blocks(task, tasks, arguments, False, copy_range, move_runs_back)


# ---- past the cache --------------------------------------------------------------------------


@jit
def _stream_runs_back(target, source, run, count, target_step, source_step):
    """Copy runs from the target to the source, long ones with stores that bypass the cache."""
    if run > LONG:
        stream_runs(source, target, run, count, source_step, target_step)
    else:
        move_runs(source, target, run, count, source_step, target_step)


@jit
def _join_rows(call, layout, row, first, last):
    """Gather the rows [first, last) of the whole in a buffer, and stream full lines of them.

    The rows, of `row` bytes, follow each other, so a line may hold the end of a row and the start
    of the next one.
    """
    stage = reserve(PAGE, PAGE)
    whole = call.source + first * row
    fill = whole % LINE  # bytes of the next line that the buffer holds
    line, skip = whole - fill, fill  # the first of them lie before the rows
    while first < last:
        n = min((PAGE - LINE) // row, last - first)
        at = stage + fill
        for p in range(layout.count):
            part = part_at(layout, p)
            step = part.target_strides[0]
            move_runs(at, call.target + part.target_offset + first * step, part.run, n, row, step)
            at += part.run
        first += n
        fill += n * row
        full = fill // LINE * LINE
        if full:
            stream_runs(line + skip, stage + skip, full - skip, 1, 0, 0)
            move_line(stage, stage + full)
            line += full
            fill -= full
            skip = 0
    copy_bytes(line + skip, stage + skip, fill - skip)


@jit
def join_stream(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call, layout = call_at(arguments)
    row, shortest, are_packed = 0, PAGE, layout.dims == 1 and layout.runs > 0
    for p in range(layout.count):
        part = part_at(layout, p)
        are_packed = are_packed and part.source_offset == row
        row += part.run
        shortest = min(shortest, part.run)
    if are_packed and layout.source_strides[0] == row and shortest <= LONG and row <= PAGE - LINE:
        first, last = layout.runs * task // tasks, layout.runs * (task + 1) // tasks
        _join_rows(call, layout, row, first, last)
    else:
        copy_blocks(task, tasks, arguments, False, copy_range, _stream_runs_back)
    fence()


# ---- interleaved items -----------------------------------------------------------------------


@instruction
def _interleave_lines(
    builder, parts, itemsize, targets, step, offset, whole, count, own_lines, stream
):
    """Copy the next `count` cache lines of each part; see `deinterleave.py` for the arguments.

    This stores lines of the whole, wherever the lines of the parts begin. So `own_lines` is unused.
    """
    for kind in kinds(builder, parts, itemsize):
        for line, start in each_line(builder, parts, count, offset, whole):
            _read_line(builder, kind, targets, step, line, start, stream)


def _read_line(builder, kind, targets, step, offset, whole, stream):
    """Copy a line of each part: a load per part, shuffles within lanes, and a store per line.

    Lane k of all parts makes as many lanes of the whole as there are parts. The first of them are
    shuffled together for all k, then the second ones, and so on; at the end, lanes are put in
    order.
    """
    parts, itemsize = kind
    items, width = LINE // itemsize, _LANE // itemsize  # of a line, of a lane
    kind = ir.VectorType(ir.IntType(8 * itemsize), items)
    lines = []
    for _ in range(parts):
        part = builder.add(builder.load(pointer_to(builder, targets, INT64)), offset)
        lines.append(builder.load(pointer_to(builder, part, kind), align=1))
        targets = builder.add(targets, step)
    lanes = []
    for j in range(parts):
        made = ir.Constant(kind, ir.Undefined)
        for part, line in enumerate(lines):
            places = list(range(items))
            for i in range(items):
                place = j * width + i % width
                if place % parts == part:
                    places[i] = items + i // width * width + place // parts
            made = shuffled(builder, made, line, places)
        starts = range(0, items, width)
        lanes.append([shuffled(builder, made, made, [*range(k, k + width)]) for k in starts])
    in_line = LINE // _LANE
    ordered = [lanes[place % parts][place // parts] for place in range(parts * in_line)]
    filled = [joined(builder, ordered[k : k + in_line]) for k in range(0, len(ordered), in_line)]
    for past_cache in both_ways(builder, stream):
        for k, line in enumerate(filled):
            target = pointer_to(builder, builder.add(whole, INT64(k * LINE)), kind)
            store(builder, line, target, LINE, past_cache)


@jit
def interleave(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call, layout = call_at(arguments)
    items, step = LINE // part_at(layout, 0).run, layout.source_strides[0]
    head = 0  # where the whole's cache lines begin, if an item begins there
    while head < items and (call.source + head * step) % LINE:
        head += 1
    stream = call.stream if head < items else 0
    copy_interleaved(
        task, tasks, call, layout, head % items, 0, stream, _interleave_lines, move_runs_back
    )


# ---- transposed parts ------------------------------------------------------------------------

_read_items = items_mover(back=True, copy_lines=_interleave_lines)


@jit
def _read_piece(tiled, stream, table, offset, skew, ahead, piece):
    """Move a piece from its lines; see `splitjit._kernels.loops.tiles.write_piece`."""
    _read_items(table, offset, piece)


@jit
def join_transpose(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    copy_bands(task, tasks, arguments, 0, _read_piece)
