"""`split` and `split_into`: from arguments to a plan, and on to a route."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from splitjit._core import routes
from splitjit._core.arrays import as_array
from splitjit._core.plan import Lengths, Scalar, SplitPlan, cached_plan
from splitjit.errors import SplitError, SplitTypeError


# A signature for each rule, by arrays of a known dtype and by others; and one with `out`.
@overload
def split(
    x: NDArray[Scalar],
    split: Lengths,
    *,
    axis: SupportsIndex = 0,
    out: None = None,
    copy: bool = True,
) -> list[NDArray[Scalar]]: ...
@overload
def split(
    x: NDArray[Scalar],
    *,
    axis: SupportsIndex = 0,
    num_outputs: SupportsIndex,
    out: None = None,
    copy: bool = True,
) -> list[NDArray[Scalar]]: ...
@overload
def split(
    x: NDArray[Scalar],
    *,
    axis: SupportsIndex = 0,
    num_splits: SupportsIndex,
    out: None = None,
    copy: bool = True,
) -> list[NDArray[Scalar]]: ...
@overload
def split(
    x: ArrayLike, split: Lengths, *, axis: SupportsIndex = 0, out: None = None, copy: bool = True
) -> list[NDArray[Any]]: ...
@overload
def split(
    x: ArrayLike,
    *,
    axis: SupportsIndex = 0,
    num_outputs: SupportsIndex,
    out: None = None,
    copy: bool = True,
) -> list[NDArray[Any]]: ...
@overload
def split(
    x: ArrayLike,
    *,
    axis: SupportsIndex = 0,
    num_splits: SupportsIndex,
    out: None = None,
    copy: bool = True,
) -> list[NDArray[Any]]: ...
@overload
def split(
    x: ArrayLike,
    split: Lengths | None = None,
    *,
    axis: SupportsIndex = 0,
    num_outputs: SupportsIndex | None = None,
    num_splits: SupportsIndex | None = None,
    out: Sequence[NDArray[Scalar]],
    copy: Literal[True] = True,
) -> list[NDArray[Scalar]]: ...
def split(
    x: ArrayLike,
    split: Lengths | None = None,
    *,
    axis: SupportsIndex = 0,
    num_outputs: SupportsIndex | None = None,
    num_splits: SupportsIndex | None = None,
    out: Sequence[np.ndarray] | None = None,
    copy: bool = True,
) -> list[np.ndarray]:
    """Split an array into contiguous parts along an axis.

    Exactly one of ``split``, ``num_outputs`` and ``num_splits`` says how.

    Parameters
    ----------
    x : array_like
        The array to split, of rank 1 or more: an array of any dtype, strides
        and byte order, a memmap, a CPU tensor of another library, or nested
        lists of numbers. A Dask array is split lazily.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        A sequence gives the length of each part: each >= 0, with the axis
        length as their sum (ONNX Split, OpenVINO VariadicSplit,
        ``torch.split``). An integer k >= 1 gives parts of length k, the last
        one smaller (ONNX SplitToSequence, ``torch.split``).
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    num_outputs : int, optional
        n >= 1 parts of ceil(length / n), those at the end clamped to what is
        left: 5 into 4 is 2, 2, 1, 0 (ONNX Split-18).
    num_splits : int, optional
        n >= 1 equal parts; the axis length must be a multiple of n (OpenVINO
        Split-1).
    out : sequence of ndarray, optional
        Where to write the parts: as many arrays as parts, of their exact
        shapes and the dtype of `x`, writeable, with any strides, that share no
        element with `x` or each other.
    copy : bool, default True
        False returns views of `x`; no data is moved.

    Returns
    -------
    list of ndarray
        With ``copy=True`` new C-contiguous arrays that share no memory with
        `x`; they may share one allocation with each other, which is freed
        once all of them are gone. With `out` the arrays given. With
        ``copy=False`` views of `x`. Bits are moved, never converted. The parts
        of a Dask array are Dask arrays, see `splitjit.dask.split`.

    Raises
    ------
    SplitError
        If a value is out of range, the lengths do not sum to the axis length,
        not exactly one rule is given, or `out` does not fit. Nothing has been
        written then.
    SplitTypeError
        If a value is of the wrong kind.

    See Also
    --------
    plan_split : Where the parts start and how long they are, without data.
    numpy.split : Takes the indices where to cut, and returns views.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> x = np.arange(12).reshape(2, 6)
    >>> first, second = splitjit.split(x, [2, 4], axis=1)
    >>> first
    array([[0, 1],
           [6, 7]])
    >>> [part.shape for part in splitjit.split(x, 4, axis=1)]
    [(2, 4), (2, 2)]
    >>> [part.shape for part in splitjit.split(x, num_splits=3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    """
    if type(x) is not np.ndarray:
        if _is_dask_array(x):
            from splitjit import dask

            return dask.split(x, split, axis, num_outputs, num_splits, out, copy)
        x = as_array(x)
    plan = cached_plan(x.shape, split, axis, num_outputs, num_splits)
    return routes.run(plan, x, out, copy)


def split_into(
    x: ArrayLike, outs: Sequence[np.ndarray], split: Lengths, axis: SupportsIndex = 0
) -> None:
    """Split an array into arrays that are there, and allocate none.

    The same as ``split(x, split, axis=axis, out=outs)``, in a form that code
    compiled by ``numba.njit`` may call, too.

    Parameters
    ----------
    x : array_like
        The array to split, see `split`.
    outs : sequence of ndarray
        Where to write the parts, as `split` has it for `out`. In compiled code
        a list or tuple of arrays of one type; there, only the memory of
        contiguous arrays is checked to be shared by no other.
    split : sequence of int, 1-D integer array, int or 0-D integer array
        The length of each part, or of all; see `split`.
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.

    Raises
    ------
    SplitError, SplitTypeError
        As `split` does. Nothing has been written then.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> head, tail = np.empty(2), np.empty(3)
    >>> splitjit.split_into(np.arange(5.0), [head, tail], [2, 3])
    >>> tail
    array([2., 3., 4.])
    """
    if outs is None:
        raise SplitTypeError("split_into", "outs=None", "must be a sequence of ndarrays")
    if _is_dask_array(x):
        raise SplitError(
            "split_into", "x of type dask.array.Array", "dask.array.store writes lazy arrays"
        )
    try:
        x = as_array(x)
        routes.run(cached_plan(x.shape, split, axis, None, None), x, outs, True)
    except SplitError as error:
        raise error.named("split_into", out="outs") from None


def run_plan(
    plan: SplitPlan, x: ArrayLike, out: Sequence[np.ndarray] | None, copy: bool
) -> list[np.ndarray]:
    """Split an array by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is not np.ndarray:
        if _is_dask_array(x):
            from splitjit import dask

            return dask.run_plan(plan, x, out, copy)
        x = as_array(x)
    if x.shape != plan.shape:
        raise SplitError("split", f"x of shape {x.shape}", f"the plan is for shape {plan.shape}")
    return routes.run(plan, x, out, copy)


def _is_dask_array(x: object) -> bool:
    """Return whether `x` is lazy, without importing Dask: whoever made it has."""
    return issubclass(type(x), getattr(sys.modules.get("dask.array"), "Array", ()))
