"""Dask arrays: one task a chunk makes all its pieces, once somebody computes them.

Parts end within chunks of the array, or between them::

    chunks of x   |    0    |    1    |    2    |
    parts         |  a  |         b       |  c  |
    chunks of a   | 0,0 |
    chunks of b         |0,1|    1    |2,0|
    chunks of c                           |2,1|

One task splits chunk 0 into two pieces, and a getitem task for each hands it to
its part. Chunk 1 lies in `b` as a whole, and is a chunk of `b` as it is. Nothing
is rechunked, and nothing is computed until the parts are.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.array import Array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph

from splitjit._core.plan import SplitPlan, cached_plan, plan_split
from splitjit._core.threads import one_thread
from splitjit.errors import SplitError, SplitTypeError, describe


def split(
    x: Array, split: Any, axis: Any, num_outputs: Any, num_splits: Any, out: Any, copy: Any
) -> list[Array]:
    """Split a Dask array lazily; `splitjit.split` comes here with one.

    Parameters
    ----------
    x : dask.array.Array
        The array to split, its chunks of known sizes.
    split, axis, num_outputs, num_splits
        How, see `splitjit.split`.
    out : None
        Refused otherwise: `dask.array.store` writes lazy arrays.
    copy : bool
        False returns Dask's own slices of `x`.

    Returns
    -------
    list of dask.array.Array
        The parts. Along the axis, their chunks end where they do, and where
        those of `x` do; a part of length 0 has a chunk of length 0. Each chunk
        is a new C-contiguous array that shares no memory with others, but
        those of `x` that lie in one part as a whole are passed on, not copied.

    Raises
    ------
    SplitError
        As `splitjit.split`; if chunks are of unknown sizes, `out` is given, or
        Dask's experimental query planning is on. Nothing is computed.
    SplitTypeError
        As `splitjit.split`; if the chunks are not NumPy arrays.

    Notes
    -----
    A chunk is split once for all parts that are computed in one call, on one
    thread. Chunks that are, when computed, not what Dask was told are taken as
    `splitjit.split` takes arrays, or refused then.

    Examples
    --------
    >>> import dask.array
    >>> import splitjit
    >>> x = dask.array.ones((4, 6), chunks=(2, 4))
    >>> [part.chunks for part in splitjit.split(x, [3, 3], axis=1)]
    [((2, 2), (3,)), ((2, 2), (1, 2))]
    """
    return run_plan(cached_plan(_shape(x), split, axis, num_outputs, num_splits), x, out, copy)


def run_plan(plan: SplitPlan, x: Array, out: Any, copy: Any) -> list[Array]:
    """Split a Dask array of the plan's shape lazily, see `split`."""
    shape = _shape(x)
    if shape != plan.shape:
        raise SplitError("split", f"x of shape {shape}", f"the plan is for shape {plan.shape}")
    if not isinstance(copy, bool):
        raise SplitTypeError("split", describe(copy=copy), "must be a bool")
    if out is not None:
        raise SplitError("split", "out for a Dask array", "dask.array.store writes lazy arrays")
    if not copy:
        return [x[index] for index in plan.slices]
    if type(x._meta) is not np.ndarray:
        kind = type(x._meta).__name__
        rule = "chunks must be of type ndarray; copy=False slices others"
        raise SplitTypeError("split", f"x with chunks of type {kind}", rule)
    if hasattr(x, "expr"):
        rule = "Dask's experimental array.query-planning must be off; copy=False slices"
        raise SplitError("split", "x with query planning", rule)
    return _parts(plan, x)


def _shape(x: Array) -> tuple[int, ...]:
    shape: tuple[int, ...] = x.shape
    if any(map(math.isnan, shape)):
        rule = "chunks must be of known sizes, see x.compute_chunk_sizes()"
        raise SplitError("split", f"x of shape {shape}", rule)
    return shape


class _Piece(NamedTuple):
    """What a part has of a chunk."""

    chunk: int
    number: int | None  # among the pieces of the chunk, or None: all of it
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


def _parts(plan: SplitPlan, x: Array) -> list[Array]:
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
    cut = Array(graph, name, x.chunks, meta=x._meta)  # its chunks are lists of pieces
    name = f"splitjit-part-{token}"  # Dask takes the times of like names together
    return [_part(f"{name}-{k}", pieces, x, cut, axis) for k, pieces in enumerate(parts)]


def _part(name: str, pieces: list[_Piece], x: Array, cut: Array, axis: int) -> Array:
    lengths = tuple([piece.length for piece in pieces]) or (0,)
    chunks = (*x.chunks[:axis], lengths, *x.chunks[axis + 1 :])
    layer: dict[tuple[Any, ...], Any] = {}
    sources = {}
    for i, (chunk, number, _) in enumerate(pieces):
        source = x if number is None else cut
        sources[source.name] = source
        for index, origin in zip(_indices(x, axis, i), _indices(x, axis, chunk), strict=True):
            key = (source.name, *origin)
            layer[name, *index] = key if number is None else (operator.getitem, key, number)
    if not pieces:
        for index in _indices(x, axis, 0):
            shape = [sizes[i] for sizes, i in zip(chunks, index, strict=True)]
            layer[name, *index] = (np.empty, shape, x.dtype)
    graph = HighLevelGraph.from_collections(name, layer, list(sources.values()))
    return Array(graph, name, chunks, meta=x._meta)


def _indices(x: Array, axis: int, i: int) -> Iterator[tuple[int, ...]]:
    """Go through the chunks that are the i-th along the axis."""
    before, after = x.numblocks[:axis], x.numblocks[axis + 1 :]
    return itertools.product(*map(range, before), [i], *map(range, after))


def _split_chunk(chunk: np.ndarray, sizes: tuple[int, ...], axis: int) -> list[np.ndarray]:
    """Split a chunk; runs in whichever process Dask sends it to."""
    plan = plan_split(chunk.shape, sizes, axis=axis)
    # Memory of its own for each, so that one can be freed before the others.
    out = [plan_split(s, num_splits=1).empty(chunk.dtype)[0] for s in plan.output_shapes]
    with one_thread():  # Dask has the other cores at work on other chunks
        return plan(chunk, out)
