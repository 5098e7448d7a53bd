"""Run a loop once for each task, on one thread or on several."""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from splitjit._kernels.cached_files import CachedFiles
from splitjit._kernels.compiling import compile_cached, named
from splitjit._kernels.copy import copy
from splitjit._kernels.deinterleave import deinterleave
from splitjit._kernels.stream import stream
from splitjit._kernels.table import Arguments
from splitjit._kernels.transpose import transpose
from splitjit._kernels.wake import finish, new_state, start

_LOOP = types.void(types.intp, types.intp, types.intp)
LAUNCH = types.void(types.intp, types.intp, types.intp, *[types.intp] * len(Arguments._fields))
_LOOPS = {"copy": copy, "stream": stream, "deinterleave": deinterleave, "transpose": transpose}


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


# The launchers take the fields of `Arguments` one by one: Numba unpacks them 0.5 µs faster
# than a named tuple.


def _serial(loop, naps, tasks, stream, target, source, layout):
    arguments = Arguments(stream, target, source, layout)
    for task in range(tasks):
        call_loop(loop, task, tasks, arguments)


def _parallel(loop, naps, tasks, stream, target, source, layout):
    arguments = Arguments(stream, target, source, layout)
    state = new_state()
    for task in prange(tasks):
        start(state, naps)
        call_loop(loop, task, tasks, arguments)
        finish(state, naps, tasks)


_get_num_threads = types.ExternalFunction("get_num_threads", types.int32())


def _count_threads():
    return _get_num_threads()


@functools.cache
def thread_counter():
    """Compile `numba.get_num_threads`, or load it from the cache: it then takes 0.5 µs less.

    Returns
    -------
    callable
        The function, to be called after Numba has started its threads.
    """
    return compile_cached(njit, types.intp(), _count_threads).get_overload(())


@functools.cache
def copy_loop(name):
    """Compile one of the loops that copy, or load it from the cache.

    Each loop is compiled once for both launchers, which call it by its address.
    Otherwise Numba would optimize it anew in each launcher.

    Parameters
    ----------
    name : str
        One of `splitjit._kernels.table.LOOPS`.

    Returns
    -------
    numba.core.ccallback.CFunc
        The compiled code ``loop(task, tasks, address of Arguments)``.
    """
    return compile_cached(cfunc, _LOOP, _LOOPS[name], error_model="numpy")


def is_missing(name):
    """Return whether the cache could hold one of the loops that copy, but does not."""
    try:
        return not CachedFiles(named(_LOOPS[name])).are_intact()
    except Exception:  # no folder can hold a cache
        return False


@functools.cache
def launcher(parallel):
    """Compile a launcher, or load it from the cache.

    Parameters
    ----------
    parallel : bool
        Whether the tasks run on Numba's threads, or one after another.

    Returns
    -------
    callable
        ``launch(address of a loop, naps, tasks, *Arguments)``; see `splitjit._kernels.wake`
    """
    function = _parallel if parallel else _serial
    return compile_cached(njit, LAUNCH, function, parallel=parallel, nogil=True)
