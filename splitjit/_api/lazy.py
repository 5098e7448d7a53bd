"""Dask arrays are split lazily: one task copies each piece of a chunk.

A part may end inside a chunk of the array, or between two chunks::

    chunks of x   |    0    |    1    |    2    |
    parts         |  a  |         b       |  c  |
    chunks of a   | 0,0 |
    chunks of b         |0,1|    1    |2,0|
    chunks of c                           |2,1|

One task for `a` and one for `b` copy their pieces of chunk 0. All of chunk 1 lies in `b`, so
chunk 1 itself becomes a chunk of `b`. Chunks are never merged, and nothing is computed
before the parts are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from splitjit._copy.decision import split_input
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Request, by_plan
from splitjit._plan.arguments import check_views, normalize_axis
from splitjit._plan.plan import Plan, values_of_rule
from splitjit._runtime.threads import one_thread
from splitjit.errors import SplitError, SplitTypeError, pairs


def split_lazily(x: Any, request: Request, out: Any, copy: Any) -> list[Any]:
    """Split a Dask array, see `splitjit.dask.split`."""
    if not is_dask_array(x):
        text, hint = "x must be a dask.array.Array", "splitjit.split takes other arrays"
        raise SplitTypeError.of([("x", f" of type {type(x).__name__}")], text, hint)
    shape, plan = x.shape, request.plan
    if plan is None:
        plan = _plan_of(shape, request)
    # Along the other axes, extents may be unknown: tasks split chunks of any size.
    if len(shape) != len(plan.shape) or not all(
        n == m or math.isnan(n) for n, m in zip(shape, plan.shape, strict=True)
    ):
        received = [("x", f" of shape {shape}")]
        raise SplitError.of(received, f"the plan is for shape {plan.shape}")
    _check_length_is_known(shape, plan.axis)
    check_views(None, copy)
    if out is not None:
        rule = "only dask.array.store writes lazy arrays"
        raise SplitError.of([("out", " for a Dask array")], rule)
    if not copy:
        return [x[index] for index in plan.slices]
    if type(x._meta) is not np.ndarray:
        kind = type(x._meta).__name__
        rule, hint = "chunks must be of type ndarray", "copy=False slices chunks of other types"
        raise SplitTypeError.of([("x", f" with chunks of type {kind}")], rule, hint)
    if hasattr(x, "expr"):
        rule = "Dask's experimental array.query-planning must be off"
        hint = "copy=False slices with query planning"
        raise SplitError.of([("x", " with query planning")], rule, hint)
    pieces = _pieces(x.chunks[plan.axis], plan.sizes)
    return [_part(x, plan.axis, each) for each in pieces]


def _plan_of(shape: tuple[Any, ...], request: Request) -> Plan:
    """Plan by a rule, with 0 for unknown extents, which are NaN."""
    if not any(map(math.isnan, shape)):
        return request.plan_of(shape)
    axis = normalize_axis(request.axis, shape)
    _check_length_is_known(shape, axis)
    try:
        return request.plan_of(tuple([0 if math.isnan(n) else n for n in shape]))
    except SplitError as error:
        received = pairs(**values_of_rule(shape, axis, request.rule))
        raise type(error).of(received, error.rule, error.hint) from None


def _check_length_is_known(shape: tuple[Any, ...], axis: int) -> None:
    if math.isnan(shape[axis]):
        rule = f"the sizes of the chunks along axis {axis} must be known"
        raise SplitError.of([("x", f" of shape {shape}")], rule, "call x.compute_chunk_sizes()")


_Cut = tuple[int, int, int]
"""The lengths of a chunk before, in and after a piece."""


def _pieces(chunks: Sequence[int], sizes: Sequence[int]) -> Iterator[list[tuple[int, _Cut]]]:
    """Yield the pieces of each part: the index of a chunk, and how it is cut."""
    chunk = start = 0
    for size in sizes:
        pieces = []
        while size:
            length = min(size, chunks[chunk] - start)
            if length:
                pieces.append((chunk, (start, length, chunks[chunk] - start - length)))
            size -= length
            start += length
            if start == chunks[chunk]:
                chunk, start = chunk + 1, 0
        yield pieces


def _part(x: Any, axis: int, pieces: list[tuple[int, _Cut]]) -> Any:
    if not pieces:
        return _empty(x, axis)
    lengths = tuple([length for _, (_, length, _) in pieces])
    cuts = {
        i: cut for i, (_, cut) in enumerate(pieces) if sum(cut) > cut[1]
    }  # the others are whole
    # Not `x[index]`: Dask's task for it copies pieces of less than half of a chunk, by NumPy.
    chunks = x.blocks[(*[slice(None)] * axis, [chunk for chunk, _ in pieces])]
    return chunks.map_blocks(
        _copy_piece,
        cuts,
        axis,
        chunks=(*x.chunks[:axis], lengths, *x.chunks[axis + 1 :]),
        meta=x._meta,
        token="splitjit-part",  # Dask groups task times by name prefix
    )


def _empty(x: Any, axis: int) -> Any:
    """Return a part of length 0. If an extent of `x` is unknown, only its chunks know it."""
    from dask.array import empty

    if any(map(math.isnan, x.shape)):
        return x[(*[slice(None)] * axis, slice(0))]
    chunks = (*x.chunks[:axis], (0,), *x.chunks[axis + 1 :])
    return empty(tuple(map(sum, chunks)), dtype=x.dtype, chunks=chunks)


def _copy_piece(chunk: Any, cuts: dict[int, _Cut], axis: int, block_id: tuple[int, ...]) -> Any:
    """Return the part's piece of a chunk. Dask may send this task to another process."""
    sizes = cuts.get(block_id[axis])
    if sizes is None:
        return chunk
    with one_thread():  # Dask runs other tasks on the other cores
        piece = _split(chunk, axis, sizes, False)[1]
        return _split(piece, 0, piece.shape[:1], True)[0]


def _split(x: Any, axis: int, sizes: tuple[int, ...], copy: bool) -> list[Any]:
    given = adapt(x)
    return split_input(given, by_plan(_plan_of_chunk(given.shape, axis, sizes)), None, copy)


_plan_of_chunk = functools.lru_cache(256)(Plan)
