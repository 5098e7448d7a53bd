"""Check that compiled code may read and make NumPy arrays, as `splitjit._kernels.entry` does.

The C structs of arrays and lists, and NumPy's table of C functions, are the same in all
versions of CPython and NumPy that splitjit supports. This module verifies that once, at
import. If something differs, no compiled code reads arrays.

A later CPython may change its structs. Then even the check could read outside an object
and crash, so nothing is read in untested versions. A later NumPy cannot change its struct
or its table without changing the table's version, because extension modules compiled for
NumPy 2 read both.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Sequence

import numpy as np

from splitjit._copy.events import warn
from splitjit._kernels import table

_VERSION = 0x02000000  # of NumPy 2's table
_LAST_PYTHON = (3, 15)
"""The latest version of CPython with which the tests have passed."""

WORKS_WITH = (
    f"splitjit works with CPython 3.11 to {_LAST_PYTHON[0]}.{_LAST_PYTHON[1]}, NumPy 2, and "
    "Numba 0.61 to 0.68"
)
"""What the log says of versions that do not fit."""


def _word(address: int, index: int) -> int:
    return ctypes.c_ssize_t.from_address(address + table.WORD * index).value


def _is_tested() -> bool:
    """Return whether the tests have passed with this version of CPython."""
    return sys.implementation.name == "cpython" and sys.version_info[:2] <= _LAST_PYTHON


def _reads_arrays() -> bool:
    """Return whether arrays and lists lie in memory as the compiled functions expect."""
    is_gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    if not _is_tested() or not is_gil_enabled() or _api() is None:
        return False
    if np.dtype(np.intp).itemsize != table.WORD:
        return False
    strided = np.zeros((4, 6), np.int8)[::2, 1:4].T
    arrays: list[np.ndarray] = [np.zeros((2, 3)), strided, np.frombuffer(b"read-only", np.uint8)]
    if _word(id(arrays), table.LIST_LENGTH) != len(arrays):
        return False  # so the next line stays within the list
    items = [_word(_word(id(arrays), table.LIST_ITEMS), i) for i in range(len(arrays))]
    if items != list(map(id, arrays)):
        return False
    return all(_lies_as_expected(array) for array in arrays)


def _lies_as_expected(array: np.ndarray) -> bool:
    at, rank = id(array), array.ndim
    shape, strides = _word(at, table.ARRAY_SHAPE), _word(at, table.ARRAY_STRIDES)
    found = [_word(at, i) for i in (table.OBJECT_TYPE, table.ARRAY_DATA, table.ARRAY_DTYPE)]
    ints = [_word(at, i) & table.INT_MASK for i in (table.ARRAY_RANK, table.ARRAY_FLAGS)]
    if found != [id(np.ndarray), array.ctypes.data, id(array.dtype)]:
        return False
    if ints != [rank, array.flags.num] or strides != shape + table.WORD * rank:
        return False  # so the next lines stay within the array
    extents = tuple([_word(shape, d) for d in range(rank)])
    return (
        extents == array.shape and tuple([_word(strides, d) for d in range(rank)]) == array.strides
    )


def _api() -> Sequence[int] | None:
    """Return the addresses of NumPy's C functions, or None if their version is unknown."""
    if not _is_tested():
        return None
    try:
        capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    except (ImportError, AttributeError):
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address = kind(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, None)
    version = ctypes.PYFUNCTYPE(ctypes.c_uint)(_word(address, table.API_VERSION))
    if version() != _VERSION:
        return None  # so the next line stays within the table
    return list((ctypes.c_ssize_t * (table.SET_BASE_OBJECT + 1)).from_address(address))


READS_ARRAYS = _reads_arrays()
"""Whether arrays and lists lie in memory as `splitjit._kernels.table` says."""

API = _api()
"""The addresses of NumPy's C functions, or None if they may not be called."""


def can_read_arrays() -> bool:
    """Return whether compiled code may read and make arrays; if not, the log says so once."""
    if READS_ARRAYS and API is not None:
        return True
    _warn()
    return False


@functools.cache
def _warn() -> None:
    python = ".".join(map(str, sys.version_info[:2]))
    warn(
        "compiled code cannot read arrays of %s %s and NumPy %s, so small splits take longer. %s",
        *(sys.implementation.name, python, np.__version__, WORKS_WITH),
    )
