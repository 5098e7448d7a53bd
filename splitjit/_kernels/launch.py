"""Run a loop once per task, on one thread or on several.

Python calls these C functions as builtins, with integer arguments. The caller keeps the memory that
they point to alive; the global interpreter lock (GIL) is released while a loop runs.
"""

from __future__ import annotations

from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import words_at
from splitjit._kernels.objects import as_integer, integer_object, release_gil, take_gil
from splitjit._kernels.table import Arguments
from splitjit._kernels.wake import finish, new_state, start


@intrinsic
def call_loop(typingctx, loop, task, tasks, arguments):
    """Call a compiled loop by its address, with the address of its arguments."""

    def codegen(context, builder, signature, args):
        loop, task, tasks, arguments = args
        stored = builder.ptrtoint(cgutils.alloca_once_value(builder, arguments), task.type)
        kind = ir.FunctionType(ir.VoidType(), [task.type] * 3)
        builder.call(builder.inttoptr(loop, kind.as_pointer()), [task, tasks, stored])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp, arguments), codegen


@jit
def _arguments(given):
    """Read the last four arguments of a launch."""
    stream, target = as_integer(given[3]), as_integer(given[4])
    return Arguments(stream, target, as_integer(given[5]), as_integer(given[6]))


def run(module, arguments, count):
    """``run(loop, naps, tasks, *Arguments)``: run one task on the calling thread."""
    given = words_at(arguments)
    loop, call = as_integer(given[0]), _arguments(given)
    state = release_gil()
    call_loop(loop, 0, 1, call)
    take_gil(state)
    return integer_object(1)


@jit(parallel=True)
def _run_tasks(loop, naps, tasks, call):
    state = new_state()
    for task in prange(tasks):
        start(state, naps)
        call_loop(loop, task, tasks, call)
        finish(state, naps, tasks)


def run_parallel(module, arguments, count):
    """``run_parallel(loop, naps, tasks, *Arguments)``: run the tasks on Numba's threads."""
    given = words_at(arguments)
    loop, naps, tasks = as_integer(given[0]), as_integer(given[1]), as_integer(given[2])
    call = _arguments(given)
    state = release_gil()
    _run_tasks(loop, naps, tasks, call)
    take_gil(state)
    return integer_object(1)


_get_num_threads = types.ExternalFunction("get_num_threads", types.int32())


def count_threads(module, argument):
    """``count_threads(None)``: return how many threads Numba allows this thread to use."""
    return integer_object(_get_num_threads())


_METH_O = types.intp(types.intp, types.intp)
_METH_FASTCALL = types.intp(types.intp, types.intp, types.intp)

SERIAL = {"run": (_METH_FASTCALL, jit(run))}
PARALLEL = {
    "run_parallel": (_METH_FASTCALL, jit(run_parallel)),
    "count_threads": (_METH_O, jit(count_threads)),
}
