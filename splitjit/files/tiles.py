"""Divide the bytes of a tensor among its parts, and put them together again, tile by tile.

In memory order a tensor is a sequence of rows: one row for each index into the axes
before the split axis. Each row holds the sections, and each section one run of bytes
per piece. Here two sections are split into two pieces:

    row                                rows = product of the extents before the axis
    ┌─────────┬─────────┬─────┬─────┐
    │ piece 0 │ piece 1 │  0  │  1  │  tile: whole rows, or a piece of one run
    └─────────┴─────────┴─────┴─────┘

Long runs go from file to file, and the system copies them if it can. Short ones are split, or
joined, in a tile of whole rows. Several consecutive parts may hold the same piece.

A Fortran-order tensor is a C-order tensor of the reversed shape, and so are its
parts. Tile by tile, each file is read and written from start to end.
"""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from splitjit import SplitError, split
from splitjit.files.file_plan import FilePlan, TensorPlan
from splitjit.files.formats.base import TILE, Data, Source, Tensor, TensorFile
from splitjit.files.staging import Staged

MOST = 4
"""The longest tile, for long rows and for many parts, in units of `TILE`."""

LONG = 128
"""Mean run length, in bytes, from which NumPy copies faster than kernels that must be loaded."""


Progress = Callable[[int, int], object]
"""Called with the number of bytes written so far, and the total."""


def write_parts(file: FilePlan, staged: Sequence[Staged], count: Callable[[int], object]) -> None:
    """Write the parts of one file; call `count` with the bytes written since the last call."""
    with contextlib.ExitStack() as stack:
        parts, inputs = [], file.statuses
        for i, one in enumerate(staged):
            one.protect(*inputs)
            parts.append(file.like.create(one, file.part(i), file.metadata(i)))
            stack.callback(parts[-1].close)
        opened = stack.enter_context(open_sources([(one.file, one.tensor) for one in file.tensors]))
        for plan in file.tensors:
            for i, part in enumerate(parts):
                part.begin(plan.part(i))
            for i, data in divide(plan, next(opened[plan.file])):
                parts[i].write(data)
                count(data.nbytes)


@contextlib.contextmanager
def open_sources(
    tensors: Iterable[tuple[TensorFile, Tensor]],
) -> Iterator[dict[TensorFile, Generator[Source]]]:
    """Open files, which are read tensor by tensor in the ``with`` block.

    At its end, check the ends of all files, and that no file was changed while it was read.

    Parameters
    ----------
    tensors : iterable of (TensorFile, Tensor)
        The tensors in the order in which each file is read.

    Yields
    ------
    dict of TensorFile to generator of Source
        For each file, the data of its tensors.
    """
    wanted: dict[TensorFile, list[Tensor]] = {}
    for file, tensor in tensors:
        wanted.setdefault(file, []).append(tensor)
    opened = {file: file.sources(held) for file, held in wanted.items()}
    with contextlib.ExitStack() as stack:
        for sources in opened.values():
            stack.enter_context(contextlib.closing(sources))
        yield opened
        for sources in opened.values():
            next(sources, None)


def divide(plan: TensorPlan, source: Source) -> Iterator[tuple[int, Data]]:
    """Yield the number of a part and its next bytes, until all parts are complete.

    The next iteration may overwrite them.
    """
    runs = _long_runs(plan)
    if runs is not None:
        for holders, width in runs:
            for data in source.next(width):
                for part in holders:
                    yield part, data
        return
    pieces, are_long, tiles = _columns(plan)
    for tile, parts in tiles:
        source.take(tile)
        if not are_long:
            out = [parts[first][:, own] for _, ((first, own), *_) in pieces]
            split(tile, [one.shape[1] for one in out], axis=1, out=out)
        for piece, columns in pieces:
            for part, own in columns if are_long else columns[1:]:
                parts[part][:, own] = tile[:, piece]
        for part, held in enumerate(parts):
            yield part, held.reshape(-1).view(np.uint8)


def assemble(plan: TensorPlan, sources: Sequence[tuple[Path, Source]]) -> Iterator[Data]:
    """Yield the next bytes of a tensor, until the tensor is complete.

    Parameters
    ----------
    plan : TensorPlan
    sources : sequence of (Path, Source)
        The file of each part, and its data.

    Yields
    ------
    Data
        The next iteration may overwrite it.

    Raises
    ------
    SplitError
        If two parts differ although they hold the same piece.
    """

    def check_equal(first: int, held: np.ndarray, second: int, other: np.ndarray) -> None:
        if held.tobytes() != other.tobytes():
            received = f"{plan.name or 'the array'} in {sources[first][0]} and {sources[second][0]}"
            rule = "a tensor that was copied must be equal in all parts"
            raise SplitError("join", received, rule)

    runs = _long_runs(plan)
    if runs is not None:
        buffers = np.empty((2, TILE), np.uint8)
        for (first, *others), width in runs:
            if not others:
                yield from sources[first][1].next(width)
                continue
            for start in range(0, width, TILE):
                held, other = buffers[:, : width - start]
                sources[first][1].take(held)
                for part in others:
                    check_equal(first, held, part, sources[part][1].take(other))
                yield held
        return
    pieces, _, tiles = _columns(plan)
    for tile, parts in tiles:
        for part, (_, source) in enumerate(sources):
            source.take(parts[part])
        for piece, ((first, own), *copies) in pieces:
            held = parts[first][:, own]
            tile[:, piece] = held
            for part, columns in copies:
                check_equal(first, held, part, parts[part][:, columns])
        yield tile.reshape(-1).view(np.uint8)


def _long_runs(plan: TensorPlan) -> Iterable[tuple[range, int]] | None:
    """Return the holders and the bytes of each run, row by row; None if the runs are short."""
    rows, runs = plan.runs()
    row = sum(width for _, width in runs)
    if rows > 1 and 0 < row <= MOST * TILE and row * MOST < TILE * len(runs):
        return None
    return itertools.chain.from_iterable(itertools.repeat(runs, rows if row else 0))


Pieces = Sequence[tuple[slice, Sequence[tuple[int, slice]]]]
"""For each run, its columns in a row, and the parts that hold it, with its columns in them.

Columns are counted in elements.
"""

Tiles = Iterator[tuple[np.ndarray, list[np.ndarray]]]
"""Arrays for the next rows, whole and of each part, until all rows are complete."""


def _columns(plan: TensorPlan) -> tuple[Pieces, bool, Tiles]:
    """Return where short runs lie, whether NumPy copies them, and the tiles to copy them in."""
    rows, runs = plan.runs()
    # Plain bytes: NumPy would skip the padding of structured dtypes.
    element = np.dtype((np.void, max(1, plan.tensor.bits // 8)))
    pieces, width, widths = [], 0, [0] * plan.count
    for holders, nbytes in runs:
        count = nbytes // element.itemsize
        columns = [(part, slice(widths[part], widths[part] + count)) for part in holders]
        for part in holders:
            widths[part] += count
        pieces.append((slice(width, width + count), columns))
        width += count
    # More rows at a time if there are many parts, for fewer writes.
    room = min(MOST * TILE, max(TILE, plan.count * TILE // 32))
    most = min(rows, max(1, room // (sum(widths) * element.itemsize)))
    tile, *parts = [np.empty((most, columns), element) for columns in (width, *widths)]
    left = range(rows, 0, -most)
    tiles = ((tile[:count], [part[:count] for part in parts]) for count in left)
    return pieces, width * element.itemsize >= LONG * len(runs), tiles
