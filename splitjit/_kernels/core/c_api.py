"""Python's C functions in compiled code.

Only locks, threads and `take_gil` work without the global interpreter lock (GIL). An object is
represented by its address, as `id` returns it; 0 means that Python has set an error.
"""

from __future__ import annotations

from numba import types

from splitjit._abi.structs import ALIGNED, C_CONTIGUOUS, INT_MASK, WRITEABLE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import call

_WORD = types.intp

# Functions of Python's C API. `increment` and `decrement` accept 0 as an object.
increment = types.ExternalFunction("Py_IncRef", types.void(_WORD))
decrement = types.ExternalFunction("Py_DecRef", types.void(_WORD))
new_list = types.ExternalFunction("PyList_New", _WORD(_WORD))
set_item = types.ExternalFunction("PyList_SetItem", types.int32(_WORD, _WORD, _WORD))
integer_object = types.ExternalFunction("PyLong_FromSsize_t", _WORD(_WORD))
as_integer = types.ExternalFunction("PyLong_AsSsize_t", _WORD(_WORD))
clear_error = types.ExternalFunction("PyErr_Clear", types.void())
set_error = types.ExternalFunction("PyErr_SetObject", types.void(_WORD, _WORD))
capsule_of = types.ExternalFunction("PyCapsule_New", _WORD(_WORD, _WORD, _WORD))
memory_of = types.ExternalFunction("PyCapsule_GetPointer", _WORD(_WORD, _WORD))
release_gil = types.ExternalFunction("PyEval_SaveThread", _WORD())
take_gil = types.ExternalFunction("PyEval_RestoreThread", types.void(_WORD))
new_lock = types.ExternalFunction("PyThread_allocate_lock", _WORD())
acquire = types.ExternalFunction("PyThread_acquire_lock", types.int32(_WORD, types.int32))
release = types.ExternalFunction("PyThread_release_lock", types.void(_WORD))
start_thread = types.ExternalFunction("PyThread_start_new_thread", _WORD(_WORD, _WORD))


@jit
def new_array(api, dtype, rank, shape, data):
    """Make a C-contiguous ndarray.

    Parameters
    ----------
    api : Expected
        Holds the addresses of NumPy's functions.
    dtype : int
        Address of the dtype.
    rank, shape : int
        The number of dims, and the address of their extents.
    data : int
        Address of the memory, or 0 for new memory, which the array owns.

    Returns
    -------
    int
        A new reference, or 0 if NumPy has set an error.
    """
    increment(dtype)  # NumPy steals this reference, even on error
    flags = types.int32(C_CONTIGUOUS | ALIGNED | WRITEABLE if data else 0)
    arguments = api.array_type, dtype, types.int32(rank), shape, 0, data, flags, 0
    return call(api.new_array, arguments)


@jit
def set_base(api, array, base):
    """Make an array keep its memory's owner alive; return whether that succeeded."""
    increment(base)  # NumPy steals this reference, even on error
    return call(api.set_base, (array, base)) & INT_MASK == 0
