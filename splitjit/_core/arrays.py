"""Users' arrays at the boundary: what is taken as `x`, and what as `out`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from splitjit._core.arguments import sequence
from splitjit._core.plan import SplitPlan
from splitjit.errors import SplitError, SplitTypeError, describe, reason


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    try:  # a quarter of the time that NumPy's own attribute takes
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty, of a foreign dtype
        return array.ctypes.data


def as_array(x: Any) -> np.ndarray:
    """Take what `numpy.asarray` takes, and no more memory than it takes.

    Parameters
    ----------
    x : array_like
        An array, a CPU tensor of another library, nested lists.

    Returns
    -------
    ndarray
        `x` itself, a view of its memory where it is a subclass or a tensor,
        or a new array where it is a list.

    Raises
    ------
    SplitTypeError
        If `x` is no array.
    """
    if type(x) is np.ndarray:
        return x
    try:
        return np.asarray(x)
    except MemoryError:
        raise
    except Exception as error:  # whatever the __array__ of a foreign class raises
        raise SplitTypeError(
            "split", f"x of type {type(x).__name__}", f"must be an array: {reason(error)}"
        ) from error


def check_out(
    plan: SplitPlan, x: np.ndarray, out: Any
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Refuse an `out` that the parts of `x` cannot be written to.

    Parameters
    ----------
    plan : SplitPlan
        A plan of the shape of `x`.
    x : ndarray
        The array to split.
    out : sequence of ndarray
        One writeable array a part, of its shape and the dtype of `x`, that
        shares no element with `x`, another part or itself.

    Returns
    -------
    given : list of ndarray
        The arrays of `out`. It is read but once: it may give others next time.
    parts : list of ndarray
        The same memory, as arrays of the base class, which are what they say.

    Raises
    ------
    SplitError, SplitTypeError
        If one of these does not hold.
    """
    given = sequence(out)
    if given is None or [part for part in given if not issubclass(type(part), np.ndarray)]:
        kinds = type(out) if given is None else [type(part).__name__ for part in given]
        raise SplitTypeError("split", describe(out=kinds), "must be a sequence of ndarrays")
    if len(given) != len(plan):
        raise SplitError(
            "split",
            f"out of {len(given)} arrays",
            f"must have an array for each of {len(plan)} parts",
        )
    parts = [np.asarray(part) for part in given]
    source = x if x.base is None else x.base
    own_memory = type(source) is np.ndarray and source.flags.owndata
    for i, (part, shape) in enumerate(zip(parts, plan.output_shapes, strict=True)):
        flags = part.flags
        if part.shape != shape:
            received = f"out[{i}] of shape {part.shape}"
            raise SplitError("split", received, f"part {i} has shape {shape}")
        if part.dtype != x.dtype:
            received = f"out[{i}] of dtype {part.dtype}"
            raise SplitTypeError("split", received, f"the dtype must be that of x, {x.dtype}")
        if not flags.writeable:
            raise SplitError("split", f"out[{i}] is read-only", "must be writeable")
        if not (flags.c_contiguous or part.size == 0) and _overlaps_itself(part):
            received = f"out[{i}] of strides {part.strides}"
            raise SplitError("split", received, "its elements must not share memory")
        own_memory = own_memory and flags.owndata
    # Arrays that own their memory share it only with themselves.
    if not own_memory or len({id(source), *map(id, parts)}) <= len(parts):
        _check_apart([(f"out[{i}]", part) for i, part in enumerate(parts)] + [("x", x)])
    return list(given), parts


def _overlaps_itself(array: np.ndarray) -> bool:
    end = array.itemsize
    for stride, extent in sorted(
        (abs(stride), extent)
        for stride, extent in zip(array.strides, array.shape, strict=True)
        if extent > 1
    ):
        if stride < end:
            break
        end += stride * (extent - 1)
    else:
        return False
    start, stop = byte_bounds(array)
    if array.nbytes > stop - start:
        return True
    # Not nested like those of an array in memory order: look at every element.
    starts = np.zeros((), np.intp)
    for stride, extent in zip(array.strides, array.shape, strict=True):
        starts = np.add.outer(starts, np.arange(extent) * stride)
    return bool(np.diff(np.sort(starts, axis=None)).min() < array.itemsize)


def _check_apart(arrays: list[tuple[str, np.ndarray]]) -> None:
    """Refuse arrays that share an element; interleaved memory is fine."""
    spans = sorted((*_span(array), i) for i, (_, array) in enumerate(arrays) if array.size)
    for k, (_, end, i) in enumerate(spans):
        for after in range(k + 1, len(spans)):
            start, _, j = spans[after]
            if start >= end:
                break
            if _share_memory(arrays[i][1], arrays[j][1]):
                first, second = arrays[min(i, j)][0], arrays[max(i, j)][0]
                raise SplitError("split", f"{first} and {second}", "must not share memory")


def _span(array: np.ndarray) -> tuple[int, int]:
    if array.flags.c_contiguous:  # the common case, for which byte_bounds is slow
        start = address_of(array)
        return start, start + array.nbytes
    return byte_bounds(array)


def _share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10**6)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True  # an exact answer could take forever
