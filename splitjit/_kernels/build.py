"""The C functions in each kernel's object, and how to compile it."""

from __future__ import annotations

from numba import types

from splitjit._kernels import blocks, entry, layouter, overload, team
from splitjit._kernels.compiling import jit, object_code
from splitjit._kernels.deinterleave import deinterleave
from splitjit._kernels.plain import plain
from splitjit._kernels.stream import stream
from splitjit._kernels.transpose import transpose

_LOOP = types.void(types.intp, types.intp, types.intp)  # task, tasks, address of `Arguments`
_LOOPS = (plain, stream, deinterleave, transpose)

_FUNCTIONS = {
    **{loop.__name__: {loop.__name__: (_LOOP, jit(loop))} for loop in _LOOPS},
    "layouter": layouter.FUNCTIONS,
    "entry": entry.FUNCTIONS,
    "team": team.FUNCTIONS,
    "overload": overload.FUNCTIONS,
    "blocks": blocks.FUNCTIONS,
}


def compile_kernel(name):
    """Compile one kernel of `splitjit._abi.kernels.KERNELS`; return its object file."""
    return object_code(_FUNCTIONS[name])
