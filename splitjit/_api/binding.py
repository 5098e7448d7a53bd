"""Outputs that are checked once and written many times; see `SplitPlan.bind`."""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import Any, Generic

import numpy as np
from numpy.typing import ArrayLike

from splitjit._api.run import run_plan
from splitjit._copy.kernel_copy import KernelCopy
from splitjit._copy.outputs import Targets, check_apart, check_out
from splitjit._copy.recipe import check_shape, recipe_of
from splitjit._inputs.torch.tensors import (
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


def bind(plan: Plan, out: Any) -> Binding[Any]:
    """Bind outputs of any library, see `SplitPlan.bind`."""
    given = sequence(out)  # read once: a second reading may give other arrays
    is_plain = given and is_tensor(given[0]) and tensor_input(given[0]).array is not None
    kind = TensorBinding if is_plain else Binding
    return kind(plan, out if given is None else given)


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

    __slots__ = ("_dtype", "_kernel_copy", "_out", "_owners", "_plan", "_seen", "_targets")

    def __init__(self, plan: Plan, out: Any) -> None:
        self._plan = plan
        self._kernel_copy: KernelCopy | None = None  # of the last source
        self._targets: Targets | None = None  # None if each call checks the outputs
        self._out: list[Any] = list(out) if type(out) is tuple else []
        first: Any = self._out[0] if self._out else None
        if is_tensor(first):  # torch writes to it
            self._dtype = first.dtype
            return
        is_array = issubclass(type(first), np.ndarray)
        self._dtype = np.asarray(first).dtype if is_array else np.dtype(np.uint8)
        targets = check_out(plan, self._dtype, out)
        check_apart(targets.parts)
        if issubclass(type(first), np.ma.MaskedArray):
            return
        self._targets = targets
        self._seen = [_look(array) for array in self._out]
        # NumPy resizes only arrays that own their memory and have no weak reference. If an
        # array of `out` is a view, the weak reference prevents a resize of the owner. The other
        # reference keeps the owner's memory alive if `__setstate__` gives the view new memory.
        owners = [_owner(array) for array in targets.parts if not array.flags.owndata]
        self._owners = [(owner, weakref.ref(owner)) for owner in owners]

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
        compiled = self._kernel_copy
        if compiled is None or not compiled.into(x, self._out):
            if self._targets is None or type(x) is not np.ndarray:
                return run_plan(self._plan, x, self._out, True)
            self._copy(x, self._targets)
        return self._out.copy()

    def _copy(self, x: np.ndarray, targets: Targets) -> None:
        """Copy an array of any strides, or refuse it."""
        check_shape(self._plan, x.shape)
        if x.dtype is not self._dtype and x.dtype != self._dtype and self._out:
            raise SplitTypeError(
                "split", f"x of dtype {x.dtype}", f"the bound arrays have dtype {self._dtype}"
            )
        began = perf_counter()
        recipe = recipe_of(self._plan, x.dtype, x.strides)
        self._kernel_copy = compiled = recipe.choose(self._plan, x)
        if compiled is not None and compiled.into(x, self._out):
            return
        for i, (array, seen) in enumerate(zip(self._out, self._seen, strict=True)):
            if _look(array) != seen:
                rule = "was resized or changed since it was bound; bind it again"
                raise SplitError("split", f"out[{i}]", rule)
        recipe.decide_into(self._plan, x, targets).carry_out(self._plan, x)
        if compiled is None:
            recipe.count(perf_counter() - began)

    def __reduce__(self) -> tuple[Any, tuple[Any, list[Any]]]:
        """Bind the copied arrays anew, because a binding holds the addresses of its own."""
        return bind, (self._plan, self._out)

    def __repr__(self) -> str:
        return f"<binding of {len(self._out)} arrays of dtype {self._dtype} to {self._plan!r}>"


class TensorBinding(Binding[Part]):
    """A split into given torch tensors, see `Binding`."""

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
        super().__call__(given.array)
        mark_written(self._tensors)
        return self._tensors.copy()

    def __reduce__(self) -> tuple[Any, tuple[Any, list[Any]]]:
        """Bind the copied tensors anew."""
        return bind, (self._plan, self._tensors)


def _look(array: np.ndarray) -> tuple[Any, ...]:
    """Return what a binding assumes of an array."""
    return array.shape, array.strides, array.dtype, array.flags.writeable, array.ctypes.data


def _owner(array: np.ndarray) -> np.ndarray:
    """Return the array that owns an array's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
