"""Outputs that are checked once and written to many times; see `SplitPlan.bind`."""

from __future__ import annotations

import weakref
from typing import Any, Generic

import numpy as np
from numpy.typing import ArrayLike

from splitjit._api.run import run_plan
from splitjit._copy.entry import Entry
from splitjit._copy.outputs import check_apart, check_out
from splitjit._copy.recipe import Outputs, check_shape, recipe_of
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Input
from splitjit._inputs.tensors import (
    is_compiling,
    is_tensor,
    mark_written,
    out_arrays,
    reader,
    tensor_input,
)
from splitjit._plan.arguments import sequence
from splitjit._plan.plan import Plan
from splitjit._plan.protocols import Part, SupportsSlices
from splitjit.errors import SplitError, SplitTypeError, kind_of

_OUTPUTS_KEPT = 16
"""The number of strides of sources for which a binding keeps the layout of its copy."""


def bind(plan: Plan, out: Any) -> Binding[Any]:
    """Bind outputs of any library, see `SplitPlan.bind`."""
    given = sequence(out)  # read once: a second reading may give other arrays
    if given and is_tensor(given[0]):
        foreign = tensor_input(given[0]).array is None
        return ForeignBinding(plan, given) if foreign else TensorBinding(plan, given)
    if given and issubclass(type(given[0]), np.ma.MaskedArray):
        return MaskedBinding(plan, given)
    return Binding(plan, out if given is None else given)


class Binding(Generic[Part]):
    """A split into given arrays: ``into(x)`` writes the parts of `x` to them.

    :meth:`SplitPlan.bind` makes bindings. A binding holds its arrays, so that
    their memory lives as long as the binding.

    Parameters
    ----------
    plan : Plan
        The plan of the split.
    out : sequence of ndarray
        The arrays to write the parts to.

    Raises
    ------
    SplitError, SplitTypeError
        If `out` does not fit the plan, see :func:`splitjit.split`.
    """

    __slots__ = ("_dtype", "_entry", "_out", "_outputs", "_owners", "_plan", "_seen", "_targets")

    def __init__(self, plan: Plan, out: Any) -> None:
        first = out[0] if type(out) is tuple and out else None
        is_array = issubclass(type(first), np.ndarray)
        dtype = np.asarray(first).dtype if is_array else np.dtype(np.uint8)
        self._targets = check_out(plan, dtype, out)
        check_apart(self._targets.parts)
        self._plan, self._dtype = plan, dtype
        self._out: list[Any] = self._targets.given
        self._seen = [_look(array) for array in self._out]
        # NumPy resizes only arrays that own their memory and have no weak reference. If an
        # array of `out` is a view, the weak reference prevents a resize of the owner. The other
        # reference keeps the owner's memory alive if `__setstate__` gives the view new memory.
        owners = [_owner(array) for array in self._targets.parts if not array.flags.owndata]
        self._owners = [(owner, weakref.ref(owner)) for owner in owners]
        self._outputs: dict[tuple[int, ...], Outputs] = {}
        self._entry: Entry | None = None  # of the last source

    def __call__(self, x: ArrayLike | SupportsSlices[Any]) -> list[Part]:
        """Split an array of the plan's shape into the arrays of the binding.

        Parameters
        ----------
        x : array_like
            The array to split, of the shape of the plan and the dtype of the
            arrays, with any strides. It must not share an element with them.

        Returns
        -------
        list of ndarray
            The arrays that were bound.

        Raises
        ------
        SplitError
            If `x` has another shape or shares memory with an array, or if an
            array was resized since it was bound. Nothing has been written then.
        SplitTypeError
            If `x` has another dtype.
        """
        entry = self._entry
        if entry is None or not entry.into(x, self._out):
            self._copy(x if type(x) is np.ndarray else self._array(x))
        return self._out.copy()

    def _copy(self, x: np.ndarray) -> None:
        """Copy an array of any strides, or refuse it."""
        check_shape(self._plan, x.shape)
        if x.dtype is not self._dtype and x.dtype != self._dtype and self._out:
            raise SplitTypeError(
                "split", f"x of dtype {x.dtype}", f"the bound arrays have dtype {self._dtype}"
            )
        recipe = recipe_of(self._plan, x.dtype, x.strides)
        self._entry = entry = recipe.compile(x.dtype)
        if entry is not None and entry.into(x, self._out):
            return
        for i, (array, seen) in enumerate(zip(self._out, self._seen, strict=True)):
            if _look(array) != seen:
                rule = "was resized or changed since it was bound; bind it again"
                raise SplitError("split", f"out[{i}]", rule)
        outputs = self._outputs.get(x.strides)
        if outputs is None or outputs.layout is None:
            if len(self._outputs) >= _OUTPUTS_KEPT:
                self._outputs.clear()
            outputs = self._outputs[x.strides] = recipe.to(self._targets)
        recipe.copy(x, self._targets, outputs)

    def _array(self, x: Any) -> np.ndarray:
        """Return the memory of an object that is not of the class ndarray."""
        if is_dask_array(x):
            rule = "call x.compute() first, or write it by dask.array.store"
            raise SplitError("split", "x of type dask.array.Array", rule)
        given = adapt(x)
        if type(given) is not Input or given.array is None:  # a mask or a dtype would be lost
            received = f"x of type {kind_of(x)}"
            raise SplitTypeError("split", received, "the bound arrays are ndarrays")
        return given.array

    def __reduce__(self) -> tuple[Any, tuple[Any, list[Any]]]:
        """Let a copy bind the copied arrays, because a binding holds addresses of its arrays."""
        return bind, (self._plan, self._out)

    def __repr__(self) -> str:
        return f"<binding of {len(self._out)} arrays of dtype {self._dtype} to {self._plan!r}>"


class TensorBinding(Binding[Part]):
    """A split into given tensors of torch, see `Binding`."""

    __slots__ = ("_memory", "_tensor_dtype", "_tensors")

    def __init__(self, plan: Plan, out: tuple[Any, ...]) -> None:
        self._tensor_dtype = out[0].dtype
        self._tensors, _ = out_arrays(out, self._tensor_dtype)
        # Arrays of detached tensors keep the memory alive if a tensor is given other memory.
        _, arrays = out_arrays([part.detach() for part in out], self._tensor_dtype)
        self._memory = [
            (part, part.data_ptr(), part.shape, part.stride()) for part in self._tensors
        ]
        super().__init__(plan, tuple(arrays))

    def __call__(self, x: Any) -> list[Part]:
        """Split a tensor into the tensors of the binding, see `Binding.__call__`."""
        if is_compiling():
            return run_plan(self._plan, x, self._tensors, True)
        for part, address, shape, strides in self._memory:
            if part.data_ptr() != address or part.shape != shape or part.stride() != strides:
                raise SplitError("split", "a bound tensor", "was resized since; bind it again")
        if not is_tensor(x) or x.dtype is not self._tensor_dtype:
            rule = f"the bound tensors have dtype {self._tensor_dtype}"
            raise SplitTypeError("split", f"x of type {kind_of(x)}", rule)
        given = reader()(x)
        if given is None or given.array is None:
            return run_plan(self._plan, x, self._tensors, True)
        entry = self._entry  # as in `Binding.__call__`, without its list
        if entry is None or not entry.into(given.array, self._out):
            self._copy(given.array)
        mark_written(self._tensors)
        return self._tensors.copy()

    def __reduce__(self) -> tuple[Any, tuple[Any, list[Any]]]:
        """Let a copy bind the copied tensors."""
        return bind, (self._plan, self._tensors)


class ForeignBinding(Binding[Part]):
    """A split into tensors that torch writes; each call checks them."""

    __slots__ = ()

    def __init__(self, plan: Plan, out: tuple[Any, ...]) -> None:
        self._plan, self._dtype, self._out = plan, out[0].dtype, list(out)

    def __call__(self, x: Any) -> list[Part]:
        """Split a tensor into the tensors of the binding, see `Binding.__call__`."""
        return run_plan(self._plan, x, self._out, True)


class MaskedBinding(Binding[Part]):
    """A split into given masked arrays; each call checks the masks again."""

    __slots__ = ("_masked",)

    def __init__(self, plan: Plan, out: tuple[Any, ...]) -> None:
        super().__init__(plan, out)
        self._masked = out

    def __call__(self, x: Any) -> list[Part]:
        """Split a masked array into the arrays of the binding, see `Binding.__call__`."""
        return run_plan(self._plan, x, self._masked, True)


def _look(array: np.ndarray) -> tuple[Any, ...]:
    """Return what a binding relies on in an array."""
    return array.shape, array.strides, array.dtype, array.flags.writeable, array.ctypes.data


def _owner(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
