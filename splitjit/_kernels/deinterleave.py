"""The deinterleave loops: single small items that the parts take from the source in turn.

The channels of an image are such parts. One vector load reads enough items to
fill one cache line of each part. For each part, one shuffle selects its items,
and one store writes them::

    source   a0 b0 c0 a1 b1 c1 a2 b2 c2 …
    part a   a0 a1 a2 …
    part b   b0 b1 b2 …
    part c   c0 c1 c2 …

`splitjit._kernels.table.INTERLEAVED` lists the kinds: numbers of parts and item
sizes. This module makes the code for each kind, and the choice among them, from
that list. A kind that is not in the list is copied item by item.
"""

from __future__ import annotations

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import deinterleave_line, fence, out_of_line, prefetch
from splitjit._kernels.records import arguments_at, layout_at, part_at
from splitjit._kernels.runs import move_runs
from splitjit._kernels.table import INTERLEAVED, LINE, TARGET_OFFSET, WORD, row_words

_AHEAD = 1 << 12  # bytes between a load and the address that is prefetched

_row_words = jit(inline="always")(row_words)


@jit(inline="always")
def _copy_items(call, layout, first, last):
    """Copy the items [first, last) of every part, one by one."""
    for p in range(layout.count):
        part = part_at(layout, p)
        target = call.target + part.target_offset + first * part.run
        source = call.source + part.source_offset + first * layout.source_strides[0]
        move_runs(target, source, part.run, last - first, part.run, layout.source_strides[0])


@jit(inline="always")
def _lines_coincide(layout):
    """Return whether cache lines begin at the same items in all parts."""
    first = part_at(layout, 0).target_offset
    for p in range(1, layout.count):
        if (part_at(layout, p).target_offset - first) % LINE != 0:
            return False
    return True


def _lines_of(parts, itemsize):
    """Make the function that copies cache lines for one number of parts and item size."""

    @jit(tag=f"_{parts}x{itemsize}")
    def lines(stream, targets, step, offset, source, count):
        out_of_line()
        if stream:
            for _ in range(count):
                for k in range(parts):
                    prefetch(source + _AHEAD + k * LINE)
                deinterleave_line(targets, step, offset, source, parts, itemsize, True)
                offset += LINE
                source += parts * LINE
        else:
            for _ in range(count):
                deinterleave_line(targets, step, offset, source, parts, itemsize, False)
                offset += LINE
                source += parts * LINE

    return lines


def _dispatch(kinds):
    """Make the function that finds the code of a kind by a chain of comparisons."""
    if not kinds:
        return _no_lines
    (parts, itemsize), *others = kinds
    lines, otherwise = _lines_of(parts, itemsize), _dispatch(others)

    @jit(tag=f"_{parts}x{itemsize}", inline="always")
    def copy_lines(kind, stream, targets, step, offset, source, count):
        if kind[0] == parts and kind[1] == itemsize:
            lines(stream, targets, step, offset, source, count)
            return count
        return otherwise(kind, stream, targets, step, offset, source, count)

    return copy_lines


@jit(inline="always")
def _no_lines(kind, stream, targets, step, offset, source, count):
    return 0


_copy_lines = _dispatch(INTERLEAVED)


def deinterleave(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = arguments_at(arguments)
    layout = layout_at(call.layout)
    parts, part = layout.count, part_at(layout, 0)
    itemsize = part.run
    first = layout.runs * task // tasks
    last = layout.runs * (task + 1) // tasks
    # Streaming stores need aligned lines. Items before the first line are copied one by one.
    skew = -(call.target + part.target_offset + first * itemsize) % LINE
    stream = call.stream and skew % itemsize == 0 and _lines_coincide(layout)
    start = first + (min(skew // itemsize, last - first) if stream else 0)

    targets = layout.rows + WORD * TARGET_OFFSET
    step = WORD * _row_words(layout.dims)
    offset = call.target + start * itemsize
    source = call.source + part.source_offset + start * parts * itemsize
    count = (last - start) * itemsize // LINE
    count = _copy_lines((parts, itemsize), stream, targets, step, offset, source, count)
    stop = start + count * LINE // itemsize
    _copy_items(call, layout, first, start)
    _copy_items(call, layout, stop, last)
    if stream:
        fence()
