"""Outputs that are checked once and written to many times; see `SplitPlan.bind`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from splitjit._core.arguments import sequence
from splitjit._core.arrays import (
    address_of,
    as_array,
    check_apart,
    check_out,
    check_source,
    is_dask_array,
)
from splitjit._core.plan import Scalar, SplitPlan
from splitjit._core.routes import Outputs, Slices, kernels, route_of
from splitjit._core.small import SmallCopy
from splitjit.errors import SplitError, SplitTypeError

_KNOWN_KEPT = 16
_KNOWN_PARTS = 1 << 15
"""The number of sources whose copies a binding keeps, and of the parts of all these copies."""


class Binding(Generic[Scalar]):
    """A split into given arrays: ``into(x)`` writes the parts of `x` to them.

    :meth:`SplitPlan.bind` makes bindings. A binding holds its arrays, so that
    their memory lives as long as the binding.

    Parameters
    ----------
    plan : SplitPlan
        The plan of the split.
    out : sequence of ndarray
        The arrays to write the parts to.

    Raises
    ------
    SplitError, SplitTypeError
        If `out` does not fit the plan, see :func:`splitjit.split`.
    """

    __slots__ = (
        "_dtype", "_known", "_out", "_owned", "_owners", "_parts", "_plan", "_shape",
        "_small",
    )  # fmt: skip

    def __init__(self, plan: SplitPlan, out: Sequence[NDArray[Scalar]]) -> None:
        given = sequence(out)  # read once: a second reading may give other arrays
        first = given[0] if given else None
        is_array = issubclass(type(first), np.ndarray)
        dtype = np.asarray(first).dtype if is_array else np.dtype(np.uint8)
        targets = check_out(plan, dtype, out if given is None else given)
        check_apart(targets.parts)
        self._plan, self._shape, self._dtype = plan, plan.shape, dtype
        self._out, self._parts = targets.given, targets.parts
        # NumPy resizes only arrays that own their memory and have no weak reference. If an
        # array of `out` owns its memory, each call checks that the array was not resized. If
        # the array is a view, the weak reference prevents a resize of the owner. The other
        # reference keeps the owner's memory alive if `__setstate__` gives the view new memory.
        self._owned = [(p, address_of(p), p.nbytes) for p in self._parts if p.flags.owndata]
        owners = [_owner(p) for p in self._parts if not p.flags.owndata]
        self._owners = [(owner, weakref.ref(owner)) for owner in owners]
        self._known: dict[tuple[int, ...], _Known] = {}
        self._small: SmallCopy | None = None  # of the last strides

    def __call__(self, x: ArrayLike) -> list[NDArray[Scalar]]:
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
        small = self._small
        if small is not None and small.into(id(x), id(self._out), small.record):
            return self._out.copy()
        if type(x) is not np.ndarray:
            if is_dask_array(x):
                rule = "call x.compute() first, or write it by dask.array.store"
                raise SplitError("split", "x of type dask.array.Array", rule)
            x = as_array(x)
        if x.shape != self._shape:
            raise SplitError(
                "split", f"x of shape {x.shape}", f"the plan is for shape {self._shape}"
            )
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
        self._small = known.route.small
        return self._out.copy()

    def __reduce__(self) -> tuple[Any, tuple[list[NDArray[Scalar]]]]:
        """Let a copy bind the copied arrays, because a binding holds addresses of its arrays."""
        return self._plan.bind, (self._out,)

    def __repr__(self) -> str:
        return f"<binding of {len(self._parts)} arrays of dtype {self._dtype} to {self._plan!r}>"

    def _learn(self, strides: tuple[int, ...]) -> _Known:
        """Prepare the copy from a source with these strides.

        Kernels copy even small arrays here, because most bindings are called many times.
        """
        if self._dtype.hasobject or not self._dtype.itemsize or 0 in self._shape:
            route = route_of(self._plan, self._dtype, strides)
        else:
            route = kernels(self._plan, self._dtype, strides)
            route.learn_small(self._dtype)
        outputs = route.outputs_of(check_out(self._plan, self._dtype, self._out))
        start = min(outputs.starts, default=0) - route.stop
        stop = max(outputs.stops, default=0) - route.start
        if len(self._known) >= max(1, min(_KNOWN_KEPT, _KNOWN_PARTS // max(1, len(self._plan)))):
            self._known.clear()
        known = self._known[strides] = _Known(start, stop, route, outputs)
        return known


class _Known(NamedTuple):
    """The copy from a source of known strides to the bound arrays.

    Attributes
    ----------
    start, stop : int
        If the source's address is not between them, the source shares no memory with the arrays.
    route : Slices
    outputs : Outputs
    """

    start: int
    stop: int
    route: Slices
    outputs: Outputs


def _owner(array: np.ndarray) -> np.ndarray:
    """Return the array that owns the memory of an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
