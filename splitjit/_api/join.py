"""`join` and `stack`: from parts back to one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex

from splitjit._api.protocols import Part, SupportsSlices
from splitjit._api.split_plan import PLANS
from splitjit._copy.join import join_arrays


def join(
    parts: Sequence[SupportsSlices[Part]] | Part,
    axis: SupportsIndex = 0,
    *,
    out: Part | None = None,
) -> Part:
    """Join arrays along an axis, such as the parts of a split.

    The inverse of `split`: ``join(split(x, lengths, axis), axis)`` equals `x`. Bits are copied,
    never converted.

    Parameters
    ----------
    parts : sequence of array
        At least one array of rank 1 or more, all of one dtype and byte order. Their shapes are
        equal in all axes but `axis`; strides may differ. They are arrays of one kind: ndarrays
        (also memory maps and nested lists), masked arrays, CPU tensors of torch, or arrays of
        another library with the Array API. If one of them is masked, ndarrays count as arrays
        without a mask. One array of NumPy or torch stands for the arrays along its first axis.
    axis : int, default 0
        The axis along which to join, in ``[-rank, rank - 1]``.
    out : array, optional
        The array to write to: of the exact shape of the result and the dtype of the parts,
        writeable, with any strides. It shares no element with a part. It is a tensor if the parts
        are tensors, and a masked array if they are masked arrays.

    Returns
    -------
    array
        A new C-contiguous array that shares no memory with a part, or `out`. It is a tensor, a
        masked array or an array of another library if the parts are; else an ndarray. Another
        library may keep the order of the parts' memory. Dask arrays are joined lazily.

    Raises
    ------
    SplitError
        If there is no part, the shapes do not fit, the axis is out of range, or `out` does not
        fit. In these cases nothing has been written.
    SplitTypeError
        If the dtypes or the kinds of arrays differ, or if `split` would refuse an array.

    See Also
    --------
    stack : Join along a new axis.
    SplitPlan.join : Check the parts against a plan.
    numpy.concatenate : Converts parts of several dtypes.
    torch.cat : The same for tensors.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> x = np.arange(12).reshape(2, 6)
    >>> parts = splitjit.split(x, [2, 4], axis=1)
    >>> bool((splitjit.join(parts, axis=1) == x).all())
    True
    """
    joined: Part = join_arrays("join", parts, axis, out, PLANS)
    return joined


def stack(
    parts: Sequence[SupportsSlices[Part]] | Part,
    axis: SupportsIndex = 0,
    *,
    out: Part | None = None,
) -> Part:
    """Join arrays along a new axis, such as the planes of an image.

    The inverse of `unstack`: ``stack(unstack(x, axis), axis)`` equals `x`. Bits are copied, never
    converted.

    Parameters
    ----------
    parts : sequence of array
        At least one array, all of one dtype and one shape, as for `join`.
    axis : int, default 0
        Where the result has the new axis, in ``[-rank - 1, rank]`` for parts of a rank.
    out : array, optional
        The array to write to, as for `join`.

    Returns
    -------
    array
        A new C-contiguous array with one axis more than the parts, or `out`; see `join`.

    Raises
    ------
    SplitError, SplitTypeError
        In the same cases as `join`. In these cases nothing has been written.

    See Also
    --------
    join : Join along an axis that the parts have.
    unstack : The inverse.
    numpy.stack : Converts parts of several dtypes.
    torch.stack : The same for tensors.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> frame = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    >>> planes = splitjit.unstack(frame, axis=-1)
    >>> bool((splitjit.stack(planes, axis=-1) == frame).all())
    True
    """
    joined: Part = join_arrays("stack", parts, axis, out, PLANS, stacks=True)
    return joined
