"""Shapes and strides to what a kernel copies, in as few dims as they allow."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from splitjit._core.arrays import address_of
from splitjit._core.plan import SplitPlan, cached_by_plan

TARGET = 1
"""The column of `CopyLayout.parts` that says where parts go."""

LOOPS = ("copy", "deal", "transpose")
"""The loops of kernels, each compiled on its own; see `CopyLayout`."""

INTERLEAVED = {(n, item) for n in (2, 3, 4, 8) for item in (1, 2, 4)} - {(8, 4)}
"""The numbers of parts, and bytes of their items, that the kernels deal out."""

_LINE = 64  # bytes of a cache line: of shorter runs, the rest of it is read for others
_SHORT = 1 << 10  # runs that pay to be read in the order of the source
_MANY = 5  # measured: fewer single items are copied faster part by part, and
_TILE = 16  # so are rows shorter than the vectors of a transposed tile


ALIGNMENT = 64
"""Bytes to which every part of a block is aligned: a cache line, a vector."""

_STACKED_FROM = 5
_MAX_RANK = 64  # of NumPy's arrays


class BlockLayout(NamedTuple):
    """Where the parts of a plan lie in their block.

    Attributes
    ----------
    positions : tuple of int
        Where each part starts, in bytes.
    nbytes : int
        The length of the block.
    shape, strides : tuple of int
        Of the *stack* that equal parts at the start of the block form: an array
        gives its items three times as fast as they can be made one by one.
        Where that does not pay the stack is empty.
    """

    positions: tuple[int, ...]
    nbytes: int
    shape: tuple[int, ...] = (0,)
    strides: tuple[int, ...] = (0,)


@cached_by_plan
def block_layout(plan: SplitPlan, itemsize: int) -> BlockLayout:
    """Lay out the block of a plan's parts."""
    lengths = [-(-math.prod(s) * itemsize // ALIGNMENT) * ALIGNMENT for s in plan.output_shapes]
    *positions, nbytes = itertools.accumulate(lengths, initial=0)
    if len(plan) < _STACKED_FROM or len(plan.shape) == _MAX_RANK:
        return BlockLayout(tuple(positions), nbytes)
    size, shape = plan.sizes[0], plan.output_shapes[0]
    equal = sum(1 for _ in itertools.takewhile(size.__eq__, plan.sizes))
    inner = itertools.accumulate(shape[:0:-1], operator.mul, initial=itemsize)
    return BlockLayout(
        tuple(positions), nbytes, (equal, *shape), (lengths[0], *reversed(list(inner)))
    )


@dataclass(slots=True, eq=False)
class CopyLayout:
    """What a kernel copies, in as few dims as the strides of both sides allow.

    Attributes
    ----------
    loop : str
        How: "copy", runs one after another; "deal", single small items that
        the parts take from the source in turn, as the channels of an image do,
        in a number and size that has a loop of its own; "transpose", runs that
        follow each other in a part, but lie far apart in the source, where
        those of the next line are nearer.
    source_strides : ndarray of int64, shape (dims,)
        Bytes between runs of the source, outermost dim first.
    parts : ndarray of int64, shape (n, 4 + 2 * dims)
        A row for each part that is not empty: where it starts in the source,
        where in the target, the bytes of a run, the bytes in all; then its
        extents, then its strides in the target.
    runs : int
        How many runs each part has, if all have the same; else 0.
    arguments : tuple of int
        All of this as kernels take it. The arrays are addresses there, good
        for as long as the layout lives.
    """

    loop: str
    source_strides: np.ndarray
    parts: np.ndarray
    runs: int
    arguments: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.arguments = (
            len(self.source_strides),
            address_of(self.source_strides),
            len(self.parts),
            address_of(self.parts),
            self.runs,
        )


@cached_by_plan
def fresh_layout(plan: SplitPlan, strides: tuple[int, ...], itemsize: int) -> CopyLayout:
    """Lay out the copy of a source of such strides to the parts of a block.

    Parameters
    ----------
    plan : SplitPlan
        A plan of the source's shape.
    strides : tuple of int
        The source's strides in bytes.
    itemsize : int
        Bytes of an element.

    Returns
    -------
    CopyLayout
        Targets count from the start of the block, see `allocate_parts`.
    """
    positions = block_layout(plan, itemsize).positions
    shape = np.repeat(np.array(plan.shape, np.int64)[:, None], len(plan), axis=1)
    shape[plan.axis] = plan.sizes
    inner = np.cumprod(shape[:0:-1], axis=0)[::-1]
    target_strides = itemsize * np.vstack([inner, np.ones((1, len(plan)), np.int64)])
    return _layout(plan, strides, itemsize, np.array(positions, np.int64), target_strides)


def out_layout(plan: SplitPlan, x: np.ndarray, out: Sequence[np.ndarray]) -> CopyLayout:
    """Lay out the copy of an array to given parts.

    Parameters
    ----------
    plan : SplitPlan
        A plan of the shape of `x`.
    x : ndarray
        The source.
    out : sequence of ndarray
        The parts, as `check_out` lets them pass.

    Returns
    -------
    CopyLayout
        Targets are addresses.
    """
    if all(part.flags.c_contiguous for part in out):
        layout = fresh_layout(plan, x.strides, x.itemsize)
        parts = layout.parts.copy()
        parts[:, TARGET] = [address_of(part) for part in out if part.size]
        return CopyLayout(layout.loop, layout.source_strides, parts, layout.runs)
    addresses = np.array([address_of(part) for part in out], np.int64)
    target_strides = np.array([part.strides for part in out], np.int64).T
    return _layout(plan, x.strides, x.itemsize, addresses, target_strides)


def _layout(
    plan: SplitPlan,
    strides: tuple[int, ...],
    itemsize: int,
    targets: np.ndarray,
    target_strides: np.ndarray,
) -> CopyLayout:
    """Collapse the dims: merge those that step alike, and the last into runs."""
    sizes = np.array(plan.sizes, np.int64)
    full = sizes > 0
    sizes = sizes[full]
    offsets = np.array(plan.offsets, np.int64)[full]
    target_strides = target_strides[:, full]
    dims = [
        (sizes if d == plan.axis else np.full_like(sizes, extent), strides[d], target_strides[d])
        for d, extent in enumerate(plan.shape)
    ]
    # In the target's memory order; dims of a single step go, whatever their strides.
    dims = [dim for dim in dims if np.any(dim[0] != 1)]
    dims.sort(key=lambda dim: abs(int(dim[2][0])), reverse=True)

    run = np.full_like(sizes, itemsize)
    merged: list[tuple[np.ndarray, int, np.ndarray]] = []
    for extent, stride, target_stride in reversed(dims):
        if not merged:
            if np.all((stride == run) & (target_stride == run)):
                run = run * extent
                continue
        else:
            inner_extent, inner_stride, inner_target = merged[-1]
            if np.all(
                (stride == inner_extent * inner_stride)
                & (target_stride == inner_extent * inner_target)
            ):
                merged[-1] = (extent * inner_extent, inner_stride, inner_target)
                continue
        merged.append((extent, stride, target_stride))
    if not merged:
        merged.append((np.ones_like(sizes), 0, np.zeros_like(sizes)))

    dims = merged[::-1]
    sources = offsets * strides[plan.axis]
    loop = _loop(dims, run, sources)
    if loop == "transpose":
        if len(dims) == 1:  # single items: the lines are the parts
            dims.insert(0, (np.ones_like(sizes), int(run[0]), np.zeros_like(sizes)))
        line = min(range(len(dims) - 1), key=lambda d: abs(dims[d][1]))
        dims.insert(-1, dims.pop(line))
    runs = np.prod([extent for extent, _, _ in dims], axis=0)
    columns = [sources, targets[full], run, run * runs]
    columns += [extent for extent, _, _ in dims]
    columns += [target_stride for _, _, target_stride in dims]
    return CopyLayout(
        loop,
        np.array([stride for _, stride, _ in dims], np.int64),
        np.ascontiguousarray(np.stack(columns, axis=1)),
        int(runs[0]) if np.all(runs == runs[0]) else 0,
    )


def _loop(
    dims: list[tuple[np.ndarray, int, np.ndarray]], run: np.ndarray, sources: np.ndarray
) -> str:
    """Choose the loop for a layout."""
    _, step, target_step = dims[-1]
    if np.any(target_step != run):
        return "copy"
    if len(dims) > 1:
        line = min(abs(stride) for _, stride, _ in dims[:-1])
        pays = np.all(run < _LINE) or (np.all(run == line) and line < _SHORT)
        return "transpose" if 0 < line < abs(step) and pays else "copy"
    n, item = len(run), int(run[0])
    if np.all(run == item) and step == n * item and np.all(np.diff(sources) == item):
        if (n, item) in INTERLEAVED:
            return "deal"
        if n >= _MANY and item in (1, 2, 4, 8) and n * item >= _TILE:
            return "transpose"
    return "copy"
