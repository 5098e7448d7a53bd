"""Check the arrays that parts are written to, and find arrays that share memory."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjit._abi import overlap
from splitjit._abi.addresses import address_of, addressof, from_buffer, span
from splitjit._abi.overlap import Strided, Terms
from splitjit._plan.arguments import sequence
from splitjit._plan.classes import carries_meaning
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError, SplitTypeError, kind_of

_WORK = 10**4  # multiples that a search tries, in 10 ms at most
_MOST_WORK = 10**6

_shape, _dtype = operator.attrgetter("shape"), operator.attrgetter("dtype")


class Targets(NamedTuple):
    """Checked arrays for the parts of a plan; made by `check_out`.

    Attributes
    ----------
    given : list of ndarray
        The arrays as the user passed them.
    parts : list of ndarray
        The same memory as base-class arrays, whose attributes no subclass overrides.
    addresses : tuple of int
        The address of each part.
    strides : tuple of tuple of int, or None
        The strides of each part, None if all parts are C-contiguous. Addresses and strides
        determine which memory the parts use, because the plan gives their shapes.
    """

    given: list[np.ndarray]
    parts: list[np.ndarray]
    addresses: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...] | None


def check_out(plan: Plan, dtype: np.dtype, out: Any) -> Targets:
    """Return the arrays of `out`; refuse an `out` that does not fit the plan and the dtype.

    Shared memory is not checked here: `check_apart` finds arrays that share memory
    with each other, `check_source` those that share memory with the source.

    Parameters
    ----------
    plan : Plan
        The plan of the split.
    dtype : dtype
        The dtype of the array to split.
    out : sequence of ndarray
        One writeable array per part, with the part's shape and `dtype`, whose
        elements do not overlap.

    Returns
    -------
    Targets

    Raises
    ------
    SplitError, SplitTypeError
        If one of these rules is broken.
    """
    given = sequence(out)  # only once: a sequence may give other arrays next time
    if given is None:
        received = f"out of type {kind_of(out)}"
        raise SplitTypeError("split", received, "must be a sequence of ndarrays")
    addresses = addresses_of(plan, dtype, given)
    if addresses is not None:
        parts = list(given)
        return Targets(parts, parts, addresses, None)
    return _check_other_out(plan, dtype, given)


def addresses_of(plan: Plan, dtype: np.dtype, given: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the addresses of outputs, or None unless all are C-contiguous ndarrays that fit.

    Each `map` compares all outputs in C. A Python loop would take twice as long.
    """
    count = plan._count
    if (
        list(map(type, given)) == [np.ndarray] * count
        and tuple(map(_shape, given)) == plan.output_shapes
        and list(map(_dtype, given)) == [dtype] * count
    ):
        try:
            return tuple(map(addressof, map(from_buffer, given)))
        except (TypeError, ValueError):  # read-only, strided, empty or foreign dtype
            return None
    return None


def _check_other_out(plan: Plan, dtype: np.dtype, given: tuple[Any, ...]) -> Targets:
    """Check outputs of any strides and any class, and refuse those that do not fit."""
    for i, part in enumerate(given):
        if not issubclass(type(part), np.ndarray):
            received = f"out[{i}] of type {kind_of(part)}"
            raise SplitTypeError("split", received, "out must be a sequence of ndarrays")
    if len(given) != len(plan.sizes):
        raise SplitError(
            "split",
            f"out of {len(given)} arrays",
            f"must have an array for each of {plan._count} parts",
        )
    for i, part in enumerate(given):
        if carries_meaning(type(part)):
            rule = f"its class adds more to it than values; pass np.asarray(out[{i}])"
            raise SplitTypeError("split", f"out[{i}] of type {kind_of(part)}", rule)
    parts = [np.asarray(part) for part in given]
    contiguous = True
    for i, (part, shape) in enumerate(zip(parts, plan.output_shapes, strict=True)):
        if part.shape != shape or part.dtype != dtype or not part.flags.writeable:
            raise _refused_part(i, part, shape, dtype, plan.axis)
        if not (part.flags.c_contiguous or part.size == 0):
            contiguous = False
            if overlaps_itself(part):
                received = f"out[{i}] of strides {part.strides}"
                raise SplitError("split", received, "its elements must not share memory")
    strides = None if contiguous else tuple([part.strides for part in parts])
    return Targets(list(given), parts, tuple(map(address_of, parts)), strides)


def _refused_part(
    i: int, part: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, axis: int
) -> SplitError:
    if part.shape != shape:
        hint = ""
        if shape[axis] == 1 and part.shape == (*shape[:axis], *shape[axis + 1 :]):
            index = "..., None" if axis == part.ndim else ":, " * axis + "None"
            hint = f"pass out[{i}][{index}], or call unstack(out=) of splitjit.numpy"
        received, rule = f"out[{i}] of shape {part.shape}", f"part {i} has shape {shape}"
        return SplitError("split", received, rule, hint=hint)
    if part.dtype != dtype:
        rule = f"the dtype must be the dtype of x, {dtype}"
        return SplitTypeError("split", f"out[{i}] of dtype {part.dtype}", rule)
    return SplitError("split", f"out[{i}] is read-only", "must be writeable")


def check_apart(parts: list[np.ndarray]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Refuse parts that share an element; interleaved memory is fine.

    Return the starts and stops of the address ranges that the parts occupy, sorted; overlapping
    ranges are merged.
    """
    starts: list[int] = []
    stops: list[int] = []
    for start, stop in sorted([span(part) for part in parts if part.size]):
        if stops and start < stops[-1]:
            stops[-1] = max(stop, stops[-1])
        else:
            starts.append(start)
            stops.append(stop)
    if len(starts) < sum([part.size > 0 for part in parts]):
        pair = find_shared(parts)
        if pair:
            received = f"out[{pair[0]}] and out[{pair[1]}]"
            raise SplitError("split", received, "must not share memory")
    return tuple(starts), tuple(stops)


def check_source(x: np.ndarray, parts: list[np.ndarray]) -> None:
    """Refuse a source that shares an element with a part."""
    start, stop = span(x) if x.size else (0, 0)
    for i, part in enumerate(parts):
        if part.size:
            low, high = span(part)
            if start < high and low < stop and share_memory(x, part):
                raise SplitError("split", f"out[{i}] and x", "must not share memory")


# ---- shared memory: our search, or else NumPy's solver ------------------------------------


def share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays share an element; True if that is too hard to find out."""
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(array: np.ndarray) -> bool:
    """Return whether two elements share memory; True if that is too hard to find out."""
    end = array.itemsize
    for stride, extent in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if stride < end and extent > 1:
            break
        end += stride * (extent - 1)
    else:  # as in nearly all arrays, each dim is nested in the next
        return False
    found = overlap.overlaps_itself(_strided(array), _terms(array.ndim), _WORK)
    return found != overlap.APART


def find_shared(parts: list[np.ndarray]) -> tuple[int, int] | None:
    """Return two parts that share an element, or None; interleaved memory is fine."""
    full = [i for i, part in enumerate(parts) if part.size]
    arrays, memory = [_strided(parts[i]) for i in full], [[0] * len(full) for _ in range(3)]
    terms = _terms(2 * max([part.ndim for part in parts], default=0))
    answer, a, b = overlap.find_shared(arrays, len(arrays), memory, terms, _WORK)
    if answer != overlap.UNSURE:
        return None if answer == overlap.APART else (min(full[a], full[b]), max(full[a], full[b]))
    pairs = itertools.combinations(range(len(parts)), 2)
    return next(((i, j) for i, j in pairs if share_memory(parts[i], parts[j])), None)


def _strided(array: np.ndarray) -> Strided:
    rank, shape, strides = array.ndim, array.shape, array.strides
    low = overlap.lowest(address_of(array), rank, shape, strides)
    return Strided(low, array.itemsize, rank, shape, strides)


def _terms(most: int) -> Terms:
    return Terms(*[[0] * most for _ in Terms._fields])
