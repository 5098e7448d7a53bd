"""Python objects in compiled code, which holds the global interpreter lock (GIL).

An object is the machine integer of its address, as `id` returns it. Only the arguments and
the result of a compiled function have the type `OBJECT`, so that Numba passes them as they
are. Numba would take 0.3 µs to read an array, and longer to make one.
"""

from __future__ import annotations

from numba import types
from numba.extending import NativeValue, box, intrinsic, models, register_model, unbox

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import call
from splitjit._kernels.table import ALIGNED, C_CONTIGUOUS, INT_MASK, WRITEABLE


class _Object(types.Opaque):
    """The type of any Python object."""


OBJECT = _Object("splitjit.object")
"""A borrowed reference as an argument, and a new reference as a result."""

register_model(_Object)(models.OpaqueModel)


@unbox(_Object)
def _borrow(kind, reference, c):
    return NativeValue(reference)


@box(_Object)
def _give(kind, reference, c):
    return reference


@intrinsic
def address_of(typingctx, reference):
    """Return the address of an object."""

    def codegen(context, builder, signature, args):
        return builder.ptrtoint(args[0], context.get_value_type(types.intp))

    return types.intp(OBJECT), codegen


@intrinsic
def reference_to(typingctx, address):
    """Return the object at an address; the address 0 raises the error that Python has set."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(OBJECT))

    return OBJECT(types.intp), codegen


# Functions of Python's C interface; 0 as an object is allowed in the first two.
increment = types.ExternalFunction("Py_IncRef", types.void(types.intp))
decrement = types.ExternalFunction("Py_DecRef", types.void(types.intp))
new_list = types.ExternalFunction("PyList_New", types.intp(types.intp))
set_item = types.ExternalFunction("PyList_SetItem", types.int32(types.intp, types.intp, types.intp))


@jit(inline="always")
def new_array(api, dtype, rank, shape, data):
    """Make a C-contiguous ndarray.

    Parameters
    ----------
    api : Expected
        Has the addresses of NumPy's functions.
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
    increment(dtype)  # NumPy takes this reference, even if there is an error
    flags = types.int32(C_CONTIGUOUS | ALIGNED | WRITEABLE if data else 0)
    arguments = api.array_type, dtype, types.int32(rank), shape, 0, data, flags, 0
    return call(api.new_array, arguments)


@jit(inline="always")
def set_base(api, array, base):
    """Let an array keep the owner of its memory alive; return whether that succeeded."""
    increment(base)  # NumPy takes this reference, even if there is an error
    return call(api.set_base, (array, base)) & INT_MASK == 0
