"""The commands that read and write files: `split`, `join`, `reshard` and `info`."""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

from splitjit import files
from splitjit._cli.lines import amount, as_option, number_of, print_json, printable, say
from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import NAMES
from splitjit.files.checkpoints import operations, sharding, siblings
from splitjit.files.file_plan import FilePlan, SplitFiles, TensorPlan, percent
from splitjit.files.formats.base import Tensor
from splitjit.files.staging import COMPLETE, check_targets
from splitjit.files.tiles import Progress


def run(arguments: argparse.Namespace) -> None:
    """Run the command that the arguments name."""
    if arguments.command == "info":
        found = files.describe_files(arguments.paths)
        print_json(found) if arguments.json else print_info(found, arguments.tensors)
        return
    planned = _plan(arguments)
    dry_run = arguments.dry_run
    existing = [str(one) for one in planned.targets if dry_run and os.path.lexists(one)]
    if not dry_run:
        shown = contextlib.nullcontext() if arguments.quiet else show_progress(planned.nbytes)
        with shown as progress:
            operations.write(planned, arguments.force, progress)
            arguments.written = [COMPLETE]  # for `main`, if an error or Ctrl-C comes later
    if arguments.json:
        print_json({"dry_run": dry_run, "existing": existing, **operations.describe(planned)})
    elif not arguments.quiet:
        print_report(planned, dry_run, arguments.verbose)
        if dry_run and arguments.tp_plan:
            print("the same without --tp-plan:")
            options = [f"  --tensor {shlex.quote(one)}" for one in siblings.as_patterns(planned)]
            _print(" \\\n".join(options).splitlines())
        _print(f"{target} exists" for target in existing)
    if dry_run:
        check_targets(planned.targets, arguments.force)


def _plan(arguments: argparse.Namespace) -> files.SplitFiles:
    """Plan what the command writes."""
    given = vars(arguments)
    names = [field.name for field in dataclasses.fields(sharding.Options)]
    options = sharding.Options(**{name: given[name] for name in names if name in given})
    if arguments.command == "join":
        return operations.plan_join(arguments.paths, options)
    rule = rule_of(*[given[name] for name in NAMES])
    plan = operations.plan_split if arguments.command == "split" else operations.plan_reshard
    return plan(arguments.paths, rule, options)


# ---- progress and reports ----------------------------------------------------------------

BAR_AFTER = 1.0
"""Seconds until a progress bar appears."""

MOST_LINES = 16
"""The most files that are listed. If there are more, one line sums them up."""

LINE_EVERY = 10.0
"""Seconds between two lines of progress, which are printed if there is no bar."""


@contextlib.contextmanager
def show_progress(total: int) -> Iterator[Progress]:
    """Show how many bytes are written, if it takes more than a moment."""
    if sys.stderr.isatty() and importlib.util.find_spec("tqdm"):
        from tqdm import tqdm

        with tqdm(total=total, unit="B", unit_scale=True, delay=BAR_AFTER, leave=False) as bar:
            yield lambda written, _: bar.update(written - bar.n)
    else:
        begun = printed = time.monotonic()

        def show(written: int, _: int) -> None:
            nonlocal printed
            now = time.monotonic()
            if now - printed >= LINE_EVERY:
                printed = now
                share = f"{percent(written / total)} of {amount(total)}"
                say(f"{share} written in {now - begun:.0f} s")

        yield show


def print_report(planned: SplitFiles, dry_run: bool, verbose: bool) -> None:
    """Print what was written, or what would be written: a line for each file and each part.

    If `dry_run`, also print a line for each tensor. If there are many files, print only their
    number and their size, unless `verbose`.
    """
    listed = verbose or dry_run or len(planned.targets) <= MOST_LINES
    for note in [*planned.notes, *[f"warning: {warning}" for warning in planned.warnings]]:
        say(note)
    lines = _joined_lines if planned.operator == "join" else _split_lines
    for file in planned.files:
        _print(lines(file, dry_run, listed))
    if listed:
        _print(f"{path}: {amount(len(content))}" for path, content in planned.indexes)
        _print(f"{path}: a copy of {copied}" for path, copied in planned.copies)
    else:
        count, nbytes = len(planned.targets), amount(planned.nbytes)
        _print([f"{count} files, {nbytes}, {planned.targets[0]} and others (-v lists them)"])
    several = len(planned.targets) > 1 and any(len(file.tensors) > 1 for file in planned.files)
    if several and planned.operator != "join":
        divided = [file for file in planned.files if file.targets]
        held = {sum(one.part_nbytes(i) for one in divided) for i in range(len(divided[0].targets))}
        most = "up to " * (len(held) > 1) + amount(max(held))
        print(f"{percent(planned.share_split)} of the bytes are split; each part holds {most}")


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line))


def _split_lines(file: FilePlan, dry_run: bool, listed: bool) -> Iterator[str]:
    paths, targets = ", ".join(map(str, file.paths)), file.targets if listed else ()
    if [plan.name for plan in file.tensors] == [""]:
        (plan,) = file.tensors
        yield f"{paths}: {_describe(plan.tensor)}"
        for i, target in enumerate(targets):
            yield f"{target}: {_describe(plan.part(i))}"
        return

    divided = sum(plan.axis is not None for plan in file.tensors)
    count = len(file.tensors) + len(file.left_out)
    others = "copied" if divided < len(file.tensors) else "left out"
    rest = f", {count - divided} {others}" if divided < count else ""
    yield f"{paths}: {divided} of {number_of(count, 'tensor')} split{rest}"
    if dry_run:
        yield from [f"  {plan.name}: {_describe_split(plan)}" for plan in file.tensors]
        yield from [f"  {name}: left out" for name in file.left_out]
    for i, target in enumerate(targets):
        yield f"{target}: {number_of(len(file.tensors), 'tensor')}, {amount(file.part_nbytes(i))}"


def _joined_lines(file: FilePlan, dry_run: bool, listed: bool) -> Iterator[str]:
    (target,) = file.targets
    if dry_run:
        named = [plan.name for plan in file.tensors] != [""]
        count = f"{number_of(len(file.tensors), 'tensor')}, " if named else ""
        yield f"{target}: {count}{amount(file.part_nbytes(0))} of data"
        for plan in file.joined:
            split = f"axis {plan.axis}, from {number_of(plan.count, 'part')}"
            how = "equal in all parts" if plan.axis is None else split
            yield f"  {plan.name or 'array'}: {_describe(plan.tensor)}, {how}"
    elif listed:
        yield f"{target}: {amount(target.stat().st_size)}"


def _describe(tensor: Tensor) -> str:
    return f"{tensor.shape} {tensor.dtype}, {amount(tensor.nbytes)}"


def _describe_split(plan: TensorPlan) -> str:
    if plan.axis is None:
        return f"{_describe(plan.tensor)}, copied"
    fused = f" in {len(plan.sections)} sections" if len(plan.sections) > 1 else ""
    copies = f", {plan.copies} copies of each piece" if plan.copies > 1 else ""
    shapes = _counted(plan.part_shapes)
    return f"{plan.shape} {plan.dtype}, axis {plan.axis}{fused}, into {shapes}{copies}"


def _counted(shapes: Iterable[tuple[int, ...]]) -> str:
    """Write shapes in turn, with their numbers: ``2 x (3, 4), 1 x (1, 4)``."""
    return ", ".join([f"{len(list(same))} x {shape}" for shape, same in itertools.groupby(shapes)])


def print_info(described: dict[str, Any], tensors: bool) -> None:
    """Print the files and tensors of checkpoints, and the splits that they are parts of.

    Parameters
    ----------
    described : dict
    tensors : bool
        Whether to list the tensors of a split; those of other files are always listed.
    """
    splits: dict[str, list[dict[str, Any]]] = {}
    for one in described["checkpoints"]:
        if one["split"] is None:
            _print(_info_lines(one))
        else:
            how = sorted(repr({**tensor, "shape": 0, "nbytes": 0}) for _, tensor in _by_file(one))
            splits.setdefault(repr(({**one["split"], "rank": 0}, how)), []).append(one)
    for parts in splits.values():
        _print(_split_info(parts, tensors))
    if described["problem"] and len(described["checkpoints"]) > 1:
        say(f"these are not all parts of one split: {described['problem']}")


def _split_info(parts: list[dict[str, Any]], tensors: bool) -> Iterator[str]:
    """Describe the parts of one split: the split, each part, and if asked, the tensors."""
    split = parts[0]["split"]
    ((rule, value),) = split["rule"].items()
    ranks = {one["split"]["rank"] for one in parts}
    given = "all" if len(ranks) == split["count"] else f"{len(ranks)} of"
    held = [[*_by_file(one)] for one in parts]
    total = amount(sum(one["nbytes"] for one in parts))
    count, how = number_of(split["count"], "part"), as_option(rule, "=", str(value))
    yield f"{given} {count} of one split by {how}: {number_of(len(held[0]), 'tensor')}, {total}"
    for one in parts:
        yield f"  {one['path']}: rank {one['split']['rank']}, {amount(one['nbytes'])}"
    shapes: dict[Any, list[tuple[int, ...]]] = {}
    for key, tensor in itertools.chain(*held):
        shapes.setdefault(key, []).append(tuple(tensor["shape"]))
    for key, tensor in held[0] if tensors else ():
        how = "a copy in each part"
        if tensor.get("axis") is not None:
            lengths = " + ".join(map(str, tensor["sections"]))
            how = f"{lengths} along axis {tensor['axis']}"
        each = _counted(shapes[key])
        yield f"    {tensor['name'] or 'array'}: {tensor['dtype']}, {how}: {each}"


def _by_file(one: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the tensors of a part, by file and name; .safetensors files share one set of names."""
    for i, file in enumerate(one["files"]):
        position = -1 if file["path"].endswith(".safetensors") else i
        yield from [((position, tensor["name"]), tensor) for tensor in file["tensors"]]


def _info_lines(one: dict[str, Any]) -> Iterator[str]:
    count = sum(len(file["tensors"]) for file in one["files"])
    yield f"{one['path']}: {number_of(count, 'tensor')}, {amount(one['nbytes'])}"
    for file in one["files"]:
        if file["path"] != one["path"]:
            yield f"  {file['path']}: {amount(file['nbytes'])}"
        for tensor in file["tensors"]:
            held = f"{tuple(tensor['shape'])} {tensor['dtype']}, {amount(tensor['nbytes'])}"
            yield f"    {tensor['name'] or 'array'}: {held}"
