"""Split .npy files larger than memory into .npy files, one a part.

Both sides are memory-mapped, a tile at a time, because mapped pages count as
resident memory. In memory order every file is rows around the axis, and so is
every part of it:

    file                        rows = extents before the axis
    ┌──────────┬─────┬───────┐  a tile: some rows of a span of columns,
    │  part 0  │  1  │   2   │  no more than `TILE` bytes of them
    └──────────┴─────┴───────┘

A Fortran-order file is a C-order file of the reversed shape, and so are its parts.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

import splitjit
from splitjit.planner import cached_plan

TILE = 1 << 25
"""Bytes mapped of the file at a time, and as many of all parts together."""

MAPS = 64
"""Parts mapped at a time: each holds a file descriptor and a page or two."""

Span = list[tuple[int, int, int]]
"""Neighbouring columns: of each part that has some of them, where they start and stop."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The split of a .npy file; nothing is written yet.

    Made by `plan_file`.

    Attributes
    ----------
    path : Path
        The file to split.
    plan : SplitPlan
        The plan for its shape.
    dtype : dtype
    fortran_order : bool
        The memory order of the file, and of its parts.
    version : tuple of int
        The version of the .npy format, likewise.
    offset : int
        Where the data starts in the file.
    targets : tuple of Path
        The file of each part.
    """

    path: Path
    plan: splitjit.SplitPlan
    dtype: np.dtype
    fortran_order: bool
    version: tuple[int, int]
    offset: int
    targets: tuple[Path, ...]


def plan_file(
    path: Path,
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    num_splits: int | None = None,
    folder: Path | None = None,
) -> FileSplit:
    """Plan the split of a .npy file; only its header is read.

    Parameters
    ----------
    path : Path
        The file to split, of any dtype but objects.
    split, axis, num_outputs, num_splits
        The rule, see `splitjit.split`.
    folder : Path, optional
        Where the parts of ``FILE.npy`` go, as ``FILE.0.npy`` and so on; by
        default where the file is.

    Returns
    -------
    FileSplit

    Raises
    ------
    SplitError
        If the file is no .npy file or is cut short, or the rule does not fit it.
    OSError
        If the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            version = npy.read_magic(file)
        array = npy.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # whatever it takes to parse bytes that may be anything
        raise splitjit.SplitError("split", str(path), f"no .npy file to split: {error}") from error
    plan = cached_plan(array.shape, split, axis, num_outputs, num_splits)
    folder = path.parent if folder is None else folder
    stem = path.name.removesuffix(".npy")
    return FileSplit(
        path=path,
        plan=plan,
        dtype=array.dtype,
        fortran_order=array.flags.fnc,
        version=version,
        offset=array.offset,
        targets=tuple([folder / f"{stem}.{i}.npy" for i in range(len(plan))]),
    )


def check_targets(files: FileSplit, force: bool) -> None:
    """Refuse to overwrite.

    Parameters
    ----------
    files : FileSplit
        Whose targets are looked for.
    force : bool
        Whether files, but no directories, may be overwritten.

    Raises
    ------
    FileExistsError
        If a target exists.
    """
    for target in files.targets:
        if target.is_dir():
            raise FileExistsError(f"{target} is a directory")
        if os.path.lexists(target) and not force:
            raise FileExistsError(f"{target} exists; --force overwrites it")


def write_parts(files: FileSplit, force: bool = False) -> None:
    """Write the parts of a file; all of them, or none.

    They are written to a temporary folder beside their final places and moved
    once all are complete, so a file that has a part's name is whole, whatever
    happens. On any failure what was made is removed.

    Parameters
    ----------
    files : FileSplit
        As planned by `plan_file`.
    force : bool, default False
        Whether existing files may be overwritten.

    Raises
    ------
    OSError
        If a target exists, or the parts cannot be written, as on a full disk.
    """
    check_targets(files, force)
    if not files.targets:
        return
    folder = files.targets[0].parent
    with _made(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".splitjit.") as scratch:
        parts = [Path(scratch, target.name) for target in files.targets]
        _copy(files, parts)
        try:
            for part, target in zip(parts, files.targets, strict=True):
                part.replace(target)
        except BaseException:
            for part, target in zip(parts, files.targets, strict=True):
                if not part.exists():
                    target.unlink()
            raise


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder, and remove it again where the body fails."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):  # not made, or no longer empty
                path.rmdir()
        raise


def _copy(files: FileSplit, parts: list[Path]) -> None:
    offsets = [
        _create(part, files, shape)
        for part, shape in zip(parts, files.plan.output_shapes, strict=True)
    ]
    plan, itemsize = files.plan, files.dtype.itemsize
    shape, axis = plan.shape, plan.axis
    if files.fortran_order:
        shape, axis = shape[::-1], len(shape) - 1 - axis
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    row = shape[axis] * inner
    if outer * row * itemsize == 0:
        return

    # Items are moved as so many bytes: the padding of records, too, is the file's.
    item = np.dtype((np.void, itemsize))
    starts = [offset * inner for offset in plan.offsets]
    widths = [size * inner for size in plan.sizes]
    spans = list(_spans(widths, max(1, TILE // itemsize)))
    step = max(1, TILE // (row * itemsize))
    for first in range(0, outer, step):
        rows = range(first, min(first + step, outer))
        for span in spans:
            (head, start, _), (tail, _, stop) = span[0], span[-1]
            columns = range(starts[head] + start, starts[tail] + stop)
            source = _map(files.path, "r", files.offset, item, row, rows, columns)
            out = [
                _map(parts[i], "r+", offsets[i], item, widths[i], rows, range(a, b))
                for i, a, b in span
            ]
            splitjit.split(source, [b - a for _, a, b in span], axis=1, out=out)
            del source, out  # unmapped before the next tile is mapped


def _create(path: Path, files: FileSplit, shape: tuple[int, ...]) -> int:
    """Create the file of a part, and return where its data starts."""
    array = npy.open_memmap(
        path, "w+", files.dtype, shape, files.fortran_order, version=files.version
    )
    if hasattr(os, "posix_fallocate"):
        # A disk that is full when a mapped page is written ends the process.
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, array.offset + array.nbytes)
    return array.offset


def _spans(widths: list[int], most: int) -> Iterator[Span]:
    """Cut a row into spans of at most so many columns and `MAPS` parts."""
    span: Span = []
    room = most
    for part, width in enumerate(widths):
        start = 0
        while start < width:
            stop = min(start + room, width)
            span.append((part, start, stop))
            room -= stop - start
            start = stop
            if room == 0 or len(span) == MAPS:
                yield span
                span, room = [], most
    if span:
        yield span


def _map(
    path: Path, mode: Any, offset: int, item: np.dtype, row: int, rows: range, columns: range
) -> np.ndarray:
    """Map a tile of a file whose rows have `row` items."""
    itemsize = item.itemsize
    start = offset + (rows.start * row + columns.start) * itemsize
    nbytes = ((len(rows) - 1) * row + len(columns)) * itemsize
    mapped = np.memmap(path, np.uint8, mode, start, (nbytes,))
    return np.ndarray((len(rows), len(columns)), item, mapped, strides=(row * itemsize, itemsize))
