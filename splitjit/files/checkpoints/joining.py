"""Plan the join of parts: in the order of their ranks, file by file, by tensor name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from splitjit.errors import SplitError, shorten
from splitjit.files.checkpoints import index, naming, record
from splitjit.files.checkpoints.index import Checkpoint
from splitjit.files.checkpoints.options import Options
from splitjit.files.checkpoints.record import Record
from splitjit.files.file_plan import FilePlan, SplitFiles, TensorPlan
from splitjit.files.formats.base import Metadata, TensorFile
from splitjit.files.joined import JoinedFile, JoinedTensor, plan_joined
from splitjit.files.parts import Chooser
from splitjit.files.places import check_places


def read_whole(given: Sequence[Checkpoint], choose: Chooser, said: bool) -> Checkpoint:
    """Return the checkpoint that parts make up, with a `JoinedFile` for each of its files.

    Parameters
    ----------
    given : sequence of Checkpoint
        The parts in order, or in any order if they have records.
    choose : callable
        How parts without records were split.
    said : bool
        Whether the user says it.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    parts, records = record.order(given)
    if not records and not said:
        _check_unnamed(given[0])
    _check_inputs(parts)
    holders = [
        {_key(file, i, name): file for i, file in enumerate(part.files) for name in file.names}
        for part in parts
    ]
    for part, holder in zip(parts, holders, strict=True):
        for key in sorted(holders[0].keys() ^ holder.keys()):
            lacking = part if key in holders[0] else parts[0]
            received = f"{lacking.path} without {shorten(key[1])}"
            raise SplitError("join", received, "all parts must hold the same tensors")
    first, files = parts[0], []
    for i, like in enumerate(first.files):
        own = records[0][like] if records else None
        tensors = []
        for name in sorted(like.names, key=lambda name: like.verbatim(name).position):
            held = [holder[_key(like, i, name)] for holder in holders]
            how = (own.tensors[name], own.rule) if own else (choose(name, like), None)
            tensors.append(plan_joined(name, held, *how))
        metadata = _metadata(like, tensors, records)
        called = Path(own.file).name if own and own.file else like.path.name
        files.append(JoinedFile(like, metadata, called, tuple(tensors)))
    made_of = next(iter(records[0].values())).checkpoint if records else None
    content = _make_index(first, files)
    return Checkpoint(
        first.path, tuple(files), content, first.index_name, made_of, parts=tuple(parts)
    )


def plan_whole(whole: Checkpoint, options: Options) -> SplitFiles:
    """Plan the join of parts: each whole file is written as its only part.

    Raises
    ------
    SplitError
        If `out` is not of the kind of the parts, or would replace one of them.
    """
    first, out = whole.parts[0], Path(options.out or "")
    _check_out(first, out)
    plans = []
    for file in whole.files:
        assert isinstance(file, JoinedFile)
        tensors = [TensorPlan(file.tensor(name), file, None, (), 1) for name in file.names]
        target = out / file.path.name if first.is_folder else out
        paths = tuple([part.path for part in file.inputs])
        splits = tuple(map(file.plan_of, file.names))
        plans.append(FilePlan(paths, (target,), tuple(tensors), (), file, joined=splits))
    indexes = ((out / whole.index_name, index.dump(whole.index)),) if whole.index else ()
    folder = out if first.is_folder else out.parent
    copies = naming.companions(whole.folders, [folder], options, first.is_folder)
    joined = SplitFiles(tuple(plans), indexes, (), tuple(copies), operator="join")
    inputs = [file.path for part in whole.parts for file in part.files]
    check_places([([*inputs, *[path for _, path in copies]], joined.targets)])
    return joined


def notes_of(given: Sequence[Checkpoint], parts: Sequence[Checkpoint]) -> tuple[str, ...]:
    """Return what the user should know about the order of parts."""
    if [*parts] == [*given]:
        return ()
    names = ", ".join([str(part.path) for part in parts[:4]]) + (", …" if parts[4:] else "")
    return (f"the parts are joined in the order of their ranks: {names}",)


def _key(file: TensorFile, position: int, name: str) -> tuple[int, str]:
    """Return what identifies a tensor of a part: the position of its file, and its name.

    The names in .safetensors files are those of a model, whose tensors may be in other
    files in another part.
    """
    return -1 if file.suffix == ".safetensors" else position, name


def _metadata(
    like: TensorFile,
    tensors: Sequence[JoinedTensor],
    records: Sequence[Mapping[TensorFile, Record]],
) -> Metadata:
    """Return the metadata of a joined file, which all parts must share."""
    known = {file: record for own in records for file, record in own.items()}

    def whole(part: TensorFile) -> Metadata:
        return known[part].detached(part.metadata) if known else part.metadata

    for part in {file: None for one in tensors for file, _ in one.parts}:
        if whole(part) != whole(like):
            received = f"{like.path} and {part.path}"
            raise SplitError("join", received, "all parts must have the same metadata")
    return whole(like)


def _check_unnamed(part: Checkpoint) -> None:
    """Check that a part is one array without a name, which was certainly split.

    A tensor with a name may have been copied, or split along any axis. A wrong guess
    would double copied tensors.

    Raises
    ------
    SplitError
        If the part holds tensors by name.
    """
    if any(name for file in part.files for name in file.names):
        rule = "these parts do not say how they were split: give the patterns or the tp_plan of"
        rule += " the split, or axis= if each tensor was split along this axis"
        raise SplitError("join", str(part.path), rule)


def _check_inputs(parts: Sequence[Checkpoint]) -> None:
    same: dict[tuple[int, int], Path] = {}
    first = parts[0].files[0]
    for part in parts:
        for file in part.files:
            inode = file.status.st_dev, file.status.st_ino
            if inode in same:
                received = f"{same[inode]} and {file.path}"
                raise SplitError("join", received, "a file must not be joined with itself")
            same[inode] = file.path
            file.fingerprint()  # to know later whether a change of its ctime changed its contents
        if {file.suffix for file in part.files} != {file.suffix for file in parts[0].files}:
            received = f"{first.path} and {part.files[0].path}"
            raise SplitError("join", received, "all parts must have the same format")


def _check_out(part: Checkpoint, out: Path) -> None:
    suffix = part.files[0].path.suffix
    if part.is_folder:
        if out.exists() and not out.is_dir():
            raise NotADirectoryError(f"{out} is not a folder; parts that are folders need one")
        if out.suffix == suffix:
            raise SplitError("join", f"out={out}", "must name a folder, as the parts are folders")
    elif out.is_dir():
        raise FileExistsError(f"{out} is a directory; give the name of the joined file")
    elif out.suffix != suffix:
        raise SplitError("join", f"out={out}", f"must end in {suffix}, as the parts do")


def _make_index(first: Checkpoint, files: Sequence[JoinedFile]) -> dict[str, Any] | None:
    """Make the index of whole files. ``model.safetensors`` alone needs no index."""
    names = [file.path.name for file in files]
    named = first.is_folder and files[0].suffix == ".safetensors"
    if not named or names == ["model.safetensors"]:
        return None
    return index.make(
        first.index, [(one.path.name, [*map(one.tensor, one.names)]) for one in files]
    )
