"""The plain loop: runs of each part, one after another.

If all parts have the same number of runs, as when an inner axis is split, and
there are at least 32 for each task, a task copies the same runs of every part,
one block of the source at a time. So each task reads its share of the source
once, in order::

    source rows    | part 0 | part 1 |   part 2   |   <- block 0, task 0
                   | part 0 | part 1 |   part 2   |   <- block 1, task 0
                   | part 0 | part 1 |   part 2   |   <- block 0, task 1

Otherwise a task copies an equal share of all bytes, part after part, and a cut
between two tasks may lie at any cache line of a part.

`splitjit._kernels.stream` copies large arrays in the same way, with stores that bypass the cache.
"""

from __future__ import annotations

from typing import NamedTuple

from splitjit._abi.calls import Arguments
from splitjit._abi.kernels import BLOCK, LINE, PAGE
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import greatest, least
from splitjit._kernels.records import layout_at, part_at, read
from splitjit._kernels.runs import Runs, move_runs

_ROWS_PER_TASK = 32  # with fewer rows, tasks of whole rows would be uneven


class Share(NamedTuple):
    """The share of a copy that one task makes.

    Attributes
    ----------
    by_rows : bool
        Whether shares are cut by rows rather than bytes. A row is one run of each part.
    row : int
        Bytes of a row.
    first, last : int
        The rows, or the bytes of all parts together: [first, last).
    block : int
        How many of them to copy to each part in turn.
    """

    by_rows: bool
    row: int
    first: int
    last: int
    block: int


@jit
def share_of(layout, task, tasks):
    """Return the share of a task."""
    row = total = 0
    for p in range(layout.count):
        part = part_at(layout, p)
        row += part.run
        total += part.nbytes
    runs = layout.runs
    by_rows = runs >= _ROWS_PER_TASK * tasks or (runs > 0 and tasks == 1)
    length = runs if by_rows else total
    first, last = length * task // tasks, length * (task + 1) // tasks
    block = greatest(last - first, 1)
    if by_rows:  # for many parts, a block holds a page of each if possible
        block = greatest(
            least(greatest(BLOCK, layout.count * PAGE), 2 * BLOCK) // greatest(row, 1), 1
        )
    return Share(by_rows, row, first, last, block)


@jit
def cut_at_line(position, part, target):
    """Round a cut within a part down to a cache line of the target; keep the part's ends."""
    if position >= part.nbytes:
        return part.nbytes
    return greatest(position - (target + part.target_offset + position) % LINE, 0)


@jit
def runs_at(call, layout, part, first, last):
    """Return the evenly spaced runs at the start of the bytes [first, last) of a part.

    If the range begins or ends within a run, that piece of a run is returned alone.
    """
    inner = layout.dims - 1
    run = part.run
    index = first // run
    offset = first - index * run
    target = call.target + part.target_offset + offset
    source = call.source + part.source_offset + offset
    left = part.extents[inner]
    rest = index
    for d in range(inner, -1, -1):
        outer = rest // part.extents[d]
        i = rest - outer * part.extents[d]
        target += i * part.target_strides[d]
        source += i * layout.source_strides[d]
        if d == inner:
            left -= i
        rest = outer
    length, count = run, least(left, (last - first) // run)
    if offset or count == 0:  # a piece of a run
        length, count = least(run - offset, last - first), 1
    target_step, source_step = part.target_strides[inner], layout.source_strides[inner]
    return Runs(target, source, length, count, target_step, source_step)


@jit
def copy_range(call, layout, part, first, last):
    """Copy the bytes [first, last) of a part."""
    while first < last:
        target, source, run, count, target_step, source_step = runs_at(
            call, layout, part, first, last
        )
        move_runs(target, source, run, count, target_step, source_step)
        first += run * count


@jit
def plain(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = read(Arguments, arguments)
    layout = layout_at(call.layout)
    by_rows, _, first, last, block = share_of(layout, task, tasks)
    for i in range(first, last, block):
        j = least(i + block, last)
        start = 0
        for p in range(layout.count):
            part = part_at(layout, p)
            a, b = i * part.run, j * part.run
            if not by_rows:
                a = cut_at_line(i - start, part, call.target)
                b = cut_at_line(j - start, part, call.target)
            copy_range(call, layout, part, a, b)
            start += part.nbytes
