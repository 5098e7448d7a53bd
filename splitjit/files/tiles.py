"""Divide the bytes of a tensor among its parts, and put them together again, tile by tile.

In memory order a tensor is a sequence of rows: one row for each index into the axes
before the split axis. Each row holds the sections, and each section one run of bytes
per piece. Here two sections are split into two pieces:

    row                                rows = product of the extents before the axis
    ┌─────────┬─────────┬─────┬─────┐
    │ piece 0 │ piece 1 │  0  │  1  │  tile: whole rows, or a piece of one run; <= `TILE` bytes
    └─────────┴─────────┴─────┴─────┘

Long runs go from file to file, and the system copies them if it can. Short ones are split, or
joined, in a tile of whole rows. Several parts may hold the same piece. A group is a run of
consecutive parts that are identical; a piece may go to one group or to several.

A Fortran-order tensor is a C-order tensor of the reversed shape, and so are its
parts. Tile by tile, each file is read and written from start to end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import numpy as np

from splitjit import split
from splitjit.files.file_plan import TensorPlan
from splitjit.files.formats.base import TILE, Data, Source, Tensor, TensorFile

MOST = 4
"""The longest tile, for long rows and for many parts, in units of `TILE`."""

RUN = 1 << 23
"""The most bytes that the system copies at a time."""

LONG = 128
"""Mean run length, in bytes, from which loading the kernels does not pay."""


class Readers:
    """Files that are read tensor by tensor, and stay open meanwhile.

    Parameters
    ----------
    stack : ExitStack
        Closes the files.
    tensors : iterable of (TensorFile, Tensor)
        The tensors in the order in which each file is read.
    """

    def __init__(
        self, stack: contextlib.ExitStack, tensors: Iterable[tuple[TensorFile, Tensor]]
    ) -> None:
        wanted: dict[TensorFile, list[Tensor]] = {}
        for file, tensor in tensors:
            wanted.setdefault(file, []).append(tensor)
        self._sources: dict[TensorFile, Generator[Source]] = {
            file: stack.enter_context(contextlib.closing(file.sources(held)))
            for file, held in wanted.items()
        }

    def next(self, file: TensorFile) -> Source:
        """Return the data of the next tensor of a file."""
        return next(self._sources[file])

    def check(self) -> None:
        """Check the ends of all files, and that no file was changed while it was read."""
        for sources in self._sources.values():
            next(sources, None)


def divide(plan: TensorPlan, source: Source) -> Iterator[tuple[int, Data]]:
    """Yield the number of a group of equal parts and its next bytes, until all are done.

    The next iteration may overwrite them.
    """
    columns = _Columns(plan)
    if columns.are_copied_by_runs:
        for groups, width in columns.runs():
            while width:
                data = source.next(min(width, RUN))
                width -= data.nbytes
                for group in groups:
                    yield group, data
        return
    parts = [np.empty((columns.most, width), columns.element) for width in columns.widths]
    for tile in columns.tiles():
        count = len(tile)
        source.take(tile.reshape(-1).view(np.uint8))
        out = [parts[first][:count, own] for (first, own), *_ in columns.holders]
        columns.split(tile, out)
        for (first, held), *others in columns.holders:
            for group, own in others:
                parts[group][:count, own] = parts[first][:count, held]
        yield from enumerate([part[:count] for part in parts])


def assemble(
    plan: TensorPlan, sources: Sequence[Source], differ: Callable[[int, int], Exception]
) -> Iterator[Data]:
    """Yield the next bytes of a tensor, until the tensor is complete.

    Parameters
    ----------
    plan : TensorPlan
    sources : sequence of Source
        The data of each part.
    differ : callable
        Returns the error for two parts that differ although they hold the same piece.

    Yields
    ------
    Data
        The next iteration may overwrite it.
    """
    columns = _Columns(plan)
    buffers = np.empty((2, MOST * TILE), np.uint8)

    def take(parts: Sequence[int], nbytes: int) -> np.ndarray:
        """Return the next bytes of parts that must be equal."""
        data = sources[parts[0]].take(buffers[0, :nbytes])
        for part in parts[1:]:
            if not np.array_equal(sources[part].take(buffers[1, :nbytes]), data):
                raise differ(parts[0], part)
        return data

    def parts_of(groups: Iterable[int]) -> list[int]:
        return [group * plan.copies + i for group in groups for i in range(plan.copies)]

    if columns.are_copied_by_runs:
        for groups, width in columns.runs():
            parts = parts_of(groups)
            while width:
                if len(parts) > 1:
                    data: Data = take(parts, min(width, TILE))
                else:
                    data = sources[parts[0]].next(min(width, RUN))
                width -= data.nbytes
                yield data
        return
    for tile in columns.tiles():
        for group, width in enumerate(columns.widths):
            if width:
                own = parts_of([group])
                held = take(own, len(tile) * width * columns.element.itemsize)
                first = columns.join(tile, held.view(columns.element), group)
                if first is not None:
                    raise differ(first * plan.copies, own[0])
        yield tile


class _Columns:
    """Where the runs of a row lie, in elements.

    Attributes
    ----------
    rows : int
        The number of rows in memory order.
    most : int
        Rows in memory at a time; more if there are many parts, for fewer writes.
    are_copied_by_runs : bool
        Whether the runs are long enough to be copied one by one.
    element : dtype
        Plain bytes: NumPy would skip the padding of structured dtypes.
    holders : list of list of (int, slice)
        For each run, the groups that hold it, with its columns in their parts.
    widths : list of int
        The length of a row of the parts of each group.
    """

    def __init__(self, plan: TensorPlan) -> None:
        rows, self._runs = plan.runs()
        row, count = sum(width for _, width in self._runs), len(self._runs)
        self.rows = rows if row else 0
        long_runs = row > MOST * TILE or row * MOST >= TILE * count
        self.are_copied_by_runs = self.rows < 2 or long_runs
        if self.are_copied_by_runs:
            return
        self._long = row >= LONG * count  # NumPy copies such runs at memory speed
        item = max(1, plan.tensor.bits // 8)
        self.element = np.dtype(np.uint8 if self._long else (np.void, item))
        tile = min(MOST * TILE, max(TILE, plan.groups * TILE // 32))
        self.most = min(self.rows, max(1, tile // row))
        self.holders: list[list[tuple[int, slice]]] = []
        self.widths = [0] * plan.groups
        for groups, width in self._runs:
            length, held = width // self.element.itemsize, []
            for group in groups:
                held.append((group, slice(self.widths[group], self.widths[group] + length)))
                self.widths[group] += length
            self.holders.append(held)

    def runs(self) -> Iterator[tuple[range, int]]:
        """Yield the groups and the bytes of each run, row by row."""
        for _ in range(self.rows):
            yield from self._runs

    def tiles(self) -> Iterator[np.ndarray]:
        """Yield an array for the next rows, until all rows are complete."""
        row = sum(own.stop - own.start for (_, own), *_ in self.holders)
        tile = np.empty((self.most, row), self.element)
        for start in range(0, self.rows, self.most):
            yield tile[: self.rows - start]

    def split(self, tile: np.ndarray, out: list[np.ndarray]) -> None:
        """Copy the columns of a tile into arrays of the same total width."""
        if not self._long:
            split(tile, [one.shape[1] for one in out], axis=1, out=out)
            return
        start = 0
        for one in out:
            one[:] = tile[:, start : start + one.shape[1]]
            start += one.shape[1]

    def join(self, tile: np.ndarray, part: np.ndarray, group: int) -> int | None:
        """Copy the runs of a part into a tile; compare those that an earlier part has copied.

        Returns
        -------
        int or None
            The first group whose part differs from this one.
        """
        start, held = 0, []
        part = part.reshape(len(tile), -1)
        for (first, own), *others in self.holders:
            whole = tile[:, start : start + own.stop - own.start]
            start += whole.shape[1]
            if first == group:
                held.append((first, whole, whole))
            elif group in dict(others):
                held.append((first, whole, np.empty_like(whole)))
        self.split(part, [out for *_, out in held])
        for first, whole, out in held:
            if out is not whole and out.tobytes() != whole.tobytes():
                return first
        return None
