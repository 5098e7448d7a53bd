"""Compile the functions that a kernel exports to its object file."""

from __future__ import annotations

from importlib import import_module

from splitjit._abi.kernels import KERNELS
from splitjit._kernels.compiling import object_code

_FUNCTIONS = {
    kernel: [
        getattr(import_module(f"splitjit._kernels.{module}"), name)
        for module, functions in modules.items()
        for name in functions
    ]
    for kernel, modules in KERNELS.items()
}


def compile_kernel(name):
    """Compile one kernel of `splitjit._abi.kernels.KERNELS`; return its object file."""
    return object_code(_FUNCTIONS[name])
