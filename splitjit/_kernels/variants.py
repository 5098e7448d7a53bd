"""Loops with a variant for each word size, written in LLVM IR.

Numba would compile each variant as its own function, which takes long. Here, one switch leads to
the variants, which are compiled together with the caller.
"""

from __future__ import annotations

import contextlib

from llvmlite import ir
from numba.core import cgutils

from splitjit._abi.kernels import COLLECTED, INTERLEAVED, LINE
from splitjit._abi.layout_record import WORD
from splitjit._kernels.llvm import (
    INT32,
    INT64,
    instruction,
    integer,
    move_word,
    pointer_to,
    prefetch_line,
    shuffled,
    store,
)

_AHEAD = 1 << 12  # how many bytes ahead of a load of interleaved items to prefetch


def variants(builder, keys, key):
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


def word_variants(builder, run, widest):
    """Begin a branch for each word size up to `widest`; yield it and the words' offsets in a run.

    A branch is taken if its word is the widest that fits in a run. A run is one word, or two
    overlapping words.
    """
    leading_zeros = builder.ctlz(run, ir.Constant(ir.IntType(1), 1))
    highest_bit = builder.sub(integer(63), leading_zeros)
    for bit in variants(builder, range(widest.bit_length()), highest_bit):
        last = builder.sub(run, integer(1 << bit))
        is_one_word = builder.icmp_signed("==", last, integer(0))
        with builder.if_else(is_one_word) as (one_word, two_words):
            with one_word:
                yield 1 << bit, [integer(0)]
            with two_words:
                yield 1 << bit, [integer(0), last]


@contextlib.contextmanager
def loop(builder, count, starts, steps):
    """Write a loop over values that begin as `starts`, and grow by `steps` each time."""
    cells = [cgutils.alloca_once_value(builder, start) for start in starts]
    with cgutils.for_range(builder, count):
        values = [builder.load(cell) for cell in cells]
        yield values
        for cell, value, step in zip(cells, values, steps, strict=True):
            builder.store(builder.add(value, step), cell)


def move_words(builder, target, source, starts, nbytes):
    """Move the words of a run."""
    for start in starts:
        move_word(builder, builder.add(target, start), builder.add(source, start), nbytes, False)


@instruction
def copy_words(builder, target, source, run, count, target_step, source_step):
    """Copy evenly spaced runs shorter than a cache line, with ordinary stores."""
    steps = target_step, source_step
    for nbytes, starts in word_variants(builder, run, LINE // 2):
        with loop(builder, count, [target, source], steps) as (to, at):
            move_words(builder, to, at, starts, nbytes)


@instruction
def collect_runs(builder, target, source, run, count, step):
    """Copy groups of runs that are `step` bytes apart, with stores that bypass the cache.

    A group is the smallest number of runs that fills whole cache lines. The length of a run is one
    of `COLLECTED`. The target must be a multiple of `LINE`. The code also reads fewer than `run`
    bytes past the last run.
    """
    for nbytes in variants(builder, COLLECTED, run):
        word = nbytes & -nbytes  # the largest power of two that divides a run
        group, lines = LINE // word, nbytes // word
        places = [builder.mul(step, integer(i)) for i in range(group + 1)]
        strides = [integer(lines * LINE), places[-1]]
        with loop(builder, count, [target, source], strides) as (to, at):
            starts = [builder.add(at, place) for place in places[:-1]]
            for i, line in enumerate(_collected(builder, starts, word, lines)):
                place = pointer_to(builder, builder.add(to, integer(i * LINE)), line.type)
                store(builder, line, place, LINE, True)


def _collected(builder, starts, nbytes, words):
    """Return the cache lines that runs of 1 or 3 words of `nbytes` bytes at `starts` fill."""
    word = ir.IntType(8 * nbytes) if nbytes <= WORD else ir.VectorType(INT64, nbytes // WORD)
    items = LINE // nbytes
    if words == 3:
        # Each vector holds some runs, with the word after each run. A line needs two vectors.
        four = ir.VectorType(word, 4)
        runs = [builder.load(pointer_to(builder, start, four), align=1) for start in starts]
        n = items // 4
        vectors = [joined(builder, runs[i : i + n]) for i in range(0, items, n)]
        lines = []
        for k in range(words):
            places = [i // 3 * 4 + i % 3 - k * items for i in range(k * items, (k + 1) * items)]
            lines.append(shuffled(builder, vectors[k], vectors[k + 1], places))
        return lines
    loads = [builder.load(pointer_to(builder, start, word), align=1) for start in starts]
    if nbytes > WORD:
        return [joined(builder, loads)]
    line = ir.Constant(ir.VectorType(word, items), ir.Undefined)
    for i, load in enumerate(loads):
        line = builder.insert_element(line, load, ir.Constant(INT32, i))
    return [line]


def joined(builder, vectors):
    """Join vectors, two at a time."""
    while len(vectors) > 1:
        places = list(range(2 * vectors[0].type.count))
        vectors = [
            shuffled(builder, a, b, places)
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


@instruction
def deinterleave_lines(builder, kind, targets, step, offset, source, count, stream):
    """Copy the next `count` cache lines of each part out of interleaved items.

    The source holds ``a0 b0 c0 a1 b1 c1 …``: the parts take its items in turn.
    `kind` is the number of parts and the item size. The address to which part i
    is written is the word at ``targets + i * step``, plus `offset`. If `stream`,
    these addresses must be multiples of `LINE`, and the stores bypass the cache.
    Return `count`, or 0 if `kind` is not in `INTERLEAVED`.
    """
    parts, itemsize = cgutils.unpack_tuple(builder, kind)
    kinds = {(n << 8) + size: (n, size) for n, size in INTERLEAVED}
    copied = cgutils.alloca_once_value(builder, integer(0))
    for key in variants(builder, kinds, builder.add(builder.shl(parts, integer(8)), itemsize)):
        with builder.if_else(stream) as branches:
            for branch, past_cache in zip(branches, (True, False), strict=True):
                with branch, cgutils.for_range(builder, count) as lines:
                    whole = builder.mul(lines.index, integer(LINE))
                    start = builder.add(source, builder.mul(whole, parts))
                    line = builder.add(offset, whole)
                    kind = kinds[key]
                    _deinterleave_line(builder, kind, targets, step, line, start, past_cache)
        builder.store(count, copied)
    return builder.load(copied)


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
