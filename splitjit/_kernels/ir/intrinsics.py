"""LLVM instructions that Numba does not offer: move, stream, prefetch, fence.

Addresses and byte counts are machine integers.
"""

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from splitjit._abi.calls import WORD
from splitjit._abi.kernels import LINE
from splitjit._kernels.ir.llvm import (
    BYTE,
    INT32,
    INT64,
    instruction,
    move_word,
    pointer_to,
    prefetch_line,
)


@instruction
def copy_bytes(builder, target, source, nbytes):
    """Copy bytes with C's memcpy."""
    target, source = pointer_to(builder, target, BYTE), pointer_to(builder, source, BYTE)
    cgutils.raw_memcpy(builder, target, source, nbytes, 1)


@instruction
def move_line(builder, target, source):
    """Move a cache line's worth of bytes; both addresses may have any alignment."""
    move_word(builder, target, source, LINE, False)


@instruction
def stream_line(builder, target, source):
    """Move a line with a store that bypasses the cache; the target must be a multiple of `LINE`."""
    move_word(builder, target, source, LINE, True)


prefetch = instruction(prefetch_line)


@intrinsic
def words_at(typingctx, address):
    """Return a pointer to 8-byte integers."""

    def codegen(context, builder, signature, args):
        return pointer_to(builder, args[0], INT64)

    return types.CPointer(types.int64)(types.intp), codegen


@instruction
def stored(builder, words):
    """Store a tuple of words on the stack of the calling function, and return its address."""
    return builder.ptrtoint(cgutils.alloca_once_value(builder, words), INT64)


@instruction
def call_address(builder, function, arguments):
    """Call a C function by its address with a tuple of integers; it returns an integer."""
    values = cgutils.unpack_tuple(builder, arguments)
    kind = ir.FunctionType(INT64, [value.type for value in values])
    return builder.call(builder.inttoptr(function, kind.as_pointer()), values)


@intrinsic
def address_of_function(typingctx, function):
    """Return the address of a C function of this object file, given as an `ExternalFunction`."""
    kind = ir.FunctionType(INT64, [INT64])

    def codegen(context, builder, signature, args):
        symbol = cgutils.get_or_insert_function(builder.module, kind, function.symbol)
        return builder.ptrtoint(symbol, INT64)

    return types.intp(function), codegen


@intrinsic(prefer_literal=True)
def reserve(typingctx, nbytes, alignment):
    """Reserve memory on the stack of the calling thread, and return its address.

    Both arguments must be constants.
    """
    size, boundary = nbytes.literal_value, alignment.literal_value

    def codegen(context, builder, signature, args):
        with builder.goto_entry_block():
            buffer = builder.alloca(ir.ArrayType(BYTE, size))
        buffer.align = boundary
        return builder.ptrtoint(buffer, INT64)

    return types.intp(nbytes, alignment), codegen


allocate = types.ExternalFunction("malloc", types.intp(types.intp))
"""Allocate memory; return its address, or 0 if memory runs out."""

release = types.ExternalFunction("free", types.void(types.intp))
"""Free memory from `allocate`; the address may be 0."""


@instruction
def fence(builder):
    """Make streamed stores visible to other threads."""
    builder.fence("seq_cst")


@instruction
def add_to(builder, address, value):
    """Atomically add to a word; return what it was before."""
    return builder.atomic_rmw("add", pointer_to(builder, address, INT64), value, "seq_cst")


@instruction
def exchange(builder, address, value):
    """Atomically write a word; return what it was before."""
    return builder.atomic_rmw("xchg", pointer_to(builder, address, INT64), value, "seq_cst")


@instruction
def read_word(builder, address):
    """Atomically read a word."""
    return builder.load_atomic(pointer_to(builder, address, INT64), "seq_cst", WORD)


@instruction
def relax(builder):
    """Let the processor rest for some cycles, in a loop that waits for another thread."""
    machine = platform.machine()
    if machine in ("x86_64", "AMD64"):
        name, values = "llvm.x86.sse2.pause", []
    elif machine in ("aarch64", "arm64", "ARM64"):
        name, values = "llvm.aarch64.isb", [INT32(15)]
    else:
        return
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


@instruction
def out_of_line(builder):
    """Forbid inlining the calling function: LLVM would optimize each inlined copy again."""
    builder.function.attributes.add("noinline")
