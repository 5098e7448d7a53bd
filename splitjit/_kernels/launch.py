"""Call a copy loop by its address."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def stored(typingctx, words):
    """Store a tuple of words on the stack of the calling function, and return its address."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(cgutils.alloca_once_value(builder, args[0]), ir.IntType(64))

    return types.intp(words), codegen


@intrinsic
def call_loop(typingctx, loop, task, tasks, arguments):
    """Call a loop with the address of its `Arguments`."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in args[1:]])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp), codegen
