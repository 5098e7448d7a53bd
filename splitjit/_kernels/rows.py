"""Copy contiguous rows to parts that are contiguous too, with stores that bypass the cache.

The runs of a part are a cache line or longer, so at most two runs share a line of the part.
Such a line is merged in registers, from the end of one run and the start of the next::

    source   …|--- run i ---|  other parts  |-- run i + 1 --|…
    part               …|---|---|----
                        |  line |

Two vector loads read the line, and with it bytes of the neighbouring parts. The rows are
contiguous, so these bytes are in the source.
"""

from __future__ import annotations

import numpy as np

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import copy_bytes, merge_line, move, out_of_line, prefetch
from splitjit._kernels.records import part_at
from splitjit._kernels.table import LINE

_TURN = 1 << 9  # bytes that a part gets before the next part, if all parts are equal
_LONG = 1 << 12  # the hardware prefetcher follows longer runs by itself
_NEAR, _FAR = 1 << 14, 1 << 16  # least and most bytes ahead to prefetch


@jit(inline="always")
def suits_rows(layout, row):
    """Return whether `stream_rows` can copy parts that have no gaps, in rows of `row` bytes."""
    suits = layout.dims == 1 and layout.source_strides[0] == row
    for p in range(layout.count):
        suits = suits and part_at(layout, p).run >= LINE
    return suits


@jit
def _stream_runs(target, source, run, first, last, runs, row, ahead):
    """Copy the runs [first, last) of a part that has `runs` runs of `run` bytes.

    Each run also writes the line that it shares with the run before it. `target` and `source` are
    the addresses of run 0. The loop prefetches `ahead` bytes ahead, unless that is 0.
    """
    out_of_line()
    target += first * run
    source += first * row
    for i in range(first, last):
        if ahead:
            for k in range(0, run, LINE):
                prefetch(source + ahead + k)
        begun = target & (LINE - 1)  # bytes of the first line that come before this run
        k = np.intp(0)
        if begun:
            k += LINE - begun
            if i == 0:
                copy_bytes(target, source, k)
            else:
                merge_line(target - begun, source - row + run - begun, source - begun, begun)
        while k <= run - LINE:
            move(target + k, source + k, LINE, True)
            k += LINE
        target += run
        source += row
    if last == runs:  # no run after it writes the last line
        tail = target & (LINE - 1)
        copy_bytes(target - tail, source - row + run - tail, tail)


@jit
def stream_rows(call, layout, row, first, last):
    """Copy the rows [first, last): a few rows to each part in turn."""
    out_of_line()
    turn = max(_TURN * layout.count // row, 2)
    ahead = min(max(turn * row, _NEAR), _FAR) if row < _LONG * layout.count else np.intp(0)
    for i in range(first, last, turn):
        j = min(i + turn, last)
        for p in range(layout.count):
            part = part_at(layout, p)
            target, source = call.target + part.target_offset, call.source + part.source_offset
            _stream_runs(target, source, part.run, i, j, layout.runs, row, ahead)
