"""The plain loop: runs of each part, one after another.

A task copies an equal share of each part, in blocks: one block of every part, then the next block
of every part. If an inner axis is split, the blocks of all parts lie side by side in the source.
Then each task reads its share of the source once, in order::

    source rows    | part 0 | part 1 |   part 2   |   <- block 0, task 0
                   | part 0 | part 1 |   part 2   |   <- block 1, task 0
                   | part 0 | part 1 |   part 2   |   <- block 2, task 1

Rows with long runs are copied one after another. `stream` copies large arrays in the same way, with
stores that bypass the cache.
"""

from splitjit._abi.kernels import BLOCK, LINE, PAGE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.records import call_at, part_at
from splitjit._kernels.loops.runs import move_runs

LONG = 1 << 10  # longer runs are worth a call each, and few of their lines are partial
_ROWS = 8  # with fewer runs in a block, or rows in a task, whole ones would be uneven


@jit
def _start_of(block, blocks, part, target, at_line):
    """Return the byte of a part at which one of its blocks begins.

    This is the start of a run or, if runs are long or `at_line` is true, of a cache line of the
    target.
    """
    size = -(-part.nbytes // blocks)
    if size >= _ROWS * part.run:
        size += -size % part.run
    else:
        at_line = True
    start = block * size
    if start >= part.nbytes:
        return part.nbytes
    if at_line:
        return max(start - (target + part.target_offset + start) % LINE, 0)
    return start


@jit
def runs_at(call, layout, part, first, last):
    """Return the evenly spaced runs at the start of the bytes [first, last) of a part.

    These are the arguments of `move_runs`. If the range begins or ends within a run, that piece of
    a run is returned alone.
    """
    inner = layout.dims - 1
    run = part.run
    index = first // run
    offset = first - index * run
    target = call.target + part.target_offset + offset
    source = call.source + part.source_offset + offset
    left = part.extents[inner]
    for d in range(inner, -1, -1):
        outer = index // part.extents[d]
        i = index - outer * part.extents[d]
        target += i * part.target_strides[d]
        source += i * layout.source_strides[d]
        if d == inner:
            left -= i
        index = outer
    length, count = run, min(left, (last - first) // run)
    if offset or count == 0:  # a piece of a run
        length, count = min(run - offset, last - first), 1
    return target, source, length, count, part.target_strides[inner], layout.source_strides[inner]


@jit
def copy_range(call, layout, part, first, last, move):
    """Copy the bytes [first, last) of a part; `move` is `move_runs`, or a function like it."""
    while first < last:
        runs = runs_at(call, layout, part, first, last)
        _, _, run, count, _, _ = runs
        move(*runs)
        first += run * count


@jit
def _copy_long_rows(task, tasks, call, layout, nbytes, move):
    """Copy the rows of a task if they consist of long runs; return whether they do.

    Rows are copied in the order of the source. Part by part, ordinary stores take a tenth longer,
    and stores that bypass the cache two fifths (two threads, 1024 rows of three runs of 3 KB,
    2026-11-27).
    """
    are_short = nbytes <= LONG * layout.runs * layout.count
    if layout.dims != 1 or layout.runs < _ROWS * tasks or are_short:
        return False
    for row in range(layout.runs * task // tasks, layout.runs * (task + 1) // tasks):
        source = call.source + row * layout.source_strides[0]
        for p in range(layout.count):
            part = part_at(layout, p)
            target = call.target + part.target_offset + row * part.target_strides[0]
            move(target, source + part.source_offset, part.run, 1, 0, 0)
    return True


@jit
def copy_blocks(task, tasks, arguments, at_line, copy, move):
    """Copy the share of one task.

    Parameters
    ----------
    task, tasks, arguments : int
        As for all loops.
    at_line : bool
        Whether all blocks begin at cache lines of the parts; see `_start_of`.
    copy : function
        `copy_range`, or a function like it.
    move : function
        `move_runs`, or a function like it. `copy` calls it, and so does the loop over long rows.
    """
    call, layout = call_at(arguments)
    nbytes = 0
    for p in range(layout.count):
        nbytes += part_at(layout, p).nbytes
    if _copy_long_rows(task, tasks, call, layout, nbytes, move):
        return
    # For many parts, a block holds a page of each if possible.
    size = min(max(BLOCK, layout.count * PAGE), 2 * BLOCK)
    blocks = max(nbytes // tasks // size, 1)
    for block in range(task * blocks, (task + 1) * blocks):
        for p in range(layout.count):
            part = part_at(layout, p)
            first = _start_of(block, tasks * blocks, part, call.target, at_line)
            last = _start_of(block + 1, tasks * blocks, part, call.target, at_line)
            copy(call, layout, part, first, last, move)


@jit
def plain(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    copy_blocks(task, tasks, arguments, False, copy_range, move_runs)
