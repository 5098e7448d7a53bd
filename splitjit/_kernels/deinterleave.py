"""The deinterleave loops: small items of the parts that are interleaved in the source.

The channels of an image are such parts. One vector load fetches a cache line's
worth of items for each part. Then one shuffle and one store per part write the
items to the part, or to the staging buffer from which full lines are streamed::

    source   a0 b0 c0 a1 b1 c1 a2 b2 c2 …
    part a   a0 a1 a2 …
    part b   b0 b1 b2 …
    part c   c0 c1 c2 …

`splitjit._abi.kernels.INTERLEAVED` lists the kinds: numbers of parts and item
sizes. The code for each kind and the switch between them are generated from that
list. Other kinds are copied item by item.
"""

from __future__ import annotations

from splitjit._abi.calls import Arguments
from splitjit._abi.kernels import INTERLEAVED, LINE, PAGE
from splitjit._abi.layout_record import TARGET_OFFSET, WORD
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    copy_bytes,
    fence,
    least,
    move_line,
    out_of_line,
    reserve,
    stream_line,
    words_at,
)
from splitjit._kernels.records import layout_at, part_at, read
from splitjit._kernels.runs import move_runs
from splitjit._kernels.variants import deinterleave_lines

_GROUP = 8  # lines of each part that are staged at a time
_REGION = (_GROUP + 1) * LINE  # bytes of the staging buffer for one part
_MOST = max(parts for parts, _ in INTERLEAVED)
_STAGE = _MOST * _REGION
_RESERVED = _STAGE + _MOST * WORD  # plus the table of the regions


@jit
def _copy_items(call, layout, first, last):
    """Copy the items [first, last) of every part, one by one."""
    for p in range(layout.count):
        part = part_at(layout, p)
        target = call.target + part.target_offset + first * part.run
        source = call.source + part.source_offset + first * layout.source_strides[0]
        move_runs(target, source, part.run, last - first, part.run, layout.source_strides[0])


@jit(inline="always")
def _stage_for(targets, step, offset, parts):
    """Reserve a region of the staging buffer for each part; return the table of their addresses.

    Each address has the same offset within a cache line as its target.
    """
    stage = reserve(_RESERVED, PAGE)
    table = stage + _STAGE
    for p in range(parts):
        target = words_at(targets + p * step)[0] + offset
        words_at(table)[p] = stage + p * _REGION + target % LINE
    return table


@jit
def _stream_staged(table, targets, step, offset, parts, count, is_first):
    """Stream `count` lines of each part from its region; move the partial last line to the front.

    The parts may start at different offsets within a cache line.
    """
    out_of_line()
    for p in range(parts):
        staged = words_at(table)[p]
        fill = staged % LINE
        region = staged - fill
        line = words_at(targets + p * step)[0] + offset - fill
        begin = 0
        if is_first and fill:  # the first line begins before the part
            copy_bytes(line + fill, region + fill, LINE - fill)
            begin = LINE
        for k in range(begin, count * LINE, LINE):
            stream_line(line + k, region + k)
        move_line(region, region + count * LINE)


@jit
def _finish_staged(table, targets, step, offset, parts):
    """Write the partial last line of each part."""
    out_of_line()
    for p in range(parts):
        fill = words_at(table)[p] % LINE
        line = words_at(targets + p * step)[0] + offset - fill
        copy_bytes(line, words_at(table)[p] - fill, fill)


@jit
def _copy_lines(kind, targets, step, offset, source, count, stream):
    """Copy lines as `deinterleave_lines` does; `kind` is the number of parts and the item size."""
    out_of_line()
    return deinterleave_lines(kind, targets, step, offset, source, count, stream)


@jit
def _stage_lines(kind, targets, step, offset, source, count):
    """Copy lines, bypassing the cache, to parts of any alignment."""
    parts = kind[0]
    table = _stage_for(targets, step, offset, parts)
    for first in range(0, count, _GROUP):
        n = least(_GROUP, count - first)
        if not _copy_lines(kind, table, WORD, 0, source, n, False):
            return 0
        _stream_staged(table, targets, step, offset, parts, n, first == 0)
        offset += n * LINE
        source += n * parts * LINE
    if count:
        _finish_staged(table, targets, step, offset, parts)
    return count


@jit
def _lines_coincide(layout):
    """Return whether cache lines begin at the same items in all parts."""
    first = part_at(layout, 0).target_offset
    for p in range(1, layout.count):
        if (part_at(layout, p).target_offset - first) % LINE != 0:
            return False
    return True


@jit
def deinterleave(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    call = read(Arguments, arguments)
    layout = layout_at(call.layout)
    part = part_at(layout, 0)
    kind = (layout.count, part.run)
    first = layout.runs * task // tasks
    last = layout.runs * (task + 1) // tasks
    skew = -(call.target + part.target_offset + first * part.run) % LINE
    direct = call.stream != 0 and skew % part.run == 0 and _lines_coincide(layout)
    if direct:  # the items before the first cache line are copied one by one
        head = least(skew // part.run, last - first)
        _copy_items(call, layout, first, first + head)
        first += head
    targets = layout.rows + WORD * TARGET_OFFSET
    step = layout.row
    offset = call.target + first * part.run
    source = call.source + part.source_offset + first * layout.source_strides[0]
    count = (last - first) * part.run // LINE
    if call.stream and not direct:
        count = _stage_lines(kind, targets, step, offset, source, count)
    else:
        count = _copy_lines(kind, targets, step, offset, source, count, direct)
    _copy_items(call, layout, first + count * LINE // part.run, last)
    if call.stream:
        fence()
