"""One adapter per kind of input: its memory as an ndarray, and what only its library can do.

=============  =======================================  ==========================================
class          adapts                                   parts
=============  =======================================  ==========================================
`Input`        ndarrays, and what NumPy can convert     ndarrays
`Masked`       masked arrays                            masked arrays
`Tensor`       torch tensors                            tensors, see `tensors.py`
`Array`        JAX and other Array API arrays           arrays of the library
=============  =======================================  ==========================================

Labelled and lazy objects are refused.
"""

import sys
from typing import Any

import numpy as np

from splitjit._inputs.arrays import as_array, is_dask_array, refuse_foreign, refuse_meaning
from splitjit._inputs.input import Input, Masked, Request
from splitjit._inputs.torch.tensors import is_tensor, refuse_layout, tensor_input
from splitjit._plan.arguments import listed, normalize_axis
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError, SplitTypeError, X, kind_of


def adapt(x: Any, copy: Any = True) -> Input:
    """Return `x`'s adapter.

    Raises
    ------
    SplitTypeError
        If `x` is not an array, or carries more than values; with ``copy=False``, also if NumPy
        can only copy its values.
    """
    if is_tensor(x):
        return tensor_input(x)
    kind = type(x)
    if is_dask_array(x):
        return adapt(x.compute())  # only the operators get here
    if issubclass(kind, (np.ndarray, np.generic)):
        refuse_meaning(x)
        return Masked(x) if issubclass(kind, np.ma.MaskedArray) else Input(as_array(x))
    refuse_foreign(x)
    if hasattr(kind, "__array_namespace__"):
        return Array(x)
    refuse_meaning(x)
    if copy is False and (hasattr(kind, "__array__") or hasattr(kind, "__array_interface__")):
        _refuse_views(x)
    array = as_array(x)
    if array.ndim == 0 and array.dtype.kind in "OSUT":  # NumPy wraps what it cannot read
        hint = f"pass list({X})" if hasattr(kind, "__next__") else ""
        if issubclass(kind, bytes):
            hint = f"pass np.frombuffer({X}, dtype)"
        raise SplitTypeError.of(f"{X} of type {kind_of(x)}", "must be an array", hint)
    return Input(array)


def items_of(given: Any, name: str) -> list[Any]:
    """Return the arrays of a sequence, or those along the first axis of one array."""
    if not isinstance(given, np.ndarray) and not is_tensor(given):
        try:
            return listed(given)
        except SplitError as error:
            raise error.named("split", keeps_hint=True, out=name) from None
    refuse_layout(given, name)
    if isinstance(given, np.ndarray):
        given = given[...]  # a view, whose shape no other thread can change
    if given.ndim == 0:
        raise SplitTypeError.of(f"{name} of rank 0", "must have the parts along its first axis")
    return [given[i, ...] for i in range(len(given))]


def _refuse_views(x: Any) -> None:
    """Refuse an object, such as a dataset of h5py, whose values NumPy has to read or copy."""
    try:
        first, second = np.asarray(x, copy=False), np.asarray(x, copy=False)
        is_copied = first.size and first.ctypes.data != second.ctypes.data
    except Exception:  # a foreign class may raise anything
        is_copied = True
    if is_copied:
        rule = f"its values are copied, so copy=False cannot return views; pass np.asarray({X})"
        raise SplitTypeError.of(f"{X} of type {kind_of(x)}", rule)


# ---- arrays of JAX and other libraries with the Array API ----------------------------------


def memory(x: Any) -> np.ndarray:
    """Return an ndarray: a view through DLPack if the library allows it, else the values."""
    try:
        return np.from_dlpack(x)
    except Exception:  # DLPack lacks the dtype or device, or a foreign class raises anything
        return as_array(x)


def _is_of_jax(x: object) -> bool:
    return isinstance(x, getattr(sys.modules.get("jax"), "Array", ()))


def _memory_is_plain(x: Any) -> bool:
    """Return whether kernels may read an array, and DLPack may return parts to its device.

    Only JAX qualifies: other arrays may be on a device, or carry more than values.
    """
    if not _is_of_jax(x) or not hasattr(type(x), "__dlpack_device__"):  # a tracer has no memory
        return False
    jax = sys.modules["jax"]
    try:
        if x.weak_type or x.devices() != {jax.devices("cpu")[0]}:
            return False
        # Outside of x64 mode, JAX takes no items of 64 bits back: it would cut them to 32.
        return bool(jax.dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True) == x.dtype)
    except RuntimeError:  # a deleted array, or no CPU device
        return False


class Array(Input):
    """An Array API array. JAX arrays are immutable, so `out` takes ndarrays.

    Kernels copy JAX arrays on the first CPU device. JAX itself splits tracers, arrays on other or
    several devices, arrays of 64 bits outside of x64 mode, and weakly typed arrays, whose dtype
    DLPack would make strong. Other libraries slice and copy, so that the parts stay on the array's
    device and keep what its class adds to the values.
    """

    def __init__(self, x: Any) -> None:
        self.x, self.array = x, memory(x) if _memory_is_plain(x) else None

    def views(self, plan: Plan) -> list[Any]:
        """Return the library's slices."""
        if _is_of_jax(self.x) and len(plan):
            return list(sys.modules["jax"].lax.split(self.x, plan.sizes, plan.axis))
        return [self.x[(*index, ...)] for index in plan.slices]  # some libraries insist on all axes

    def made_by_library(self, request: Request, copy: bool) -> list[Any]:
        """Return slices, or copies of them. JAX arrays are immutable and need no copy."""
        shape = self.shape
        if request.plan is None:  # a rule needs one dim; a plan checks all of them
            index = normalize_axis(request.axis, shape)
            if type(shape[index]) is not int:  # `jax.export` has symbols for unknown dims
                rule = "the length of the axis must be known"
                raise SplitTypeError.of(f"{X} of shape {shape}", rule)
            shape = tuple([n if type(n) is int else 1 for n in shape])
        parts = self.views(request.plan_of(shape))
        if not copy or _is_of_jax(self.x):
            return parts
        asarray = self.x.__array_namespace__().asarray
        return [asarray(part, copy=True) for part in parts]

    def wrap(self, parts: list[np.ndarray], masks: list[np.ndarray] | None = None) -> list[Any]:
        """Return the parts as arrays of the library."""
        namespace = self.x.__array_namespace__()
        try:
            return list(map(namespace.from_dlpack, parts))
        except (RuntimeError, BufferError, TypeError):
            return [sys.modules["jax"].device_put(part, self.x.sharding) for part in parts]
