"""Files, splits and joins as plain data, which JSON can hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from splitjit.errors import SplitError
from splitjit.files.checkpoints import index, record, siblings
from splitjit.files.checkpoints.record import Record
from splitjit.files.file_plan import FilePlan, SplitFiles, TensorPlan
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.places import StrPath


def describe(planned: SplitFiles) -> dict[str, Any]:
    """Describe a plan: what is read, what is written, and how each tensor is divided."""
    return {
        "files": [_file(one) for one in planned.files],
        "others": [str(path) for path, _ in (*planned.indexes, *planned.copies)],
        "nbytes": planned.nbytes,
        "notes": [*planned.notes],
        "patterns": siblings.as_patterns(planned),
        "share_split": planned.share_split,
        "warnings": [*planned.warnings],
    }


def _file(file: FilePlan) -> dict[str, Any]:
    """Describe the files that are read and written, and how each whole tensor is divided."""
    return {
        "paths": [str(path) for path in file.paths],
        "parts": [
            {"path": str(target), "nbytes": file.part_nbytes(i)}
            for i, target in enumerate(file.targets)
        ],
        "tensors": [_divided(plan) for plan in file.joined or file.tensors],
        "left_out": [*file.left_out],
    }


def describe_files(paths: StrPath | Iterable[StrPath]) -> dict[str, Any]:
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
    read = index.read_parts(paths)
    records = [record.read(one) for one in read]
    made = []
    for one, known in zip(read, records, strict=True):
        files = [_found(file, known.get(file)) for file in one.files]
        nbytes = sum(file["nbytes"] for file in files)
        said = next((own.dump() for own in known.values()), None)
        split = said and {key: said[key] for key in ("rank", "count", "rule", "checkpoint")}
        made.append({"path": str(one.path), "files": files, "nbytes": nbytes, "split": split})
    problem = None
    try:
        record.order(read)  # nothing to say if no path is a part
    except SplitError as error:
        problem = str(error)
    complete = problem is None if any(records) else None
    return {"checkpoints": made, "complete": complete, "problem": problem}


def _found(file: TensorFile, known: Record | None) -> dict[str, Any]:
    tensors = []
    for name in file.names:
        try:
            tensor = file.tensor(name)
        except SplitError:  # a member of an archive that is not an array
            tensor = file.verbatim(name)
        tensors.append(_tensor(tensor) | _choice(known, name))
    nbytes = sum(tensor["nbytes"] for tensor in tensors)
    return {"path": str(file.path), "nbytes": nbytes, "tensors": tensors}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    dtype, shape = str(tensor.dtype), [*tensor.shape]
    return {"name": tensor.name, "dtype": dtype, "shape": shape, "nbytes": tensor.nbytes}


def _choice(known: Record | None, name: str) -> dict[str, Any]:
    """Describe the axis and the sections of the whole tensor."""
    if known is None:
        return {}
    choice = known.tensors[name]
    if choice is None:
        return {"axis": None}
    return {"axis": choice.axis, "sections": choice.sections, "head": choice.head}


def _divided(plan: TensorPlan) -> dict[str, Any]:
    sections = [sum(sizes) for sizes in plan.sections]
    shapes = [[*shape] for shape in plan.part_shapes]
    return {**_tensor(plan.tensor), "axis": plan.axis, "sections": sections, "part_shapes": shapes}
