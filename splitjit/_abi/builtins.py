"""Python builtins made from compiled C functions, and other uses of CPython's C API.

Calling such a builtin costs as little as `len`, and much less than a `ctypes` wrapper.

Functions of `ctypes` get values of `ctypes`, and do not declare the types of their arguments: near
the limit of recursion, the conversion of other values raises an `ArgumentError`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

_METHODS: dict[tuple[str, int, int], Any] = {}
"""The C struct ``PyMethodDef`` of each function: four words, for its name, address, flags and
docstring. Python reads it in every call, so it must never be freed, not even if a thread or a
signal handler makes the same function while it is being made."""


def function_of(name: str, address: int, flags: int) -> Any:
    """Return what Python code uses of a C function.

    Its address, or a function that makes the builtin function for a given record. The record is the
    first argument of every call, and the builtin function keeps it alive.

    Parameters
    ----------
    name : str
    address : int
        The address of the C function. If Python calls it, it returns a new reference, or 0 with an
        error set.
    flags : int
        How it is called; see `splitjit._abi.kernels.KERNELS`.
    """
    if not flags:
        return address
    words = (ctypes.c_char_p * 4)(name.encode())  # which keeps the name alive
    words_of_ints = (ctypes.c_int64 * 4).from_buffer(words)
    words_of_ints[1], words_of_ints[2] = address, flags
    method = _METHODS.setdefault((name, address, flags), words)
    new, place = _new_function(), ctypes.c_void_p(ctypes.addressof(method))
    return lambda record: new(place, ctypes.py_object(record), None)


_WITH_GIL, _WITHOUT_GIL = ctypes.PYFUNCTYPE(ctypes.c_int64), ctypes.CFUNCTYPE(ctypes.c_int64)


def call(address: int, record: Sequence[int]) -> int:
    """Call a compiled function with the address of a record's words."""
    return _call(_WITH_GIL, address, (), record)


def call_without_gil(address: int, numbers: Sequence[int], record: Sequence[int]) -> None:
    """Call a compiled function with some numbers, and the address of a record's words."""
    _call(_WITHOUT_GIL, address, numbers, record)


def _call(kind: Any, address: int, numbers: Sequence[int], record: Sequence[int]) -> int:
    words = (ctypes.c_int64 * len(record))(*record)
    result: int = kind(address)(*map(ctypes.c_int64, (*numbers, ctypes.addressof(words))))
    return result


@functools.cache
def _new_function() -> Any:
    """Return Python's C function that makes builtin functions. Ours belong to no module."""
    return ctypes.PYFUNCTYPE(ctypes.py_object)(("PyCFunction_NewEx", ctypes.pythonapi))


def keep_forever(owner: Any) -> Any:
    """Keep an object until the process ends: a finalizer may call `split` very late."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
    return owner


PYTHON_FUNCTIONS = (
    "PyCapsule_GetPointer",
    "PyCapsule_New",
    "PyErr_Clear",
    "PyErr_SetObject",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyList_New",
    "PyList_SetItem",
    "PyLong_AsSsize_t",
    "PyLong_FromSsize_t",
    "PyThread_acquire_lock",
    "PyThread_allocate_lock",
    "PyThread_release_lock",
    "PyThread_start_new_thread",
    "Py_DecRef",
    "Py_IncRef",
)
"""The CPython functions that kernels call."""


@functools.cache
def python_functions() -> dict[str, int]:
    """Return the addresses of the CPython functions that kernels call."""
    found = {name: getattr(ctypes.pythonapi, name) for name in PYTHON_FUNCTIONS}
    return {name: ctypes.cast(at, ctypes.c_void_p).value or 0 for name, at in found.items()}
