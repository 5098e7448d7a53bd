"""Write the pieces of a transposed source: in tiles, in squares, or item by item.

A *tile* is read as steps of `TILE` bytes, transposed in registers, and written as whole cache
lines. A *square* is smaller: its lines have `TILE` bytes, too. So squares suit parts whose
lines are shorter than a cache line, and the steps left over after the tiles. Runs that are
not adjacent in the source, or too few for a square, are copied one by one.
"""

from __future__ import annotations

from typing import NamedTuple

from splitjit._abi.kernels import LINE, TILE
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import least, out_of_line
from splitjit._kernels.tile_variants import transpose_squares, transpose_tiles, write_words

_NEAR = 1 << 15  # source bytes that stay in the L1 cache
_TILES = 4  # tiles written to the same lines before other lines take their turn
_FEW_STEPS = 8  # fewer steps are written step by step, more of them line by line


class Strip(NamedTuple):
    """A piece to copy, one batch of a strip: its first run, its size, and its byte steps."""

    source: int
    run: int
    lines: int
    steps: int
    line: int
    step: int


@jit
def has_tiles(run, line, lines):
    """Return whether lines are adjacent power-of-two items, and enough to fill a tile."""
    return line == run and lines * run >= TILE and TILE % run == 0


@jit
def write_tiles(stream, table, offset, ahead, strip):
    """Write the steps of a piece that fill whole tiles; return their number.

    Line k is written to the address in word k of the table, plus `offset`. If `stream`, this must
    be a multiple of `LINE`. The loop prefetches from the address `ahead`, in the piece's steps.
    """
    out_of_line()
    run, lines, steps, step = strip.run, strip.lines, strip.steps, strip.step
    if not has_tiles(run, strip.line, lines):
        return 0
    tile = LINE // run  # steps of a tile
    done = steps - steps % tile
    # A block is read once for each tile that shares its lines, so it must stay in the L1 cache.
    is_near = abs(step) * tile * _TILES <= _NEAR
    block = (_TILES if is_near else 1) * tile
    whole = Strip(strip.source, run, lines, done, strip.line, step)
    transpose_tiles(table, offset, ahead, whole, block, stream)
    return done


@jit
def write_items(table, offset, strip):
    """Write a piece of short runs with ordinary stores.

    Line k is written to the address in word k of the table, plus `offset`.
    """
    out_of_line()
    run, lines, steps, line = strip.run, strip.lines, strip.steps, strip.line
    side = TILE // run  # steps and lines of a square
    if side > 1 and TILE % run == 0 and line == run and lines >= side and steps >= side:
        transpose_squares(table, offset, strip)
    else:
        write_words(table, offset, strip, steps < least(lines, _FEW_STEPS))
