"""Arrays that users pass: turn `x` into an ndarray, and check `out`."""

from __future__ import annotations

import ctypes
import itertools
import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

from splitjit._core.arguments import sequence
from splitjit._core.overlap import find_shared, overlaps_itself, share_memory
from splitjit._core.plan import SplitPlan
from splitjit.errors import SplitError, SplitTypeError, describe, kind_of, reason

_addressof: Any = ctypes.addressof
_from_buffer: Any = ctypes.c_char.from_buffer
"""This call fails unless the array is writeable and C-contiguous, and buffers have its dtype."""


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    try:  # takes a quarter of the time of NumPy's own attribute
        address: int = _addressof(_from_buffer(array))
        return address
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty or foreign dtype
        return array.ctypes.data


def as_array(x: Any) -> np.ndarray:
    """Return `x` as an ndarray, as `numpy.asarray` does: without a copy if possible.

    Parameters
    ----------
    x : array_like
        An array, a CPU tensor of another library, or nested lists.

    Returns
    -------
    ndarray
        `x` itself; a view of its memory if `x` is of a subclass or a tensor; a
        new array if `x` is a list.

    Raises
    ------
    SplitTypeError
        If NumPy cannot make an array of `x`.
    """
    if type(x) is np.ndarray:
        return x
    try:
        return np.asarray(x)
    except MemoryError:
        raise
    except Exception as error:  # __array__ of a foreign class may raise anything
        raise SplitTypeError(
            "split", f"x of type {type(x).__name__}", f"must be an array: {reason(error)}"
        ) from error


def is_dask_array(x: object) -> bool:
    """Return whether `x` is a Dask array. If Dask was never imported, `x` cannot be one."""
    return issubclass(type(x), getattr(sys.modules.get("dask.array"), "Array", ()))


class Targets(NamedTuple):
    """Arrays that the parts of a plan can be written to; made by `check_out`.

    Attributes
    ----------
    given : list of ndarray
        The arrays as the user passed them.
    parts : list of ndarray
        The same memory as base-class arrays, whose attributes no subclass overrides.
    addresses : tuple of int or None
        The address of each part if all parts are C-contiguous. The plan gives
        their shapes, so these addresses determine which memory the parts use.
    """

    given: list[np.ndarray]
    parts: list[np.ndarray]
    addresses: tuple[int, ...] | None

    def spans(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the starts and the stops of the address ranges in which the parts lie.

        The ranges are sorted and do not overlap: parts with overlapping ranges share
        one range.
        """
        starts: list[int] = []
        stops: list[int] = []
        for start, stop in sorted(_span(part) for part in self.parts if part.size):
            if stops and start < stops[-1]:
                stops[-1] = max(stop, stops[-1])
            else:
                starts.append(start)
                stops.append(stop)
        return tuple(starts), tuple(stops)


def check_out(plan: SplitPlan, dtype: np.dtype, out: Any) -> Targets:
    """Return the arrays of `out`; refuse an `out` that does not fit the plan and the dtype.

    This function does not compare the memory of the arrays: `check_apart` finds
    arrays that share memory with each other, and `check_source` finds arrays that
    share memory with the source.

    Parameters
    ----------
    plan : SplitPlan
        The plan of the split.
    dtype : dtype
        The dtype of the array to split.
    out : sequence of ndarray
        One writeable array a part, of the part's shape and of `dtype`, whose
        elements do not overlap.

    Returns
    -------
    Targets

    Raises
    ------
    SplitError, SplitTypeError
        If one of these rules is broken.
    """
    given = sequence(out)  # once: a sequence may give other arrays the next time
    if given is None:
        received = f"out of type {kind_of(out)}"
        raise SplitTypeError("split", received, "must be a sequence of ndarrays")
    if len(given) == len(plan.sizes):
        addresses = []
        for part, shape in zip(given, plan.output_shapes, strict=True):
            if type(part) is not np.ndarray or part.shape != shape or part.dtype is not dtype:
                break
            try:
                addresses.append(_addressof(_from_buffer(part)))
            except (
                TypeError,
                ValueError,
            ):  # neither writeable nor C-contiguous, or a foreign dtype
                break
        else:
            parts = list(given)
            return Targets(parts, parts, tuple(addresses))
    return _check_other_out(plan, dtype, given)


def _check_other_out(plan: SplitPlan, dtype: np.dtype, given: tuple[Any, ...]) -> Targets:
    """Check outputs of any strides and any class, and refuse those that do not fit."""
    if [part for part in given if not issubclass(type(part), np.ndarray)]:
        kinds = [kind_of(part) for part in given]
        raise SplitTypeError("split", describe(out=kinds), "must be a sequence of ndarrays")
    if len(given) != len(plan.sizes):
        raise SplitError(
            "split",
            f"out of {len(given)} arrays",
            f"must have an array for each of {len(plan)} parts",
        )
    parts = [np.asarray(part) for part in given]
    contiguous = True
    for i, (part, shape) in enumerate(zip(parts, plan.output_shapes, strict=True)):
        if part.shape != shape or part.dtype != dtype or not part.flags.writeable:
            raise _refused_part(i, part, shape, dtype)
        if not (part.flags.c_contiguous or part.size == 0):
            contiguous = False
            if overlaps_itself(part):
                received = f"out[{i}] of strides {part.strides}"
                raise SplitError("split", received, "its elements must not share memory")
    addresses = tuple(map(address_of, parts)) if contiguous else None
    return Targets(list(given), parts, addresses)


def _refused_part(i: int, part: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> SplitError:
    if part.shape != shape:
        return SplitError("split", f"out[{i}] of shape {part.shape}", f"part {i} has shape {shape}")
    if part.dtype != dtype:
        rule = f"the dtype must be the dtype of x, {dtype}"
        return SplitTypeError("split", f"out[{i}] of dtype {part.dtype}", rule)
    return SplitError("split", f"out[{i}] is read-only", "must be writeable")


def check_apart(parts: list[np.ndarray]) -> None:
    """Refuse parts that share an element; interleaved memory is fine."""
    spans = sorted([_span(part) for part in parts if part.size])
    if all(start >= stop for (_, stop), (start, _) in itertools.pairwise(spans)):
        return
    pair = find_shared(parts)
    if pair:
        raise SplitError("split", f"out[{pair[0]}] and out[{pair[1]}]", "must not share memory")


def check_source(x: np.ndarray, parts: list[np.ndarray]) -> None:
    """Refuse a source that shares an element with a part."""
    start, stop = _span(x) if x.size else (0, 0)
    for i, part in enumerate(parts):
        if part.size:
            low, high = _span(part)
            if start < high and low < stop and share_memory(x, part):
                raise SplitError("split", f"out[{i}] and x", "must not share memory")


def _span(array: np.ndarray) -> tuple[int, int]:
    if array.flags.c_contiguous:  # byte_bounds takes ten times as long
        start = address_of(array)
        return start, start + array.nbytes
    return byte_bounds(array)
