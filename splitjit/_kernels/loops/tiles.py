"""Write the pieces of a transposed source: in tiles, in squares, or run by run.

A *tile* is read as steps of `TILE` bytes, transposed in registers, and written as whole cache
lines. A *square* is smaller: its lines have `TILE` bytes, too. So squares suit parts whose
lines are shorter than a cache line, and the steps left over after the tiles. The channels of
an image are moved as in the deinterleave loop. Runs that are not adjacent in the source, or
too few for a square, are copied one by one.
"""

import functools
from collections import namedtuple

from llvmlite import ir
from numba.core import cgutils

from splitjit._abi.calls import WORD
from splitjit._abi.kernels import INTERLEAVED, LINE, TILE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import out_of_line, words_at
from splitjit._kernels.ir.llvm import (
    INT64,
    both_ways,
    instruction,
    loop,
    move_words,
    pointer_to,
    prefetch_line,
    shuffled,
    store,
    variants,
    word_variants,
)
from splitjit._kernels.loops.deinterleave import deinterleave_lines
from splitjit._kernels.loops.runs import move_runs, move_runs_back

_SIZES = [1 << bit for bit in range(TILE.bit_length())]  # item sizes that tiles transpose
_NEAR = 1 << 15  # source bytes that stay in the L1 cache
_TILES = 4  # tiles written to the same lines before other lines take their turn
_FEW_STEPS = 8  # fewer steps are written step by step, more of them line by line


Piece = namedtuple("Piece", "source run lines steps line step")
"""Runs to copy: run i of line k is read at ``source + k * line + i * step``."""


def _move_piece(back, builder, table, offset, piece, by_steps):
    """Move the runs of a piece one by one, with ordinary stores: by steps, or by lines.

    Run i of line k lies in the line at the address in word k of the table, plus ``offset +
    i * run``. A run has less than ``2 * TILE`` bytes. If `back`, runs move from the lines to the
    piece.
    """

    def move(to, at):
        move_words(builder, *((at, to) if back else (to, at)), starts, nbytes)

    source, run, lines, steps, line, step = cgutils.unpack_tuple(builder, piece)
    for nbytes, starts in word_variants(builder, run, TILE):
        with builder.if_else(by_steps) as (by_step, by_line):
            with by_step:
                for place, first in loop(builder, steps, [offset, source], [run, step]):
                    for k, at in loop(builder, lines, [INT64(0), first], [INT64(1), line]):
                        move(_line_at(builder, table, k, place), at)
            with by_line:
                size = INT64(nbytes) if len(starts) == 1 else run
                for k, first in loop(builder, lines, [INT64(0), source], [INT64(1), line]):
                    start = _line_at(builder, table, k, offset)
                    for to, at in loop(builder, steps, [start, first], [size, step]):
                        move(to, at)


def _transpose_squares(back, builder, table, offset, piece):
    """Transpose the squares of a piece: `TILE` bytes of each step, and of each line.

    A square has ``TILE // itemsize`` lines and steps. The piece has at least that many of both;
    the last squares repeat lines or steps. Line k lies at the address in word k of the table, plus
    `offset`. All addresses may have any alignment. If `back`, squares move from the lines to the
    piece.
    """
    source, itemsize, lines, steps, _, step = cgutils.unpack_tuple(builder, piece)
    for size in variants(builder, _SIZES[:-1], itemsize):  # one item of TILE is no square
        places = [INT64(i) for i in range(TILE // size)]
        side = INT64(TILE // size)
        with cgutils.for_range_slice(builder, INT64(0), lines, side) as (k, _):
            k = _least(builder, k, builder.sub(lines, side))
            column = builder.add(source, builder.mul(k, INT64(size)))
            with cgutils.for_range_slice(builder, INT64(0), steps, side) as (i, _):
                i = _least(builder, i, builder.sub(steps, side))
                place = builder.add(offset, builder.mul(i, INT64(size)))
                start = builder.add(column, builder.mul(i, step))
                ins = [builder.add(start, builder.mul(step, n)) for n in places]
                outs = [_line_at(builder, table, builder.add(k, n), place) for n in places]
                if back:
                    ins, outs = outs, ins
                for line, target in zip(_transposed(builder, size, ins), outs, strict=True):
                    store(builder, line, pointer_to(builder, target, line.type), TILE, False)


@instruction
def _transpose_tiles(builder, table, offset, ahead, piece, block, stream):
    """Transpose the tiles of a piece: `TILE` bytes of each step become whole cache lines.

    A tile has ``LINE // itemsize`` steps and ``TILE // itemsize`` lines. The piece has at least
    that many lines; the last tiles repeat lines, but do not write them again. The steps are a
    multiple of a tile's steps. Line k is written to the address in word k of the table, plus
    `offset`. With `stream`, these addresses must be multiples of `LINE`, and the stores bypass the
    cache.

    ``LINE // TILE`` tiles share cache lines of the source. They follow each other, after `block`
    steps each, and prefetch an equal share of these lines from the address `ahead`.
    """
    source, itemsize, lines, steps, _, step = cgutils.unpack_tuple(builder, piece)
    for size in variants(builder, _SIZES, itemsize):
        # Steps and lines of a tile, which prefetches as many steps as it has lines. The tiles that
        # share cache lines have as many lines together as a tile has steps.
        tile, width = INT64(LINE // size), INT64(TILE // size)
        with (
            cgutils.for_range_slice(builder, INT64(0), lines, tile) as (first, _),
            cgutils.for_range_slice(builder, INT64(0), steps, block) as (start, _),
        ):
            count = builder.udiv(_least(builder, builder.sub(steps, start), block), tile)
            begin = builder.add(source, builder.mul(start, step))
            place = builder.add(offset, builder.mul(start, INT64(size)))
            shift = builder.add(builder.mul(start, step), builder.mul(first, INT64(size)))
            strides = [INT64(LINE), builder.mul(step, tile), builder.mul(step, width)]
            fetch, fetched = builder.add(ahead, shift), builder.mul(step, count)  # per line
            end = _least(builder, builder.add(first, tile), lines)
            with cgutils.for_range_slice(builder, first, end, width) as (k, _):
                line = _least(builder, k, builder.sub(lines, width))
                skip = builder.sub(k, line)
                words = builder.add(table, builder.mul(line, INT64(WORD)))
                column = builder.add(begin, builder.mul(line, INT64(size)))
                fetch_here = builder.add(fetch, builder.mul(fetched, builder.sub(k, first)))
                values = [place, column, fetch_here]
                for to, at, near in loop(builder, count, values, strides):
                    # With a value that it cannot know, LLVM does not compute the addresses of the
                    # next tile's steps early, in more registers than there are.
                    kind = ir.FunctionType(INT64, [INT64])
                    at = builder.asm(kind, "", "=r,0", [at], side_effect=False)
                    for i in range(TILE // size):
                        prefetch_line(builder, builder.add(near, builder.mul(step, INT64(i))))
                    places = [builder.mul(step, INT64(i)) for i in range(LINE // size)]
                    rows = _transposed(builder, size, [builder.add(at, to) for to in places])
                    _store_lines(builder, rows, words, to, skip, stream)


def _line_at(builder, table, line, offset):
    """Return the address in word `line` of a table, plus an offset."""
    place = builder.add(table, builder.mul(line, INT64(WORD)))
    return builder.add(builder.load(pointer_to(builder, place, INT64)), offset)


def _least(builder, a, b):
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _store_lines(builder, lines, table, offset, skip, stream):
    """Store all lines of a tile but the first `skip`; see `_transpose_tiles` for `stream`."""
    for past_cache in both_ways(builder, stream):
        for k, line in enumerate(lines):
            with builder.if_then(builder.icmp_signed(">=", INT64(k), skip)):
                target = pointer_to(builder, _line_at(builder, table, INT64(k), offset), line.type)
                store(builder, line, target, LINE, past_cache)


def _transposed(builder, itemsize, starts):
    """Load the steps of a tile, `TILE` bytes at each address, and return its lines.

    A vector has a lane of `TILE` bytes for every n-th step.
    """
    n = TILE // itemsize
    lanes = len(starts) // n
    item = min(itemsize, WORD)
    items = TILE // item
    lane = ir.VectorType(ir.IntType(8 * item), items)
    steps = [builder.load(pointer_to(builder, start, lane), align=1) for start in starts]
    rows = [joined(builder, steps[first::n]) for first in range(n)]
    # Each of log2(n) rounds interleaves row i with row i + n / 2 in each lane.
    pairs = [i // 2 + i % 2 * items * lanes for i in range(items)]
    halves = [
        [k * items + half + place for k in range(lanes) for place in pairs] for half in (0, n // 2)
    ]
    for _ in range(n.bit_length() - 1):
        rows = [
            shuffled(builder, rows[i], rows[i + n // 2], places)
            for i in range(n // 2)
            for places in halves
        ]
    return rows


def joined(builder, vectors):
    """Join vectors, two at a time."""
    while len(vectors) > 1:
        places = list(range(2 * vectors[0].type.count))
        vectors = [
            shuffled(builder, a, b, places)
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


@jit
def _steps_of(piece, first, last):
    """Return the steps [first, last) of a piece."""
    source = piece.source + first * piece.step
    return Piece(source, piece.run, piece.lines, last - first, piece.line, piece.step)


def items_mover(back, copy_lines):
    """Return a function that moves a piece to its lines, or back.

    `copy_lines` is `deinterleave_lines`, or an instruction like it.
    """
    move_piece = instruction(functools.partial(_move_piece, back))
    transpose_squares = instruction(functools.partial(_transpose_squares, back))
    move = move_runs_back if back else move_runs

    @jit
    def move_items(table, offset, piece):
        """Move a piece with ordinary stores."""
        out_of_line()
        run, lines = piece.run, piece.lines
        is_interleaved = piece.line == run and piece.step == lines * run
        # Squares are faster from `TILE` bytes of a step on.
        if is_interleaved and lines * run < TILE and (lines, run) in INTERLEAVED:
            count = piece.steps * run // LINE
            copy_lines(lines, run, table, WORD, offset, piece.source, count, 0, 0)
            offset += count * LINE
            piece = _steps_of(piece, count * LINE // run, piece.steps)
        steps, side = piece.steps, TILE // run  # side: steps and lines of a square
        if run >= 2 * TILE:
            for k in range(lines):
                target, source = words_at(table)[k] + offset, piece.source + k * piece.line
                move(target, source, run, steps, run, piece.step)
        elif side > 1 and TILE % run == 0 and piece.line == run and min(lines, steps) >= side:
            transpose_squares(table, offset, piece)
        else:
            move_piece(table, offset, piece, steps < min(lines, _FEW_STEPS))

    return move_items


_write_items = items_mover(back=False, copy_lines=deinterleave_lines)


@jit
def write_piece(tiled, stream, table, offset, skew, ahead, piece):
    """Write a piece: if `tiled`, whole tiles, and the items before and after them.

    Line k is written to the address in word k of the table, plus `offset`. The first cache line of
    each target begins after `skew` bytes. If `stream`, this holds for all lines, and stores of
    tiles bypass the cache. The loop prefetches from the address `ahead`, in the piece's steps.
    """
    out_of_line()
    run, step, steps = piece.run, piece.step, piece.steps
    head = done = 0
    if tiled and piece.lines * run >= TILE:
        tile = LINE // run  # steps of a tile
        head = min(skew // run, steps)
        done = steps - (steps - head) % tile
        # A block is read once for each tile that shares its lines, so it must stay in the L1 cache.
        block = (_TILES if abs(step) * tile * _TILES <= _NEAR else 1) * tile
        tiles = _steps_of(piece, head, done)
        _transpose_tiles(table, offset + head * run, ahead + head * step, tiles, block, stream)
    if head:
        _write_items(table, offset, _steps_of(piece, 0, head))
    if done < steps:
        _write_items(table, offset + done * run, _steps_of(piece, done, steps))
