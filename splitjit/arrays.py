"""What goes in and what comes out: coercion, `out` checks, allocation, layout.

The boundary between users' arrays and the kernels' addresses and strides.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import DTypeLike

from splitjit.errors import SplitError, SplitTypeError, describe
from splitjit.planner import SplitPlan

TARGET = 1
"""The column of `CopyLayout.parts` that says where parts go."""

ALIGNMENT = 64
"""Bytes to which every part of a block is aligned: a cache line, a vector."""


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
    except (TypeError, ValueError, RuntimeError) as error:
        raise SplitTypeError(
            "split", f"x of type {type(x).__name__}", f"must be an array: {error}"
        ) from error


def address(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    return array.ctypes.data


# ---- fresh parts ----------------------------------------------------------------------


@functools.lru_cache(maxsize=512)
def _part_positions(plan: SplitPlan, itemsize: int) -> tuple[tuple[int, ...], int]:
    """Return where each part starts in its plan's block, and the block's length."""
    lengths = [-(-math.prod(s) * itemsize // ALIGNMENT) * ALIGNMENT for s in plan.output_shapes]
    ends = list(itertools.accumulate(lengths, initial=0))
    return tuple(ends[:-1]), ends[-1]


def allocate_parts(plan: SplitPlan, dtype: np.dtype) -> tuple[list[np.ndarray], int]:
    """Allocate the parts of a plan in one block.

    Parameters
    ----------
    plan : SplitPlan
        The plan whose parts are wanted.
    dtype : dtype
        Their dtype; it holds no objects.

    Returns
    -------
    parts : list of ndarray
        New C-contiguous arrays, uninitialized, each aligned to `ALIGNMENT`
        bytes. The block is freed once all of them are gone.
    address : int
        Where the block starts.
    """
    positions, nbytes = _part_positions(plan, dtype.itemsize)
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    base = address(block)
    start = -base % ALIGNMENT
    parts = [
        np.ndarray(shape, dtype, block, start + position)
        for shape, position in zip(plan.output_shapes, positions, strict=True)
    ]
    return parts, base + start


def empty_parts(plan: SplitPlan, dtype: DTypeLike) -> list[np.ndarray]:
    """Allocate the parts of a plan, uninitialized; objects one array a part."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        return [np.empty(shape, dtype) for shape in plan.output_shapes]
    return allocate_parts(plan, dtype)[0]


# ---- out ------------------------------------------------------------------------------


def check_out(plan: SplitPlan, x: np.ndarray, out: Any) -> Sequence[np.ndarray]:
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
    sequence of ndarray
        `out` itself.

    Raises
    ------
    SplitError, SplitTypeError
        If one of these does not hold.
    """
    if not isinstance(out, Sequence) or not all(isinstance(part, np.ndarray) for part in out):
        kinds = [type(part).__name__ for part in out] if isinstance(out, Sequence) else type(out)
        raise SplitTypeError("split", describe(out=kinds), "must be a sequence of ndarrays")
    if len(out) != len(plan):
        raise SplitError(
            "split",
            f"out of {len(out)} arrays",
            f"must have an array for each of {len(plan)} parts",
        )
    own_memory = x.flags.owndata
    for i, (part, shape) in enumerate(zip(out, plan.output_shapes, strict=True)):
        flags = part.flags
        if part.shape != shape:
            received = f"out[{i}] of shape {part.shape}"
            raise SplitError("split", received, f"part {i} has shape {shape}")
        if part.dtype != x.dtype:
            received = f"out[{i}] of dtype {part.dtype}"
            raise SplitTypeError("split", received, f"the dtype must be that of x, {x.dtype}")
        if not flags.writeable:
            raise SplitError("split", f"out[{i}] is read-only", "out must be writeable")
        if not (flags.c_contiguous or part.size == 0) and _overlaps_itself(part):
            received = f"out[{i}] of strides {part.strides}"
            raise SplitError("split", received, "its elements must not share memory")
        own_memory = own_memory and flags.owndata
    # Arrays that own their memory share it only with themselves.
    if not own_memory or len({id(x), *map(id, out)}) <= len(out):
        _check_apart([(f"out[{i}]", part) for i, part in enumerate(out)] + [("x", x)])
    return out


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
    # Not nested like those of an array in memory order: look at every element.
    starts = np.zeros((), np.intp)
    for stride, extent in zip(array.strides, array.shape, strict=True):
        starts = np.add.outer(starts, np.arange(extent) * stride)
    return bool(np.diff(np.sort(starts, axis=None)).min() < array.itemsize)


def _check_apart(arrays: list[tuple[str, np.ndarray]]) -> None:
    """Refuse arrays that share an element; interleaved memory is fine."""
    spans = sorted((*byte_bounds(array), i) for i, (_, array) in enumerate(arrays) if array.size)
    for k, (_, end, i) in enumerate(spans):
        for start, _, j in itertools.islice(spans, k + 1, None):
            if start >= end:
                break
            if _share_memory(arrays[i][1], arrays[j][1]):
                first, second = arrays[min(i, j)][0], arrays[max(i, j)][0]
                raise SplitError("split", f"{first} and {second}", "must not share memory")


def _share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10**6)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True  # an exact answer could take forever


# ---- layout ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CopyLayout:
    """What a kernel copies, in as few dims as the strides of both sides allow.

    Attributes
    ----------
    source_strides : ndarray of int64, shape (dims,)
        Bytes between runs of the source, outermost dim first.
    parts : ndarray of int64, shape (n, 4 + 2 * dims)
        A row for each part that is not empty: where it starts in the source,
        where in the target, the bytes of a run, the bytes in all; then its
        extents, then its strides in the target.
    runs : int
        How many runs each part has, if all have the same; else 0.
    """

    source_strides: np.ndarray
    parts: np.ndarray
    runs: int


@functools.lru_cache(maxsize=512)
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
    positions, _ = _part_positions(plan, itemsize)
    shape = np.broadcast_to(np.array(plan.shape, np.int64)[:, None], (len(plan.shape), len(plan)))
    shape = shape.copy()
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
    addresses = np.array([address(part) for part in out], np.int64)
    if all(part.flags.c_contiguous for part in out):
        layout = fresh_layout(plan, x.strides, x.itemsize)
        parts = layout.parts.copy()
        parts[:, TARGET] = addresses[np.array(plan.sizes) > 0]
        return CopyLayout(layout.source_strides, parts, layout.runs)
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
    full = np.array(plan.sizes) > 0
    sizes = np.array(plan.sizes, np.int64)[full]
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
    runs = np.prod([extent for extent, _, _ in dims], axis=0)
    columns = [offsets * strides[plan.axis], targets[full], run, run * runs]
    columns += [extent for extent, _, _ in dims]
    columns += [target_stride for _, _, target_stride in dims]
    return CopyLayout(
        np.array([stride for _, stride, _ in dims], np.int64),
        np.ascontiguousarray(np.stack(columns, axis=1)),
        int(runs[0]) if np.all(runs == runs[0]) else 0,
    )
