"""Files, splits and joins as plain data, which JSON can hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjit._plan.rules import PARAMETERS
from splitjit.checkpoints import index, ranks
from splitjit.checkpoints.joining import JoinedFiles
from splitjit.checkpoints.record import Record
from splitjit.errors import SplitError
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.plan import SplitFiles, TensorPlan


def describe(planned: SplitFiles | JoinedFiles) -> dict[str, Any]:
    """Describe a plan: what is read, what is written, and how each tensor is divided."""
    if isinstance(planned, JoinedFiles):
        return _describe_join(planned)
    return _describe_split(planned)


def _describe_split(planned: SplitFiles) -> dict[str, Any]:
    """Describe a split: what is read, what is written, and how each tensor is divided."""
    files = [
        {
            "paths": [str(path) for path in file.paths],
            "parts": [
                {"path": str(target), "nbytes": file.part_nbytes(i)}
                for i, target in enumerate(file.targets)
            ],
            "tensors": [_divided(plan) for plan in file.tensors],
            "left_out": [*file.left_out],
        }
        for file in planned.files
    ]
    return {
        "files": files,
        "others": [str(path) for path, _ in (*planned.indexes, *planned.copies)],
        "nbytes": planned.nbytes,
        "share_split": planned.share_split,
        "warnings": [*planned.warnings],
    }


def _describe_join(joined: JoinedFiles) -> dict[str, Any]:
    """Describe a join: the parts of each file, and how its tensors are put together."""
    files = []
    for file in joined.files:
        tensors = [
            {**_divided(one.plan), "parts": [str(part.path) for part, _ in one.parts]}
            for one in file.tensors
        ]
        nbytes = sum(tensor.nbytes for tensor in file.whole)
        files.append({"path": str(file.target), "nbytes": nbytes, "tensors": tensors})
    others = [str(path) for path, _ in joined.indexes]
    return {"files": files, "others": others, "nbytes": joined.nbytes, "notes": [*joined.notes]}


def describe_files(paths: Sequence[Path]) -> dict[str, Any]:
    """Describe files, indexes and folders, and the split that they are parts of.

    Returns
    -------
    dict
        ``checkpoints`` has an entry for each path, with its files, their tensors, and
        the rank, if it is a part of a split. ``complete`` is None if no path is a part;
        otherwise it tells whether the paths are all parts of one split, and ``problem``
        is the reason if they are not.

    Raises
    ------
    SplitError
        If a file is not of its format, or if its record is wrong.
    """
    read = [index.read(path) for path in paths]
    records = [ranks.read(one) for one in read]
    made = []
    for one, known in zip(read, records, strict=True):
        files = [_file(file, known.get(file)) for file in one.files]
        described: dict[str, Any] = {"path": str(one.path), "files": files}
        described["nbytes"] = sum(file["nbytes"] for file in files)
        described["split"] = _split(next(iter(known.values()), None))
        made.append(described)
    complete, problem = None, None
    if any(records):
        try:
            ranks.order(read)
            complete = True
        except SplitError as error:
            complete, problem = False, str(error)
    return {"checkpoints": made, "complete": complete, "problem": problem}


def _file(file: TensorFile, known: Record | None) -> dict[str, Any]:
    tensors = []
    for name in file.names:
        try:
            tensor = file.tensor(name)
        except SplitError:  # a member of an archive that is no array
            tensor = file.verbatim(name)
        tensors.append(_tensor(tensor) | _choice(known, name))
    nbytes = sum(tensor["nbytes"] for tensor in tensors)
    return {"path": str(file.path), "nbytes": nbytes, "tensors": tensors}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "name": tensor.name,
        "dtype": str(tensor.dtype),
        "shape": [*tensor.shape],
        "nbytes": tensor.nbytes,
    }


def _choice(known: Record | None, name: str) -> dict[str, Any]:
    """Describe the axis and the sections of the whole tensor."""
    choice: Choice | None = known.tensors[name] if known else None
    if known is None:
        return {}
    if choice is None:
        return {"axis": None}
    return {"axis": choice.axis, "sections": choice.sections, "head": choice.head}


def _divided(plan: TensorPlan) -> dict[str, Any]:
    return {
        **_tensor(plan.tensor),
        "axis": plan.axis,
        "sections": [sum(sizes) for sizes in plan.sections],
        "part_shapes": [[*shape] for shape in plan.part_shapes],
    }


def _split(known: Record | None) -> dict[str, Any] | None:
    if known is None:
        return None
    kind, value = known.rule
    return {
        "rank": known.rank,
        "count": known.count,
        "rule": {PARAMETERS[kind]: value},
        "checkpoint": known.checkpoint,
    }
