"""Masked arrays: the data and the mask are split alike.

An array without a mask (`numpy.ma.nomask`) gives parts without masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splitjit._inputs.arrays import Copies, refuse_meaning
from splitjit._plan.arguments import check_views, sequence
from splitjit._plan.dtypes import tensor_type
from splitjit._plan.plan import Plan
from splitjit.errors import SplitTypeError, kind_of


class MaskedSource:
    """A masked array to split; the parts are masked arrays.

    Attributes
    ----------
    array : ndarray
        The data, as a base-class array.
    """

    __slots__ = ("array", "x")

    def __init__(self, x: np.ma.MaskedArray[Any, Any]) -> None:
        self.x = x.view(np.ma.MaskedArray)  # as base class, like the parts of other arrays
        self.array: np.ndarray = np.ma.getdata(x, subok=False)

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the data."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `x`."""
        return self.array.shape

    @property
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        return tensor_type(self.array.dtype)

    def split(self, plan: Plan, out: Any, copy: Any, copies: Copies) -> list[Any]:
        """Split the data and the mask, see `splitjit.split`."""
        if copy is not True:
            check_views(out, copy)
            return [self.x[index] for index in plan.slices]
        if out is not None:
            return self._into(plan, out, copies)
        parts = copies.run(plan, self.array, None, True)
        mask: Any = np.ma.getmask(self.x)
        masks: list[Any] = [mask] * len(parts)
        if mask is not np.ma.nomask:
            masks = copies.run(plan, mask, None, True)
        return [
            np.ma.MaskedArray(
                part, mask=part_mask, fill_value=self.x.fill_value, hard_mask=self.x.hardmask
            )
            for part, part_mask in zip(parts, masks, strict=True)
        ]

    def _into(self, plan: Plan, out: Any, copies: Copies) -> list[Any]:
        """Write the data and the masks. A hard mask of `out` is overwritten like a soft one."""
        parts = _masked_arrays(out)
        pairs = [(self.array, [np.ma.getdata(part, subok=False) for part in parts])]
        is_masked = np.ma.getmask(self.x) is not np.ma.nomask
        masks = [np.ma.getmaskarray(part) for part in parts]  # new arrays for parts without masks
        if is_masked or any(np.ma.getmask(part) is not np.ma.nomask for part in parts):
            pairs.append((np.ma.getmaskarray(self.x), masks))
        copies.run_all(plan, pairs)
        if is_masked:
            for part, mask in zip(parts, masks, strict=True):
                if np.ma.getmask(part) is np.ma.nomask:
                    part.mask = mask
        return parts


def _masked_arrays(out: Any) -> list[Any]:
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
    return list(parts)
