"""Where the fresh parts of a plan lie in their block of memory."""

from __future__ import annotations

import itertools
import math
import operator
from typing import NamedTuple

import numpy as np

from splitjit._abi.layout_record import MAX_RANK, aligned
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan

_FEW = 8  # up to this many parts, indexing a stack is faster than iterating over it
_STACKED_FROM = 5  # for fewer equal parts before unequal ones, a stack gains nothing


class BlockLayout(NamedTuple):
    """The positions of a plan's parts in their block of memory.

    Equal parts at the start of the block form a *stack*: one array whose items
    are the parts. Taking items from it is three times as fast as making arrays
    one by one.

    Attributes
    ----------
    nbytes : int
        The length of the block.
    stack_shape, stack_strides : tuple of int
        The shape and strides of the stack.
    others : tuple of (tuple of int, int)
        The shape and the position of each part after the stack.
    """

    nbytes: int
    stack_shape: tuple[int, ...]
    stack_strides: tuple[int, ...]
    others: tuple[tuple[tuple[int, ...], int], ...]

    def parts(self, memory: np.ndarray, dtype: np.dtype, start: int) -> list[np.ndarray]:
        """Make the parts in a byte array, where the block starts at byte `start`."""
        parts: list[np.ndarray] = []  # without comprehensions, as in `slices.views`
        if count := self.stack_shape[0]:
            stack = np.ndarray(self.stack_shape, dtype, memory, start, self.stack_strides)
            parts.extend(map(stack.__getitem__, range(count)) if count <= _FEW else stack)
        for shape, at in self.others:
            parts.append(np.ndarray(shape, dtype, memory, start + at))
        return parts


def block_layout(plan: Plan, itemsize: int) -> BlockLayout:
    """Lay out a plan's parts in a block, each aligned; cached in the plan."""
    key = "block", itemsize
    layout: BlockLayout | None = plan._kept.get(key)
    if layout is None:
        layout = _block_layout(plan, itemsize)
        keep(plan._kept, key, layout, plan._count)
    return layout


def _block_layout(plan: Plan, itemsize: int) -> BlockLayout:
    inner = math.prod(plan.shape[: plan.axis] + plan.shape[plan.axis + 1 :]) * itemsize
    stacked, size = _count_stacked(plan)
    shape = (*plan.shape[: plan.axis], size, *plan.shape[plan.axis + 1 :])
    nbytes = stacked * aligned(size * inner)
    others = []
    for length in plan.sizes[stacked:]:
        others.append((plan._shape_of(length), nbytes))
        nbytes += aligned(length * inner)
    if not stacked:
        return BlockLayout(nbytes, (0,), (0,), tuple(others))
    steps = itertools.accumulate(shape[:0:-1], operator.mul, initial=itemsize)
    strides = (aligned(size * inner), *reversed(list(steps)))
    return BlockLayout(nbytes, (stacked, *shape), strides, tuple(others))


def _count_stacked(plan: Plan) -> tuple[int, int]:
    """Return how many leading parts form a stack, and their size along the axis."""
    if not plan._count:
        return 0, 0
    size = plan.sizes[0]
    equal = sum(1 for _ in itertools.takewhile(size.__eq__, plan.sizes))
    stacked = equal == plan._count or equal >= _STACKED_FROM
    if not stacked or len(plan.shape) == MAX_RANK:  # a stack has one more dim
        return 0, size
    return equal, size
