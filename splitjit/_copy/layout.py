"""Lay out blocks of fresh parts, and the copies that kernels make.

A copy is laid out in as few dims as the strides of both sides allow (`splitjit._abi.merge`).
`splitjit._abi.layout_record` describes the record that a kernel reads.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjit._abi import merge
from splitjit._abi.addresses import address_of
from splitjit._abi.kernels import COLLECTED, INTERLEAVED, LINE, TILE
from splitjit._abi.layout_record import (
    COUNT,
    DIMS,
    FIXED,
    HEADER,
    MAX_RANK,
    NBYTES,
    RUN,
    RUNS,
    SOURCE_OFFSET,
    TARGET_OFFSET,
)
from splitjit._abi.merge import Dim
from splitjit._copy.crossovers import stream_from
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan

ALIGNMENT = 64
"""Alignment of each part in a block, in bytes: a cache line, and the widest vector."""

_FEW = 8  # up to this many parts, indexing a stack is faster than iterating over it
_STACKED_FROM = 5  # for fewer equal parts before unequal ones, a stack gains nothing
_SHORT = 1 << 10  # longer runs are read equally fast in any order
_MANY = 3  # with fewer parts of single items, copying part by part is faster
_FEW_ITEMS = 7  # in large arrays, collecting lines of fewer items beats transposing tiles


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

    def parts(
        self, memory: Any, dtype: np.dtype, start: int
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Make the parts in the buffer `memory`, where the block starts at byte `start`.

        Return the array that is the base of all parts, and the parts.
        """
        if not self.others:
            stack = np.ndarray(self.stack_shape, dtype, memory, start, self.stack_strides)
            few = len(stack) <= _FEW
            return stack, [stack[i] for i in range(len(stack))] if few else list(stack)
        lease = np.frombuffer(memory, np.uint8)
        parts: list[np.ndarray] = []
        if self.stack_shape[0]:
            stack = np.ndarray(self.stack_shape, dtype, lease, start, self.stack_strides)
            parts.extend(stack)
        parts += [np.ndarray(shape, dtype, lease, start + at) for shape, at in self.others]
        return lease, parts


def block_layout(plan: Plan, itemsize: int) -> BlockLayout:
    """Lay out a plan's parts in a block, aligned to `ALIGNMENT` bytes; cached in the plan."""
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
    nbytes = stacked * _aligned(size * inner)
    others = []
    for length in plan.sizes[stacked:]:
        others.append((plan._shape_of(length), nbytes))
        nbytes += _aligned(length * inner)
    if not stacked:
        return BlockLayout(nbytes, (0,), (0,), tuple(others))
    steps = itertools.accumulate(shape[:0:-1], operator.mul, initial=itemsize)
    strides = (_aligned(size * inner), *reversed(list(steps)))
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


def _aligned(nbytes: Any) -> Any:
    """Round a length, or an array of lengths, up to a multiple of `ALIGNMENT`."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _sizes(plan: Plan) -> np.ndarray:
    """Return the part sizes as an array."""
    return np.fromiter(plan.sizes, np.int64, plan._count)


class CopyLayout:
    """A copy, in as few dims as the strides of both sides allow.

    Attributes
    ----------
    loop : str
        The loop that copies. "plain" copies runs one after another. "transpose"
        is for runs that are adjacent in a part but far apart in the source,
        where runs of another dim are nearer. "deinterleave" is for small items
        of the parts that are interleaved in the source.
    record : ndarray of int64
        The layout record, see `splitjit._abi.layout_record`.
    address : int
        The address of the record, valid while this object exists.
    """

    __slots__ = ("address", "loop", "record")

    def __init__(self, loop: str, record: np.ndarray) -> None:
        self.loop, self.record, self.address = loop, record, record.ctypes.data

    @property
    def source_strides(self) -> np.ndarray:
        """The source strides in bytes, a view of shape (dims,); outermost dim first."""
        return self.record[HEADER : HEADER + self.record[DIMS]]

    @property
    def rows(self) -> np.ndarray:
        """The rows of the non-empty parts, a view of shape (n, 4 + 2 * dims)."""
        rows = self.record[HEADER + int(self.record[DIMS]) :]
        return rows.reshape(int(self.record[COUNT]), -1)

    def copy(self) -> CopyLayout:
        """Return an equal layout with its own record."""
        return CopyLayout(self.loop, self.record.copy())

    def to(self, plan: Plan, addresses: Sequence[int]) -> CopyLayout:
        """Return the layout of the same copy to contiguous parts at given addresses."""
        layout = self.copy()
        layout.rows[:, TARGET_OFFSET] = np.array(addresses, np.int64)[_sizes(plan) > 0]
        return layout


def fresh_layout(plan: Plan, strides: tuple[int, ...], itemsize: int) -> CopyLayout:
    """Lay out the copy from a source with these strides to the parts of a block.

    Parameters
    ----------
    plan : Plan
        A plan of the source's shape.
    strides : tuple of int
        The source's strides in bytes.
    itemsize : int
        Bytes of an element.

    Returns
    -------
    CopyLayout
        Target offsets are relative to the start of the block; see `allocate_parts`.
    """
    sizes = _sizes(plan)
    shape = np.repeat(np.array(plan.shape, np.int64)[:, None], plan._count, axis=1)
    shape[plan.axis] = sizes
    lengths = _aligned(itemsize * np.prod(shape, axis=0))
    positions = np.cumsum(lengths) - lengths
    inner = np.cumprod(shape[:0:-1], axis=0)[::-1]
    target_strides = itemsize * np.vstack([inner, np.ones((1, plan._count), np.int64)])
    return _layout(plan, sizes, strides, itemsize, positions, target_strides)


def strided_layout(
    plan: Plan, strides: tuple[int, ...], itemsize: int, parts: Sequence[np.ndarray]
) -> CopyLayout:
    """Lay out the copy from a source with these strides to given parts of any strides.

    Parameters
    ----------
    plan : Plan
        A plan of the source's shape.
    strides : tuple of int
        The source's strides in bytes.
    itemsize : int
        Bytes of an element.
    parts : sequence of ndarray
        The arrays for the parts, already accepted by `check_out`.

    Returns
    -------
    CopyLayout
        Target offsets are addresses.
    """
    addresses = np.array([address_of(part) for part in parts], np.int64)
    target_strides = np.array([part.strides for part in parts], np.int64).T
    return _layout(plan, _sizes(plan), strides, itemsize, addresses, target_strides)


def _layout(
    plan: Plan,
    sizes: np.ndarray,
    strides: tuple[int, ...],
    itemsize: int,
    targets: np.ndarray,
    target_strides: np.ndarray,
) -> CopyLayout:
    """Lay out a copy from the strides of both sides, without the empty parts."""
    source_offsets = (np.cumsum(sizes) - sizes) * strides[plan.axis]
    full = sizes > 0
    sizes, source_offsets, targets, target_strides = (
        sizes[full],
        source_offsets[full],
        targets[full],
        target_strides[:, full],
    )
    extents = [np.full_like(sizes, extent) for extent in plan.shape]
    extents[plan.axis] = sizes
    run, dims = _merged(list(map(Dim, extents, strides, target_strides)), itemsize)
    nbytes = math.prod(plan.shape) * itemsize
    loop = _loop(dims, run, source_offsets, nbytes)
    if loop == "transpose":
        dims = _with_lines_and_steps(dims, run)
    runs = np.prod([dim.extents for dim in dims], axis=0)
    columns = {
        SOURCE_OFFSET: source_offsets,
        TARGET_OFFSET: targets,
        RUN: run,
        NBYTES: run * runs,
    }
    rows = [columns[i] for i in range(FIXED)]
    rows += [dim.extents for dim in dims]
    rows += [dim.target_strides for dim in dims]
    header = {
        DIMS: len(dims),
        COUNT: len(sizes),
        RUNS: int(runs[0]) if np.all(runs == runs[0]) else 0,
    }
    words = [header[i] for i in range(HEADER)]
    words += [dim.source_stride for dim in dims]
    return CopyLayout(loop, np.concatenate([words, np.stack(rows, axis=1).ravel()], dtype=np.int64))


def _merged(dims: list[Dim], itemsize: int) -> tuple[np.ndarray, list[Dim]]:
    """Return the run of each part, and the merged dims, at least one, the outermost first."""
    rank, items = len(dims), np.ones_like(dims[0].extents)
    order, groups, inners = [0] * rank, [0] * rank, [0] * rank
    merge.order_dims(rank, [int(dim.target_strides[0]) for dim in dims], order)
    item = Dim(items, itemsize, items * itemsize)
    count = merge.merge([*dims, item], rank, order, groups, inners)
    extents = [items] * (count + 1)
    for dim, group in zip(dims, groups, strict=True):
        if group >= 0:
            extents[group] = extents[group] * dim.extents
    made = [dims[d]._replace(extents=n) for d, n in zip(inners, extents[1:], strict=False)]
    return itemsize * extents[0], made[::-1] or [Dim(items, 0, 0 * items)]


def _with_lines_and_steps(dims: list[Dim], run: np.ndarray) -> list[Dim]:
    """Order dims for the transpose loop: lines are the last dim but one, steps the last dim."""
    if len(dims) == 1:  # single items: each part is one line
        dims = [Dim(np.ones_like(run), int(run[0]), np.zeros_like(run)), *dims]
    *outer, steps = dims
    lines = min(range(len(outer)), key=lambda d: abs(outer[d].source_stride))
    return [*outer[:lines], *outer[lines + 1 :], outer[lines], steps]


def _loop(dims: list[Dim], run: np.ndarray, source_offsets: np.ndarray, nbytes: int) -> str:
    """Choose the loop for a layout."""
    *outer, inner = dims
    step = inner.source_stride
    if np.any(inner.target_strides != run):
        return "plain"
    if outer:
        line = min(abs(dim.source_stride) for dim in outer)
        pays = np.all(run < LINE) or (np.all(run == line) and line < _SHORT)
        return "transpose" if 0 < line < abs(step) and pays else "plain"
    n, item = len(run), int(run[0])
    if np.all(run == item) and step == n * item and np.all(np.diff(source_offsets) == item):
        if (n, item) in INTERLEAVED:
            return "deinterleave"
        # Rows shorter than the vector of a transposed tile are copied faster part by part.
        if item in (1, 2, 4, 8, 16) and n >= _MANY and n * item >= TILE:
            is_collected = item in COLLECTED and n < _FEW_ITEMS
            return "plain" if is_collected and nbytes >= stream_from(item) else "transpose"
    return "plain"
