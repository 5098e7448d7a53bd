"""Where arrays and lists keep their fields in memory, for compiled code that reads them.

The C structs of arrays and lists, and NumPy's table of C functions, are the same in all
versions of CPython and NumPy that splitjit supports. This module verifies the versions, once,
at import. If one differs, no compiled code reads arrays. `check_numba` verifies the fields of
Numba's arrays before anything is compiled.

A later CPython may change its structs. Looking at one could read outside an object and crash, so
nothing is read in untested versions. A later NumPy cannot change its struct or its table without
changing the table's version, because extension modules compiled for NumPy 2 read both.
"""

import ctypes
import importlib
import sys
from collections import namedtuple

from splitjit._abi.calls import WORD

# Word offsets in Python lists and NumPy arrays on 64-bit CPython, from the C structs
# `PyListObject` and `PyArrayObject_fields`.

LIST = namedtuple("PythonList", "references type length items")(*range(4))

NumpyArray = namedtuple("NumpyArray", "references type data rank shape strides base dtype flags")
ARRAY = NumpyArray(*range(9))
INT_MASK = (1 << 32) - 1
"""The rank and the flags are C ints, which fill the first half of a word: the lower one, because
`check_numba` lets nothing be compiled for big-endian processors."""

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # array flags

# NumPy's table of C functions. Functions keep their index while the table's version, which the
# first function returns, stays the same.
API_VERSION, NEW_FROM_DESCR, SET_BASE_OBJECT = 0, 94, 282

# Word offsets in Numba's arrays, from its C struct `arystruct_t`; the strides follow the shape.
NUMBA = namedtuple("NumbaArray", "memory parent items itemsize data shape")(*range(6))
_NAMES = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")  # Numba's

# Word offsets in Numba's C struct `MemInfo`: the number of references, and the address of the data.
# Numba's own compiled code relies on these offsets, too, and `splitjit._njit.functions` verifies
# them.
MemInfo = namedtuple("MemInfo", "references data")
MEM_INFO = MemInfo(references=0, data=3)

_VERSION = 0x02000000  # of NumPy 2's table
_LAST_PYTHON = (3, 15)
"""The latest version of CPython with which the tests have passed."""

WORKS_WITH = (
    f"splitjit works with CPython 3.11 to {_LAST_PYTHON[0]}.{_LAST_PYTHON[1]}, NumPy 2, and "
    "Numba 0.61 to 0.68"
)
"""What the log says of versions that do not fit."""


def _api() -> list[int] | None:
    """Return the addresses of NumPy's C functions, or None if a version was not tested."""
    is_tested = sys.implementation.name == "cpython" and sys.version_info[:2] <= _LAST_PYTHON
    # Free-threaded and some debug builds have larger objects.
    if not is_tested or (object.__basicsize__, list.__basicsize__) != (2 * WORD, 5 * WORD):
        return None
    try:
        capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    except (ImportError, AttributeError):
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address = kind(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, None)
    table = (ctypes.c_ssize_t * (SET_BASE_OBJECT + 1)).from_address(address)
    if ctypes.PYFUNCTYPE(ctypes.c_uint)(table[API_VERSION])() != _VERSION:
        return None  # the table may be shorter, so nothing else of it is read
    return list(table)


API = _api()
"""The addresses of NumPy's C functions, or None if they may not be called."""

READS_ARRAYS = API is not None
"""Whether arrays and lists lie in memory as this module says."""


def check_numba() -> None:
    """Refuse a Numba whose arrays are not five words, the shape, and the strides.

    Then nothing may be compiled, nor for a processor that is big-endian: kernels read integers of
    any width from the first, lowest bytes of a word.
    """
    if sys.byteorder != "little":
        raise RuntimeError("kernels are for little-endian processors only")
    import numba
    from llvmlite import ir
    from numba.core.datamodel import default_manager

    word = ir.IntType(8 * WORD)
    model = default_manager.lookup(numba.types.Array(numba.types.int32, 3, "A"))
    places = [model.get_field_position(name) for name in _NAMES]
    *pointers, shape, strides = model.get_value_type().elements
    if (
        places != [*range(model.field_count)]
        or not (shape == strides == ir.ArrayType(word, 3))
        or not all(kind == word or isinstance(kind, ir.PointerType) for kind in pointers)
    ):
        raise RuntimeError(f"Numba {numba.__version__} has another struct of arrays")
