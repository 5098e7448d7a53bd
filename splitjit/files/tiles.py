"""Divide the bytes of a tensor among its parts, and put them together again, tile by tile.

In memory order a tensor is a sequence of rows: one row for each index into the axes
before the split axis. In each row lie the sections, and in each section one run of
bytes of each piece. Here two sections are split into two pieces:

    row                                rows = product of the extents before the axis
    ┌─────────┬─────────┬─────┬─────┐
    │ piece 0 │ piece 1 │  0  │  1  │  tile: whole rows, or a piece of one run; <= `TILE` bytes
    └─────────┴─────────┴─────┴─────┘

A Fortran-order tensor is a C-order tensor of the reversed shape, and so are its
parts. Tile by tile, each file is read and written from start to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import splitjit
from splitjit.files.plan import TensorPlan

TILE = 1 << 23
"""The most bytes of a tensor in memory at a time; the same limit applies to its parts together."""


def divide(plan: TensorPlan, take: Callable[[int], np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of a piece and its next bytes, until all pieces are complete.

    Parameters
    ----------
    plan : TensorPlan
    take : callable
        Reads the next bytes of the tensor, as many as its argument says.

    Yields
    ------
    tuple of int and ndarray
        The next iteration overwrites the array.
    """
    rows, widths = plan.runs()
    row = sum(map(sum, widths))
    if rows == 1 or row > TILE // 2:  # each run is contiguous: nothing to rearrange
        for _ in range(rows):
            for section in widths:
                for piece, width in enumerate(section):
                    for nbytes in _cut(width, TILE):
                        yield piece, take(nbytes)
    elif row:
        columns = _Columns(plan, widths)
        parts = columns.buffers(min(rows, TILE // row))
        for nbytes in _cut(rows * row, TILE // row * row):
            count = nbytes // row
            tile = take(nbytes).view(columns.element).reshape(count, -1)
            out = [parts[piece][:count, run] for piece, run, _ in columns.runs]
            splitjit.split(tile, columns.lengths, axis=1, out=out)
            yield from enumerate([part[:count] for part in parts])


def assemble(plan: TensorPlan, take: Callable[[int, int], np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the next bytes of a tensor, until the tensor is complete.

    Parameters
    ----------
    plan : TensorPlan
    take : callable
        Reads the next bytes of a piece: its first argument is the piece, its second
        argument the number of bytes.

    Yields
    ------
    ndarray
        The next iteration overwrites the array.
    """
    rows, widths = plan.runs()
    row = sum(map(sum, widths))
    if rows == 1 or row > TILE // 2:
        for _ in range(rows):
            for section in widths:
                for piece, width in enumerate(section):
                    for nbytes in _cut(width, TILE):
                        yield take(piece, nbytes)
    elif row:
        columns = _Columns(plan, widths)
        tile = np.empty((min(rows, TILE // row), row // columns.element.itemsize), columns.element)
        for nbytes in _cut(rows * row, TILE // row * row):
            count = nbytes // row
            for piece, width in enumerate(map(sum, zip(*widths, strict=True))):
                if width:
                    part = take(piece, count * width).view(columns.element).reshape(count, -1)
                    runs = [(own, whole) for i, own, whole in columns.runs if i == piece]
                    out = [tile[:count, whole] for _, whole in runs]
                    splitjit.split(part, [one.shape[1] for one in out], axis=1, out=out)
            yield tile[:count]


class _Columns:
    """Where the runs of a row lie, in elements.

    Attributes
    ----------
    element : dtype
        Plain bytes: NumPy does not copy the padding of structured dtypes.
    lengths : list of int
        The length of each run, in the order of the row.
    runs : list of tuple of int, slice and slice
        The piece of each run, and its columns in the piece and in the row.
    """

    def __init__(self, plan: TensorPlan, widths: list[list[int]]) -> None:
        self.element = np.dtype((np.void, max(1, plan.tensor.bits // 8)))
        self.lengths = [width // self.element.itemsize for section in widths for width in section]
        pieces = len(widths[0])
        self.runs: list[tuple[int, slice, slice]] = []
        ends = [0] * pieces
        start = 0
        for i, length in enumerate(self.lengths):
            piece = i % pieces
            own = slice(ends[piece], ends[piece] + length)
            self.runs.append((piece, own, slice(start, start + length)))
            ends[piece] = own.stop
            start += length
        self._widths = ends

    def buffers(self, rows: int) -> list[np.ndarray]:
        """Make an array of rows for each piece."""
        return [np.empty((rows, width), self.element) for width in self._widths]


def _cut(nbytes: int, most: int) -> Iterator[int]:
    """Yield the sizes of pieces of at most `most` bytes."""
    for start in range(0, nbytes, most):
        yield min(most, nbytes - start)
