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

import math
from bisect import bisect, bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np

from splitjit._inputs.input import Input, Request
from splitjit._plan.arguments import normalize_axis
from splitjit._plan.plan import Plan
from splitjit.errors import OUT, SplitError, SplitTypeError, X


class Lazy(Input):
    """A Dask array. Its parts are Dask arrays, which Dask computes when they are needed.

    Its tasks call `copy_piece`, which splits a chunk.
    """

    library = "Dask"

    def __init__(self, x: Any, copy_piece: Callable[..., Any]) -> None:
        self.x, self.array, self._copy_piece = x, None, copy_piece

    def made_by_library(self, request: Request, copy: bool) -> list[Any]:
        """Return slices of the array, or parts whose tasks copy."""
        x, plan = self.x, self._planned(request)
        if not copy:
            return [x[index] for index in plan.slices]
        if type(x._meta) is not np.ndarray:
            received = f"{X} with chunks of type {type(x._meta).__name__}"
            hint = "split with copy=False slices chunks of other types"
            raise SplitTypeError.of(received, "chunks must be of type ndarray", hint)
        if hasattr(x, "expr"):
            rule = "Dask's experimental array.query-planning must be off"
            hint = "split with copy=False slices with query planning"
            raise SplitError.of(f"{X} with query planning", rule, hint)
        ends = np.cumsum(x.chunks[plan.axis]).tolist()
        return [_part(x, plan.axis, ends, k, k + size, self._copy_piece) for k, size in plan]

    def targets_of_library(self, request: Request, out: Any) -> None:
        """Refuse `out`."""
        self._planned(request)
        raise _no_out()

    def joined(self, parts: list[Any], axis: int, out: Any, stacks: bool) -> Any:
        """Return a Dask array of the chunks of all parts."""
        if out is not None:
            raise _no_out()
        from dask.array import concatenate, stack

        try:
            return (stack if stacks else concatenate)(parts, axis)  # type: ignore[no-untyped-call]
        except ValueError as error:
            received, rule = f"parts of shapes {[x.shape for x in parts]}", "extents must be known"
            hint = "call compute_chunk_sizes() of those with nan"
            raise SplitError.of(received, rule, hint) from error

    def refused(self, error: Exception) -> bool:
        """Return that errors of Dask reach the user."""
        return False

    def _planned(self, request: Request) -> Plan:
        """Return the plan. Along other axes, extents may be unknown: tasks split any chunks."""
        shape = self.x.shape
        if request.plan is not None:
            request.plan_of(shape)  # may refuse the rank
        axis = normalize_axis(request.axis, shape)
        if math.isnan(shape[axis]):
            rule = f"the sizes of the chunks along axis {axis} must be known"
            raise SplitError.of(f"{X} of shape {shape}", rule, f"call {X}.compute_chunk_sizes()")
        return request.plan_of(shape)


def _no_out() -> SplitError:
    return SplitError.of(f"{OUT} for a Dask array", "only dask.array.store writes lazy arrays")


def _part(x: Any, axis: int, ends: list[int], start: int, stop: int, copy_piece: Any) -> Any:
    cuts = {}  # by the number of a chunk: its lengths before, in and after the piece
    for i in range(bisect(ends, start), bisect_left(ends, stop) + 1):
        n, end = x.chunks[axis][i], ends[i]
        before, after = max(start - end + n, 0), max(end - stop, 0)
        if before + after < n:
            cuts[i] = before, n - before - after, after
    if not cuts:
        return _empty(x, axis)
    # Not `x[index]`: Dask's task for it copies pieces of less than half of a chunk, by NumPy.
    chunks = x.blocks[(*[slice(None)] * axis, [*cuts])]
    return chunks.map_blocks(
        copy_piece,
        tuple(cuts.values()),
        axis,
        chunks=(*x.chunks[:axis], tuple([n for _, n, _ in cuts.values()]), *x.chunks[axis + 1 :]),
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
