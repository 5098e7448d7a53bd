"""Dask arrays are split lazily: one task per chunk makes all pieces of the chunk.

A part may end inside a chunk of the array, or between two chunks::

    chunks of x   |    0    |    1    |    2    |
    parts         |  a  |         b       |  c  |
    chunks of a   | 0,0 |
    chunks of b         |0,1|    1    |2,0|
    chunks of c                           |2,1|

One task splits chunk 0 into two pieces, and one getitem task per piece passes it to
its part. All of chunk 1 lies in `b`, so chunk 1 itself becomes a chunk of `b`. Chunks
are never merged, and nothing is computed before the parts are.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjit._api.adapted import by_plan, split_input
from splitjit._copy.buffers import empty_parts
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Request
from splitjit._plan.arguments import check_views, normalize_axis
from splitjit._plan.plan import Plan, describe_rule
from splitjit._runtime.threads import one_thread
from splitjit.errors import SplitError, SplitTypeError


def split_lazily(x: Any, request: Request, out: Any, copy: Any) -> list[Any]:
    """Split a Dask array, see `splitjit.dask.split`."""
    if not is_dask_array(x):
        text, hint = "x must be a dask.array.Array", "splitjit.split takes other arrays"
        raise SplitTypeError("split", f"x of type {type(x).__name__}", text, hint=hint)
    shape, plan = x.shape, request.plan
    if plan is None:
        plan = _plan_of(shape, request)
    # Along the other axes, extents may be unknown: tasks split chunks of any size.
    if len(shape) != len(plan.shape) or not all(
        n == m or math.isnan(n) for n, m in zip(shape, plan.shape, strict=True)
    ):
        raise SplitError("split", f"x of shape {shape}", f"the plan is for shape {plan.shape}")
    _check_length_is_known(shape, plan.axis)
    check_views(None, copy)
    if out is not None:
        rule = "only dask.array.store writes lazy arrays"
        raise SplitError("split", "out for a Dask array", rule)
    if not copy:
        return [x[index] for index in plan.slices]
    if type(x._meta) is not np.ndarray:
        kind = type(x._meta).__name__
        rule, hint = "chunks must be of type ndarray", "copy=False slices chunks of other types"
        raise SplitTypeError("split", f"x with chunks of type {kind}", rule, hint=hint)
    if hasattr(x, "expr"):
        rule = "Dask's experimental array.query-planning must be off"
        hint = "copy=False slices with query planning"
        raise SplitError("split", "x with query planning", rule, hint=hint)
    return _parts(plan, x)


def _plan_of(shape: tuple[Any, ...], request: Request) -> Plan:
    """Plan by a rule, with 0 for unknown extents, which are NaN."""
    if not any(map(math.isnan, shape)):
        return request.plan_of(shape)
    axis = normalize_axis(request.axis, shape)
    _check_length_is_known(shape, axis)
    try:
        return request.plan_of(tuple([0 if math.isnan(n) else n for n in shape]))
    except SplitError as error:
        received = describe_rule(shape, axis, request.rule)
        raise type(error)("split", received, error.rule, hint=error.hint) from None


def _check_length_is_known(shape: tuple[Any, ...], axis: int) -> None:
    if math.isnan(shape[axis]):
        rule = f"the sizes of the chunks along axis {axis} must be known"
        raise SplitError("split", f"x of shape {shape}", rule, hint="call x.compute_chunk_sizes()")


class _Piece(NamedTuple):
    """The piece of a chunk that lies in one part."""

    chunk: int
    number: int | None  # index of the piece within the chunk, or None for a whole chunk
    length: int


def _cut(chunks: Sequence[int], sizes: Sequence[int]) -> tuple[list[list[int]], list[list[_Piece]]]:
    """Return the lengths of the pieces of each chunk, and the pieces of each part."""
    cuts: list[list[int]] = [[] for _ in chunks]
    parts = []
    chunk, left = -1, 0
    for size in sizes:
        pieces = []
        while size:
            while not left:
                chunk += 1
                left = chunks[chunk]
            length = min(size, left)
            number = None if length == chunks[chunk] else len(cuts[chunk])
            pieces.append(_Piece(chunk, number, length))
            cuts[chunk].append(length)
            size -= length
            left -= length
        parts.append(pieces)
    return cuts, parts


def _parts(plan: Plan, x: Any) -> list[Any]:
    from dask.array import Array
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    axis = plan.axis
    cuts, parts = _cut(x.chunks[axis], plan.sizes)
    token = tokenize(x.name, axis, plan.sizes)
    name = f"splitjit-{token}"
    layer = {}
    for i, lengths in enumerate(cuts):
        if len(lengths) > 1:
            task = functools.partial(_split_chunk, sizes=tuple(lengths), axis=axis)
            for index in _indices(x, axis, i):
                layer[name, *index] = (task, (x.name, *index))
    graph = HighLevelGraph.from_collections(name, layer, [x])
    cut = Array(graph, name, x.chunks, meta=x._meta)  # each chunk is a list of pieces
    name = f"splitjit-part-{token}"  # Dask groups task times by name prefix
    return [
        _part(f"{name}-{k}", pieces, x, cut, axis) if pieces else _empty(x, axis)
        for k, pieces in enumerate(parts)
    ]


def _part(name: str, pieces: list[_Piece], x: Any, cut: Any, axis: int) -> Any:
    from dask.array import Array
    from dask.highlevelgraph import HighLevelGraph

    lengths = tuple([piece.length for piece in pieces])
    chunks = (*x.chunks[:axis], lengths, *x.chunks[axis + 1 :])
    layer: dict[tuple[Any, ...], Any] = {}
    sources = {}
    for i, (chunk, number, _) in enumerate(pieces):
        source = x if number is None else cut
        sources[source.name] = source
        for index, origin in zip(_indices(x, axis, i), _indices(x, axis, chunk), strict=True):
            key = (source.name, *origin)
            layer[name, *index] = key if number is None else (operator.getitem, key, number)
    graph = HighLevelGraph.from_collections(name, layer, list(sources.values()))
    return Array(graph, name, chunks, meta=x._meta)


def _empty(x: Any, axis: int) -> Any:
    """Return a part of length 0. If an extent of `x` is unknown, only its chunks know it."""
    from dask.array import empty

    if any(map(math.isnan, x.shape)):
        return x[(*[slice(None)] * axis, slice(0))]
    chunks = (*x.chunks[:axis], (0,), *x.chunks[axis + 1 :])
    return empty(tuple(map(sum, chunks)), dtype=x.dtype, chunks=chunks)


def _indices(x: Any, axis: int, i: int) -> Iterator[tuple[int, ...]]:
    """Yield the indices of the chunks with index i along the axis."""
    before, after = x.numblocks[:axis], x.numblocks[axis + 1 :]
    return itertools.product(*map(range, before), [i], *map(range, after))


def _split_chunk(chunk: Any, sizes: tuple[int, ...], axis: int) -> list[Any]:
    """Split a chunk. Dask may send this task to another process."""
    given = adapt(chunk)
    plan = _plan_of_chunk(given.shape, axis, sizes)
    # One allocation per piece, so that Dask can free a piece before the others.
    dtype = chunk.dtype
    out = [empty_parts(_plan_of_chunk(s, 0, s[:1]), dtype)[0] for s in plan.output_shapes]
    with one_thread():  # Dask runs other tasks on the other cores
        return split_input(given, by_plan(plan), out)


_plan_of_chunk = functools.lru_cache(256)(Plan)
