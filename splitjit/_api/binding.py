"""Outputs that are checked once and written to many times; see `SplitPlan.bind`."""

from __future__ import annotations

import weakref
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from splitjit._api.run import run_plan
from splitjit._copy.addresses import address_of
from splitjit._copy.entry import LargeCopy, SmallCopy
from splitjit._copy.outputs import check_apart, check_out, check_source
from splitjit._copy.recipe import CALLS, Outputs, Slices, check_shape, kernels, route_of
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.sources import Source, source_of
from splitjit._inputs.tensors import is_compiling, is_tensor, mark_written, out_arrays, uncompiled
from splitjit._plan.arguments import sequence
from splitjit._plan.plan import Plan
from splitjit._plan.protocols import Part, SupportsSlices
from splitjit.errors import SplitError, SplitTypeError, kind_of

_KNOWN_KEPT = 16
_KNOWN_PARTS = 1 << 15
"""The number of sources whose copies a binding keeps, and of the parts of all these copies."""


def bind(plan: Plan, out: Any) -> Binding[Any]:
    """Bind outputs of any library, see `SplitPlan.bind`."""
    given = sequence(out)  # read once: a second reading may give other arrays
    if given and is_tensor(given[0]):
        return TensorBinding(plan, given)
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

    __slots__ = (
        "_dtype",
        "_known",
        "_last",
        "_out",
        "_owned",
        "_owners",
        "_parts",
        "_plan",
    )  # fmt: skip

    def __init__(self, plan: Plan, out: Any) -> None:
        first = out[0] if type(out) is tuple and out else None
        is_array = issubclass(type(first), np.ndarray)
        dtype = np.asarray(first).dtype if is_array else np.dtype(np.uint8)
        targets = check_out(plan, dtype, out)
        check_apart(targets.parts)
        self._plan, self._dtype = plan, dtype
        self._out: list[Any] = targets.given
        self._parts = targets.parts
        # NumPy resizes only arrays that own their memory and have no weak reference. If an
        # array of `out` owns its memory, each call checks that the array was not resized. If
        # the array is a view, the weak reference prevents a resize of the owner. The other
        # reference keeps the owner's memory alive if `__setstate__` gives the view new memory.
        self._owned = [(p, address_of(p), p.nbytes) for p in self._parts if p.flags.owndata]
        owners = [_owner(p) for p in self._parts if not p.flags.owndata]
        self._owners = [(owner, weakref.ref(owner)) for owner in owners]
        self._known: dict[tuple[int, ...], _Known] = {}
        self._last: SmallCopy | LargeCopy | None = None  # the copy of the last strides

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
        last = self._last
        if last is not None and last.into(x, self._out):
            return self._out.copy()
        if type(x) is not np.ndarray:
            x = self._array(x)
        check_shape(self._plan, x.shape)
        if x.dtype is not self._dtype and x.dtype != self._dtype and self._parts:
            raise SplitTypeError(
                "split", f"x of dtype {x.dtype}", f"the bound arrays have dtype {self._dtype}"
            )
        for part, address, nbytes in self._owned:
            if address_of(part) != address or part.nbytes != nbytes:
                raise SplitError("split", "a bound array", "was resized since; bind it again")
        known = self._known.get(x.strides) or self._learn(x.strides)
        source = address_of(x)
        if known.start < source < known.stop and known.outputs.meet(
            source + known.route.start, source + known.route.stop
        ):
            check_source(x, self._parts)
        known.route.copy(x, source, self._parts, 0, known.outputs.layout)
        self._last = known.copy
        return self._out.copy()

    def _array(self, x: Any) -> np.ndarray:
        """Return the memory of an object that is not of the class ndarray."""
        if is_dask_array(x):
            rule = "call x.compute() first, or write it by dask.array.store"
            raise SplitError("split", "x of type dask.array.Array", rule)
        source = source_of(x)
        if not isinstance(source, Source):  # the mask, or the dtype of a tensor, would be lost
            received = f"x of type {kind_of(x)}"
            raise SplitTypeError("split", received, "the bound arrays are ndarrays")
        return source.array

    def __reduce__(self) -> tuple[Any, tuple[Any, list[Any]]]:
        """Let a copy bind the copied arrays, because a binding holds addresses of its arrays."""
        return bind, (self._plan, self._out)

    def __repr__(self) -> str:
        return f"<binding of {len(self._parts)} arrays of dtype {self._dtype} to {self._plan!r}>"

    def _learn(self, strides: tuple[int, ...]) -> _Known:
        """Prepare the copy from a source with these strides.

        Kernels copy even small arrays here, because most bindings are called many times.
        """
        if self._dtype.hasobject or not self._dtype.itemsize or 0 in self._plan.shape:
            route = route_of(self._plan, self._dtype, strides)
        else:
            route = kernels(self._plan, self._dtype, strides)
            route.calls = CALLS
        outputs = route.outputs_of(check_out(self._plan, self._dtype, self._out))
        copy = route.known_to(outputs, self._dtype)
        start = min(outputs.starts, default=0) - route.stop
        stop = max(outputs.stops, default=0) - route.start
        if len(self._known) >= max(1, min(_KNOWN_KEPT, _KNOWN_PARTS // max(1, len(self._plan)))):
            self._known.clear()
        known = self._known[strides] = _Known(start, stop, route, outputs, copy)
        return known


class TensorBinding(Binding[Part]):
    """A split into given tensors of torch, see `Binding`."""

    __slots__ = ("_memory", "_tensor_dtype", "_tensors")

    def __init__(self, plan: Plan, out: tuple[Any, ...]) -> None:
        self._tensor_dtype = out[0].dtype
        self._tensors, _ = out_arrays(out, self._tensor_dtype)
        # Arrays of detached tensors keep the memory alive if a tensor is given other memory.
        _, arrays = out_arrays([part.detach() for part in out], self._tensor_dtype)
        self._memory = [(part, part.data_ptr(), part.shape) for part in self._tensors]
        super().__init__(plan, tuple(arrays))

    def __call__(self, x: Any) -> list[Part]:
        """Split a tensor into the tensors of the binding, see `Binding.__call__`."""
        if is_compiling():
            return uncompiled(TensorBinding.__call__)(self, x)
        for part, address, shape in self._memory:
            if part.data_ptr() != address or part.shape != shape:
                raise SplitError("split", "a bound tensor", "was resized since; bind it again")
        if not is_tensor(x) or x.dtype is not self._tensor_dtype:
            rule = f"the bound tensors have dtype {self._tensor_dtype}"
            raise SplitTypeError("split", f"x of type {kind_of(x)}", rule)
        super().__call__(source_of(x).array)
        mark_written(self._tensors)
        return self._tensors.copy()

    def __reduce__(self) -> tuple[Any, tuple[Any, list[Any]]]:
        """Let a copy bind the copied tensors."""
        return bind, (self._plan, self._tensors)


class MaskedBinding(Binding[Part]):
    """A split into given masked arrays; each call checks the masks again."""

    __slots__ = ("_masked",)

    def __init__(self, plan: Plan, out: tuple[Any, ...]) -> None:
        super().__init__(plan, out)
        self._masked = out

    def __call__(self, x: Any) -> list[Part]:
        """Split a masked array into the arrays of the binding, see `Binding.__call__`."""
        return run_plan(self._plan, x, self._masked, True)


class _Known(NamedTuple):
    """The copy from a source of known strides to the bound arrays.

    Attributes
    ----------
    start, stop : int
        If the source's address is not between them, the source shares no memory with the arrays.
    route : Slices
    outputs : Outputs
    copy : SmallCopy, LargeCopy or None
        The copy in compiled code.
    """

    start: int
    stop: int
    route: Slices
    outputs: Outputs
    copy: SmallCopy | LargeCopy | None


def _owner(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
