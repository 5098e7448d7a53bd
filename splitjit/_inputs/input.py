"""What the rest of the package knows of an object to split, and masked arrays as a small case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np

from splitjit._inputs.arrays import refuse_meaning
from splitjit._plan.arguments import sequence
from splitjit._plan.dtypes import tensor_type
from splitjit._plan.plan import Plan
from splitjit._plan.rules import Rule
from splitjit.errors import SplitTypeError, kind_of

PlanOf = Callable[[tuple[Any, ...]], Plan]
"""Returns the plan for arrays of a shape, or refuses the shape."""


class Input:
    """An object to split. This class is for ndarrays; other libraries override what differs.

    Attributes
    ----------
    x : object
        The object, or the array that NumPy made of it.
    array : ndarray or None
        The memory of `x`, which kernels read. None if its library makes the parts.
    mask : ndarray or None
        An array that is split like the memory, see `Masked`.
    """

    __slots__ = ("array", "mask", "x")

    def __init__(self, x: Any, array: np.ndarray | None = None) -> None:
        self.x, self.array, self.mask = x, x if array is None else array, None

    @property
    def dtype(self) -> Any:
        """The dtype, as the library of `x` has it."""
        return self.x.dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape: plain integers, or the symbols of a tracer with dynamic shapes."""
        return tuple(self.x.shape)

    @property
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        return tensor_type(self.x.dtype)

    def views(self, plan_of: PlanOf, axis: SupportsIndex, rule: Rule | None) -> list[Any]:
        """Return the parts as views that the library of `x` makes.

        Parameters
        ----------
        plan_of : callable
        axis : int
        rule : Rule or None
            None if `plan_of` has one plan, and only checks the shape.
        """
        return [self.x[index] for index in plan_of(self.shape)._each_slice()]

    def copies(self, plan_of: PlanOf, axis: SupportsIndex, rule: Rule | None) -> list[Any]:
        """Return the parts as copies that the library of `x` makes, if `array` is None."""
        raise NotImplementedError

    def wrap(self, parts: list[np.ndarray], masks: list[np.ndarray] | None) -> list[Any]:
        """Return parts that kernels made as arrays of the library of `x`."""
        return parts

    def targets(self, out: Any) -> tuple[list[Any], list[np.ndarray]]:
        """Return the arrays of `out`, and their memory; refuse what is not like `x`."""
        raise NotImplementedError

    def masks(self, out: list[Any]) -> tuple[np.ndarray, list[np.ndarray]] | None:
        """Return the mask of `x` and those of `out`, or None if no mask is written."""
        return None

    def wrote(self, out: list[Any], masks: list[np.ndarray]) -> None:
        """Let the library know that kernels have written to the arrays of `out`."""

    def refused(self, error: Exception) -> bool:
        """Return whether an error says that the library of `x` refuses it."""
        return False


class Masked(Input):
    """A masked array. Without a mask (`numpy.ma.nomask`), the parts have none."""

    __slots__ = ()

    def __init__(self, x: np.ma.MaskedArray[Any, Any]) -> None:
        # As base class, like the parts of other arrays.
        super().__init__(x.view(np.ma.MaskedArray), np.ma.getdata(x, subok=False))
        mask: Any = np.ma.getmask(x)
        self.mask = None if mask is np.ma.nomask else mask

    def wrap(self, parts: list[np.ndarray], masks: list[np.ndarray] | None) -> list[Any]:
        """Return masked arrays."""
        x, nomask = self.x, [np.ma.nomask] * len(parts)
        masked_array: Any = np.ma.MaskedArray  # NumPy's types know no mask without items
        return [
            masked_array(part, mask=mask, fill_value=x.fill_value, hard_mask=x.hardmask)
            for part, mask in zip(parts, masks or nomask, strict=True)
        ]

    def targets(self, out: Any) -> tuple[list[Any], list[np.ndarray]]:
        """Return masked arrays, and their data; refuse all other arrays."""
        parts = sequence(out)
        rule = "must be a masked array, as x is"
        if parts is None:
            raise SplitTypeError("split", f"out of type {kind_of(out)}", f"each item {rule}")
        for i, part in enumerate(parts):
            if not issubclass(type(part), np.ma.MaskedArray):
                hint = "numpy.ma.getdata(x) has no mask"
                received = f"out[{i}] of type {kind_of(part)}"
                raise SplitTypeError("split", received, rule, hint=hint)
            refuse_meaning(part, f"out[{i}]")
        return list(parts), [np.ma.getdata(part, subok=False) for part in parts]

    def masks(self, out: list[Any]) -> tuple[np.ndarray, list[np.ndarray]] | None:
        """Return masks to write to: new ones for arrays without a mask."""
        if self.mask is None and all(np.ma.getmask(part) is np.ma.nomask for part in out):
            return None
        return np.ma.getmaskarray(self.x), [np.ma.getmaskarray(part) for part in out]

    def wrote(self, out: list[Any], masks: list[np.ndarray]) -> None:
        """Give their masks to arrays that had none. A hard mask was overwritten like a soft one."""
        if self.mask is not None:
            for part, mask in zip(out, masks, strict=True):
                if np.ma.getmask(part) is np.ma.nomask:
                    part.mask = mask
