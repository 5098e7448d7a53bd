"""The interface to an object to split, and masked arrays as a small case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from splitjit._inputs.arrays import refuse_meaning
from splitjit._plan.arguments import listed
from splitjit._plan.plan import Plan, check_shape, indices_of
from splitjit._plan.rules import LENGTHS, Rule
from splitjit.errors import SplitTypeError, kind_of

Copies = list[tuple[Any, Any]]
"""Pairs to copy: a source, and the arrays for its parts."""


class Request(NamedTuple):
    """What a call asks for: a split by a rule, or by a plan.

    Attributes
    ----------
    axis : int
    rule : Rule
    plan_of : callable
        Returns the plan for a shape, or refuses the shape.
    plan : Plan or None
        The plan, if a plan was called.
    """

    axis: SupportsIndex
    rule: Rule
    plan_of: Callable[[tuple[Any, ...]], Plan]
    plan: Plan | None = None


def by_plan(plan: Plan) -> Request:
    """Return the request of a call to a plan, which refuses any other shape."""

    def plan_of(shape: tuple[int, ...]) -> Plan:
        check_shape(plan, shape)
        return plan

    return Request(plan.axis, (LENGTHS, plan.sizes), plan_of, plan)


class Input:
    """An object to split. This class handles ndarrays; subclasses override what differs.

    Attributes
    ----------
    x : object
        The object, or the array NumPy made from it.
    array : ndarray or None
        The memory of `x`, which kernels read. None if its library makes the parts.
    mask : ndarray or None
        An array split alongside the memory, see `Masked`.
    library : str
        What refusals call the library of `x`.
    """

    __slots__ = ("array", "x")

    x: Any
    array: np.ndarray | None
    mask: np.ndarray | None = None
    library = "its library"

    def __init__(self, array: np.ndarray) -> None:
        self.x = self.array = array

    @property
    def dtype(self) -> Any:
        """The dtype object of the library of `x`."""
        return self.x.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape: plain integers, or symbols if a tracer has dynamic shapes."""
        return tuple(self.x.shape)

    def views(self, plan: Plan) -> list[Any]:
        """Return the parts as views made by the library of `x`."""
        return [self.x[index] for index in indices_of(plan.axis, plan.sizes)]

    def wrap(self, parts: list[np.ndarray], masks: list[np.ndarray] | None = None) -> list[Any]:
        """Convert parts from kernels to arrays of the library of `x`."""
        return parts

    def targets(self, out: Any) -> tuple[list[Any], Copies]:
        """Return the arrays of `out`, and what to copy; refuse arrays unlike `x`."""
        given = listed(out)
        return given, [(self.array, given)]

    def wrote(self, out: list[Any], written: list[list[np.ndarray]]) -> None:
        """Tell the library that kernels have written to the arrays of `out`, and their masks."""

    def made_by_library(self, request: Request, copy: bool) -> list[Any]:
        """Return the parts as copies or views made by the library of `x`."""
        raise NotImplementedError

    def targets_of_library(
        self, request: Request, out: Any
    ) -> tuple[list[Any], list[Any], list[np.ndarray]] | None:
        """Return the arrays of `out`, and the views of `x` that its library writes to them.

        The third item has arrays that overlap as those of `out` and `x` do, `x` last; or it is
        empty, if nobody knows where they lie. None if the library writes to no array.
        """
        return None

    def is_traced(self) -> bool:
        """Return whether a compiler is tracing this code, which knows no `try`."""
        return False

    def refused(self, error: Exception) -> bool:
        """Return whether an error means that the library refuses `x`."""
        return True  # a foreign class may raise anything


class Masked(Input):
    """A masked array. Without a mask (`numpy.ma.nomask`), the parts have none."""

    __slots__ = ("mask",)

    def __init__(self, x: np.ma.MaskedArray[Any, Any]) -> None:
        self.x = x.view(np.ma.MaskedArray)  # drops a subclass, as for other arrays
        self.array = np.ma.getdata(x, subok=False)
        mask: Any = np.ma.getmask(x)
        self.mask = None if mask is np.ma.nomask else mask

    def wrap(self, parts: list[np.ndarray], masks: list[np.ndarray] | None = None) -> list[Any]:
        """Return masked arrays."""
        x, nomask = self.x, [np.ma.nomask] * len(parts)
        masked_array: Any = np.ma.MaskedArray  # NumPy's stubs are too narrow for `mask`
        return [
            masked_array(part, mask=mask, fill_value=x.fill_value, hard_mask=x.hardmask)
            for part, mask in zip(parts, masks or nomask, strict=True)
        ]

    def targets(self, out: Any) -> tuple[list[Any], Copies]:
        """Return masked arrays, their data, and their masks, which are new if missing."""
        parts = listed(out)
        for i, part in enumerate(parts):
            if not issubclass(type(part), np.ma.MaskedArray):
                received = [(f"out[{i}]", f" of type {kind_of(part)}")]
                rule, hint = "must be a masked array, as x is", "numpy.ma.getdata(x) has no mask"
                raise SplitTypeError.of(received, rule, hint)
            refuse_meaning(part, f"out[{i}]")
        copies: Copies = [(self.array, [np.ma.getdata(part, subok=False) for part in parts])]
        if any(np.ma.getmask(x) is not np.ma.nomask for x in (self.x, *parts)):
            masks = [np.ma.getmaskarray(part) for part in parts]
            copies.append((np.ma.getmaskarray(self.x), masks))
        return parts, copies

    def wrote(self, out: list[Any], written: list[list[np.ndarray]]) -> None:
        """Attach masks to arrays that had none. Hard masks were overwritten like soft ones."""
        if self.mask is not None:
            for part, mask in zip(out, written[1], strict=True):
                if np.ma.getmask(part) is np.ma.nomask:
                    part.mask = mask
