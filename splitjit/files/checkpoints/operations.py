"""What the public functions and the command do: plan a split, a join or a reshard.

`plan_split`, `plan_join` and `plan_reshard` read headers, and samples of the data, and return a
plan; `write` carries it out. `describe` and `describe_files` return plain data.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from splitjit._plan.rules import CHUNK, INDICES, LENGTHS, Rule
from splitjit.errors import SplitError, pairs
from splitjit.files import patterns, staging
from splitjit.files.checkpoints import index, joining, record, sharding, siblings
from splitjit.files.checkpoints.sharding import Options
from splitjit.files.file_plan import Chooser, FilePlan, SplitFiles, TensorPlan
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.tiles import Progress, write_parts


@contextlib.contextmanager
def _refusing_as(operator: str) -> Iterator[None]:
    """Name refusals of shared steps, which say "split" or "join", after what the user asked for."""
    try:
        yield
    except SplitError as error:
        if error.operator != "files":
            error.named(operator, keeps_hint=True)
        raise


@_refusing_as("split")
def plan_split(paths: index.Paths, rule: Rule, options: Options) -> SplitFiles:
    """Plan the split of files. This does not check whether the parts exist."""
    checkpoints = [index.read(path) for path in index.as_paths(paths)]
    models = [one for one in checkpoints if one.is_folder]
    for one in models:
        # The record of such a file is in the manifest alone, and a new one would replace it.
        if any(file.suffix != ".safetensors" for file in one.files):
            rest = "its .npy and .npz parts cannot record a second split: reshard splits them again"
            raise SplitError("split", str(one.path), rest)
    several = models or [one for one in checkpoints if len(one.files[0].tensors) > 1]
    if several and not options.say_how:
        rest = "ranks hold some tensors of a checkpoint whole, such as norms: \0tp_plan=True\0 "
        rest += "splits it as transformers does, \0tensors=\0 names those to split, "
        rest += "\0axis=\0 splits them all"
        raise SplitError("split", str(several[0].path), rest)
    if options.tp_plan and rule[0] in (CHUNK, INDICES, LENGTHS):
        rest = "needs a number of ranks: give \0num_splits\0"
        raise SplitError("files", pairs(tp_plan=True), rest)
    inputs = [file for one in checkpoints for file in one.files]
    choose, check, notes = _chooser(inputs, options, checkpoints[0].folder)
    check(inputs)
    planned = sharding.plan_parts(checkpoints, rule, choose, options)
    if models and options.out is None and not options.ranks:
        rest = "the parts would lie among the files of the checkpoint: give \0out=\0"
        raise SplitError("split", str(models[0].path), rest)
    return replace(planned, notes=tuple(notes))


@_refusing_as("join")
def plan_join(paths: index.Paths, options: Options) -> SplitFiles:
    """Plan the join of parts. This does not check whether the joined files exist."""
    whole, notes = _read_whole(paths, options)
    return replace(joining.plan_whole(whole, options), notes=notes, operator="join")


@_refusing_as("reshard")
def plan_reshard(paths: index.Paths, rule: Rule, options: Options) -> SplitFiles:
    """Plan to split parts again. This does not check whether the new parts exist."""
    whole, notes = _read_whole(paths, options)
    layout = options.layout or ("ranks" if whole.parts[0].is_folder else "files")
    options = replace(options, layout=layout)
    planned = sharding.plan_parts([whole], rule, joining.choice_of_parts, options)
    return replace(planned, notes=notes, operator="reshard")


def _read_whole(paths: index.Paths, options: Options) -> tuple[index.Checkpoint, tuple[str, ...]]:
    """Return the checkpoint that parts make up, and what the user should know about it."""
    parts = index.read_parts(paths)
    folder = parts[0].folder
    inputs = [file for part in parts for file in part.files]
    choose, check, notes = _chooser(inputs, options, folder, folder.parent)
    whole = joining.read_whole(parts, choose, options.say_how)
    check(whole.files)
    if whole.made_of is not None and options.say_how:
        notes.append("the parts say themselves how they were split, and only this counts")
    if [*whole.parts] != parts:
        names = [str(part.path) for part in whole.parts[:4]] + ["…"] * (len(parts) > 4)
        numbers = "ranks" if whole.made_of else "numbers"
        notes.append(f"the parts are joined in the order of their {numbers}: {', '.join(names)}")
    return whole, tuple(notes)


def write(planned: SplitFiles, force: bool, progress: Progress | None = None) -> None:
    """Write all files of a plan; see `splitjit.files.staging`.

    Parameters
    ----------
    planned : SplitFiles
    force : bool
        Whether new files may overwrite existing files.
    progress : callable, optional

    Raises
    ------
    OSError
        If a target exists, or if the files cannot be written.
    SplitError
        If a file is damaged, or changes while it is read.
    """
    total, written = planned.nbytes, 0

    def count(nbytes: int) -> None:
        nonlocal written
        written += nbytes
        if progress is not None:
            progress(written, total)

    targets = sorted(planned.targets, key=_turn)
    if force and 2 not in map(_turn, targets):  # one rank: its manifest is empty meanwhile
        targets += [target for target in targets if not _turn(target)]
    with _refusing_as(planned.operator), staging.stage(targets, force) as staged:
        for file in planned.files:
            if file.targets:
                write_parts(file, [staged[target] for target in file.targets], count)
        inputs = {status for file in planned.files for status in file.statuses}
        for path, content in planned.indexes:
            staged[path].protect(*inputs)  # it names the tensors of all of them
            staged[path].write_bytes(content)
        for target, path in planned.copies:
            with open(path, "rb") as source:
                staged[target].protect(os.fstat(source.fileno()))
                staged[target].write_bytes(source.read())


def _turn(target: Path) -> int:
    """Return when a file is moved: the first rank's manifest before, and others after, the rest.

    If the process is killed in between, these manifests contradict each other, and `join` refuses
    the ranks. One rank has one manifest: an empty one is moved first, and the new one last.
    """
    if target.name != index.MANIFEST:
        return 1
    return 0 if target.parent.name == "rank-0" else 2


# ---- which tensors -----------------------------------------------------------------------


def _chooser(
    files: Sequence[TensorFile], options: Options, *folders: Path
) -> tuple[Chooser, Callable[[Iterable[TensorFile]], None], list[str]]:
    """Return how to split a named tensor: by patterns, then by the plan of the model.

    Returns
    -------
    callable
        How to split a tensor.
    callable
        Checks that whole files fit the model.
    list of str
        What the user should know about the plan.
    """
    axis = options.axis or 0
    chosen = [patterns.parse(text, axis) for text in options.tensors or ()]
    names = list(dict.fromkeys([name for file in files for name in file.tensors]))
    patterns.check_matches(chosen, names)
    default = None if chosen or options.tp_plan else patterns.Choice("*", axis)
    # The first pattern that matches a name counts, so it comes last.
    given = {name: one for one in reversed(chosen) for name in names if one.matches(name)}
    planned: dict[str, patterns.Choice] = {}
    notes = []

    def check(files: Iterable[TensorFile]) -> None:
        if options.tp_plan:
            tensor_parallel.check_shapes(model, planned, given.get, files)

    if options.tp_plan:
        from splitjit.files.checkpoints import tensor_parallel

        found = (folder for folder in folders if (folder / "config.json").exists())
        config = next(found, folders[0]) if options.config is None else options.config
        model = tensor_parallel.load(Path(config), names)
        tensors = [one for file in files for one in file.tensors.values()]
        single = {one.name for one in tensors if {*one.shape} <= {1}}
        planned = tensor_parallel.choices(model, names, given.get, single)
        if model.preset:
            preset = f"the preset of splitjit for {model.family} is used"
            notes.append(f"transformers has no plan for {model.model}; {preset}")
    choices = {**dict.fromkeys(names, default), **planned, **given}
    # Tables are whole, unless a pattern or the plan names them. Without records, a join of one .npz
    # file must find the same tables, so no other file counts for it.
    alone = [file for file in files if file.suffix == ".npz" and not options.ranks]
    tables = {file: siblings.tables(file.tensors) for file in alone}
    whole = siblings.tables(names)

    def choose(name: str, file: TensorFile) -> patterns.Choice | None:
        choice = choices[name]
        if choice and choice.pattern != name and name in tables.get(file, whole):
            return None
        return choice

    return choose, check, notes


# ---- as plain data, which JSON can hold ---------------------------------------------------


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


def describe_files(paths: index.Paths) -> dict[str, Any]:
    """Describe files, indexes and folders; see `splitjit.files.describe_files`."""
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


def _found(file: TensorFile, known: record.Record | None) -> dict[str, Any]:
    tensors = [_tensor(one) | _choice(known, one.name) for one in file.tensors.values()]
    nbytes = sum(tensor["nbytes"] for tensor in tensors)
    return {"path": str(file.path), "nbytes": nbytes, "tensors": tensors}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    dtype, shape = str(tensor.dtype), [*tensor.shape]
    return {"name": tensor.name, "dtype": dtype, "shape": shape, "nbytes": tensor.nbytes}


def _choice(known: record.Record | None, name: str) -> dict[str, Any]:
    """Describe the axis and the sections of the whole tensor."""
    choice = known.tensors[name] if known else None
    if choice:
        return {"axis": choice.axis, "sections": choice.sections, "head": choice.head}
    return {"axis": None} if known else {}


def _divided(plan: TensorPlan) -> dict[str, Any]:
    sections = [sum(sizes) for sizes in plan.sections]
    shapes = [[*shape] for shape in plan.part_shapes]
    return {**_tensor(plan.tensor), "axis": plan.axis, "sections": sections, "part_shapes": shapes}
