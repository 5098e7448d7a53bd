"""Write the pieces of a transposed source: in tiles, in squares, or item by item.

A *tile* is read as steps of `TILE` bytes, and written as whole cache lines. It is transposed
in registers. A *square* is smaller: its lines have `TILE` bytes, too. So squares suit parts
whose lines are shorter than a cache line, and the steps that are left after the tiles. Runs
that are not adjacent in the source, or too few for a square, are copied one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    move,
    out_of_line,
    prefetch,
    transpose_square,
    transpose_tile,
    words_at,
)
from splitjit._kernels.table import LINE, TILE, WORD

_NEAR = 1 << 15  # source bytes that stay in the L1 cache
_TILES = 4  # tiles that are written to the same lines before other lines get theirs
_FEW_STEPS = 8  # so few steps are written step by step, more of them line by line


class Strip(NamedTuple):
    """A piece to copy, one batch of a strip: its first run, its size, and its byte steps."""

    source: int
    run: int
    lines: int
    steps: int
    line: int
    step: int


@jit(inline="always")
def has_tiles(run, line, lines):
    """Return whether lines are adjacent items of a power of two, and fill a tile."""
    return line == run and lines * run >= TILE and TILE % run == 0


def _tiles_of(nbytes):
    """Make the loop that writes the whole tiles of items of `nbytes`; see `write_tiles`."""
    tile, width = LINE // nbytes, TILE // nbytes  # steps and lines of a tile
    together = LINE // TILE  # tiles that share cache lines of the source

    @jit(tag=nbytes)
    def copy_tiles(stream, table, offset, ahead, source, lines, steps, step):
        out_of_line()
        # A block is read once for each tile that shares its lines, so it must stay in the L1 cache.
        is_near = abs(step) * tile * _TILES <= _NEAR
        block = (_TILES if is_near else 1) * tile
        for group in range(0, lines, together * width):
            for start in range(0, steps - tile + 1, block):
                count = min(steps - start, block) // tile
                fetch = ahead + group * nbytes + start * step
                for k in range(group, min(group + together * width, lines), width):
                    line = min(k, lines - width)  # the last tile may repeat lines
                    place = offset + start * nbytes
                    column = source + line * nbytes + start * step
                    for _ in range(count):
                        # The tiles that share cache lines prefetch an equal share of them each.
                        for _ in range(tile // together):
                            prefetch(fetch)
                            fetch += step
                        lines_at = table + line * WORD
                        transpose_tile(lines_at, place, k - line, column, step, nbytes, stream)
                        place += LINE
                        column += tile * step

    return copy_tiles


_tiles_of_1, _tiles_of_2, _tiles_of_4 = _tiles_of(1), _tiles_of(2), _tiles_of(4)
_tiles_of_8, _tiles_of_16 = _tiles_of(8), _tiles_of(16)


@jit
def write_tiles(stream, table, offset, ahead, strip):
    """Write the steps of a piece that fill whole tiles; return their number.

    Line k is written to the address in word k of the table, plus `offset`. If `stream`, this is
    a multiple of `LINE`. The loop prefetches from the address `ahead`, with the steps of the piece.
    """
    out_of_line()
    source, run, lines, steps, step = strip.source, strip.run, strip.lines, strip.steps, strip.step
    if not has_tiles(run, strip.line, lines):
        return 0
    if run == 1:
        _tiles_of_1(stream, table, offset, ahead, source, lines, steps, step)
    elif run == 2:
        _tiles_of_2(stream, table, offset, ahead, source, lines, steps, step)
    elif run == 4:
        _tiles_of_4(stream, table, offset, ahead, source, lines, steps, step)
    elif run == 8:
        _tiles_of_8(stream, table, offset, ahead, source, lines, steps, step)
    else:
        _tiles_of_16(stream, table, offset, ahead, source, lines, steps, step)
    return steps - steps % (LINE // run)


def _items_of(nbytes):
    """Make the loop that writes runs of `nbytes` to 2 * `nbytes` - 1; see `write_items`.

    Longer runs than `nbytes` are two overlapping words.
    """
    side = TILE // nbytes  # steps and lines of a square

    @jit(tag=nbytes)
    def copy_items(table, offset, source, run, lines, steps, line, step):
        out_of_line()
        last = run - nbytes
        if side > 1 and line == nbytes and run == nbytes and lines >= side and steps >= side:
            for k in range(0, lines, side):
                first = min(k, lines - side)  # the last squares may repeat lines, or steps
                for j in range(0, steps, side):
                    i = min(j, steps - side)
                    place = source + first * nbytes + i * step
                    target = offset + i * nbytes
                    transpose_square(table + first * WORD, target, place, step, nbytes)
        elif steps < min(lines, _FEW_STEPS):
            for i in range(steps):
                place = source + i * step
                for k in range(lines):
                    target = words_at(table)[k] + offset
                    move(target, place, nbytes, False)
                    if last:
                        move(target + last, place + last, nbytes, False)
                    place += line
                offset += run
        elif last:
            for k in range(lines):
                target = words_at(table)[k] + offset
                place = source + k * line
                for _ in range(steps):
                    move(target, place, nbytes, False)
                    move(target + last, place + last, nbytes, False)
                    target += run
                    place += step
        else:
            for k in range(lines):
                target = words_at(table)[k] + offset
                place = source + k * line
                for _ in range(steps):
                    move(target, place, nbytes, False)
                    target += nbytes
                    place += step

    return copy_items


_items_of_1, _items_of_2, _items_of_4 = _items_of(1), _items_of(2), _items_of(4)
_items_of_8, _items_of_16 = _items_of(8), _items_of(16)


@jit
def write_items(table, offset, strip):
    """Write a piece of short runs by ordinary stores.

    Line k is written to the address in word k of the table, plus `offset`.
    """
    out_of_line()
    source, run, lines, steps = strip.source, strip.run, strip.lines, strip.steps
    line, step = strip.line, strip.step
    if run >= 16:
        _items_of_16(table, offset, source, run, lines, steps, line, step)
    elif run >= 8:
        _items_of_8(table, offset, source, run, lines, steps, line, step)
    elif run >= 4:
        _items_of_4(table, offset, source, run, lines, steps, line, step)
    elif run >= 2:
        _items_of_2(table, offset, source, run, lines, steps, line, step)
    else:
        _items_of_1(table, offset, source, run, lines, steps, line, step)
