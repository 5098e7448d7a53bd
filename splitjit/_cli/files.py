"""Split files larger than memory: plan the parts, then write one file per part.

In memory order a tensor is a sequence of rows: one row for each index into the axes
before the split axis. Each row holds one run of bytes of each part:

    row                         rows = product of the extents before the axis
    ┌──────────┬─────┬───────┐
    │  part 0  │  1  │   2   │  tile: whole rows, or a piece of one run; <= `TILE` bytes
    └──────────┴─────┴───────┘

A Fortran-order tensor is a C-order tensor of the reversed shape, and so are its
parts. Tile by tile, the file is read and its parts are written from start to end.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

import splitjit
from splitjit._cli import formats
from splitjit._cli.formats.base import Source, Tensor, identity
from splitjit._core.arguments import Shape, rule_of
from splitjit._core.plan import SplitPlan, cached_plan
from splitjit._files import transaction
from splitjit._files.places import Place, places
from splitjit._files.transaction import Staged
from splitjit.errors import SplitError, shorten

TILE = 1 << 23
"""The most bytes of the file in memory at a time; the same limit applies to the parts together."""

Progress = Callable[[int], object]
"""Called with the number of bytes written since the last call."""

Planner = Callable[[Shape, int], SplitPlan]
"""Plans the split of a shape along an axis."""


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """The parts of one tensor.

    Attributes
    ----------
    tensor : Tensor
    plan : SplitPlan or None
        None if each part is a copy of the whole tensor.
    """

    tensor: Tensor
    plan: SplitPlan | None

    def part(self, i: int) -> Tensor:
        """Return part `i`."""
        if self.plan is None:
            return self.tensor
        return replace(self.tensor, shape=self.plan.output_shapes[i])


@dataclass(frozen=True, slots=True)
class FileSplit:
    """The planned split of a file, made by `plan_files`.

    Attributes
    ----------
    source : Source
        The file to split.
    tensors : tuple of TensorSplit
        The tensors that each part holds, in this order.
    targets : tuple of Path
        The file of each part.
    """

    source: Source
    tensors: tuple[TensorSplit, ...]
    targets: tuple[Path, ...]

    def part(self, i: int) -> list[Tensor]:
        """Return the tensors of part `i`."""
        return [split.part(i) for split in self.tensors]

    @property
    def nbytes(self) -> int:
        """Size of the data of all parts together, in bytes."""
        return sum(self.part_nbytes(i) for i in range(len(self.targets)))

    def part_nbytes(self, i: int) -> int:
        """Return the size of the data of part `i`, in bytes."""
        return sum(tensor.nbytes for tensor in self.part(i))


def plan_files(
    paths: Sequence[Path],
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    num_splits: int | None = None,
    indices: Sequence[int] | None = None,
    num_sections: int | None = None,
    select: Sequence[tuple[str, int]] | None = None,
    copy_others: bool = True,
    folder: Path | None = None,
) -> list[FileSplit]:
    """Plan the split of files. This reads only their headers and writes nothing.

    Parameters
    ----------
    paths : sequence of Path
        The files to split: .npy, .npz or .safetensors.
    split, axis, num_outputs, num_splits, indices, num_sections
        The rule, as in `splitjit.split`.
    select : sequence of (str, int), optional
        The tensors to split: `fnmatch` patterns of names, each with an axis. The
        first pattern that matches a name gives its axis. By default, all along `axis`.
    copy_others : bool, default True
        Whether each part holds a copy of every other tensor.
    folder : Path, optional
        The folder of the parts. By default, each file's own folder.

    Returns
    -------
    list of FileSplit
        One per file. All have the same number of parts.

    Raises
    ------
    SplitError
        If a file is not of its format, if the rule does not fit a tensor or makes
        different numbers of parts, or if two parts would have the same file name.
    OSError
        If a file cannot be read.
    """
    rule = rule_of(split, num_outputs, num_splits, indices, num_sections)

    def planner(shape: Shape, axis: int) -> SplitPlan:
        return cached_plan(shape, axis, rule)

    select = [("*", axis)] if select is None else select
    sources = [formats.read(path) for path in paths]
    _check_patterns([pattern for pattern, _ in select], sources)
    tensors = [_plan_tensors(source, planner, select, copy_others) for source in sources]
    if not any(split.plan for splits in tensors for split in splits):
        _refuse_scalars(sources, planner, select)
    planned = _name_parts(sources, tensors, folder)
    _check_places(planned)
    return planned


def _check_patterns(patterns: list[str], sources: list[Source]) -> None:
    names = [name for source in sources for name in source.names]
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            hint = f"these files hold {shorten([name for name in names if name])}"
            rule = f"must match the name of a tensor; {hint}"
            raise SplitError("split", f"pattern {pattern!r}", rule)


def _plan_tensors(
    source: Source, planner: Planner, select: Sequence[tuple[str, int]], copy_others: bool
) -> tuple[TensorSplit, ...]:
    tensors = []
    for name in source.names:
        pattern, axis = next(
            (one for one in select if fnmatch.fnmatchcase(name, one[0])), ("", None)
        )
        if axis is not None and (pattern == name or not name or source.tensor(name).shape):
            tensor = source.tensor(name)
            try:
                plan = planner(tensor.shape, axis)
                _rows(tensor, plan)
            except SplitError as error:
                where = f"split {source.path}" + (f", {name}" if name else "")
                raise error.named(where) from None
            tensors.append(TensorSplit(tensor, plan))
        elif copy_others:
            tensors.append(TensorSplit(source.verbatim(name), None))
    return tuple(tensors)


def _refuse_scalars(
    sources: list[Source], planner: Planner, select: Sequence[tuple[str, int]]
) -> None:
    """Raise an error if patterns match tensors of rank 0 only."""
    for source in sources:
        for name in source.names:
            if any(fnmatch.fnmatchcase(name, pattern) for pattern, _ in select):
                _plan_tensors(source, planner, [(name, 0)], copy_others=False)


def _rows(tensor: Tensor, plan: SplitPlan) -> tuple[int, list[int]]:
    """Return the number of rows in memory order, and the bytes of each part in a row."""
    shape, axis = plan.shape, plan.axis
    if tensor.fortran_order:
        shape, axis = shape[::-1], len(shape) - 1 - axis
    bits = math.prod(shape[axis + 1 :]) * tensor.bits
    if any(size * bits % 8 for size in plan.sizes):
        received = f"{tensor.dtype} of shape {plan.shape} into {plan.sizes}"
        rule = "parts of elements smaller than a byte must be whole bytes"
        raise SplitError("split", received, rule)
    return math.prod(shape[:axis]), [size * bits // 8 for size in plan.sizes]


def _name_parts(
    sources: list[Source], tensors: list[tuple[TensorSplit, ...]], folder: Path | None
) -> list[FileSplit]:
    """Give the parts of ``FILE.npy`` the names ``FILE.0.npy``, ``FILE.1.npy`` and so on."""
    count = _count_parts(sources, tensors)
    files = []
    for source, splits in zip(sources, tensors, strict=True):
        path = source.path
        stem = path.name.removesuffix(source.suffix)
        place = path.parent if folder is None else folder
        parts = range(count if splits else 0)
        targets = tuple([place / f"{stem}.{i}{source.suffix}" for i in parts])
        files.append(FileSplit(source, splits, targets))
    return files


def _check_places(files: list[FileSplit]) -> None:
    """Check that no two parts have the same place, and that no part replaces an input."""
    inputs = [file.source.path for file in files]
    replaced = dict(zip(places(inputs), inputs, strict=True))
    replaced |= dict(zip(places([path.resolve() for path in inputs]), inputs, strict=True))
    owners: dict[Place, Path] = {}
    for file in files:
        path = file.source.path
        for target, place in zip(file.targets, places(file.targets), strict=True):
            if place in replaced:
                rule = f"part {target} would replace an input, {replaced[place]}"
                raise SplitError("split", str(path), rule)
            if place in owners:
                rule = f"both would write {target}; split these files into different folders"
                raise SplitError("split", f"{owners[place]} and {path}", rule)
            owners[place] = path


def _count_parts(sources: list[Source], tensors: list[tuple[TensorSplit, ...]]) -> int:
    """Return the number of parts that all tensors have."""
    counts = {
        len(split.plan): split.tensor.name or source.path
        for source, splits in zip(sources, tensors, strict=True)
        for split in splits
        if split.plan is not None
    }
    if len(counts) > 1:
        received = ", ".join(f"{what} into {count}" for count, what in sorted(counts.items())[:2])
        rule = "all tensors must have the same number of parts; use num_outputs or num_splits"
        raise SplitError("split", received, rule)
    return next(iter(counts), 0)


def check_targets(files: Sequence[FileSplit], force: bool) -> None:
    """Check that no target exists.

    Parameters
    ----------
    files : sequence of FileSplit
    force : bool
        Whether targets may exist, except as directories.

    Raises
    ------
    FileExistsError
        If a target exists.
    """
    transaction.check([target for file in files for target in file.targets], force)


def recover(paths: Sequence[Path], folder: Path | None = None) -> frozenset[str]:
    """Undo or finish what killed processes left in the folders of the parts.

    Parameters
    ----------
    paths : sequence of Path
        The files to split.
    folder : Path, optional
        The folder of the parts. By default, each file's own folder.

    Returns
    -------
    frozenset of str
        Identifies the splits that are now finished, for `write_parts`.

    Raises
    ------
    OSError
        If files that were moved cannot be moved back.
    """
    folders = [path.parent for path in paths] if folder is None else [folder]
    return transaction.recover(folders).finished


def write_parts(
    files: Sequence[FileSplit],
    force: bool = False,
    progress: Progress | None = None,
    finished: frozenset[str] = frozenset(),
) -> None:
    """Write the parts of all files: all of them, or none.

    Parts are written in a new folder ``.splitjit-…`` beside their targets. When all
    parts are complete and on disk, they are moved to their targets, so a target is
    never half written. If this fails, new parts are removed and old files are
    restored. If the process is killed, `recover` does the same.

    Parameters
    ----------
    files : sequence of FileSplit
        The plans that `plan_files` returned.
    force : bool, default False
        Whether parts may overwrite existing files.
    progress : callable, optional
        Called with the number of bytes written since the last call.
    finished : frozenset of str, optional
        What `recover` returned. A split that is finished is not repeated.

    Raises
    ------
    OSError
        If a target exists, if the parts cannot be written, for example because the
        disk is full, or if another process is writing them.
    SplitError
        If a file is damaged, or changes while it is read.
    """
    key = _key(files)
    targets: dict[Path, list[str]] = {}
    needed: dict[Path, int] = {}
    for file in files:
        for i, target in enumerate(file.targets):
            targets.setdefault(target.parent, []).append(target.name)
            needed[target] = 0 if file.source.compressed else file.part_nbytes(i)
    if not targets or key in finished:
        return
    with transaction.transaction(targets, force=force, key=key, needed=needed) as staged:
        for file in files:
            if file.targets:
                parts = [staged[target] for target in file.targets]
                for part in parts:
                    part.protect(file.source.status)
                _write(file, parts, progress or (lambda nbytes: None))


def _key(files: Sequence[FileSplit]) -> str:
    """Return a digest of the inputs, and of all that decides what their parts hold."""
    described = [
        (
            os.path.realpath(file.source.path),
            identity(file.source.status),
            [os.path.realpath(target) for target in file.targets],
            [(t.tensor, t.plan and (t.plan.axis, t.plan.sizes)) for t in file.tensors],
        )
        for file in files
    ]
    return hashlib.sha256(repr(described).encode()).hexdigest()


def _write(file: FileSplit, staged: list[Staged], progress: Progress) -> None:
    """Write the parts of one file."""
    source = file.source
    buffer = np.empty(TILE, np.uint8)
    contents = [file.part(i) for i in range(len(staged))]
    with contextlib.ExitStack() as stack:
        parts = [
            stack.enter_context(source.create(part, tensors))
            for part, tensors in zip(staged, contents, strict=True)
        ]
        streams = source.streams([split.tensor for split in file.tensors])
        stack.enter_context(contextlib.closing(streams))
        for k, (split, stream) in enumerate(zip(file.tensors, streams, strict=True)):
            for part, tensors in zip(parts, contents, strict=True):
                part.begin(tensors[k])

            def take(nbytes: int, stream: IO[bytes] = stream) -> np.ndarray:
                return source.fill(buffer[:nbytes], stream)

            for i, piece in _pieces(split, len(parts), take):
                parts[i].write(piece)
                progress(piece.nbytes)
    if source.changed():
        raise SplitError("split", str(source.path), "must not change while it is split")


def _pieces(
    split: TensorSplit, count: int, take: Callable[[int], np.ndarray]
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of a part and its next bytes, until `count` parts are complete.

    `take` reads the next bytes of the tensor. The next iteration overwrites the bytes.
    """
    if split.plan is None:
        for nbytes in _cut(split.tensor.nbytes, TILE):
            tile = take(nbytes)
            for i in range(count):
                yield i, tile
        return
    rows, widths = _rows(split.tensor, split.plan)
    row = sum(widths)
    if rows == 1 or row > TILE // 2:  # each run is contiguous: nothing to rearrange
        for _ in range(rows):
            for i, width in enumerate(widths):
                for nbytes in _cut(width, TILE):
                    yield i, take(nbytes)
    elif row:
        # As plain bytes: NumPy does not copy the padding of structured dtypes.
        element = np.dtype((np.void, max(1, split.tensor.bits // 8)))
        sizes = [width // element.itemsize for width in widths]
        for nbytes in _cut(rows * row, TILE // row * row):
            tile = take(nbytes).view(element).reshape(nbytes // row, -1)
            yield from enumerate(splitjit.split(tile, sizes, axis=1))


def _cut(nbytes: int, most: int) -> Iterator[int]:
    """Yield the sizes of pieces of at most `most` bytes."""
    for start in range(0, nbytes, most):
        yield min(most, nbytes - start)
