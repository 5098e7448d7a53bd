"""Call a copy loop by its address."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _call(builder, loop, values):
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
    builder.call(builder.inttoptr(loop, kind.as_pointer()), values)


@intrinsic
def call_loop(typingctx, loop, task, tasks, arguments):
    """Call a loop with `Arguments`."""

    def codegen(context, builder, signature, args):
        stored = builder.ptrtoint(cgutils.alloca_once_value(builder, args[3]), args[0].type)
        _call(builder, args[0], [*args[1:3], stored])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, arguments), codegen


@intrinsic
def call_loop_at(typingctx, loop, task, tasks, arguments):
    """Call a loop with the address of its `Arguments`."""

    def codegen(context, builder, signature, args):
        _call(builder, args[0], args[1:])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, types.intp), codegen
