"""The interface to an object to split, and masked arrays as a small case."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from splitjit._inputs.arrays import refuse_meaning
from splitjit._plan.arguments import listed
from splitjit._plan.plan import Plan, check_shape, indices_of
from splitjit._plan.rules import LENGTHS, Rule
from splitjit.errors import OUT, SplitError, SplitTypeError, X, kind_of

Copies = Sequence[tuple[Any, Any]]
"""Pairs to copy: a source, and the arrays for its parts, or None for new ones."""

LibraryTargets = tuple[list[Any], list[Any], list[np.ndarray]]
"""The arrays of `out`, the views of `x` that its library writes to them, and their places.

A place stands for the memory of an array. Two places overlap if their arrays do, and the last place
belongs to `x`. The list is empty if the library does not say where its memory is.
"""


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

    x: Any
    array: np.ndarray | None
    mask: np.ndarray | None = None
    library = "its library"

    def __init__(self, array: np.ndarray) -> None:
        # A view, whose shape nobody else can change; its base still tells that it reads a file.
        is_mapped = issubclass(type(array.base), np.memmap)
        self.x = self.array = array.view(np.memmap).view(np.ndarray) if is_mapped else array.view()

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

    def operator(self, request: Request, out: Any) -> tuple[Plan, list[Any] | None] | None:
        """Return the plan and the targets, if the library copies and kernels are no faster."""
        return None

    def made_by_operator(self, plan: Plan, targets: list[Any] | None) -> list[Any]:
        """Return the parts that the library's own operator makes; see `operator`."""
        raise NotImplementedError

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

    def targets_of_library(self, request: Request, out: Any) -> LibraryTargets | None:
        """Return what the library of `x` writes to `out`; None if it writes to no array."""
        return None

    def joined(self, parts: list[Any], axis: int, out: Any, stacks: bool) -> Any:
        """Return the array that the library of `x` makes of parts; see `splitjit.join`."""
        if out is not None:
            rule = f"{self.library} makes the array, and writes to no other"
            raise SplitTypeError.of(f"{OUT} of type {kind_of(out)}", rule)
        namespace = self.x.__array_namespace__()
        return (namespace.stack if stacks else namespace.concat)(parts, axis=axis)

    def is_traced(self) -> bool:
        """Return whether a compiler is tracing this code, which knows no `try`."""
        return False

    def refused(self, error: Exception) -> bool:
        """Return whether an error means that the library refuses `x`."""
        return True  # a foreign class may raise anything


class Masked(Input):
    """A masked array. Without a mask (`numpy.ma.nomask`), the parts have none."""

    array: np.ndarray

    def __init__(self, x: np.ma.MaskedArray[Any, Any]) -> None:
        self.array, self.mask = memory_of(x, X)
        self.x = x.view(np.ma.MaskedArray)  # drops a subclass, as for other arrays

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
                received = f"{OUT}[{i}] of type {kind_of(part)}"
                rule, hint = f"must be a masked array, as {X} is", f"np.ma.getdata({X}) has no mask"
                raise SplitTypeError.of(received, rule, hint)
            refuse_meaning(part, f"{OUT}[{i}]")
        pairs = [memory_of(part, f"{OUT}[{i}]") for i, part in enumerate(parts)]
        copies: list[tuple[Any, Any]] = [(self.array, [data for data, _ in pairs])]
        if any(mask is not None for _, mask in [(self.array, self.mask), *pairs]):
            masks = [mask_of(*pair) for pair in pairs]
            copies.append((mask_of(self.array, self.mask), masks))
        return parts, copies

    def wrote(self, out: list[Any], written: list[list[np.ndarray]]) -> None:
        """Attach masks to arrays that had none. Hard masks were overwritten like soft ones."""
        if self.mask is not None:
            for part, mask in zip(out, written[1], strict=True):
                if np.ma.getmask(part) is np.ma.nomask:
                    part.mask = mask


def memory_of(x: Any, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return views of a masked array's data and mask, which is None if it has none.

    Refuse a mask of another shape: the data decides where the elements of both lie.
    """
    data, mask = np.ma.getdata(x, subok=False), np.ma.getmask(x)
    if mask is np.ma.nomask:
        return data, None
    mask = np.ndarray.view(mask, np.ndarray)
    if mask.shape != data.shape:
        received = f"{name} of shape {data.shape} with a mask of shape {mask.shape}"
        rule = "a mask must have the shape of its array"
        raise SplitError.of(received, rule, f"np.ma.getdata({name}) has no mask")
    return data, mask


def mask_of(data: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    return np.ma.make_mask_none(data.shape, data.dtype) if mask is None else mask
