"""Split files larger than memory into files, one a part.

In memory order every tensor is rows around the axis, and so is every part of it:

    file                        rows = extents before the axis
    ┌──────────┬─────┬───────┐
    │  part 0  │  1  │   2   │  a tile: whole rows, or a piece of one part of a row,
    └──────────┴─────┴───────┘  no more than `TILE` bytes of them

A Fortran-order tensor is a C-order tensor of the reversed shape, and so are its
parts. Tile by tile, a file is read and its parts are written from start to end.
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

import splitjit
from splitjit._cli import formats
from splitjit._cli.formats import Source, Tensor
from splitjit._core.arguments import Shape, rule_of
from splitjit._core.plan import SplitPlan, cached_plan
from splitjit.errors import SplitError

TILE = 1 << 23
"""Bytes of a file in memory at a time, and as many of all parts together."""

_ASIDE = "overwritten"  # where old files wait in the folder of new parts

Progress = Callable[[int], object]
"""Called with the number of bytes written since the last call."""


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """What becomes of a tensor: parts of it by the plan, or without one, copies.

    Attributes
    ----------
    tensor : Tensor
    plan : SplitPlan or None
    """

    tensor: Tensor
    plan: SplitPlan | None


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The split of a file; nothing is written yet.

    Made by `plan_files`.

    Attributes
    ----------
    source : Source
        The file to split.
    tensors : tuple of TensorSplit
        What its parts hold, in this order.
    targets : tuple of Path
        The file of each part.
    """

    source: Source
    tensors: tuple[TensorSplit, ...]
    targets: tuple[Path, ...]

    def part(self, i: int) -> list[Tensor]:
        """Return the tensors of part `i`."""
        return [
            split.tensor
            if split.plan is None
            else replace(split.tensor, shape=split.plan.output_shapes[i])
            for split in self.tensors
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of data in all parts together."""
        return sum(tensor.nbytes for i in range(len(self.targets)) for tensor in self.part(i))


def plan_files(
    paths: Sequence[Path],
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    num_splits: int | None = None,
    select: Sequence[tuple[str, int]] | None = None,
    copy_others: bool = True,
    folder: Path | None = None,
) -> list[FileSplit]:
    """Plan the split of files; only their headers are read.

    Parameters
    ----------
    paths : sequence of Path
        The files to split: .npy, .npz or .safetensors.
    split, axis, num_outputs, num_splits
        The rule, see `splitjit.split`.
    select : sequence of (str, int), optional
        Which tensors to split: patterns of their names, as `fnmatch` has them,
        and for each the axis in place of `axis`. The first that matches a name
        counts. By default all tensors are split.
    copy_others : bool, default True
        Whether other tensors are copied into every part, or left out.
    folder : Path, optional
        Where the parts of ``FILE.npy`` go, as ``FILE.0.npy`` and so on; by
        default where the file is.

    Returns
    -------
    list of FileSplit
        One a file, all of as many parts.

    Raises
    ------
    SplitError
        If a file is none of these or is cut short; if the rule does not fit a
        tensor, or would make more parts of one than of another; if a pattern
        matches no name; if parts of two files would have one name.
    OSError
        If a file cannot be read.
    """
    select = [("*", axis)] if select is None else select
    sources = [formats.read(path) for path in paths]
    for pattern, _ in select:
        if not any(fnmatch.fnmatchcase(name, pattern) for file in sources for name in file.names):
            raise SplitError("split", f"pattern {pattern!r}", "must match the name of a tensor")

    def rule(shape: Shape, axis: int) -> SplitPlan:
        return cached_plan(shape, axis, rule_of(split, num_outputs, num_splits))

    planned = [(source, _plan_tensors(source, rule, select, copy_others)) for source in sources]
    count = _count(planned)
    files = []
    for source, tensors in planned:
        stem = source.path.name.removesuffix(source.suffix)
        place = source.path.parent if folder is None else folder
        parts = range(count if tensors else 0)
        targets = tuple([place / f"{stem}.{i}{source.suffix}" for i in parts])
        files.append(FileSplit(source, tensors, targets))
    _check_names(files)
    return files


def _plan_tensors(
    source: Source,
    rule: Callable[[Shape, int], SplitPlan],
    select: Sequence[tuple[str, int]],
    copy_others: bool,
) -> tuple[TensorSplit, ...]:
    tensors = []
    for name in source.names:
        for pattern, axis in select:
            if fnmatch.fnmatchcase(name, pattern):
                tensor = source.tensor(name)
                try:
                    plan = rule(tensor.shape, axis)
                    _rows(tensor, plan)
                except SplitError as error:
                    where = f"split {source.path}" + (f", {name}" if name else "")
                    raise error.named(where) from None
                tensors.append(TensorSplit(tensor, plan))
                break
        else:
            if copy_others:
                tensors.append(TensorSplit(source.verbatim(name), None))
    return tuple(tensors)


def _count(planned: list[tuple[Source, tuple[TensorSplit, ...]]]) -> int:
    """Return the number of parts, and refuse two."""
    counts = {
        len(split.plan): split.tensor.name or source.path
        for source, tensors in planned
        for split in tensors
        if split.plan is not None
    }
    if len(counts) > 1:
        received = ", ".join([f"{count} of {what}" for count, what in sorted(counts.items())[:2]])
        raise SplitError("split", received, "all tensors must have the same number of parts")
    return next(iter(counts), 0)


def _check_names(files: list[FileSplit]) -> None:
    owners: dict[Path, Path] = {}
    for file in files:
        for target in file.targets:
            if target in owners:
                received = f"{owners[target]} and {file.source.path}"
                raise SplitError("split", received, f"both would have a part {target}")
            owners[target] = file.source.path


def _rows(tensor: Tensor, plan: SplitPlan) -> tuple[int, list[int]]:
    """Return the number of rows in memory order, and the bytes of each part in one."""
    shape, axis = plan.shape, plan.axis
    if tensor.fortran_order:
        shape, axis = shape[::-1], len(shape) - 1 - axis
    bits = math.prod(shape[axis + 1 :]) * tensor.bits
    if any(size * bits % 8 for size in plan.sizes):
        received = f"{tensor.dtype} of shape {plan.shape} into {plan.sizes}"
        raise SplitError("split", received, "parts of packed elements must be whole bytes")
    return math.prod(shape[:axis]), [size * bits // 8 for size in plan.sizes]


def check_targets(files: Sequence[FileSplit], force: bool) -> None:
    """Refuse to overwrite.

    Parameters
    ----------
    files : sequence of FileSplit
        Whose targets are looked for.
    force : bool
        Whether files, but no directories, may be overwritten.

    Raises
    ------
    FileExistsError
        If a target exists.
    """
    for file in files:
        for target in file.targets:
            if target.is_dir():
                raise FileExistsError(f"{target} is a directory")
            if os.path.lexists(target) and not force:
                raise FileExistsError(f"{target} exists; --force overwrites it")


def write_parts(
    files: Sequence[FileSplit], force: bool = False, progress: Progress | None = None
) -> None:
    """Write the parts of all files; all of them, or none.

    The parts of ``FILE`` are written to a folder ``.FILE.splitjit`` beside their
    final places and moved once all are complete and on disk, so a file that has
    a part's name is whole, whatever happens. On any failure what was made is
    removed, and what was to be overwritten is back; what cannot be put back stays
    in the folder. A process that is killed leaves its folder, too; the next split
    of that file into that place removes it.

    Parameters
    ----------
    files : sequence of FileSplit
        As planned by `plan_files`.
    force : bool, default False
        Whether existing files may be overwritten.
    progress : callable, optional
        Called with the number of bytes written since the last call.

    Raises
    ------
    OSError
        If a target exists, the parts cannot be written, as on a full disk, or
        another process is writing them.
    SplitError
        If a file is damaged, or changes meanwhile.
    """
    check_targets(files, force)
    with contextlib.ExitStack() as stack:
        moves: list[tuple[Path, Path]] = []
        for file in files:
            if file.targets:
                folder = file.targets[0].parent
                stack.enter_context(_made(folder))
                scratch = folder / f".{file.source.path.name}.splitjit"
                stack.enter_context(_scratch(scratch))
                parts = [scratch / target.name for target in file.targets]
                _write(file, parts, progress or (lambda nbytes: None))
                moves += zip(parts, file.targets, strict=True)
        check_targets(files, force)
        _move(moves)


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


@contextlib.contextmanager
def _scratch(path: Path) -> Iterator[None]:
    """Make a folder for this process alone, and remove it after the body."""
    lock = _lock(path)
    done = False
    try:
        _put_back(path)
        shutil.rmtree(path / _ASIDE, ignore_errors=True)
        for left in path.iterdir():
            left.unlink()
        yield
        done = True
    finally:
        try:
            _put_back(path)
            if done or not any((path / _ASIDE).glob("*")):  # they are the only ones
                shutil.rmtree(path)
        finally:
            if lock is not None:
                os.close(lock)


def _lock(path: Path) -> int | None:
    """Make a folder, or take one that a killed process left, and lock it.

    Returns the descriptor that holds the lock, which ends with the process; None
    where folders have no locks, as on Windows and some network file systems. Only
    a new one is taken there: nothing tells whether the process of another lives.
    """
    try:
        path.mkdir()
        made = True
    except FileExistsError:
        made = False
    descriptor = None
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        raise BlockingIOError  # its process has just ended, and removed it
    except (ImportError, OSError) as error:
        if descriptor is not None:
            os.close(descriptor)
        if made and not isinstance(error, BlockingIOError):
            return None
        raise FileExistsError(
            f"{path} is of another process that splits this file; if there is none, remove it"
        ) from error


def _move(moves: list[tuple[Path, Path]]) -> None:
    """Move parts to their places: all, or none."""
    with contextlib.ExitStack() as undo:  # calls all, even if one of them fails
        for part, target in moves:
            undo.callback(_move_back, part, target)
            if os.path.lexists(target):
                aside = part.parent / _ASIDE
                aside.mkdir(exist_ok=True)
                target.replace(aside / target.name)
            part.replace(target)
        undo.pop_all()


def _move_back(part: Path, target: Path) -> None:
    old = part.parent / _ASIDE / target.name
    if os.path.lexists(old):
        old.replace(target)
    elif not part.exists():
        target.replace(part)


def _put_back(scratch: Path) -> None:
    """Move files back that were moved aside for parts that did not come."""
    for old in (scratch / _ASIDE).glob("*"):
        target = scratch.parent / old.name
        if not os.path.lexists(target):
            old.replace(target)


def _write(file: FileSplit, paths: list[Path], progress: Progress) -> None:
    """Write the parts of a file to these paths."""
    source = file.source
    buffer = np.empty(TILE, np.uint8)
    contents = [file.part(i) for i in range(len(paths))]
    with contextlib.ExitStack() as stack:
        parts = [
            stack.enter_context(source.create(path, tensors))
            for path, tensors in zip(paths, contents, strict=True)
        ]
        streams = source.streams([split.tensor for split in file.tensors])
        stack.enter_context(contextlib.closing(streams))
        for k, (split, stream) in enumerate(zip(file.tensors, streams, strict=True)):
            for part, tensors in zip(parts, contents, strict=True):
                part.begin(tensors[k])

            def take(nbytes: int, stream: IO[bytes] = stream) -> np.ndarray:
                return formats.fill(buffer[:nbytes], stream, source.path)

            for i, piece in _pieces(split, len(parts), take):
                parts[i].write(piece)
                progress(piece.nbytes)
    if formats.identity(source.path) != source.identity:
        raise SplitError("split", str(source.path), "must not change while it is split")


def _pieces(
    split: TensorSplit, count: int, take: Callable[[int], np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """Take a tensor's data as so many bytes at a time, and deal it to the parts, by number.

    A piece is overwritten by the next tile.
    """
    if split.plan is None:
        for nbytes in _cut(split.tensor.nbytes, TILE):
            tile = take(nbytes)
            for i in range(count):
                yield i, tile
        return
    rows, widths = _rows(split.tensor, split.plan)
    row = sum(widths)
    if rows == 1 or row > TILE // 2:  # contiguous parts: there is nothing to rearrange
        for _ in range(rows):
            for i, width in enumerate(widths):
                for nbytes in _cut(width, TILE):
                    yield i, take(nbytes)
    elif row:
        # Elements are moved as so many bytes: the padding of records, too, is the file's.
        element = np.dtype((np.void, max(1, split.tensor.bits // 8)))
        sizes = [width // element.itemsize for width in widths]
        for nbytes in _cut(rows * row, TILE // row * row):
            tile = take(nbytes).view(element).reshape(nbytes // row, -1)
            yield from enumerate(splitjit.split(tile, sizes, axis=1))


def _cut(nbytes: int, most: int) -> Iterator[int]:
    for start in range(0, nbytes, most):
        yield min(most, nbytes - start)
