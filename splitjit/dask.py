"""Dask arrays are split lazily: one task per chunk makes all pieces of the chunk.

A part may end inside a chunk of the array, or between two chunks::

    chunks of x   |    0    |    1    |    2    |
    parts         |  a  |         b       |  c  |
    chunks of a   | 0,0 |
    chunks of b         |0,1|    1    |2,0|
    chunks of c                           |2,1|

One task splits chunk 0 into two pieces, and one getitem task per piece passes the
piece to its part. The whole of chunk 1 lies in `b`, so chunk 1 itself is a chunk of
`b`. No chunk is merged with another, and nothing is computed before the parts are.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

try:
    from dask.array import Array
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "dask":
        raise
    raise ImportError("splitjit.dask needs the dask package: pip install splitjit[dask]") from error

from splitjit._api.plan import SplitPlan, cached_plan, plan_split
from splitjit._copy.threads import one_thread
from splitjit._plan.arguments import (
    Indices,
    Lengths,
    normalize_axis,
    rule_of,
)
from splitjit._plan.rules import Rule
from splitjit._plan.sizes import describe_rule
from splitjit.errors import SplitError, SplitTypeError, describe

__all__ = ["split"]


def split(
    x: Array,
    split: Lengths | None = None,
    *,
    axis: SupportsIndex = 0,
    num_outputs: SupportsIndex | None = None,
    num_splits: SupportsIndex | None = None,
    indices: Indices | None = None,
    num_sections: SupportsIndex | None = None,
    out: None = None,
    copy: bool = True,
) -> list[Array]:
    """Split a Dask array lazily. `splitjit.split` calls this function for Dask arrays.

    Parameters
    ----------
    x : dask.array.Array
        The array to split. The sizes of its chunks along the axis are known;
        along other axes they may be unknown.
    split, axis, num_outputs, num_splits, indices, num_sections
        The rule and the axis, see `splitjit.split`.
    out : None
        Any other value is refused: only `dask.array.store` writes lazy arrays.
    copy : bool, default True
        False returns slices of `x` that Dask makes.

    Returns
    -------
    list of dask.array.Array
        The parts. Along the axis, a chunk ends at each end of a part and at
        each end of a chunk of `x`. A part of length 0 has one chunk of length 0.
        Each chunk is a new C-contiguous array that shares no memory with other
        chunks. A chunk of `x` that lies in one part as a whole is not copied: it
        is a chunk of this part.

    Raises
    ------
    SplitError
        In the same cases as `splitjit.split`; if the sizes of chunks along the
        axis are unknown, if `out` is given, or if Dask's experimental query
        planning is on. Nothing is computed.
    SplitTypeError
        In the same cases as `splitjit.split`; if `x` is not a Dask array, or if its
        chunks are not NumPy arrays.

    See Also
    --------
    splitjit.split : Takes Dask arrays, too.
    dask.array.Array : The type of `x` and of the parts.
    dask.compute : Computes several results in one pass.

    Notes
    -----
    One task on one thread splits a chunk for all parts that are computed in one
    call. If a computed chunk is not the array that Dask was told to expect,
    `splitjit.split` either accepts or refuses it when the task runs.

    Examples
    --------
    >>> import dask.array
    >>> import splitjit
    >>> x = dask.array.ones((4, 6), chunks=(2, 4))
    >>> [part.chunks for part in splitjit.split(x, [3, 3], axis=1)]
    [((2, 2), (3,)), ((2, 2), (1, 2))]
    """
    rule = rule_of(split, num_outputs, num_splits, indices, num_sections)
    return split_by_rule(x, axis, rule, out, copy)


def split_by_rule(x: Array, axis: SupportsIndex, rule: Rule, out: Any, copy: Any) -> list[Array]:
    """Split a Dask array lazily by a rule, see `split`."""
    _check_array(x)
    unknown = any(map(math.isnan, x.shape))
    plan = (_plan_of_unknown if unknown else cached_plan)(x.shape, axis, rule)
    return run_plan(plan, x, out, copy)


def _plan_of_unknown(shape: tuple[Any, ...], axis: SupportsIndex, rule: Rule) -> SplitPlan:
    """Plan the split of a shape with unknown extents, which are NaN; the plan has 0 instead."""
    index = normalize_axis(axis, shape)
    _check_length_is_known(shape, index)
    try:
        return cached_plan(tuple([0 if math.isnan(n) else n for n in shape]), index, rule)
    except SplitError as error:
        received = describe_rule(shape, index, rule)
        raise type(error)("split", received, error.rule, hint=error.hint) from None


def run_plan(plan: SplitPlan, x: Array, out: Any, copy: Any) -> list[Array]:
    """Split a Dask array of the shape of the plan lazily, see `split`."""
    _check_array(x)
    shape = x.shape
    # Tasks split chunks of any size along the other axes.
    if len(shape) != len(plan.shape) or not all(
        n == m or math.isnan(n) for n, m in zip(shape, plan.shape, strict=True)
    ):
        raise SplitError("split", f"x of shape {shape}", f"the plan is for shape {plan.shape}")
    _check_length_is_known(shape, plan.axis)
    if not isinstance(copy, bool):
        raise SplitTypeError("split", describe(copy=copy), "must be a bool")
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


def _check_array(x: Any) -> None:
    if not issubclass(type(x), Array):
        rule, hint = "x must be a dask.array.Array", "splitjit.split takes other arrays"
        raise SplitTypeError("split", f"x of type {type(x).__name__}", rule, hint=hint)


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
    cut = Array(graph, name, x.chunks, meta=x._meta)  # each chunk is a list of pieces
    name = f"splitjit-part-{token}"  # Dask sums the times of tasks by the start of their names
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
            if any(map(math.isnan, shape)):
                layer[name, *index] = (_empty_piece, (x.name, *index), axis)
                sources[x.name] = x
            else:
                layer[name, *index] = (np.empty, shape, x.dtype)
    graph = HighLevelGraph.from_collections(name, layer, list(sources.values()))
    return Array(graph, name, chunks, meta=x._meta)


def _indices(x: Array, axis: int, i: int) -> Iterator[tuple[int, ...]]:
    """Yield the indices of the chunks with index i along the axis."""
    before, after = x.numblocks[:axis], x.numblocks[axis + 1 :]
    return itertools.product(*map(range, before), [i], *map(range, after))


def _split_chunk(chunk: np.ndarray, sizes: tuple[int, ...], axis: int) -> list[np.ndarray]:
    """Split a chunk. Dask may send this task to another process."""
    plan = plan_split(chunk.shape, sizes, axis=axis)
    # One allocation per piece, so that Dask can free a piece before the others.
    out = [plan_split(s, num_splits=1).empty(chunk.dtype)[0] for s in plan.output_shapes]
    with one_thread():  # Dask runs other tasks on the other cores
        return plan(chunk, out)


def _empty_piece(chunk: np.ndarray, axis: int) -> np.ndarray:
    """Return the piece of a part of length 0. Only the chunk knows its extents."""
    return np.empty((*chunk.shape[:axis], 0, *chunk.shape[axis + 1 :]), chunk.dtype)
