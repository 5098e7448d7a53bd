"""Masked arrays: the data and the mask are split alike.

An array without a mask (`numpy.ma.nomask`) gives parts without masks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splitjit._core import routes
from splitjit._core.arguments import sequence
from splitjit._core.arrays import check_apart, check_out, check_source
from splitjit._core.dtypes import tensor_type
from splitjit._core.plan import SplitPlan
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
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        return tensor_type(self.array.dtype)

    def split(self, plan: SplitPlan, out: Any, copy: Any) -> list[Any]:
        """Split the data and the mask, see `splitjit.split`."""
        if copy is not True:
            routes.check_views(out, copy)
            return [self.x[index] for index in plan.slices]
        if out is not None:
            return self._into(plan, out)
        parts = routes.run(plan, self.array, None, True)
        mask: Any = np.ma.getmask(self.x)
        masks: list[Any] = [mask] * len(parts)
        if mask is not np.ma.nomask:
            masks = routes.run(plan, mask, None, True)
        return [
            np.ma.MaskedArray(
                part, mask=part_mask, fill_value=self.x.fill_value, hard_mask=self.x.hardmask
            )
            for part, part_mask in zip(parts, masks, strict=True)
        ]

    def _into(self, plan: SplitPlan, out: Any) -> list[Any]:
        """Write the data and the masks. A hard mask of `out` is overwritten like a soft one."""
        parts = _masked_arrays(out)
        mask: Any = np.ma.getmask(self.x)
        data = check_out(plan, self.dtype, [np.ma.getdata(part, subok=False) for part in parts])
        mask_dtype = np.ma.make_mask_descr(self.dtype)
        masks = check_out(plan, mask_dtype, [np.ma.getmaskarray(part) for part in parts])
        written = [*data.parts, *masks.parts]
        check_apart(written)
        check_source(self.array, written)
        if mask is not np.ma.nomask:
            check_source(mask, written)
        routes.run(plan, self.array, data.parts, True)
        if mask is np.ma.nomask:
            for part in parts:
                if np.ma.getmask(part) is not np.ma.nomask:
                    np.ma.getmask(part)[...] = False
            return parts
        for part in parts:
            if np.ma.getmask(part) is np.ma.nomask:
                part.mask = False  # allocates a mask
        routes.run(plan, mask, [np.ma.getmask(part) for part in parts], True)
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
    return list(parts)
