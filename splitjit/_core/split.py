"""`split` and `split_into`: from arguments to a rule, to a plan, to a route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from splitjit._core import plan as planning
from splitjit._core import routes
from splitjit._core.arguments import Lengths, rule_of
from splitjit._core.arrays import as_array, is_dask_array
from splitjit._core.plan import Scalar, SplitPlan, cached_plan
from splitjit._core.rules import Rule
from splitjit.errors import SplitError, SplitTypeError


# One signature for each rule, for arrays of a known dtype and for others, and one with `out`.
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

    Exactly one of ``split``, ``num_outputs`` and ``num_splits`` is given.

    Parameters
    ----------
    x : array_like
        The array to split, of rank 1 or more: an array of any dtype, strides
        and byte order, a memmap, a CPU tensor of another library, or nested
        lists of numbers. A Dask array is split lazily.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        A sequence gives the length of each part. Each length is >= 0, and
        they sum to the axis length (ONNX Split, OpenVINO VariadicSplit,
        ``torch.split``). An integer k >= 1 gives parts of length k, the last
        one smaller (ONNX SplitToSequence; also ``torch.split``, except that it
        gives one empty part if the axis length is 0, and this rule gives no part).
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    num_outputs : int, optional
        n >= 1 parts of ceil(length / n). The last parts are clamped to the
        rest of the axis: 5 into 4 is 2, 2, 1, 0 (ONNX Split-18).
    num_splits : int, optional
        n >= 1 equal parts; the axis length must be a multiple of n (OpenVINO
        Split-1).
    out : sequence of ndarray, optional
        The arrays to write the parts to, one per part. Each has the exact
        shape of its part and the dtype of `x`, is writeable, has any strides,
        and shares no element with `x` or with another array of `out`.
    copy : bool, default True
        False returns views of `x` and copies no data.

    Returns
    -------
    list of ndarray
        With ``copy=True``, new C-contiguous arrays that share no memory with
        `x`. They may share one allocation with each other, which is freed
        when no part is referenced any more. With `out`, the arrays of `out`.
        With ``copy=False``, views of `x`. Bits are copied, never converted.
        The parts of a Dask array are Dask arrays, see `splitjit.dask.split`.

    Raises
    ------
    SplitError
        If a value is out of range, the lengths do not sum to the axis length,
        not exactly one rule is given, or `out` does not fit. In these cases
        nothing has been written.
    SplitTypeError
        If a value is of the wrong kind.

    See Also
    --------
    plan_split : Where the parts start and how long they are, without data.
    numpy.split : Takes the indices at which to cut, and returns views.

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
        if is_dask_array(x):
            from splitjit import dask

            return dask.split_by_rule(x, axis, rule_of(split, num_outputs, num_splits), out, copy)
        x = as_array(x)
    plan = cached_plan(x.shape, axis, rule_of(split, num_outputs, num_splits))
    return routes.run(plan, x, out, copy)


def split_by_rule(x: np.ndarray, axis: int, rule: Rule) -> list[np.ndarray]:
    """Split an array into new parts; the operators call this."""
    return routes.run(cached_plan(x.shape, axis, rule), x, None, True)


def split_into(
    x: ArrayLike, outs: Sequence[np.ndarray], split: Lengths, axis: SupportsIndex = 0
) -> None:
    """Split an array into existing arrays, and allocate no array.

    The same as ``split(x, split, axis=axis, out=outs)``. Code that
    ``numba.njit`` compiles can call this function, too.

    Parameters
    ----------
    x : array_like
        The array to split, see `split`.
    outs : sequence of ndarray
        The arrays to write the parts to, as `out` of `split`. In compiled
        code: a list or tuple of arrays of one type. Compiled code finds
        shared memory only between contiguous arrays.
    split : sequence of int, 1-D integer array, int or 0-D integer array
        The length of each part, or one length for all parts; see `split`.
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.

    Raises
    ------
    SplitError, SplitTypeError
        In the same cases as `split`. In these cases nothing has been written.

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
    if is_dask_array(x):
        raise SplitError(
            "split_into", "x of type dask.array.Array", "only dask.array.store writes lazy arrays"
        )
    try:
        x = as_array(x)
        plan = cached_plan(x.shape, axis, rule_of(split, None, None))
        routes.run(plan, x, outs, True)
    except SplitError as error:
        raise error.named("split_into", out="outs") from None


def run_plan(
    plan: SplitPlan, x: ArrayLike, out: Sequence[np.ndarray] | None, copy: bool
) -> list[np.ndarray]:
    """Split an array by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is not np.ndarray:
        if is_dask_array(x):
            from splitjit import dask

            return dask.run_plan(plan, x, out, copy)
        x = as_array(x)
    if x.shape != plan.shape:
        raise SplitError("split", f"x of shape {x.shape}", f"the plan is for shape {plan.shape}")
    return routes.run(plan, x, out, copy)


planning.run_plan = run_plan
