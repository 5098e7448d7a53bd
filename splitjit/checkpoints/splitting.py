"""Plan the split of checkpoints: the parts of each tensor, the file of each part, the indexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from splitjit._plan.rules import Rule
from splitjit.checkpoints import index, naming
from splitjit.checkpoints.index import Checkpoint
from splitjit.checkpoints.naming import Where
from splitjit.checkpoints.record import MANIFEST, Record, manifest
from splitjit.errors import SplitError
from splitjit.files.formats.base import TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.places import check_places
from splitjit.files.plan import FilePlan, SplitFiles, TensorPlan
from splitjit.files.splitting import Chooser, count_parts, plan_tensors


def plan_parts(
    checkpoints: Sequence[Checkpoint], rule: Rule, choose: Chooser, where: Where, operator: str
) -> SplitFiles:
    """Plan the split of checkpoints.

    Raises
    ------
    SplitError
        If the rule does not fit a tensor or makes different numbers of parts, or if two
        parts would have the same file name.
    """
    name_part = naming.namer(where)
    copied = where.others == "copy"
    inputs = [(one, file) for one in checkpoints for file in one.files]
    tensors = [plan_tensors(file, rule, choose, copied, operator) for _, file in inputs]
    count = count_parts([plan for plans in tensors for plan in plans], rule)
    if not count:
        for _, file in inputs:  # if only 0-D tensors match, the first one is refused
            plan_tensors(file, rule, choose, False, operator, scalars=True)
    recorded = where.ranks or any(file.suffix == ".safetensors" for _, file in inputs)
    made_of = checkpoints[0].made_of or (
        index.digest(file for _, file in inputs) if count and recorded else ""
    )
    files = []
    for (one, file), plans in zip(inputs, tensors, strict=True):
        whole = tuple([replace(p, copies=count) if p.axis is None else p for p in plans])
        parts = range(count if whole else 0)
        targets = tuple([name_part(one, file, i) for i in parts])
        held = {plan.name for plan in whole}
        left_out = tuple([name for name in file.names if name not in held])
        own = None
        if made_of:
            order = _order(file, whole)
            own = Record(made_of, 0, count, rule, _choices(whole), file.path.name, order=order)
        paths = tuple([read.path for read in file.inputs])
        files.append(FilePlan(paths, targets, whole, left_out, own))
    merged = files if where.name is None else _merge(files)
    folders = list(dict.fromkeys(path.parent for file in merged for path in file.targets))
    with_config = where.ranks if where.copy_config is None else where.copy_config
    copies = naming.companions(checkpoints[0].folder, folders) if with_config else []
    indexes = _make_indexes(checkpoints, merged, count) if where.ranks else []
    outputs = [(file.paths, file.targets) for file in merged]
    check_places(operator, [*outputs, *[((path,), (target,)) for target, path in copies]])
    plans = [plan for file in merged for plan in file.tensors]
    warnings: tuple[str, ...] = ()
    if len(plans) > 1:
        from splitjit.checkpoints import siblings  # a single array has no bias

        warnings = siblings.find_mismatches(plans)
    empty = [f"{file.path} is empty: it holds no tensor" for _, file in inputs if not file.names]
    warnings = (*warnings, *empty)
    planned = SplitFiles(tuple(merged), tuple(indexes), warnings, tuple(copies), int(where.ranks))
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
    content, name = (like.index, like.index_name) if like else (None, index.NAME)
    whole = [plan.tensor for file in group for plan in file.tensors]
    indexes = []
    for i in range(count):
        parts = [(file.targets[i].name, file.part(i)) for file in group]
        tensors = [tensor for _, part in parts for tensor in part]
        change = index.num_elements(tensors) - index.num_elements(whole)
        target = group[0].targets[i].with_name(name)
        indexes.append((target, index.make_index(content, change, parts)))
    return indexes
