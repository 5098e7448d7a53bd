"""From arguments to parts: plan, choose a route, copy.

========  ============================================================
views     ``copy=False``: NumPy slices, no data moved
slices    small arrays: NumPy's copies, of each slice or of all along axis 0
objects   Python objects and StringDType: the object-mode path
kernels   everything else: the compiled copy loops
========  ============================================================
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from splitjit._core import threads
from splitjit._core.arrays import as_array, check_out
from splitjit._core.buffers import address_of, allocate_parts, empty_parts
from splitjit._core.dtypes import as_dtype
from splitjit._core.layout import fresh_layout, out_layout
from splitjit._core.objects import assign_kernel
from splitjit._core.plan import Lengths, Scalar, SplitPlan, cached_plan
from splitjit.errors import SplitError, SplitTypeError, describe

# Measured crossovers between the routes, in bytes of all parts. NumPy copies long
# runs at the speed of memory, too: there the kernels win when threads do.
_SLICES_BELOW = 1 << 14
_SLICES_BELOW_IF_FEW_RUNS = 1 << 19
_FEW_RUNS = 1000
_FEW_ITEMS = 1 << 16  # where each is a run
_OBJECTS_FROM = 1 << 19
STREAM_FROM = 15 << 20


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
    return _route(plan, x, out, copy)


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
        _route(cached_plan(x.shape, split, axis, None, None), x, outs, True)
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
    return _route(plan, x, out, copy)


def _is_dask_array(x: object) -> bool:
    """Return whether `x` is lazy, without importing Dask: whoever made it has."""
    return issubclass(type(x), getattr(sys.modules.get("dask.array"), "Array", ()))


def _route(
    plan: SplitPlan, x: np.ndarray, out: Sequence[np.ndarray] | None, copy: bool
) -> list[np.ndarray]:
    if copy is not True:
        return _views(plan, x, out, copy)
    given = None
    if out is not None:
        given, out = check_out(plan, x, out)
    nbytes = x.nbytes
    if nbytes < _SLICES_BELOW:
        parts = _slices(plan, x, out)
    elif x.dtype.hasobject:
        parts = _objects(plan, x, out)
    elif _suits_slices(plan, x, nbytes):
        parts = _slices(plan, x, out)
    else:
        parts = _kernels(plan, x, out)
    return parts if given is None else given


def _suits_slices(plan: SplitPlan, x: np.ndarray, nbytes: int) -> bool:
    if nbytes >= _SLICES_BELOW_IF_FEW_RUNS:
        return False
    axis = plan.axis
    if not x.flags.c_contiguous:
        if x.strides[-1] != x.itemsize and x.size >= _FEW_ITEMS:
            return False
        axis = -1
    return math.prod(plan.shape[:axis]) * len(plan) < _FEW_RUNS


def _views(plan: SplitPlan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    if not isinstance(copy, bool):
        raise SplitTypeError("split", describe(copy=copy), "must be a bool")
    if out is not None:
        raise SplitError("split", "copy=False and out", "views are not written to out")
    return [x[index] for index in plan.slices]


def _slices(plan: SplitPlan, x: np.ndarray, out: list[np.ndarray] | None) -> list[np.ndarray]:
    if x.dtype.names is not None and x.itemsize and not x.dtype.hasobject:
        # NumPy would copy records field by field, and lose the bits between them.
        record, bits = x.dtype, np.dtype((np.void, x.itemsize))
        if out is None:
            return [part.view(record) for part in _slices(plan, x.view(bits), None)]
        _slices(plan, x.view(bits), [part.view(bits) for part in out])
        return out
    if out is None:
        if plan.axis == 0 and not x.dtype.hasobject:  # a part would keep all objects alive
            block = x.copy()
            return [block[index] for index in plan.slices]
        return [x[index].copy() for index in plan.slices]
    for index, part in zip(plan.slices, out, strict=True):
        part[...] = x[index]
    return out


def _objects(plan: SplitPlan, x: np.ndarray, out: list[np.ndarray] | None) -> list[np.ndarray]:
    if x.nbytes < _OBJECTS_FROM:
        return _slices(plan, x, out)
    parts = empty_parts(plan, x.dtype) if out is None else out
    assign = threads.load(assign_kernel)
    if assign is None:
        return _slices(plan, x, parts)
    assign(zip(parts, [x[index] for index in plan.slices], strict=True))
    return parts


def _kernels(plan: SplitPlan, x: np.ndarray, out: list[np.ndarray] | None) -> list[np.ndarray]:
    if out is None:
        parts, target = allocate_parts(plan, x.dtype)
        layout = fresh_layout(plan, x.strides, x.itemsize)
    else:
        parts, target = out, 0
        layout = out_layout(plan, x, out)
    nbytes = x.nbytes
    stream = int(nbytes >= STREAM_FROM)
    arguments = (stream, target, address_of(x), *layout.arguments)
    return parts if threads.copy(layout.loop, nbytes, arguments) else _slices(plan, x, parts)


def warmup(dtypes: Iterable[DTypeLike] | None = None) -> None:
    """Compile what splits of the given dtypes need, or load it from the cache.

    The first splits do so otherwise. After this call, no split of these dtypes
    compiles anything, whatever its shape and layout.

    Parameters
    ----------
    dtypes : iterable of dtype-like, optional
        By default all that there are.

    Raises
    ------
    SplitTypeError
        If one of them is no dtype.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.warmup(["float32"])
    """
    if dtypes is None:
        dtypes = [np.void, np.object_]
    if isinstance(dtypes, str) or not isinstance(dtypes, Iterable):
        raise SplitTypeError("warmup", describe(dtypes=dtypes), "must be an iterable of dtypes")
    try:
        kinds = [as_dtype(dtype) for dtype in dtypes]
    except SplitTypeError as error:
        raise error.named("warmup") from None
    if any(dtype.hasobject for dtype in kinds):
        threads.load(assign_kernel, wait=True)
    if not all(dtype.hasobject for dtype in kinds):
        threads.load_kernels()
