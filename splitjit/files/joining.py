"""Plan how parts are joined: the tensors of the joined files, from the tensors of the parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from splitjit._api.plan import cached_plan
from splitjit._plan.rules import CHUNK, LENGTHS, NUM_OUTPUTS, NUM_SECTIONS, Rule
from splitjit.errors import SplitError, shorten
from splitjit.files import checkpoint, ranks
from splitjit.files.checkpoint import Checkpoint
from splitjit.files.dividing import plan_tensor
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.joined import JoinedFile, JoinedFiles, JoinedTensor
from splitjit.files.patterns import Choice
from splitjit.files.plan import TensorPlan
from splitjit.files.record import Record
from splitjit.files.splitting import Chooser, check_places


def match_parts(
    given: Sequence[Checkpoint], choose: Chooser | None, operator: str
) -> tuple[list[Checkpoint], list[JoinedFile]]:
    """Match the tensors of parts.

    Parameters
    ----------
    given : sequence of Checkpoint
        The parts in their order. If they have records, in any order.
    choose : callable or None
        None if only the records of the parts say how they were split.
    operator : str

    Returns
    -------
    list of Checkpoint
        The parts in the order of their ranks.
    list of JoinedFile
        The target of each file is its name.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    parts, records = ranks.order(given)
    if choose is None and not records:
        check_unnamed(given[0], operator)
        choose = _along_axis_0
    _check_inputs(parts)
    holders = [dict(_held(part)) for part in parts]
    for part, holder in zip(parts, holders, strict=True):
        for key in sorted(holders[0].keys() ^ holder.keys()):
            lacking = part if key in holders[0] else parts[0]
            received = f"{lacking.path} without {shorten(key[1])}"
            raise SplitError("join", received, "all parts must hold the same tensors")
    files = []
    for i, like in enumerate(parts[0].files):
        own = records[0][like] if records else None
        tensors = []
        for name in _data_order(like, own):
            held = [holder[_key(like, i, name)] for holder in holders]
            choice = choose(name, like) if choose else None
            tensors.append(plan_joined(name, held, choice, own, bool(choose)))
        metadata = _metadata(like, tensors, records)
        target = Path(own.file if own and own.file else like.path.name)
        files.append(JoinedFile(like, metadata, target, tuple(tensors), own))
    return parts, files


def plan_whole(given: Sequence[Checkpoint], choose: Chooser | None, out: Path) -> JoinedFiles:
    """Plan how parts are joined.

    Parameters
    ----------
    given, choose
        As for `match_parts`.
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
    parts, matched = match_parts(given, choose, "join")
    _check_out(parts[0], out)
    targets = [out / file.target if is_folder(parts[0]) else out for file in matched]
    files = [replace(file, target=to) for file, to in zip(matched, targets, strict=True)]
    notes = []
    if parts != [*given]:
        names = ", ".join([str(part.path) for part in parts[:4]]) + (", …" if parts[4:] else "")
        notes.append(f"the parts are joined in the order of their ranks: {names}")
    indexes = [(out / name, content) for name, content in make_index(parts[0], files)]
    joined = JoinedFiles(tuple(files), tuple(indexes), tuple(notes))
    inputs = [file.path for part in parts for file in part.files]
    check_places("join", [(inputs, joined.targets)])
    return joined


def _key(file: TensorFile, position: int, name: str) -> tuple[int, str]:
    """Return what identifies a tensor of a part: the position of its file, and its name.

    The names of .safetensors files are those of a model, whose tensors may be in other
    files in another part.
    """
    return -1 if file.suffix == ".safetensors" else position, name


def _held(part: Checkpoint) -> Iterator[tuple[tuple[int, str], TensorFile]]:
    for i, file in enumerate(part.files):
        for name in file.names:
            yield _key(file, i, name), file


def _data_order(part: TensorFile, own: Record | None) -> list[str]:
    """Return the names of tensors in the order of their data in the whole file."""
    header = sorted(part.names, key=lambda name: part.verbatim(name).position)
    return [header[i] for i in own.order] if own and own.order else header


def _metadata(
    like: TensorFile,
    tensors: Sequence[JoinedTensor],
    records: Sequence[Mapping[TensorFile, Record]],
) -> dict[str, str] | None:
    """Return the metadata of a joined file, which all of its parts have."""
    first: dict[str, str] | None = None
    known: dict[TensorFile, Record] = {}
    for own in records:
        known |= own
    for part in dict.fromkeys([like, *[file for one in tensors for file, _ in one.parts]]):
        metadata = known[part].detached(part.metadata) if known else part.metadata
        if part is like:
            first = metadata
        elif metadata != first:
            received = f"{like.path} and {part.path}"
            raise SplitError("join", received, "all parts must have the same metadata")
    return first


def _along_axis_0(name: str, file: TensorFile) -> Choice:
    return Choice("*", 0)


def check_unnamed(part: Checkpoint, operator: str) -> None:
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
        raise SplitError(operator, str(part.path), rule)


def is_folder(part: Checkpoint) -> bool:
    """Return whether a part is a folder, or an index that stands for one."""
    return part.index is not None or part.path.is_dir()


def _check_inputs(parts: Sequence[Checkpoint]) -> None:
    same: dict[tuple[int, ...], Path] = {}
    first = parts[0].files[0]
    for part in parts:
        for file in part.files:
            if file.inode in same:
                received = f"{same[file.inode]} and {file.path}"
                raise SplitError("join", received, "a file must not be joined with itself")
            same[file.inode] = file.path
        if {file.suffix for file in part.files} != {file.suffix for file in parts[0].files}:
            received = f"{first.path} and {part.files[0].path}"
            raise SplitError("join", received, "all parts must have the same format")


def _check_out(part: Checkpoint, out: Path) -> None:
    suffix = part.files[0].path.suffix
    if is_folder(part):
        if out.exists() and not out.is_dir():
            raise NotADirectoryError(f"{out} is not a folder; parts that are folders need one")
    elif out.is_dir():
        raise FileExistsError(f"{out} is a directory; give the name of the joined file")
    elif out.suffix != suffix:
        raise SplitError("join", f"out={out}", f"must end in {suffix}, as the parts do")


def plan_joined(
    name: str,
    files: Sequence[TensorFile],
    choice: Choice | None,
    own: Record | None,
    given: bool,
) -> JoinedTensor:
    """Plan how the parts of one tensor are joined.

    Parameters
    ----------
    name : str
    files : sequence of TensorFile
        The file of each part.
    choice : Choice or None
        How the user says that the tensor is split.
    own : Record or None
        How the parts say that they are split.
    given : bool
        Whether the user says how the tensors are split. If the parts say it, too, they
        must not differ.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    if choice and not choice.applies(files[0], name):
        choice = None
    try:
        if own is not None:
            if given:
                _check_agreement(files[0].tensor(name), choice, own.tensors[name])
            choice = own.tensors[name]
        tensors = [one.tensor(name) if choice else one.verbatim(name) for one in files]
        first = tensors[0]
        axis = None
        if choice is not None:
            axis = cached_plan(first.shape, choice.axis, (NUM_OUTPUTS, 1)).axis
        for i, tensor in enumerate(tensors):
            _check_alike(first, tensor, axis, i)
        if choice is None or axis is None:
            plan = TensorPlan(first, files[0], None, (), len(files))
        else:
            lengths = [tensor.shape[axis] for tensor in tensors]
            plan = _plan_parts(first, files[0], replace(choice, axis=axis), lengths, own)
        plan.runs()
    except SplitError as error:
        where = f"join {files[0].path}" + (f", {name}" if name else "")
        raise error.named(where) from None
    return JoinedTensor(plan, tuple(zip(files, tensors, strict=True)))


def _check_agreement(part: Tensor, choice: Choice | None, known: Choice | None) -> None:
    """Check that the user does not contradict the record."""
    if choice is None or known is None:
        agree = choice is known
    else:
        axis = cached_plan(part.shape, choice.axis, (NUM_OUTPUTS, 1)).axis
        fused = choice.sections or known.sections
        lengths = choice.lengths or known.lengths
        agree = (axis, fused, lengths) == (known.axis, known.sections, known.lengths)
    if not agree:
        rest = f"the record of the parts says {_say(known)}; give no pattern, and the record counts"
        raise SplitError("join", f"the pattern or the plan says {_say(choice)}", rest)


def _say(choice: Choice | None) -> str:
    if choice is None:
        return "that it was copied"
    fused = f" in sections {choice.sections}" if choice.sections else ""
    return f"axis {choice.axis}{fused}"


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


def _plan_parts(
    first: Tensor, file: TensorFile, choice: Choice, lengths: list[int], own: Record | None
) -> TensorPlan:
    """Return the split of a whole tensor into parts of these lengths."""
    sections = choice.sections or (sum(lengths),)
    shape = first.shape
    shape = (*shape[: choice.axis], sum(sections), *shape[choice.axis + 1 :])
    whole = replace(first, shape=shape)
    if choice.lengths is not None and own is None and list(choice.lengths) != lengths:
        raise SplitError("join", f"lengths {lengths}", f"must be {list(choice.lengths)}")
    refusal = None
    for rule in _rules(choice, lengths) if own is None else [own.rule]:
        kind, value = rule
        if kind == CHUNK and isinstance(value, int) and _count(sections, value) != {len(lengths)}:
            continue  # the record of a stranger may ask for more parts than memory holds
        try:
            plan = plan_tensor(whole, file, choice, rule)
        except SplitError as error:
            refusal = error
            continue
        if [shape[choice.axis] for shape in plan.part_shapes] == lengths:
            return plan
    received = f"lengths {lengths} of sections {sections}"
    if own is not None:
        rest = f": {refusal.rule}" if refusal else ""
        raise SplitError("join", received, f"the record of the parts says otherwise{rest}")
    raise SplitError("join", received, "no rule splits the sections into parts of these lengths")


def _count(sections: Sequence[int], chunk: int) -> set[int]:
    """Return into how many chunks sections are split."""
    return {-(-length // max(chunk, 1)) for length in sections}


def _rules(choice: Choice, lengths: list[int]) -> list[Rule]:
    """Return the rules that may have made parts of these lengths."""
    if choice.sections is None:
        return [(LENGTHS, tuple(lengths))]
    by_length = tuple([length // len(choice.sections) for length in lengths])
    count = len(lengths)
    return [(NUM_OUTPUTS, count), (NUM_SECTIONS, count), (LENGTHS, by_length)]


def make_index(first: Checkpoint, files: Sequence[JoinedFile]) -> list[tuple[str, bytes]]:
    """Make the index of whole files. ``model.safetensors`` alone needs no index."""
    names = [file.target.name for file in files]
    if not is_folder(first) or names == ["model.safetensors"]:
        return []
    if files[0].like.suffix != ".safetensors":
        return []
    parts = [tensor for file in first.files for tensor in map(file.tensor, file.names)]
    whole = [tensor for file in files for tensor in file.whole]
    change = checkpoint.num_elements(whole) - checkpoint.num_elements(parts)
    content = [(file.target.name, file.whole) for file in files]
    return [(first.index_name, checkpoint.make_index(first.index, change, content))]
