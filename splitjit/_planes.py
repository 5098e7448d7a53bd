"""`unstack`: parts of length 1 without their axis, such as the planes of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, overload

import numpy as np

from splitjit._api.protocols import Part, Source, SupportsSlices
from splitjit._api.split import Splittable, split
from splitjit._inputs.adapt import items_of
from splitjit._inputs.arrays import as_array
from splitjit._inputs.input import memory_of
from splitjit._inputs.torch.tensors import is_tensor, refuse_layout
from splitjit._plan.arguments import normalize_axis
from splitjit.errors import OUT, SplitError, X


@overload
def unstack(x: Source[Part], axis: SupportsIndex = 0, *, out: None = None) -> list[Part]: ...
@overload
def unstack(
    x: Splittable,
    axis: SupportsIndex = 0,
    *,
    out: Sequence[SupportsSlices[Part]] | SupportsSlices[Part],
) -> list[Part]: ...
def unstack(x: Any, axis: SupportsIndex = 0, *, out: Any = None) -> list[Any]:
    """Split an array into contiguous arrays of one dimension less.

    The parts are those of ``split(x, 1, axis)``, without the axis.

    Parameters
    ----------
    x : array_like
        The array to split, see `split`.
    axis : int, default 0
        The axis that the parts do not have.
    out : sequence of array, or array, optional
        The arrays to write the parts to, one per part, by the rules of `split`. They have the
        shape of `x` without the axis. One array, an ndarray or a tensor, has the parts along
        its first axis.

    Returns
    -------
    list of array
        New C-contiguous arrays that share no memory with `x`, of the types that `split`
        returns; parts of a 1-D array have rank 0. With `out`, the arrays of `out`, or views of
        the one array.

    Raises
    ------
    SplitError, SplitTypeError
        If `x` has no such axis, if `split` refuses it, or if `out` does not fit. In these cases
        nothing has been written.

    See Also
    --------
    split : Split by other rules; parts keep the axis.
    numpy.unstack : Returns views of the array.
    torch.unbind : Returns views of a tensor.

    Examples
    --------
    The planes of an image:

    >>> import numpy as np
    >>> import splitjit
    >>> frame = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    >>> red, green, blue = splitjit.unstack(frame, axis=-1)
    >>> blue.tolist(), blue.flags.c_contiguous
    ([[2, 5, 8, 11], [14, 17, 20, 23]], True)
    >>> chw = np.empty((3, 2, 4), np.uint8)
    >>> parts = splitjit.unstack(frame, axis=-1, out=chw)
    >>> chw[0].tolist()
    [[0, 3, 6, 9], [12, 15, 18, 21]]
    """
    return split_planes("unstack", x, axis, out)


def split_planes(
    operator: str, x: Any, axis: SupportsIndex, out: Any, /, **names: str
) -> list[Any]:
    """Split as `unstack` does, in the words of another operator; see `SplitError.named`.

    With `out`, `splitjit.split` checks and fills views of the arrays that have the axis.
    """
    try:
        if out is None:
            return without_axis(split(x, 1, axis=axis), axis)
        refuse_layout(x, X)
        x = x if hasattr(x, "shape") else as_array(x)
        shape = tuple(x.shape)
        index, given = normalize_axis(axis, shape), items_of(out, OUT)
        plane = (*shape[:index], *shape[index + 1 :])
        part = (*shape[:index], 1, *shape[index + 1 :])
        planes = [_with_axis(array, i, plane, part) for i, array in enumerate(given)]
        split(x, 1, axis=axis, out=planes)
        for array, written in zip(given, planes, strict=True):
            if isinstance(array, np.ma.MaskedArray):
                _take_mask(array, np.ma.getmask(written))  # `split` gave it to the view
        if isinstance(out, np.ma.MaskedArray) and given:
            masks = list(map(np.ma.getmask, given))
            _take_mask(out, masks[0] if masks[0] is np.ma.nomask else np.stack(masks))
    except SplitError as error:
        raise error.named(operator, keeps_hint=True, **names) from None
    return given


def _take_mask(array: np.ma.MaskedArray[Any, Any], mask: Any) -> None:
    if mask is not np.ma.nomask and np.ma.getmask(array) is np.ma.nomask:
        array.mask = mask.reshape(array.shape)


def without_axis(parts: list[Any], axis: SupportsIndex) -> list[Any]:
    """Return views of parts of length 1 that lack the axis."""
    index = (slice(None),) * normalize_axis(axis, parts[0].shape) if parts else ()
    return [part[(*index, 0, ...)] for part in parts]


def _with_axis(array: Any, i: int, plane: tuple[int, ...], part: tuple[int, ...]) -> Any:
    """Return a view of an output that has the axis."""
    if isinstance(array, np.ma.MaskedArray):
        memory_of(array, f"{OUT}[{i}]")  # may refuse the mask
    try:
        shape = getattr(array, "shape", plane)
        if shape == plane:
            is_known = isinstance(array, np.ndarray) or is_tensor(array)
            return array.reshape(part) if is_known else array  # others may copy
    except RuntimeError:  # of torch
        refuse_layout(array, f"{OUT}[{i}]")
        raise
    raise SplitError.of(f"{OUT}[{i}] of shape {tuple(shape)}", f"part {i} has shape {plane}")
