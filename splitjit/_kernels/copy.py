"""The copy loop: runs of each part, one after another.

If all parts have the same number of runs, as when an inner axis is split, a
task copies the same runs of every part, one block of the source at a time. So
each task reads its share of the source once, in order::

    source rows    | part 0 | part 1 |   part 2   |   <- block 0, task 0
                   | part 0 | part 1 |   part 2   |   <- block 1, task 0
                   | part 0 | part 1 |   part 2   |   <- block 0, task 1

Otherwise a task copies an equal share of all bytes, part after part, and a cut
between two tasks may lie anywhere in a part.
"""

from __future__ import annotations

import numpy as np

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import fence
from splitjit._kernels.records import arguments_at, layout_at, part_at
from splitjit._kernels.rows import stream_rows, suits_rows
from splitjit._kernels.runs import (
    Runs,
    close_stream,
    copy_runs,
    open_stream,
    staging_buffer,
    stream_runs,
)
from splitjit._kernels.table import BLOCK, LINE, PAGE

_ROWS_PER_TASK = 32  # with fewer rows, tasks of whole rows would be uneven


@jit(inline="always")
def has_no_gaps(dims, part):
    """Return whether the runs of a part follow each other without gaps in the target."""
    step = part.run
    for d in range(dims - 1, -1, -1):
        if part.target_strides[d] != step and part.extents[d] != 1:
            return False
        step *= part.extents[d]
    return True


@jit(inline="always")
def copy_range(call, layout, part, in_lines, stage, ahead, first, last):
    """Copy the bytes [first, last) of a part.

    Parameters
    ----------
    call : Arguments
    layout : Layout
    part : Part
    in_lines : bool
        Whether to stream full cache lines; the target must have no gaps.
    stage : int
        Address of a staging buffer.
    ahead : int
        Address from which to prefetch the next runs, or 0 if they are not contiguous.
    first, last : int
        Positions in the bytes of the part.
    """
    inner = layout.dims - 1
    run = part.run
    stream = open_stream(call.target + part.target_offset + first)
    while first < last:
        index = first // run
        offset = first - index * run
        # Compute the addresses of run `index`, and how many runs from it on are evenly spaced.
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
        length, count = run, min(left, (last - first) // run)
        if offset or count == 0:  # a piece of a run
            length, count = min(run - offset, last - first), 1
        target_step, source_step = part.target_strides[inner], layout.source_strides[inner]
        runs = Runs(target, source, length, count, target_step, source_step)
        if in_lines:
            stream = stream_runs(stage, stream, ahead, runs)
            if ahead:
                ahead += length * count
        else:
            copy_runs(call.stream, runs)
        first += length * count
    if in_lines:
        close_stream(stage, stream)


@jit(inline="always")
def cut_at_line(position, part, target):
    """Move a cut in the bytes of a part back to a cache line of the target.

    The ends of the part stay where they are.
    """
    if position >= part.nbytes:
        return part.nbytes
    return max(position - (target + part.target_offset + position) % LINE, 0)


def copy(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = arguments_at(arguments)
    layout = layout_at(call.layout)
    stage = staging_buffer()
    row = total = np.intp(0)
    in_lines = call.stream != 0
    for p in range(layout.count):
        part = part_at(layout, p)
        row += part.run
        total += part.nbytes
        in_lines = in_lines and has_no_gaps(layout.dims, part)
    runs = layout.runs
    by_rows = runs >= _ROWS_PER_TASK * tasks or (runs and tasks == 1)
    length = runs if by_rows else total  # rows or bytes of all tasks together
    first, last = length * task // tasks, length * (task + 1) // tasks
    if in_lines and by_rows and suits_rows(layout, row):
        stream_rows(call, layout, row, first, last)
        fence()
        return
    block = max(last - first, 1)
    if by_rows:  # of many parts, a block holds a page each if possible
        block = max(min(max(BLOCK, layout.count * PAGE), 2 * BLOCK) // max(row, 1), 1)
    # If the rows are contiguous, prefetch them one block ahead, in order: each part
    # reads them in strides that the hardware prefetcher does not predict.
    contiguous = by_rows and call.stream and layout.dims == 1 and layout.source_strides[0] == row
    begin = call.source + part_at(layout, 0).source_offset
    for i in range(first, last, block):
        j = min(i + block, last)
        ahead = begin + j * row if contiguous and j + block <= last else np.intp(0)
        start = 0
        for p in range(layout.count):
            part = part_at(layout, p)
            a, b = (i * part.run, j * part.run) if by_rows else (i - start, j - start)
            if in_lines or not by_rows:
                a, b = cut_at_line(a, part, call.target), cut_at_line(b, part, call.target)
            copy_range(call, layout, part, in_lines, stage, ahead, a, b)
            if ahead:
                ahead += b - a
            start += part.nbytes
    if call.stream:
        fence()
