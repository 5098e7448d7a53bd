"""The loop for large arrays: the plain loop with stores that bypass the cache.

It cuts a copy as `splitjit._kernels.plain` does, but rows, too, only at cache lines of the parts:
both sides of another cut would need ordinary stores. Contiguous rows with suitable runs are copied
as `splitjit._kernels.rows` describes, other rows one block at a time.
"""

from __future__ import annotations

from splitjit._abi.calls import Arguments
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import fence, least
from splitjit._kernels.plain import cut_at_line, runs_at, share_of
from splitjit._kernels.records import layout_at, part_at, read
from splitjit._kernels.rows import stream_rows, suits_rows
from splitjit._kernels.runs import (
    close_stream,
    open_stream,
    put_runs,
    staging_buffer,
    stream_runs,
)


@jit
def has_no_gaps(dims, part):
    """Return whether the runs of a part follow each other without gaps in the target."""
    step = part.run
    for d in range(dims - 1, -1, -1):
        if part.target_strides[d] != step and part.extents[d] != 1:
            return False
        step *= part.extents[d]
    return True


@jit
def stream_range(call, layout, part, in_lines, stage, ahead, first, last):
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
    stream = open_stream(call.target + part.target_offset + first)
    while first < last:
        runs = runs_at(call, layout, part, first, last)
        length = runs.run * runs.count
        if in_lines:
            stream = stream_runs(stage, stream, ahead, runs)
            if ahead:
                ahead += length
        else:
            put_runs(runs)
        first += length
    if in_lines:
        close_stream(stage, stream)


@jit
def stream(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = read(Arguments, arguments)
    layout = layout_at(call.layout)
    stage = staging_buffer()
    in_lines = True
    for p in range(layout.count):
        in_lines = in_lines and has_no_gaps(layout.dims, part_at(layout, p))
    by_rows, row, first, last, block = share_of(layout, task, tasks)
    if in_lines and by_rows and suits_rows(call, layout, row):
        stream_rows(call, layout, row, first, last)
        fence()
        return
    # If the rows are contiguous, prefetch them one block ahead, in order: each part
    # reads them in strides that the hardware prefetcher does not predict.
    contiguous = by_rows and layout.dims == 1 and layout.source_strides[0] == row
    begin = call.source + part_at(layout, 0).source_offset
    for i in range(first, last, block):
        j = least(i + block, last)
        ahead = begin + j * row if contiguous and j + block <= last else 0
        start = 0
        for p in range(layout.count):
            part = part_at(layout, p)
            a, b = (i * part.run, j * part.run) if by_rows else (i - start, j - start)
            if in_lines or not by_rows:
                a, b = cut_at_line(a, part, call.target), cut_at_line(b, part, call.target)
            stream_range(call, layout, part, in_lines, stage, ahead, a, b)
            if ahead:
                ahead += b - a
            start += part.nbytes
    fence()
