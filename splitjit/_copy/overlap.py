"""Find arrays that share memory: in linear time for parts of one array, else by NumPy's solver."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.array_utils import byte_bounds

_MOST_WORK = 10**6


def share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays share an element; True if that is too hard to find out."""
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(array: np.ndarray) -> bool:
    """Return whether two elements of an array share memory; see `share_memory`."""
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
    # The indices of two elements that share memory first differ in some dim. Shift both
    # elements until all indices before it are 0, and one of the two indices in it is 0.
    while array.ndim:
        if share_memory(array[:1], array[1:]):
            return True
        array = array[0]
    return False


# ---- pairs of parts ------------------------------------------------------------------------
#
# Parts of one array are boxes in a grid whose steps are the strides of all parts. A byte's
# offset from the first part is a number with one digit per step, and a rest. If each part spans
# an interval in each digit, two parts share a byte exactly if their intervals overlap in all
# digits:
#
#     x[:, 0:2] and x[:, 2:5] of an array of shape (4, 9) and 8-byte items
#     steps             72       8     rest
#     x[:, 0:2]       0 … 4   0 … 2   0 … 8
#     x[:, 2:5]       0 … 4   2 … 5   0 … 8     apart in the second digit


class _Box(NamedTuple):
    """A part's interval in each digit, and the number of the part."""

    intervals: tuple[tuple[int, int], ...]
    part: int


def find_shared(parts: list[np.ndarray]) -> tuple[int, int] | None:
    """Return two parts that share an element, or None; interleaved memory is fine."""
    full = [(byte_bounds(part), i) for i, part in enumerate(parts) if part.size]
    for spans in _groups([_Box((span,), i) for span, i in full], 0):
        boxes = _boxes(parts, [box.part for box in spans]) if len(spans) > 1 else []
        for group in _apart(boxes or spans):
            pair = _pair_in(parts, group)
            if pair:
                return pair
    return None


def _boxes(parts: list[np.ndarray], group: list[int]) -> list[_Box]:
    """Return the boxes of parts in the grid of their strides, or no boxes if some do not fit."""
    extents = [
        {
            abs(stride): extent
            for stride, extent in zip(parts[i].strides, parts[i].shape, strict=True)
            if extent > 1
        }
        for i in group
    ]
    steps = sorted(set().union(*extents), reverse=True)
    starts = [byte_bounds(parts[i])[0] for i in group]
    origin = min(starts)
    boxes = []
    for i, start, extent_of in zip(group, starts, extents, strict=True):
        rest, intervals = start - origin, []
        for step in steps:
            digit, rest = divmod(rest, step)
            intervals.append((digit, digit + extent_of.get(step, 1)))
        intervals.append((rest, rest + parts[i].itemsize))
        end = intervals[-1][1]
        for step, (_, stop) in zip(reversed(steps), reversed(intervals[:-1]), strict=True):
            if end > step:
                return []  # the part reaches into the next item of a larger step
            end += (stop - 1) * step
        boxes.append(_Box(tuple(intervals), i))
    return boxes


def _apart(boxes: list[_Box]) -> Iterator[list[_Box]]:
    """Yield groups of boxes that no digit separates. Boxes of different groups share nothing."""
    pending = [boxes]
    while pending:
        group = pending.pop()
        for d in range(len(group[0].intervals) if len(group) > 1 else 0):
            groups = list(_groups(group, d))
            if len(groups) > 1:
                pending += groups
                break
        else:
            yield group


def _groups(boxes: list[_Box], d: int) -> Iterator[list[_Box]]:
    """Yield groups of boxes whose intervals in digit d overlap, directly or through others."""
    group: list[_Box] = []
    end = 0
    for box in sorted(boxes, key=lambda box: box.intervals[d]):
        start, stop = box.intervals[d]
        if group and start >= end:
            yield group
            group = []
        end = max(end, stop) if group else stop
        group.append(box)
    if group:
        yield group


def _pair_in(parts: list[np.ndarray], group: list[_Box]) -> tuple[int, int] | None:
    """Return two parts of a group that share an element, or None."""
    for a, b in itertools.combinations(sorted([box.part for box in group]), 2):
        if share_memory(parts[a], parts[b]):
            return a, b
    return None
