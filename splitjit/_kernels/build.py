"""Compile the C functions of a kernel to its object file."""

from __future__ import annotations

from importlib import import_module

from splitjit._abi.kernels import KERNELS
from splitjit._kernels.compiling import object_code

_MODULES = {name: import_module(f"splitjit._kernels.{name}") for name in KERNELS}


def compile_kernel(name):
    """Compile one kernel of `splitjit._abi.kernels.KERNELS`; return its object file."""
    return object_code([getattr(_MODULES[name], function) for function in KERNELS[name]])
