"""The LLVM code that intrinsics are made of: constants, pointers, loads, stores, loops, variants.

Each function appends instructions to the function that Numba is compiling. That function would be
compiled once for each word size. Instead, one switch leads to the variants of a loop.
"""

import functools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BYTE, INT32, INT64 = (ir.IntType(bits) for bits in (8, 32, 64))


def instruction(function):
    """Make an intrinsic for compiled functions of one that appends LLVM instructions.

    `function` gets a builder and LLVM values: tuples, booleans, and machine integers. It returns a
    machine integer; None stands for 0.
    """

    @intrinsic
    @functools.wraps(function)
    def typed(typing_context, *kinds):
        kept = types.BaseTuple | types.Boolean
        kinds = [kind if isinstance(kind, kept) else types.intp for kind in kinds]

        def codegen(context, builder, signature, args):
            return function(builder, *args) or INT64(0)

        return types.intp(*kinds), codegen

    return typed


def pointer_to(builder, address, element):
    """Return an integer address as a pointer to an element."""
    return builder.inttoptr(address, element.as_pointer())


def store(builder, value, pointer, nbytes, stream):
    """Store a value. If `stream`, the store bypasses the cache; the pointer must be aligned."""
    store = builder.store(value, pointer, align=nbytes if stream else 1)
    if stream:
        store.set_metadata("nontemporal", builder.module.add_metadata([INT32(1)]))


def move_word(builder, target, source, nbytes, stream):
    """Move one word of `nbytes` bytes, a power of two up to a cache line."""
    word = ir.IntType(8 * nbytes) if nbytes <= 8 else ir.VectorType(INT64, nbytes // 8)
    value = builder.load(pointer_to(builder, source, word), align=1)
    store(builder, value, pointer_to(builder, target, word), nbytes, stream)


def shuffled(builder, a, b, places):
    """Return the items at `places` of two concatenated vectors, as a vector."""
    mask = ir.Constant(ir.VectorType(INT32, len(places)), list(places))
    return builder.shuffle_vector(a, b, mask)


def prefetch_line(builder, address):
    """Fetch a cache line into the L2 cache; an address outside any buffer does no harm."""
    byte = BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, INT32, INT32, INT32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    to_read, into_l2, of_data = 0, 2, 1
    hints = [INT32(value) for value in (to_read, into_l2, of_data)]
    builder.call(function, [pointer_to(builder, address, BYTE), *hints])


# ---- loops with a variant for each word size ---------------------------------------------------


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
        switch.add_case(INT64(value), builder.block)
        yield value
        builder.branch(end)
    builder.position_at_end(end)


def both_ways(builder, flag):
    """Begin a branch for a flag other than 0, and one for 0; yield True, then False."""
    with builder.if_else(builder.icmp_signed("!=", flag, INT64(0))) as branches:
        for branch, value in zip(branches, (True, False), strict=True):
            with branch:
                yield value


def word_variants(builder, run, widest):
    """Begin a branch for each word size up to `widest`; yield it and the words' offsets in a run.

    A branch is taken if its word is the widest that fits in a run. A run is one word, or two
    overlapping words.
    """
    leading_zeros = builder.ctlz(run, ir.Constant(ir.IntType(1), 1))
    highest_bit = builder.sub(INT64(63), leading_zeros)
    for bit in variants(builder, range(widest.bit_length()), highest_bit):
        last = builder.sub(run, INT64(1 << bit))
        for has_two_words in both_ways(builder, last):
            yield 1 << bit, [INT64(0), last] if has_two_words else [INT64(0)]


def loop(builder, count, starts, steps):
    """Write a loop; yield its values, which begin as `starts` and grow by `steps` each time."""
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
