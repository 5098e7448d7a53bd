"""Copy with NumPy: slice by slice, or all slices at once.

This is for small arrays, Python objects, and arrays of any size if no kernel can be loaded.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjit._copy import objects
from splitjit._copy.buffers import empty_parts
from splitjit._copy.crossovers import is_contiguous, suits_object_loop
from splitjit._kernels.table import MAX_RANK
from splitjit._plan.cache import MOST_PARTS
from splitjit._plan.plan import Plan

_MANY_PARTS = 1 << 15
"""The most parts that are copied at once, as the items of one array."""

_copy = np.ndarray.copy


class Slices:
    """Copies arrays of one plan, dtype and strides with NumPy.

    Attributes
    ----------
    cut : callable
        Returns the parts of an array as views.
    bits : dtype or None
        The dtype to copy records as: NumPy would copy them field by field, and lose the
        bits between fields.
    """

    __slots__ = ("_by_object_loop", "_plan", "_stack", "_whole", "bits", "cut")

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        # Not the dtype: equal dtypes may differ in metadata, or in the class of their items.
        self._plan = plan
        has_fields = dtype.names is not None and dtype.itemsize and not dtype.hasobject
        self.bits = np.dtype((np.void, dtype.itemsize)) if has_fields else None
        is_plain = self.bits is None and not dtype.hasobject
        # If all dims before the axis have length 1, parts are contiguous in a copy of the
        # whole. Objects are copied part by part: one part would keep all of them alive.
        self._whole = is_plain and math.prod(plan.shape[: plan.axis]) == 1
        self._stack = _stack(plan, strides, dtype.itemsize) if is_plain else None
        nbytes = math.prod(plan.shape) * dtype.itemsize
        self._by_object_loop = dtype.hasobject and suits_object_loop(nbytes)
        self.cut = _cut(plan)

    @property
    def strategy(self) -> str:
        """The name of the strategy: ``"object loop"`` or ``"slices"``."""
        return "object loop" if self._by_object_loop else "slices"

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        if self._whole:
            return list(self.cut(x.copy()))
        if self._stack is not None:
            shape, order, items = self._stack
            return list(items(x.reshape(shape).transpose(order).copy()))
        if self._by_object_loop:
            parts = empty_parts(self._plan, x.dtype)
            self.into(x, parts)
            return parts
        if self.bits is None:
            return list(map(_copy, self.cut(x)))
        return [part.copy().view(x.dtype) for part in self.cut(x.view(self.bits))]

    def into(self, x: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Copy `x` to given arrays without checking them."""
        if self._by_object_loop and objects.assign(parts, list(self.cut(x))):
            return
        if self.bits is not None:
            x, parts = x.view(self.bits), [part.view(self.bits) for part in parts]
        for view, part in zip(self.cut(x), parts, strict=True):
            part[...] = view


def _cut(plan: Plan) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
    """Return the function that slices an array into its parts."""
    if plan._count > MOST_PARTS:  # the plan keeps nothing, so nothing is made in advance
        return lambda x: [x[index] for index in plan._make_slices()]
    slices: Sequence[Any] = plan.slices
    if len(slices) > 1:  # `itemgetter` indexes in C; it returns no tuple for a single index
        return operator.itemgetter(*slices)
    return lambda x: [x[index] for index in slices]


class _Stack(NamedTuple):
    """One array whose items are the parts.

    Attributes
    ----------
    shape : tuple of int
        The source's shape with the axis split in two: parts, and the length of a part.
    order : tuple of int
        The order of the dims in the stack.
    items : callable
        Returns the items of the stack.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    items: Callable[[np.ndarray], Sequence[np.ndarray]]


def _stack(plan: Plan, strides: tuple[int, ...], itemsize: int) -> _Stack | None:
    """Return how to copy equal parts of a contiguous array at once, or None for other parts."""
    count, axis, shape = plan._count, plan.axis, plan.shape
    if not 1 < count <= _MANY_PARTS or len(shape) == MAX_RANK:
        return None
    kinds = len(set(plan.sizes)) if plan._runs is None else len(plan._runs)
    if kinds > 1 or not is_contiguous(shape, strides, itemsize):
        return None
    shape = (*shape[:axis], count, plan._part(0)[1], *shape[axis + 1 :])
    order = (axis, *range(axis), *range(axis + 1, len(shape)))
    return _Stack(shape, order, operator.itemgetter(*range(count)))
