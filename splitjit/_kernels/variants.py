"""Loops with a variant for each word size, written in LLVM IR.

Numba would compile each variant as its own function, in 0.1 to 0.5 s. Here, one switch leads to
the variants, which are compiled together with the caller.
"""

from __future__ import annotations

import contextlib

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from splitjit._kernels.llvm import (
    INT32,
    INT64,
    integer,
    move_word,
    opaque,
    pointer_to,
    prefetch_line,
    shuffled,
    store,
)
from splitjit._kernels.table import COLLECTED, INTERLEAVED, LINE, TILE, WORD

_AHEAD = 1 << 12  # how many bytes ahead of a load of interleaved items to prefetch
_SIZES = [1 << bit for bit in range(TILE.bit_length())]  # item sizes that tiles transpose


def _variants(builder, keys, key):
    """Begin a branch for each key, and yield the key; other values skip all branches.

    Parameters
    ----------
    keys : iterable of int
    key : LLVM integer
        The value that chooses the branch.
    """
    end = builder.append_basic_block()
    switch = builder.switch(key, end)
    for value in keys:
        builder.position_at_end(builder.append_basic_block())
        switch.add_case(integer(value), builder.block)
        yield value
        builder.branch(end)
    builder.position_at_end(end)


def _words(builder, run, widest):
    """Begin a branch for each word size up to `widest`; yield it and the words' offsets in a run.

    A branch is taken if its word is the widest that fits in a run. A run is one word, or two
    overlapping words.
    """
    leading_zeros = builder.ctlz(run, ir.Constant(ir.IntType(1), 1))
    highest_bit = builder.sub(integer(63), leading_zeros)
    for bit in _variants(builder, range(widest.bit_length()), highest_bit):
        last = builder.sub(run, integer(1 << bit))
        is_one_word = builder.icmp_signed("==", last, integer(0))
        with builder.if_else(is_one_word) as (one_word, two_words):
            with one_word:
                yield 1 << bit, [integer(0)]
            with two_words:
                yield 1 << bit, [integer(0), last]


def _line_at(builder, table, line, offset):
    """Return the address in word `line` of a table, plus an offset."""
    place = builder.add(table, builder.mul(line, integer(WORD)))
    return builder.add(builder.load(pointer_to(builder, place, INT64)), offset)


@contextlib.contextmanager
def _loop(builder, count, starts, steps):
    """Write a loop over values that begin as `starts`, and grow by `steps` each time."""
    cells = [cgutils.alloca_once_value(builder, start) for start in starts]
    with cgutils.for_range(builder, count):
        values = [builder.load(cell) for cell in cells]
        yield values
        for cell, value, step in zip(cells, values, steps, strict=True):
            builder.store(builder.add(value, step), cell)


def _move_words(builder, target, source, starts, nbytes):
    """Move the words of a run."""
    for start in starts:
        move_word(builder, builder.add(target, start), builder.add(source, start), nbytes, False)


@intrinsic
def copy_words(typingctx, target, source, run, count, target_step, source_step):
    """Copy evenly spaced runs shorter than a cache line, with ordinary stores."""

    def codegen(context, builder, signature, args):
        target, source, run, count, *steps = args
        for nbytes, starts in _words(builder, run, LINE // 2):
            with _loop(builder, count, [target, source], steps) as (to, at):
                _move_words(builder, to, at, starts, nbytes)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 6), codegen


@intrinsic
def write_words(typingctx, table, offset, source, run, lines, steps, line, step, by_steps):
    """Write the runs of a piece one by one, with ordinary stores: by steps, or by lines.

    Run i of line k is read at ``source + k * line + i * step``. It is written to the address in
    word k of the table, plus ``offset + i * run``. A run has less than ``2 * TILE`` bytes.
    """

    def codegen(context, builder, signature, args):
        table, offset, source, run, lines, steps, line, step, by_steps = args
        for nbytes, starts in _words(builder, run, TILE):
            with builder.if_else(by_steps) as (by_step, by_line):
                with (
                    by_step,
                    _loop(builder, steps, [offset, source], [run, step]) as (place, first),
                    _loop(builder, lines, [integer(0), first], [integer(1), line]) as (k, at),
                ):
                    _move_words(builder, _line_at(builder, table, k, place), at, starts, nbytes)
                with (
                    by_line,
                    _loop(builder, lines, [integer(0), source], [integer(1), line]) as (k, first),
                ):
                    to = _line_at(builder, table, k, offset)
                    size = integer(nbytes) if len(starts) == 1 else run
                    with _loop(builder, steps, [to, first], [size, step]) as (to, at):
                        _move_words(builder, to, at, starts, nbytes)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 8, types.boolean), codegen


@intrinsic
def collect_runs(typingctx, target, source, run, count, step):
    """Copy groups of runs that are `step` bytes apart, with stores that bypass the cache.

    A group is the smallest number of runs that fills whole cache lines. The length of a run is one
    of `COLLECTED`. The target must be a multiple of `LINE`. The code also reads fewer than `run`
    bytes past the last run.
    """

    def codegen(context, builder, signature, args):
        target, source, run, count, step = args
        for nbytes in _variants(builder, COLLECTED, run):
            word = nbytes & -nbytes  # the largest power of two that divides a run
            group, lines = LINE // word, nbytes // word
            places = [builder.mul(step, integer(i)) for i in range(group + 1)]
            strides = [integer(lines * LINE), places[-1]]
            with _loop(builder, count, [target, source], strides) as (to, at):
                starts = [builder.add(at, place) for place in places[:-1]]
                for i, line in enumerate(_collected(builder, starts, word, lines)):
                    place = pointer_to(builder, builder.add(to, integer(i * LINE)), line.type)
                    store(builder, line, place, LINE, True)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5), codegen


def _collected(builder, starts, nbytes, words):
    """Return the cache lines that runs of 1 or 3 words of `nbytes` bytes at `starts` fill."""
    word = ir.IntType(8 * nbytes) if nbytes <= WORD else ir.VectorType(INT64, nbytes // WORD)
    items = LINE // nbytes
    if words == 3:
        # Each vector holds some runs, with the word after each run. A line needs two vectors.
        four = ir.VectorType(word, 4)
        runs = [builder.load(pointer_to(builder, start, four), align=1) for start in starts]
        n = items // 4
        vectors = [_joined(builder, runs[i : i + n]) for i in range(0, items, n)]
        lines = []
        for k in range(words):
            places = [i // 3 * 4 + i % 3 - k * items for i in range(k * items, (k + 1) * items)]
            lines.append(shuffled(builder, vectors[k], vectors[k + 1], places))
        return lines
    loads = [builder.load(pointer_to(builder, start, word), align=1) for start in starts]
    if nbytes > WORD:
        return [_joined(builder, loads)]
    line = ir.Constant(ir.VectorType(word, items), ir.Undefined)
    for i, load in enumerate(loads):
        line = builder.insert_element(line, load, ir.Constant(INT32, i))
    return [line]


@intrinsic
def transpose_squares(typingctx, table, offset, source, itemsize, lines, steps, step):
    """Transpose the squares of a piece: `TILE` bytes of each step become `TILE` bytes of each line.

    A square has ``TILE // itemsize`` lines and steps. The piece has at least that many of both; the
    last squares repeat lines or steps. Line k is written to the address in word k of the table,
    plus `offset`. All addresses may have any alignment.
    """

    def codegen(context, builder, signature, args):
        table, offset, source, itemsize, lines, steps, step = args
        for size in _variants(builder, _SIZES[:-1], itemsize):  # one item of TILE is no square
            side = integer(TILE // size)
            with cgutils.for_range_slice(builder, integer(0), lines, side) as (k, _):
                k = _least(builder, k, builder.sub(lines, side))
                column = builder.add(source, builder.mul(k, integer(size)))
                with cgutils.for_range_slice(builder, integer(0), steps, side) as (i, _):
                    i = _least(builder, i, builder.sub(steps, side))
                    place = builder.add(offset, builder.mul(i, integer(size)))
                    start = builder.add(column, builder.mul(i, step))
                    for n, line in enumerate(_transposed(builder, size, 1, start, step)):
                        target = _line_at(builder, table, builder.add(k, integer(n)), place)
                        target = pointer_to(builder, target, line.type)
                        store(builder, line, target, TILE, False)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 7), codegen


def _least(builder, a, b):
    return builder.select(builder.icmp_signed("<", a, b), a, b)


@intrinsic
def transpose_tiles(
    typingctx, table, offset, ahead, source, itemsize, lines, steps, step, block, stream
):
    """Transpose the tiles of a piece: `TILE` bytes of each step become whole cache lines.

    A tile has ``LINE // itemsize`` steps and ``TILE // itemsize`` lines. The piece has at least
    that many lines; the last tiles repeat lines, but do not write them again. The steps are a
    multiple of a tile's steps. Line k is written to the address in word k of the table, plus
    `offset`. With `stream`, these addresses must be multiples of `LINE`, and the stores bypass the
    cache.

    ``LINE // TILE`` tiles share cache lines of the source. They follow each other, after `block`
    steps each, and prefetch an equal share of these lines from the address `ahead`.
    """

    def codegen(context, builder, signature, args):
        table, offset, ahead, source, itemsize, lines, steps, step, block, stream = args
        is_streamed = builder.icmp_signed("!=", stream, integer(0))
        for size in _variants(builder, _SIZES, itemsize):
            # Steps and lines of a tile, which prefetches as many steps as it has lines. The tiles
            # that share cache lines have as many lines together as a tile has steps.
            tile, width = integer(LINE // size), integer(TILE // size)
            strides = [integer(LINE), builder.mul(step, tile), builder.mul(step, width)]
            with (
                cgutils.for_range_slice(builder, integer(0), lines, tile) as (first, _),
                cgutils.for_range_slice(builder, integer(0), steps, block) as (start, _),
            ):
                count = builder.udiv(_least(builder, builder.sub(steps, start), block), tile)
                place = builder.add(offset, builder.mul(start, integer(size)))
                begin = builder.mul(start, step)
                fetch = builder.add(begin, builder.mul(first, integer(size)))
                fetch = cgutils.alloca_once_value(builder, builder.add(ahead, fetch))
                end = _least(builder, builder.add(first, tile), lines)
                with cgutils.for_range_slice(builder, first, end, width) as (k, _):
                    line = _least(builder, k, builder.sub(lines, width))
                    skip = builder.sub(k, line)
                    words = builder.add(table, builder.mul(line, integer(WORD)))
                    column = builder.add(source, builder.mul(line, integer(size)))
                    values = [place, builder.add(column, begin), builder.load(fetch)]
                    with _loop(builder, count, values, strides) as (to, at, near):
                        # LLVM would compute the addresses of the next tile's steps early, in more
                        # registers than there are. The loop then takes 1.4 times as long.
                        at = opaque(builder, at)
                        _prefetch_steps(builder, near, TILE // size, step)
                        rows = _transposed(builder, size, LINE // TILE, at, step)
                        _store_lines(builder, rows, words, to, skip, is_streamed)
                    fetched = builder.mul(count, strides[-1])
                    builder.store(builder.add(builder.load(fetch), fetched), fetch)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 10), codegen


def _prefetch_steps(builder, address, count, step):
    for i in range(count):
        prefetch_line(builder, builder.add(address, builder.mul(step, integer(i))))


def _store_lines(builder, lines, table, offset, skip, is_streamed):
    """Store all lines of a tile but the first `skip`; `is_streamed` is an LLVM boolean."""
    with builder.if_else(is_streamed) as branches:
        for branch, past_cache in zip(branches, (True, False), strict=True):
            with branch:
                for k, line in enumerate(lines):
                    with builder.if_then(builder.icmp_signed(">=", integer(k), skip)):
                        target = _line_at(builder, table, integer(k), offset)
                        store(
                            builder, line, pointer_to(builder, target, line.type), LINE, past_cache
                        )


def _transposed(builder, itemsize, lanes, source, source_step):
    """Load a tile and return its lines. Vectors have lanes of `TILE` bytes, with n steps each."""
    n = TILE // itemsize
    item = min(itemsize, WORD)
    items = TILE // item
    lane = ir.VectorType(ir.IntType(8 * item), items)
    rows = []
    for first in range(n):
        steps = [builder.mul(source_step, integer(first + n * k)) for k in range(lanes)]
        starts = [pointer_to(builder, builder.add(source, step), lane) for step in steps]
        rows.append(_joined(builder, [builder.load(start, align=1) for start in starts]))
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


def _joined(builder, vectors):
    """Join vectors, two at a time."""
    while len(vectors) > 1:
        places = list(range(2 * vectors[0].type.count))
        vectors = [
            shuffled(builder, a, b, places)
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


@intrinsic
def deinterleave_lines(typingctx, kind, targets, step, offset, source, count, stream):
    """Copy the next `count` cache lines of each part out of interleaved items.

    The source holds ``a0 b0 c0 a1 b1 c1 …``: the parts take its items in turn.
    `kind` is the number of parts and the item size. The address to which part i
    is written is the word at ``targets + i * step``, plus `offset`. If `stream`,
    these addresses must be multiples of `LINE`, and the stores bypass the cache.
    Return `count`, or 0 if `kind` is not in `INTERLEAVED`.
    """

    def codegen(context, builder, signature, args):
        kind, targets, step, offset, source, count, stream = args
        parts, itemsize = cgutils.unpack_tuple(builder, kind)
        kinds = {(n << 8) + size: (n, size) for n, size in INTERLEAVED}
        copied = cgutils.alloca_once_value(builder, integer(0))
        for key in _variants(builder, kinds, builder.add(builder.shl(parts, integer(8)), itemsize)):
            with builder.if_else(stream) as branches:
                for branch, past_cache in zip(branches, (True, False), strict=True):
                    with branch, cgutils.for_range(builder, count) as loop:
                        whole = builder.mul(loop.index, integer(LINE))
                        start = builder.add(source, builder.mul(whole, parts))
                        line = builder.add(offset, whole)
                        kind = kinds[key]
                        _deinterleave_line(builder, kind, targets, step, line, start, past_cache)
            builder.store(count, copied)
        return builder.load(copied)

    return types.intp(kind, *[types.intp] * 5, types.boolean), codegen


def _deinterleave_line(builder, kind, targets, step, offset, source, stream):
    """Copy a line of each part: one load, then one shuffle and one store per part."""
    parts, itemsize = kind
    for k in range(parts):
        prefetch_line(builder, builder.add(source, integer(_AHEAD + k * LINE)))
    items = LINE // itemsize
    whole = ir.VectorType(ir.IntType(8 * itemsize), parts * items)
    line = ir.VectorType(ir.IntType(8 * itemsize), items)
    value = builder.load(pointer_to(builder, source, whole), align=1)
    for part in range(parts):
        places = [part + parts * i for i in range(items)]
        taken = shuffled(builder, value, ir.Constant(whole, ir.Undefined), places)
        target = builder.load(pointer_to(builder, targets, INT64))
        target = pointer_to(builder, builder.add(target, offset), line)
        store(builder, taken, target, LINE, stream)
        targets = builder.add(targets, step)
