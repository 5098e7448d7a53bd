"""Plan how parts are joined: the tensors of the joined files, from the tensors of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splitjit._api.plan import cached_plan
from splitjit._plan.rules import NUM_OUTPUTS
from splitjit.errors import SplitError, shorten
from splitjit.files import checkpoint
from splitjit.files.checkpoint import Checkpoint
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.plan import TensorPlan
from splitjit.files.splitting import Chooser, check_places


@dataclass(frozen=True, slots=True)
class JoinedTensor:
    """A tensor to join.

    Attributes
    ----------
    plan : TensorPlan
        The split of the whole tensor that made the parts.
    parts : tuple of (TensorFile, Tensor)
        Each part of the tensor, with its file.
    """

    plan: TensorPlan
    parts: tuple[tuple[TensorFile, Tensor], ...]


@dataclass(frozen=True, slots=True)
class JoinedFile:
    """A file to write.

    Attributes
    ----------
    like : TensorFile
        The first part of the file. The joined file has its format and metadata.
    target : Path
    tensors : tuple of JoinedTensor
        In the order of the joined file.
    """

    like: TensorFile
    target: Path
    tensors: tuple[JoinedTensor, ...]

    @property
    def whole(self) -> list[Tensor]:
        """The tensors as the header of the joined file describes them."""
        return [replace(one.plan.tensor, position=i) for i, one in enumerate(self.tensors)]


@dataclass(frozen=True, slots=True)
class JoinedFiles:
    """The planned join of parts.

    Attributes
    ----------
    files : tuple of JoinedFile
    indexes : tuple of (Path, bytes)
        The index of the joined files, if there is one.
    nbytes : int
        Size of the data to write, in bytes.
    """

    files: tuple[JoinedFile, ...]
    indexes: tuple[tuple[Path, bytes], ...]

    @property
    def nbytes(self) -> int:
        """Size of the data to write, in bytes."""
        return sum(tensor.nbytes for file in self.files for tensor in file.whole)

    @property
    def targets(self) -> tuple[Path, ...]:
        """All files that the join writes."""
        return (*[file.target for file in self.files], *[path for path, _ in self.indexes])


def plan_whole(parts: Sequence[Checkpoint], choose: Chooser, out: Path) -> JoinedFiles:
    """Plan how parts are joined.

    Parameters
    ----------
    parts : sequence of Checkpoint
        The parts in their order.
    choose : callable
    out : Path
        The joined file. If the parts are folders or indexes, the folder of the joined
        files.

    Returns
    -------
    JoinedFiles

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    _check_inputs(parts, out)
    holders = [{name: file for file in part.files for name in file.names} for part in parts]
    for part, holder in zip(parts, holders, strict=True):
        for name in sorted(holders[0].keys() ^ holder.keys()):
            lacking = part if name in holders[0] else parts[0]
            received = f"{lacking.path} without {shorten(name)}"
            raise SplitError("join", received, "all parts must hold the same tensors")
    files = []
    for like in parts[0].files:
        target = out / like.path.name if _is_folder(parts[0]) else out
        tensors = [
            plan_tensor(name, [holder[name] for holder in holders], choose(name))
            for name in like.header_order
        ]
        _check_metadata(like, [part for one in tensors for part, _ in one.parts])
        files.append(JoinedFile(like, target, tuple(tensors)))
    joined = JoinedFiles(tuple(files), tuple(_make_index(parts[0], files, out)))
    inputs = [file.path for part in parts for file in part.files]
    check_places("join", [(inputs, joined.targets)])
    return joined


def check_unnamed(part: Checkpoint) -> None:
    """Check that a part is one array without a name, which was certainly split.

    A tensor with a name may have been copied, or split along any axis. A guess would
    double the tensors that were copied.

    Raises
    ------
    SplitError
        If the part holds tensors by name.
    """
    if any(name for file in part.files for name in file.names):
        rule = "these parts do not say how they were split: give the patterns or the tp_plan of"
        rule += " the split, or axis if each tensor was split along this axis"
        raise SplitError("join", str(part.path), rule)


def _is_folder(part: Checkpoint) -> bool:
    return part.index is not None or part.path.is_dir()


def _check_inputs(parts: Sequence[Checkpoint], out: Path) -> None:
    same: dict[tuple[int, ...], Path] = {}
    first = parts[0].files[0]
    for part in parts:
        for file in part.files:
            if file.inode in same:
                received = f"{same[file.inode]} and {file.path}"
                raise SplitError("join", received, "a file must not be joined with itself")
            same[file.inode] = file.path
            if file.suffix != first.suffix:
                received = f"{first.path} and {file.path}"
                raise SplitError("join", received, "all parts must have the same format")
    if _is_folder(parts[0]):
        if out.exists() and not out.is_dir():
            raise NotADirectoryError(f"{out} is not a folder; parts that are folders need one")
    elif out.is_dir():
        raise FileExistsError(f"{out} is a directory; give the name of the joined file")
    elif out.suffix != first.path.suffix:
        rule = f"must end in {first.path.suffix}, as the parts do"
        raise SplitError("join", f"out={out}", rule)


def _check_metadata(like: TensorFile, files: list[TensorFile]) -> None:
    for file in files:
        if file.metadata != like.metadata:
            received = f"{like.path} and {file.path}"
            raise SplitError("join", received, "all parts must have the same metadata")


def plan_tensor(name: str, files: Sequence[TensorFile], choice: Choice | None) -> JoinedTensor:
    """Plan how the parts of one tensor are joined.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    if choice and not choice.applies(files[0], name):
        choice = None
    tensors = [one.tensor(name) if choice else one.verbatim(name) for one in files]
    first = tensors[0]
    axis = None
    try:
        if choice is not None:
            axis = cached_plan(first.shape, choice.axis, (NUM_OUTPUTS, 1)).axis
        for i, tensor in enumerate(tensors):
            _check_alike(first, tensor, axis, i)
        if choice is None or axis is None:
            plan = TensorPlan(first, files[0], None, (), len(files))
        else:
            lengths = [tensor.shape[axis] for tensor in tensors]
            sections = _sections(choice, lengths)
            shape = (*first.shape[:axis], sum(map(sum, sections)), *first.shape[axis + 1 :])
            whole = replace(first, shape=shape)
            plan = TensorPlan(whole, files[0], axis, sections, choice.copies)
        plan.runs()
    except SplitError as error:
        where = f"join {files[0].path}" + (f", {name}" if name else "")
        raise error.named(where) from None
    return JoinedTensor(plan, tuple(zip(files, tensors, strict=True)))


def _check_alike(first: Tensor, tensor: Tensor, axis: int | None, i: int) -> None:
    """Check that part `i` differs from part 0 at most in its length along the axis."""

    def frame(shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])

    if tensor.dtype != first.dtype or len(tensor.shape) != len(first.shape):
        rule = "all parts must have the same dtype and as many axes"
    elif frame(tensor.shape) != frame(first.shape):
        rest = "; no pattern matches it" if axis is None else f", except along axis {axis}"
        rule = f"must have the same shape in all parts{rest}"
    elif tensor.fortran_order != first.fortran_order:
        rule = "all parts must be in C order, or all in Fortran order"
    else:
        return
    described = [f"part {n} {one.shape} {one.dtype}" for n, one in ((0, first), (i, tensor))]
    raise SplitError("join", ", ".join(described), rule)


def _sections(choice: Choice, lengths: list[int]) -> tuple[tuple[int, ...], ...]:
    """Return the pieces of each section, whose sums are the lengths of the parts."""
    if len(lengths) % choice.copies:
        rule = f"the number of parts must be a multiple of {choice.copies}"
        raise SplitError("join", f"{len(lengths)} parts", rule)
    pieces = lengths[:: choice.copies]
    if [length for length in pieces for _ in range(choice.copies)] != lengths:
        raise SplitError("join", f"lengths {lengths}", "parts that are copies must be equal")
    if choice.lengths is not None and list(choice.lengths) != lengths:
        raise SplitError("join", f"lengths {lengths}", f"must be {list(choice.lengths)}")
    if choice.sections is None:
        return (tuple(pieces),)
    for sections in _candidates(choice.sections, pieces):
        if [sum(one) for one in zip(*sections, strict=True)] == pieces:
            return sections
    received = f"lengths {lengths} of sections {choice.sections}"
    raise SplitError("join", received, "no rule splits the sections into parts of these lengths")


def _candidates(sections: Sequence[int], pieces: list[int]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the ways in which the rules split sections: equal, ceiling, balanced, or lengths."""
    count = len(pieces)
    ceiling = [cached_plan((length,), 0, (NUM_OUTPUTS, count)).sizes for length in sections]
    balanced = [
        tuple([length // count + (i < length % count) for i in range(count)]) for length in sections
    ]
    by_length = [tuple([piece // len(sections) for piece in pieces])] * len(sections)
    equal = all(sum(by_length[0]) == length for length in sections)
    return [tuple(ceiling), tuple(balanced), *([tuple(by_length)] if equal else [])]


def _make_index(first: Checkpoint, files: list[JoinedFile], out: Path) -> list[tuple[Path, bytes]]:
    """Make the index of a folder. ``model.safetensors`` alone needs no index."""
    if not _is_folder(first) or [file.target.name for file in files] == ["model.safetensors"]:
        return []
    parts = [tensor for file in first.files for tensor in map(file.tensor, file.names)]
    whole = [tensor for file in files for tensor in file.whole]
    change = checkpoint.num_elements(whole) - checkpoint.num_elements(parts)
    content = [(file.target.name, file.whole) for file in files]
    return [(out / first.index_name, checkpoint.make_index(first.index, change, content))]
