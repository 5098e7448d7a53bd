"""Splits into given arrays that lack the axis: what `unstack` and `unbind` do with ``out=``."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from splitjit._api.split import split
from splitjit._inputs.arrays import as_array
from splitjit._inputs.input import memory_of
from splitjit._plan.arguments import listed, normalize_axis
from splitjit.errors import SplitError


def split_planes(operator: str, x: Any, axis: SupportsIndex, out: Any) -> tuple[Any, ...]:
    """Write the parts of length 1 along an axis to arrays without this axis.

    `splitjit.split` checks and fills views of the arrays that have the axis.

    Parameters
    ----------
    operator : str
        The name of the function in refusals.
    x : array_like
        The array to split.
    axis : int
        The axis that the arrays of `out` do not have.
    out : sequence of array
        One array for each index along the axis.
    """
    try:
        x = x if hasattr(x, "shape") else as_array(x)
        shape = tuple(x.shape)
        index, given = normalize_axis(axis, shape), listed(out)
        plane = (*shape[:index], *shape[index + 1 :])
        part = (*shape[:index], 1, *shape[index + 1 :])
        planes = [_with_axis(array, i, plane, part) for i, array in enumerate(given)]
        split(x, 1, axis=axis, out=planes)
        for array, written in zip(given, planes, strict=True):
            mask = np.ma.getmask(written)
            if mask is not np.ma.nomask and np.ma.getmask(array) is np.ma.nomask:
                array.mask = mask.reshape(array.shape)  # `split` gave it to the view
    except SplitError as error:
        raise error.named(operator, keeps_hint=True) from None
    return tuple(given)


def _with_axis(array: Any, i: int, plane: tuple[int, ...], part: tuple[int, ...]) -> Any:
    """Return a view of an output that has the axis."""
    if isinstance(array, np.ma.MaskedArray):
        memory_of(array, f"out[{i}]")  # may refuse the mask
    shape = getattr(array, "shape", plane)
    if shape != plane:
        received = [(f"out[{i}]", f" of shape {tuple(shape)}")]
        raise SplitError.of(received, f"part {i} has shape {plane}")
    return array.reshape(part) if hasattr(array, "reshape") else array
