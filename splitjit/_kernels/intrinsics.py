"""LLVM instructions that Numba does not offer: move, stream, prefetch, fence.

Addresses and byte counts are machine integers.
"""

from __future__ import annotations

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import RequireLiteralValue
from numba.extending import intrinsic

from splitjit._abi.kernels import LINE
from splitjit._abi.layout_record import WORD
from splitjit._kernels.llvm import (
    BYTE,
    INT32,
    INT64,
    integer,
    move_word,
    pointer_to,
    prefetch_line,
    shuffled,
    store,
)


@intrinsic
def copy_bytes(typingctx, target, source, nbytes):
    """Copy bytes with C's memcpy."""

    def codegen(context, builder, signature, args):
        target, source = (pointer_to(builder, address, BYTE) for address in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


def _line_move(past_cache):
    """Return the signature and the code of a function that moves a line."""

    def codegen(context, builder, signature, args):
        move_word(builder, *args, LINE, past_cache)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def move_line(typingctx, target, source):
    """Move a cache line's worth of bytes; both addresses may have any alignment."""
    return _line_move(past_cache=False)


@intrinsic
def stream_line(typingctx, target, source):
    """Move a line with a store that bypasses the cache; the target must be a multiple of `LINE`."""
    return _line_move(past_cache=True)


@intrinsic
def merge_line(typingctx, target, before, after, begun):
    """Merge two lines: the first `begun` bytes from the address `before`, the rest from `after`.

    The store bypasses the cache, so the target must be aligned to `LINE`.
    """

    def codegen(context, builder, signature, args):
        target, before, after, begun = args
        line = ir.VectorType(BYTE, LINE)
        old, new = (
            builder.load(pointer_to(builder, address, line), align=1) for address in (before, after)
        )
        places = ir.Constant(line, list(range(LINE)))
        begun = builder.insert_element(
            ir.Constant(line, ir.Undefined), builder.trunc(begun, BYTE), ir.Constant(INT32, 0)
        )
        is_old = builder.icmp_unsigned("<", places, shuffled(builder, begun, begun, [0] * LINE))
        merged = builder.select(is_old, old, new)
        store(builder, merged, pointer_to(builder, target, line), LINE, True)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


@intrinsic
def prefetch(typingctx, address):
    """Fetch a cache line into the L2 cache; an address outside any buffer does no harm."""

    def codegen(context, builder, signature, args):
        prefetch_line(builder, args[0])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def prefetch_to_write(typingctx, address):
    """Fetch a cache line into this core's L1 cache alone, because it will be written."""

    def codegen(context, builder, signature, args):
        prefetch_line(builder, args[0], write=1, locality=3)
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def trailing_zeros(typingctx, value):
    """Return the number of trailing zero bits of a positive integer."""

    def codegen(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.intp(types.intp), codegen


@intrinsic
def least(typingctx, a, b):
    """Return the smaller integer. `min` takes Numba 0.1 s to compile."""

    def codegen(context, builder, signature, args):
        return builder.select(builder.icmp_signed("<", *args), *args)

    return types.intp(types.intp, types.intp), codegen


@intrinsic
def greatest(typingctx, a, b):
    """Return the larger integer."""

    def codegen(context, builder, signature, args):
        return builder.select(builder.icmp_signed(">", *args), *args)

    return types.intp(types.intp, types.intp), codegen


@intrinsic
def words_at(typingctx, address):
    """Return a pointer to 8-byte integers."""

    def codegen(context, builder, signature, args):
        return pointer_to(builder, args[0], INT64)

    return types.CPointer(types.int64)(types.intp), codegen


@intrinsic
def integers_at(typingctx, address, count):
    """Return the 8-byte integers at an address as an array that does not own them."""
    kind = types.Array(types.int64, 1, "C")

    def codegen(context, builder, signature, args):
        array = context.make_array(kind)(context, builder)
        array.data = pointer_to(builder, args[0], INT64)
        array.nitems, array.itemsize = args[1], integer(WORD)
        array.shape = cgutils.pack_array(builder, [args[1]])
        array.strides = cgutils.pack_array(builder, [integer(WORD)])
        return array._getvalue()

    return kind(types.intp, types.intp), codegen


@intrinsic
def call(typingctx, function, arguments):
    """Call a C function by its address with a tuple of integers; it returns an integer."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(INT64, [value.type for value in values])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)

    return types.intp(types.intp, arguments), codegen


@intrinsic(prefer_literal=True)
def reserve(typingctx, nbytes, alignment):
    """Reserve memory on the stack of the calling thread, and return its address.

    Both arguments must be constants.
    """
    if not (isinstance(nbytes, types.Literal) and isinstance(alignment, types.Literal)):
        raise RequireLiteralValue("reserve needs constants")
    size, boundary = nbytes.literal_value, alignment.literal_value

    def codegen(context, builder, signature, args):
        with builder.goto_entry_block():
            buffer = builder.alloca(ir.ArrayType(BYTE, size))
        buffer.align = boundary
        return builder.ptrtoint(buffer, INT64)

    return types.intp(nbytes, alignment), codegen


@intrinsic
def allocate(typingctx, nbytes):
    """Allocate memory with C's malloc; return its address, or 0 if memory runs out."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(BYTE.as_pointer(), [INT64])
        malloc = cgutils.get_or_insert_function(builder.module, kind, "malloc")
        return builder.ptrtoint(builder.call(malloc, args), INT64)

    return types.intp(types.intp), codegen


@intrinsic
def release(typingctx, address):
    """Free memory from `allocate`; the address may be 0."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer()])
        free = cgutils.get_or_insert_function(builder.module, kind, "free")
        builder.call(free, [pointer_to(builder, args[0], BYTE)])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def fence(typingctx):
    """Make streamed stores visible to other threads."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def add_to(typingctx, address, value):
    """Atomically add to a word; return what it was before."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", pointer_to(builder, args[0], INT64), args[1], "seq_cst")

    return types.intp(types.intp, types.intp), codegen


@intrinsic
def exchange(typingctx, address, value):
    """Atomically write a word; return what it was before."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("xchg", pointer_to(builder, args[0], INT64), args[1], "seq_cst")

    return types.intp(types.intp, types.intp), codegen


@intrinsic
def read_word(typingctx, address):
    """Atomically read a word."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(pointer_to(builder, args[0], INT64), "seq_cst", WORD)

    return types.intp(types.intp), codegen


@intrinsic
def relax(typingctx):
    """Let the processor rest for some cycles, in a loop that waits for another thread."""

    def codegen(context, builder, signature, args):
        machine = platform.machine()
        if machine in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause")
            builder.call(function, [])
        elif machine in ("aarch64", "arm64", "ARM64"):
            kind = ir.FunctionType(ir.VoidType(), [INT32])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.isb")
            builder.call(function, [ir.Constant(INT32, 15)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def out_of_line(typingctx):
    """Forbid inlining the calling function: LLVM would optimize each inlined copy again."""

    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen
