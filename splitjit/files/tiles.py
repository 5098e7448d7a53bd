"""Divide the bytes of a tensor among its parts, and put them together again, tile by tile.

In memory order a tensor is a sequence of rows: one row for each index into the axes
before the split axis. In each row lie the sections, and in each section one run of
bytes of each piece. Here two sections are split into two pieces:

    row                                rows = product of the extents before the axis
    ┌─────────┬─────────┬─────┬─────┐
    │ piece 0 │ piece 1 │  0  │  1  │  tile: whole rows, or a piece of one run; <= `TILE` bytes
    └─────────┴─────────┴─────┴─────┘

Several parts may hold the same piece. A group is a number of consecutive parts that are
equal as a whole; a piece may go to one group or to several.

A Fortran-order tensor is a C-order tensor of the reversed shape, and so are its
parts. Tile by tile, each file is read and written from start to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from splitjit._api.split import split
from splitjit.files.formats.base import Data
from splitjit.files.plan import TensorPlan

TILE = 1 << 20
"""Bytes of a tensor in memory at a time, and of its parts together; at most `MOST` times as many.

Tiles of 8 MB leave the cache of the processor, and took two to four times as long.
"""

MOST = 4
"""The longest tile, for long rows and for many parts, in units of `TILE`."""

RUN = 1 << 23
"""The most bytes that the system copies at a time."""

LONG = 128
"""Mean length of runs, in bytes, from which on it does not pay to load the kernels."""


def divide(
    plan: TensorPlan, take: Callable[[int], np.ndarray], run: Callable[[int], Data]
) -> Iterator[tuple[int, Data]]:
    """Yield the number of a group of equal parts and its next bytes, until all are complete.

    Parameters
    ----------
    plan : TensorPlan
    take : callable
        Reads the next bytes of the tensor, as many as its argument says.
    run : callable
        Returns the next bytes of the tensor, as many as its argument says or fewer. They
        need not be read.

    Yields
    ------
    tuple of int and Data
        The next iteration may overwrite an array.
    """
    rows, widths = plan.runs()
    row = sum(map(sum, widths))
    if _is_copied_by_runs(rows, widths):
        for _ in range(rows):
            for section, piece, width in _runs(widths):
                while width:
                    data = run(min(width, RUN))
                    width -= data.nbytes
                    for group in plan.holders(section, piece):
                        yield group, data
    elif row:
        columns = _Columns(plan, widths)
        most = _rows_of_tile(row, plan.groups)
        parts = columns.buffers(min(rows, most))
        for nbytes in _cut(rows * row, most * row):
            count = nbytes // row
            tile = take(nbytes).view(columns.element).reshape(count, -1)
            out = [parts[first][:count, own] for (first, own), *_ in columns.holders]
            columns.split(tile, out)
            for (first, held), *others in columns.holders:
                for group, own in others:
                    parts[group][:count, own] = parts[first][:count, held]
            yield from enumerate([part[:count] for part in parts])


def assemble(
    plan: TensorPlan,
    take: Callable[[int, int, int], np.ndarray],
    run: Callable[[int, int], Data],
    refuse: Callable[[int, int], Exception],
) -> Iterator[Data]:
    """Yield the next bytes of a tensor, until the tensor is complete.

    Parameters
    ----------
    plan : TensorPlan
    take : callable
        Reads the next bytes of a group of equal parts. Its arguments are the group, the
        number of bytes, and the number of the buffer to read into: 0 or 1.
    run : callable
        Returns the next bytes of a group, as many as its argument says or fewer. They
        need not be read.
    refuse : callable
        Returns the error for two groups that differ, although they hold the same piece.

    Yields
    ------
    Data
        The next iteration overwrites an array.
    """
    rows, widths = plan.runs()
    row = sum(map(sum, widths))
    if _is_copied_by_runs(rows, widths):
        for _ in range(rows):
            for section, piece, width in _runs(widths):
                first, *others = plan.holders(section, piece)
                while width:
                    data: Data
                    if others:
                        nbytes = min(width, TILE)
                        data = array = take(first, nbytes, 0)
                        for group in others:
                            if not np.array_equal(take(group, nbytes, 1), array):
                                raise refuse(first, group)
                    else:
                        data = run(first, min(width, RUN))
                    width -= data.nbytes
                    yield data
    elif row:
        columns = _Columns(plan, widths)
        most = _rows_of_tile(row, plan.groups)
        tile = np.empty((min(rows, most), row // columns.element.itemsize), columns.element)
        for nbytes in _cut(rows * row, most * row):
            count = nbytes // row
            for group, width in enumerate(columns.widths):
                if width:
                    part = take(group, count * width * columns.element.itemsize, 0)
                    runs = columns.runs_of(group)
                    own = part.view(columns.element).reshape(count, -1)
                    _fill(tile[:count], own, group, runs, columns, refuse)
            yield tile[:count]


def _is_copied_by_runs(rows: int, widths: list[list[int]]) -> bool:
    """Return whether the runs are so long that each of them is copied by itself."""
    lengths = [width for pieces in widths for width in pieces]
    row = sum(lengths)
    return rows == 1 or row > MOST * TILE or row * MOST >= TILE * len(lengths)


def _rows_of_tile(row: int, groups: int) -> int:
    """Return how many rows are in memory at a time; with many parts more, for fewer writes."""
    return max(1, min(MOST * TILE, max(TILE, groups * TILE // 32)) // row)


def _fill(
    tile: np.ndarray,
    part: np.ndarray,
    group: int,
    runs: list[tuple[int, slice, slice]],
    columns: _Columns,
    refuse: Callable[[int, int], Exception],
) -> None:
    """Copy the runs of a part into a tile, and compare those that an earlier part has copied."""
    out = [
        tile[:, whole] if first == group else np.empty_like(part[:, own])
        for first, own, whole in runs
    ]
    columns.split(part, out)
    for (first, _, whole), held in zip(runs, out, strict=True):
        if first != group and held.tobytes() != tile[:, whole].tobytes():
            raise refuse(first, group)


def _runs(widths: list[list[int]]) -> Iterator[tuple[int, int, int]]:
    """Yield the section, the piece and the bytes of each run of a row, in order."""
    for section, pieces in enumerate(widths):
        for piece, width in enumerate(pieces):
            yield section, piece, width


class _Columns:
    """Where the runs of a row lie, in elements.

    Attributes
    ----------
    long : bool
        Whether the runs are so long that NumPy copies them at the speed of memory.
    element : dtype
        Plain bytes: NumPy does not copy the padding of structured dtypes.
    lengths : list of int
        The length of each run, in the order of the row.
    holders : list of list of (int, slice)
        For each run, the groups whose parts hold it, with its columns in such a part.
    widths : list of int
        The length of a row of the parts of each group.
    """

    def __init__(self, plan: TensorPlan, widths: list[list[int]]) -> None:
        counts = [width for pieces in widths for width in pieces]
        self.long = sum(counts) >= LONG * len(counts)
        item = max(1, plan.tensor.bits // 8)
        self.element = np.dtype(np.uint8 if self.long else (np.void, item))
        self.lengths: list[int] = []
        self.holders: list[list[tuple[int, slice]]] = []
        self.widths = [0] * plan.groups
        for section, piece, width in _runs(widths):
            length = width // self.element.itemsize
            self.lengths.append(length)
            held = []
            for group in plan.holders(section, piece):
                held.append((group, slice(self.widths[group], self.widths[group] + length)))
                self.widths[group] += length
            self.holders.append(held)

    def runs_of(self, group: int) -> list[tuple[int, slice, slice]]:
        """Return the first holder of each run of a group, and its columns in part and row."""
        runs, start = [], 0
        for length, held in zip(self.lengths, self.holders, strict=True):
            own = dict(held).get(group)
            if own is not None:
                runs.append((held[0][0], own, slice(start, start + length)))
            start += length
        return runs

    def split(self, tile: np.ndarray, out: list[np.ndarray]) -> None:
        """Copy the columns of a tile into arrays, which are as wide together."""
        if not self.long:
            split(tile, [one.shape[1] for one in out], axis=1, out=out)
            return
        start = 0
        for one in out:
            one[:] = tile[:, start : start + one.shape[1]]
            start += one.shape[1]

    def buffers(self, rows: int) -> list[np.ndarray]:
        """Make an array of rows for each group."""
        return [np.empty((rows, width), self.element) for width in self.widths]


def _cut(nbytes: int, most: int) -> Iterator[int]:
    """Yield the sizes of pieces of at most `most` bytes."""
    for start in range(0, nbytes, most):
        yield min(most, nbytes - start)
