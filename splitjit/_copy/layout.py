"""Where the fresh parts of a plan lie in their block of memory."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from splitjit._abi.layout_record import aligned
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan, shape_of_part


class BlockLayout(NamedTuple):
    """The positions of a plan's parts in their block of memory.

    Attributes
    ----------
    nbytes : int
        The length of the block.
    places : tuple of (tuple of int, int)
        The shape and the position of each part.
    """

    nbytes: int
    places: tuple[tuple[tuple[int, ...], int], ...]

    def parts(self, memory: np.ndarray, dtype: np.dtype, start: int) -> list[np.ndarray]:
        """Make the parts in a byte array, where the block starts at byte `start`."""
        parts: list[np.ndarray] = []  # without comprehensions, as in `slices.views`
        for shape, at in self.places:
            parts.append(np.ndarray(shape, dtype, memory, start + at))
        return parts


def block_layout(plan: Plan, itemsize: int) -> BlockLayout:
    """Lay out a plan's parts in a block, each aligned; cached in the plan."""
    key = "block", itemsize
    layout: BlockLayout | None = plan._kept.get(key)
    if layout is None:
        inner = math.prod(plan.shape[: plan.axis] + plan.shape[plan.axis + 1 :]) * itemsize
        nbytes, places = 0, []
        for length in plan.sizes:
            places.append((shape_of_part(plan, length), nbytes))
            nbytes += aligned(length * inner)
        layout = BlockLayout(nbytes, tuple(places))
        keep(plan._kept, key, layout, len(plan))
    return layout
