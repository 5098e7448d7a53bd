"""Copy evenly spaced runs: with ordinary stores, or with stores that bypass the cache.

::

    source   |-run-|        |-run-|        |-run-|          source_step bytes apart
    target   |-run-|-run-|-run-|                            target_step bytes apart

An ordinary store first reads the cache line that it overwrites. A streaming
(non-temporal) store does not, so a large copy moves two bytes instead of three per
source byte. Streaming stores write full, aligned lines. Writing a line in two pieces
costs an ordinary store and a long wait, so a `Stream` holds back the start of the
next line until the line is full.
"""

from __future__ import annotations

from typing import NamedTuple

from splitjit._abi.kernels import LINE, PAGE
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    copy_bytes,
    greatest,
    least,
    move_line,
    out_of_line,
    prefetch,
    prefetch_to_write,
    reserve,
    stream_line,
)
from splitjit._kernels.variants import copy_words

STAGE = PAGE
"""Size of the staging buffer, in which short runs are gathered in L1 and then streamed out.
It is small because it is on the thread's stack, which may have only 32 KB."""

_BATCH = 1 << 9  # bytes gathered at a time, so that fetching, gathering and storing overlap
_FAR = 1 << 9  # the hardware prefetcher does not follow larger steps between runs
_STAGED = 1 << 11  # longer runs are streamed directly
_AHEAD = 1 << 9  # bytes between an ordinary store and the line that is prefetched to write
_LONG = 1 << 9  # shorter runs are not streamed to a target with gaps


class Runs(NamedTuple):
    """Evenly spaced runs: addresses of the first run, and byte steps to the next run."""

    target: int
    source: int
    run: int
    count: int
    target_step: int
    source_step: int


class Stream(NamedTuple):
    """The end of a contiguous target that is written in full cache lines.

    Attributes
    ----------
    line : int
        The address of the first line that is not written yet.
    fill : int
        Bytes of this line that the staging buffer holds, or that lie before the target.
    skip : int
        Bytes of this line that lie before the target.
    """

    line: int
    fill: int
    skip: int


@jit(inline="always")
def staging_buffer():
    """Reserve a staging buffer of `STAGE` bytes."""
    return reserve(STAGE, PAGE)


@jit
def move_runs(target, source, run, count, target_step, source_step):
    """Copy runs with ordinary stores of the widest word that fits."""
    out_of_line()
    if run >= LINE:  # memcpy is no faster, and slower if the target's pages are new
        last = run - LINE
        for _ in range(count):
            for k in range(0, last, LINE):
                prefetch_to_write(target + k + _AHEAD)
                move_line(target + k, source + k)
            move_line(target + last, source + last)
            target += target_step
            source += source_step
    else:
        copy_words(target, source, run, count, target_step, source_step)


@jit
def stream_bytes(target, source, nbytes):
    """Copy full lines with stores that bypass the cache, partial lines with ordinary stores."""
    out_of_line()
    head = least(-target % LINE, nbytes)
    if head:
        copy_bytes(target, source, head)
    tail = head + (nbytes - head) // LINE * LINE
    for k in range(head, tail, LINE):
        stream_line(target + k, source + k)
    if tail < nbytes:
        copy_bytes(target + tail, source + tail, nbytes - tail)


@jit
def put_bytes(stream, target, source, nbytes):
    """Copy bytes. If `stream`, the stores of full lines bypass the cache."""
    if stream:
        stream_bytes(target, source, nbytes)
    else:
        copy_bytes(target, source, nbytes)


@jit
def _prefetch_runs(ahead, n, run, source, source_step):
    """Prefetch `n` runs at `ahead`, or if that is 0, the `n` runs after those at `source`."""
    if ahead:
        for k in range(ahead, ahead + n * run, LINE):
            prefetch(k)
    elif abs(source_step) >= _FAR:
        for i in range(n):
            start = source + (n + i) * source_step
            for k in range(start, start + run, LINE):
                prefetch(k)


@jit
def open_stream(target):
    """Begin to stream to a contiguous target."""
    fill = target % LINE
    return Stream(target - fill, fill, fill)


@jit
def _put_lines(stage, stream, nbytes):
    """Count `nbytes` more bytes in the staging buffer, and stream its full lines.

    The partial last line moves to the front of the buffer.
    """
    line, fill, skip = stream.line, stream.fill + nbytes, stream.skip
    full = fill // LINE * LINE
    if full:
        first = 0
        if skip:  # the first line begins before the target
            copy_bytes(line + skip, stage + skip, LINE - skip)
            first = LINE
            skip = 0
        for k in range(first, full, LINE):
            stream_line(line + k, stage + k)
        move_line(stage, stage + full)
    return Stream(line + full, fill - full, skip)


@jit
def close_stream(stage, stream):
    """Write the partial last line."""
    copy_bytes(stream.line + stream.skip, stage + stream.skip, stream.fill - stream.skip)


@jit
def _stream_long_runs(stage, stream, runs):
    """Stream runs from the source, but lines that two runs share from the staging buffer."""
    out_of_line()
    run, source = runs.run, runs.source
    for _ in range(runs.count):
        head = least(-stream.fill % LINE, run)
        copy_bytes(stage + stream.fill, source, head)
        stream = _put_lines(stage, stream, head)
        tail = head + (run - head) // LINE * LINE
        for k in range(head, tail, LINE):
            stream_line(stream.line + k - head, source + k)
        copy_bytes(stage + stream.fill, source + tail, run - tail)
        stream = Stream(stream.line + tail - head, stream.fill + run - tail, stream.skip)
        source += runs.source_step
    return stream


@jit
def _stream_short_runs(stage, stream, ahead, runs):
    """Gather runs in the staging buffer batch by batch, and stream its full lines."""
    run, source, count = runs.run, runs.source, runs.count
    batch = greatest(_BATCH // run, 1)
    while count > 0:
        n = least(batch, count)
        _prefetch_runs(ahead, n, run, source, runs.source_step)
        if ahead:
            ahead += n * run
        move_runs(stage + stream.fill, source, run, n, run, runs.source_step)
        stream = _put_lines(stage, stream, n * run)
        source += n * runs.source_step
        count -= n
    return stream


@jit
def stream_runs(stage, stream, ahead, runs):
    """Append runs to a contiguous target with stores that bypass the cache.

    Parameters
    ----------
    stage : int
        Address of a staging buffer that starts with the partial last line.
    stream : Stream
    ahead : int
        Address from which to prefetch the next runs, or 0 if they are not contiguous.
    runs : Runs
        The target follows the bytes that were streamed before.

    Returns
    -------
    Stream
    """
    if runs.run <= _STAGED:
        return _stream_short_runs(stage, stream, ahead, runs)
    return _stream_long_runs(stage, stream, runs)


@jit
def put_runs(runs):
    """Copy runs to a target that may have gaps; stores of long runs bypass the cache."""
    target, source, run = runs.target, runs.source, runs.run
    if run >= _LONG:
        for _ in range(runs.count):
            stream_bytes(target, source, run)
            target += runs.target_step
            source += runs.source_step
    else:
        move_runs(target, source, run, runs.count, runs.target_step, runs.source_step)
