"""Check the arrays that parts are written to, and find arrays that share memory."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from splitjit._abi import columns
from splitjit._copy.buffers import address_of, addressof, from_buffer, span
from splitjit._inputs.arrays import carries_meaning
from splitjit._plan.plan import Plan
from splitjit._plan.rules import OVERLAP_FAULT
from splitjit.errors import SplitError, SplitTypeError, kind_of

_MOST_WORK = 10**6

_form = operator.attrgetter("shape", "dtype")
_flags, _nbytes, _base, _owns = map(
    operator.attrgetter, ("flags.num", "nbytes", "base", "flags.owndata")
)
_PLAIN = frozenset([_flags(np.empty(shape).view()) for shape in (2, (2, 2))])
"""The flags of C-contiguous, writeable views: of one dim, and of several."""


def check_out(plan: Plan, x: np.ndarray, out: list[Any]) -> list[np.ndarray]:
    """Refuse outputs that do not fit, or that share an element with each other or with `x`.

    Return views of their memory, see `views_of`. `x` is such a view, too.
    """
    parts = views_of(out)
    forms = [(shape, x.dtype) for shape in plan.output_shapes]
    if not are_plain_and_apart(forms, x, parts):
        check_fit(plan, x.dtype, parts)
        check_memory(x, parts, plan.axis)
    return parts


def views_of(out: list[Any]) -> list[np.ndarray]:
    """Return base-class views of outputs; refuse anything but ndarrays.

    Another thread or a finalizer may set the shape of a user's array at any moment. So checks and
    copies use only these views, which nobody else can change.
    """
    for i, part in enumerate(out):
        kind = type(part)
        if kind is np.ndarray:
            continue
        received = [(f"out[{i}]", f" of type {kind_of(part)}")]
        if not issubclass(kind, np.ndarray):
            hint = (f"pass out[{i}]", ".numpy()") if hasattr(kind, "numpy") else ""
            raise SplitTypeError.of(received, "out must be a sequence of ndarrays", hint)
        if carries_meaning(kind):
            rule = f"its class adds more to it than values; pass np.asarray(out[{i}])"
            raise SplitTypeError.of(received, rule)
    return [np.ndarray.view(part, np.ndarray) for part in out]


def check_fit(plan: Plan, dtype: np.dtype, parts: list[np.ndarray]) -> None:
    """Refuse outputs that do not fit the plan and the dtype, whatever memory they share.

    Parameters
    ----------
    plan : Plan
        The plan of the split.
    dtype : dtype
        The dtype of the array to split.
    parts : list of ndarray
        Views of the outputs: one writeable array per part, with the part's shape
        and `dtype`, whose elements do not overlap.

    Raises
    ------
    SplitError, SplitTypeError
        If one of these rules is broken.
    """
    if len(parts) != len(plan.sizes):
        rule = f"must have an array for each of {len(plan)} parts"
        raise SplitError.of([("out", f" of {len(parts)} arrays")], rule)
    for i, (part, shape) in enumerate(zip(parts, plan.output_shapes, strict=True)):
        if part.shape != shape or part.dtype != dtype or not part.flags.writeable:
            raise _refused_part(i, part, shape, dtype, plan.axis)
        if not (part.flags.c_contiguous or part.size == 0) and overlaps_itself(part):
            raise SplitError.of([(f"out[{i}]", f" of strides {part.strides}")], OVERLAP_FAULT)


def are_plain_and_apart(
    forms: list[tuple[Any, ...]], x: np.ndarray, parts: list[np.ndarray]
) -> bool:
    """Return whether outputs surely fit and share no memory: C-contiguous ones in ranges apart.

    `forms` are the shapes and dtypes that fit. Views are apart if they are views of different
    arrays that own their memory. Each `map` reads all outputs in C. A Python loop would be slower.
    """
    if list(map(_form, parts)) != forms:
        return False
    owners = list(map(_base, [*parts, x]))
    if (
        set(map(_flags, parts)) <= _PLAIN
        and set(map(type, owners)) == {np.ndarray}
        and len(set(map(id, owners))) == len(owners)
        and all(map(_owns, owners))
    ):
        return True
    try:
        starts = list(map(addressof, map(from_buffer, parts)))
    except (TypeError, ValueError):  # read-only, strided, empty or foreign dtype
        return False
    stops = map(operator.add, starts, map(_nbytes, parts))
    return columns.are_ranges_apart([*zip(starts, stops, strict=True), span(x)])


def _refused_part(
    i: int, part: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, axis: int
) -> SplitError:
    name, hint = f"out[{i}]", ("", "")
    if part.shape != shape:
        if shape[axis] == 1 and part.shape == (*shape[:axis], *shape[axis + 1 :]):
            index = "..., None" if axis == part.ndim else ":, " * axis + "None"
            hint = f"pass {name}", f"[{index}], or call unstack(out=)"
        rule = f"part {i} has shape {shape}"
        return SplitError.of([(name, f" of shape {part.shape}")], rule, hint)
    if part.dtype != dtype:
        rule = f"the dtype must be the dtype of x, {dtype}"
        return SplitTypeError.of([(name, f" of dtype {part.dtype}")], rule)
    return SplitError.of([(name, " is read-only")], "must be writeable")


def check_memory(x: np.ndarray, parts: list[np.ndarray], axis: int) -> None:
    """Refuse parts of a split of `x` that share an element with each other or with `x`."""
    if not columns.are_ranges_apart(map(span, [*parts, x])):
        check_apart(parts, axis)
        check_source(x, parts)


def check_apart(parts: list[np.ndarray], axis: int) -> None:
    """Refuse parts of a split along an axis that share an element; interleaved memory is fine."""
    full = [i for i, part in enumerate(parts) if part.size]
    if _are_apart([parts[i] for i in full], axis):
        return
    for i, j in _meeting([span(parts[i]) for i in full]):
        if share_memory(parts[full[i]], parts[full[j]]):
            a, b = sorted((full[i], full[j]))
            raise SplitError.of([(f"out[{a}] and out[{b}]", "")], "must not share memory")


def check_source(x: np.ndarray, parts: list[np.ndarray]) -> None:
    """Refuse a source that shares an element with a part."""
    start, stop = span(x) if x.size else (0, 0)
    for i, part in enumerate(parts):
        if part.size:
            low, high = span(part)
            if start < high and low < stop and share_memory(x, part):
                raise SplitError.of([(f"out[{i}] and x", "")], "must not share memory")


def share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays share an element; True if that is too hard to find out."""
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(array: np.ndarray) -> bool:
    """Return whether two elements may share memory: unless each dim is nested in the next."""
    words = (0, *array.shape, *array.strides)
    return not columns.are_rows_apart(words, array.ndim, 0, -1, array.itemsize)


def _are_apart(parts: list[np.ndarray], axis: int) -> bool:
    """Return whether parts surely share no memory, by the rule that compiled code has, too."""
    if not parts:
        return True
    rank, itemsize = parts[0].ndim, parts[0].itemsize
    words = [n for part in parts for n in (address_of(part), *part.shape, *part.strides)]
    starts = range(0, len(words), 1 + 2 * rank)
    found = sorted([(columns.lowest_at(words, rank, at), at) for at in starts])
    lows, places = zip(*found, strict=True)
    return columns.are_apart(words, rank, axis, itemsize, len(parts), lows, places)


def _meeting(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of address ranges that meet."""
    order = sorted(range(len(spans)), key=spans.__getitem__)
    for k, i in enumerate(order):
        for j in order[k + 1 :]:
            if spans[j][0] >= spans[i][1]:
                break
            yield i, j
