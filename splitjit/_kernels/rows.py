"""Copy contiguous rows to contiguous parts, with stores that bypass the cache.

The rows are read in address order, which the processor predicts: one row, or a few short ones, to
each part in turn. A core that reads a block of rows part by part is far from the limit,
even with prefetching.

A run of a cache line or longer shares at most two lines of its part with other runs. Such a line
is merged in registers, from the end of one run and the start of the next::

    source   …|--- run i ---|  other parts  |-- run i + 1 --|…
    part               …|---|---|----
                        |  line |

Two vector loads read the line, and bytes of the neighbouring parts with it. The rows are
contiguous, so these bytes are in the source. Shorter runs are collected in registers, in groups
that fill whole lines.
"""

from __future__ import annotations

from splitjit._abi.kernels import COLLECTED, LINE
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    copy_bytes,
    greatest,
    least,
    merge_line,
    prefetch,
    stream_line,
    trailing_zeros,
)
from splitjit._kernels.records import part_at
from splitjit._kernels.runs import move_runs
from splitjit._kernels.variants import collect_runs

_LEAST = 1 << 7  # longer runs are copied one row at a time
_TURN = 1 << 9  # for shorter runs: bytes per part and turn, if all parts are equal
_NEAR, _FAR = 1 << 14, 1 << 16  # and how many bytes ahead to prefetch: least and most
_COLLECTED_TURN = 1 << 11  # source bytes of all parts per turn, if some runs are collected
_COLLECTED_LINES = 2 * LINE  # and bytes of each part, at least
_GROUP = 16  # most runs in a group
_BITS = LINE.bit_length() - 1


@jit
def suits_rows(call, layout, row):
    """Return whether `stream_rows` can copy these parts without gaps in rows of `row` bytes."""
    suits = layout.dims == 1 and layout.source_strides[0] == row
    for p in range(layout.count):
        part = part_at(layout, p)
        run, target = part.run, call.target + part.target_offset
        in_words = run in COLLECTED and target & ((run & -run) - 1) == 0
        suits = suits and (run >= LINE or (in_words and layout.runs >= _GROUP))
    return suits


@jit
def _merge_runs(target, source, run, first, last, runs, row, ahead):
    """Copy the runs [first, last) of a part with `runs` runs of `run` bytes, at least a line each.

    Each run also writes the line that it shares with the run before it. `target` and `source` are
    the addresses of run 0. The loop prefetches `ahead` bytes ahead, unless that is 0.
    """
    target += first * run
    source += first * row
    for i in range(first, last):
        if ahead:
            for k in range(0, run, LINE):
                prefetch(source + ahead + k)
        begun = target & (LINE - 1)  # bytes of the first line that come before this run
        k = 0
        if begun:
            k += LINE - begun
            if i == 0:
                copy_bytes(target, source, k)
            else:
                merge_line(target - begun, source - row + run - begun, source - begun, begun)
        while k <= run - LINE:
            stream_line(target + k, source + k)
            k += LINE
        target += run
        source += row
    if last == runs:  # no later run writes the last line
        tail = target & (LINE - 1)
        copy_bytes(target - tail, source - row + run - tail, tail)


@jit
def _collect_runs(target, source, run, first, last, runs, row):
    """Copy the groups of runs of a part whose last run is one of [first, last).

    The runs before the first group are copied along with the first run, those after the last group
    with the last run. The part's last run is in no group, because groups read past their end.
    """
    bits = trailing_zeros(run)
    group = _BITS - bits  # runs, as an exponent of 2
    # A group fills `words` lines. The target may be any multiple of a word, so the first group
    # begins after `head` runs: head * words is the number of words before the next line, modulo
    # the runs in a group. The inverse of 3 modulo 4, 8 or 16 is 11.
    words = run >> bits
    head = ((-target & (LINE - 1)) >> bits) * (11 if words == 3 else 1) & ((1 << group) - 1)
    groups = (runs - head - 1) >> group
    begin, end = greatest((first - head) >> group, 0), least((last - head) >> group, groups)
    if begin < end:
        i = head + (begin << group)
        collect_runs(target + i * run, source + i * row, run, end - begin, row)
    if first == 0:
        move_runs(target, source, run, head, run, row)
    if last == runs:
        i = head + (groups << group)
        move_runs(target + i * run, source + i * row, run, runs - i, run, row)


@jit
def stream_rows(call, layout, row, first, last):
    """Copy the rows [first, last): one row, or a few rows, to each part in turn."""
    shortest = row
    for p in range(layout.count):
        shortest = least(shortest, part_at(layout, p).run)
    turn, ahead = 1, 0
    if shortest < LINE:
        turn = greatest(_COLLECTED_TURN, _COLLECTED_LINES * layout.count) // row
        turn = greatest(turn - turn % _GROUP if turn > _GROUP else turn, 1)
    elif row < _LEAST * layout.count:
        turn = greatest(_TURN * layout.count // row, 2)
        ahead = least(greatest(turn * row, _NEAR), _FAR)
    for i in range(first, last, turn):
        j = least(i + turn, last)
        for p in range(layout.count):
            part = part_at(layout, p)
            target, source = call.target + part.target_offset, call.source + part.source_offset
            if part.run < LINE:
                _collect_runs(target, source, part.run, i, j, layout.runs, row)
            else:
                _merge_runs(target, source, part.run, i, j, layout.runs, row, ahead)
