"""Loops with a variant for each word size, written in LLVM IR.

Numba would compile each variant as its own function, which takes long. Here, one switch leads to
the variants, which are compiled together with the caller.
"""

from __future__ import annotations

import contextlib

from llvmlite import ir
from numba.core import cgutils

from splitjit._abi.kernels import LINE
from splitjit._kernels.ir.llvm import instruction, integer, move_word, pointer_to, store


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


COLLECTED = 4, 8
"""Bytes of the words that `collect_lines` gathers."""


@instruction
def collect_lines(builder, target, source, run, count, source_step):
    """Stream cache lines of evenly spaced words to `target`, a multiple of `LINE`.

    Storing words one by one takes more than twice as many instructions.
    """
    for nbytes in variants(builder, COLLECTED, run):
        word, words = ir.IntType(8 * nbytes), LINE // nbytes
        kind, step = ir.VectorType(word, words), builder.mul(source_step, integer(words))
        with loop(builder, count, [target, source], [integer(LINE), step]) as (to, at):
            line = ir.Constant(kind, ir.Undefined)
            for i in range(words):
                item = builder.load(pointer_to(builder, at, word), align=1)
                line = builder.insert_element(line, item, integer(i))
                at = builder.add(at, source_step)
            store(builder, line, pointer_to(builder, to, kind), LINE, True)
