"""Plan the split of files: the parts of each tensor, and the file of each part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from splitjit._plan.rules import Rule
from splitjit.errors import SplitError
from splitjit.files import checkpoint, companions, siblings
from splitjit.files.checkpoint import Checkpoint
from splitjit.files.dividing import num_parts, plan_tensor
from splitjit.files.formats.base import TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.places import Place, places
from splitjit.files.plan import FilePlan, SplitFiles, TensorPlan
from splitjit.files.record import MANIFEST, Record, manifest

Chooser = Callable[[str, TensorFile], Choice | None]
"""Returns how to split the tensor of a name in a file, or None if the tensor is not split."""

Namer = Callable[[Checkpoint, TensorFile, int], Path]
"""Returns the path of a part of a file."""


def plan_parts(
    checkpoints: Sequence[Checkpoint],
    rule: Rule,
    choose: Chooser,
    name_part: Namer,
    *,
    copy_others: bool,
    merge: bool,
    ranks: bool,
    copy_config: bool = False,
    operator: str = "split",
) -> SplitFiles:
    """Plan the split of files.

    Parameters
    ----------
    checkpoints : sequence of Checkpoint
    rule : Rule
    choose : callable
    name_part : callable
    copy_others : bool
        Whether each part holds a copy of every tensor that is not split.
    merge : bool
        Whether .safetensors files whose parts have the same names share their parts.
    ranks : bool
        Whether each folder of parts gets an index of its .safetensors files, and a
        manifest.
    copy_config : bool, default False
        Whether each folder of parts gets the configuration of the model.
    operator : str, default "split"

    Returns
    -------
    SplitFiles

    Raises
    ------
    SplitError
        If the rule does not fit a tensor or makes different numbers of parts, or if two
        parts would have the same file name.
    """
    inputs = [(one, file) for one in checkpoints for file in one.files]
    tensors = [_plan_tensors(file, rule, choose, copy_others, operator) for _, file in inputs]
    count = _count_parts([plan for plans in tensors for plan in plans], rule)
    if not count:
        for _, file in inputs:  # if only 0-D tensors match, the first one is refused
            _plan_tensors(file, rule, choose, copy_others=False, operator=operator, scalars=True)
    made_of = checkpoints[0].made_of or checkpoint.digest(file for _, file in inputs)
    files = []
    for (one, file), plans in zip(inputs, tensors, strict=True):
        whole = tuple([replace(p, copies=count) if p.axis is None else p for p in plans])
        parts = range(count if whole else 0)
        targets = tuple([name_part(one, file, i) for i in parts])
        held = {plan.name for plan in whole}
        left_out = tuple([name for name in file.names if name not in held])
        own = None
        if count:
            order = _order(file, whole)
            own = Record(made_of, 0, count, rule, _choices(whole), file.path.name, order=order)
        paths = tuple([read.path for read in file.inputs])
        files.append(FilePlan(paths, targets, whole, left_out, own))
    merged = _merge(files) if merge else files
    folders = list(dict.fromkeys(path.parent for file in merged for path in file.targets))
    copies = companions.find(checkpoints[0].folder, folders) if copy_config else []
    indexes = _make_indexes(checkpoints, merged, count) if ranks else []
    outputs = [(file.paths, file.targets) for file in merged]
    check_places(operator, [*outputs, *[((path,), (target,)) for target, path in copies]])
    warnings = siblings.find_mismatches([plan for file in merged for plan in file.tensors])
    empty = [f"{file.path} is empty: it holds no tensor" for _, file in inputs if not file.names]
    warnings = (*warnings, *empty)
    planned = SplitFiles(tuple(merged), tuple(indexes), warnings, tuple(copies), int(ranks))
    if count > 1 and planned.share_split < 0.5:
        share = f"{planned.share_split:.0%} of the bytes are split"
        warning = f"only {share}; each part holds a copy of the rest"
        planned = replace(planned, warnings=(*warnings, warning))
    return planned


def _order(file: TensorFile, plans: Iterable[TensorPlan]) -> tuple[int, ...] | None:
    """Return the order of the data in the header, if it is not that of the header."""
    held = {plan.name: plan.tensor.position for plan in plans}
    positions = [held[name] for name in file.data_order if name in held]
    ranked = {position: i for i, position in enumerate(sorted(positions))}
    order = tuple([ranked[position] for position in positions])
    return None if order == tuple(range(len(positions))) or not any(positions) else order


def _choices(plans: Iterable[TensorPlan]) -> dict[str, Choice | None]:
    """Return how the tensors of a file are split, as records say it."""
    choices: dict[str, Choice | None] = {}
    for plan in plans:
        choices[plan.name] = None
        if plan.axis is not None:
            sections = tuple(map(sum, plan.sections))
            given = plan.choice or Choice(plan.name, plan.axis)
            if given.head:  # several parts may hold the same head
                sections = given.sections or sections
            choices[plan.name] = replace(
                given, pattern=plan.name, axis=plan.axis, sections=sections, planned=True
            )
    return choices


def _plan_tensors(
    file: TensorFile,
    rule: Rule,
    choose: Chooser,
    copy_others: bool,
    operator: str,
    scalars: bool = False,
) -> list[TensorPlan]:
    plans = []
    for name in file.names:
        choice = choose(name, file)
        if choice and (scalars or choice.applies(file, name)):
            tensor = file.tensor(name)
            try:
                plan = plan_tensor(tensor, file, choice, rule)
                plan.runs()
            except SplitError as error:
                where = f"{operator} {file.path}" + (f", {name}" if name else "")
                hint = error.hint  # `named` leaves it out
                raise type(error)(where, error.received, error.rule, hint=hint) from None
            plans.append(plan)
        elif copy_others:
            plans.append(TensorPlan(file.verbatim(name), file, None, (), 1))
    return plans


def _count_parts(plans: list[TensorPlan], rule: Rule) -> int:
    """Return the number of parts that all tensors have."""
    counts = {plan.count: plan.name or plan.file.path for plan in plans if plan.axis is not None}
    if len(counts) > 1:
        received = ", ".join(f"{what} into {count}" for count, what in sorted(counts.items())[:2])
        rest = "all tensors must have the same number of parts; use num_outputs or num_splits"
        raise SplitError("split", received, rest)
    asked = num_parts(rule)
    for count, what in counts.items():
        if asked is not None and count != asked:
            rest = f"the rule makes {asked} parts of each tensor"
            raise SplitError("split", f"{what} into {count}", rest)
    return next(iter(counts), 0)


def _merge(files: list[FilePlan]) -> list[FilePlan]:
    """Let .safetensors files whose parts have the same names share their parts."""
    groups: dict[object, list[FilePlan]] = {}
    for i, file in enumerate(files):
        shared = file.targets and file.paths[0].suffix == ".safetensors"
        groups.setdefault(file.targets if shared else i, []).append(file)
    return [_merged(group) for group in groups.values()]


def _merged(files: list[FilePlan]) -> FilePlan:
    if len(files) == 1:
        return files[0]
    holders: dict[str, Path] = {}
    tensors = [plan for file in files for plan in file.tensors]
    first = tensors[0].file
    for plan in tensors:
        path = plan.file.path
        if plan.name in holders:
            received = f"{plan.name} in {holders[plan.name]} and {path}"
            raise SplitError("split", received, "only one file of a rank may hold a tensor")
        if plan.file.metadata != first.metadata:
            rule = "files that are merged must have the same metadata; put {stem} into the name"
            raise SplitError("split", f"{first.path} and {path}", rule)
        holders[plan.name] = path
    return FilePlan(
        tuple([path for file in files for path in file.paths]),
        files[0].targets,
        tuple(sorted(tensors, key=lambda plan: -plan.tensor.bits)),  # aligned, as in one file
        tuple([name for file in files for name in file.left_out]),
        files[0].record
        and replace(files[0].record, tensors=_choices(tensors), file=None, order=None),
    )


def check_places(operator: str, files: Sequence[tuple[Sequence[Path], Sequence[Path]]]) -> None:
    """Check that no two outputs have the same place, and that no output replaces an input.

    Parameters
    ----------
    operator : str
    files : sequence of (sequence of Path, sequence of Path)
        Inputs, and the outputs that are made of them.

    Raises
    ------
    SplitError
        If two outputs have the same place, or if an output replaces an input.
    """
    inputs = [path for paths, _ in files for path in paths]
    replaced = dict(zip(places(inputs), inputs, strict=True))
    replaced |= dict(zip(places([path.resolve() for path in inputs]), inputs, strict=True))
    owners: dict[Place, Path] = {}
    for paths, targets in files:
        for target, place in zip(targets, places(targets), strict=True):
            if place in replaced:
                rule = f"{target} would replace an input, {replaced[place]}"
                raise SplitError(operator, str(paths[0]), rule)
            if place in owners:
                rule = f"both would write {target}; write them into different folders"
                raise SplitError(operator, f"{owners[place]} and {paths[0]}", rule)
            owners[place] = paths[0]


def _make_indexes(
    checkpoints: Sequence[Checkpoint], files: list[FilePlan], count: int
) -> list[tuple[Path, bytes]]:
    """Make a manifest for each folder of parts, and an index of its .safetensors files."""
    folders: dict[Path, list[FilePlan]] = {}
    for file in files:
        if file.targets:
            folders.setdefault(file.targets[0].parent, []).append(file)
    made = []
    for group in folders.values():
        indexed = [file for file in group if file.targets[0].suffix == ".safetensors"]
        if indexed:
            made += _index(checkpoints, indexed, count)
        for i in range(count):
            records = {file.targets[i].name: file.record for file in group if file.record}
            made.append((group[0].targets[i].with_name(MANIFEST), manifest(records, i)))
    return made


def _index(
    checkpoints: Sequence[Checkpoint], group: list[FilePlan], count: int
) -> list[tuple[Path, bytes]]:
    """Make the index of each rank."""
    held = {plan.file for file in group for plan in file.tensors}
    like = next((one for one in checkpoints if one.index and held & {*one.files}), None)
    content, name = (like.index, like.index_name) if like else (None, checkpoint.NAME)
    whole = [plan.tensor for file in group for plan in file.tensors]
    indexes = []
    for i in range(count):
        parts = [(file.targets[i].name, file.part(i)) for file in group]
        tensors = [tensor for _, part in parts for tensor in part]
        change = checkpoint.num_elements(tensors) - checkpoint.num_elements(whole)
        target = group[0].targets[i].with_name(name)
        indexes.append((target, checkpoint.make_index(content, change, parts)))
    return indexes
