"""What the commands for files print: progress and reports, as text or as JSON."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from splitjit._cli.lines import printable, say
from splitjit.files.formats.base import Tensor
from splitjit.files.plan import FilePlan, SplitFiles, TensorPlan
from splitjit.files.splitting import Progress

if TYPE_CHECKING:
    from splitjit.checkpoints.joining import JoinedFiles

BAR_AFTER = 1.0
"""Seconds until a progress bar appears."""

MOST_LINES = 16
"""The most files that are listed. If there are more, one line sums them up."""

LINE_EVERY = 10.0
"""Seconds between two lines of progress, which are printed if there is no bar."""


@contextlib.contextmanager
def show_progress(quiet: bool) -> Iterator[Progress | None]:
    """Show how many bytes are written, if this takes more than a moment."""
    if quiet:
        yield None
    elif sys.stderr.isatty() and (tqdm := _tqdm()):
        with contextlib.ExitStack() as stack:
            bars: list[Any] = []

            def update(written: int, total: int) -> None:
                if not bars:
                    bar = tqdm(total=total, unit="B", unit_scale=True, delay=BAR_AFTER, leave=False)
                    bars.append(stack.enter_context(bar))
                bars[0].update(written - bars[0].n)

            yield update
    else:
        yield _Lines()


def _tqdm() -> Any:
    """Return the class of progress bars, or None if the package is missing."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm


class _Lines:
    """Print a line of progress every `LINE_EVERY` seconds."""

    def __init__(self) -> None:
        self.begun = self.printed = time.monotonic()

    def __call__(self, written: int, total: int) -> None:
        now = time.monotonic()
        if now - self.printed >= LINE_EVERY:
            self.printed = now
            share = f"{written / total:.0%} of {amount(total)}"
            say(f"{share} written in {now - self.begun:.0f} s")


def print_report(planned: SplitFiles | JoinedFiles, dry_run: bool, verbose: bool) -> None:
    """Print what was written, or what would be written."""
    if isinstance(planned, SplitFiles):
        _print_split(planned, dry_run, verbose)
    else:
        _print_joined(planned, dry_run, verbose)


def _print_split(planned: SplitFiles, dry_run: bool, verbose: bool) -> None:
    """Print a line for each file and each part; if `dry_run`, also for each tensor.

    If there are many parts, print only their number and their size, unless `verbose`.
    """
    for warning in planned.warnings:
        say(f"warning: {warning}")
    listed = verbose or dry_run or len(planned.targets) <= MOST_LINES
    for file in planned.files:
        for line in _lines(file, dry_run, listed):
            print(printable(line))
    if listed:
        for path, content in planned.indexes:
            print(printable(f"{path}: {amount(len(content))}"))
        for path, copied in planned.copies:
            print(printable(f"{path}: a copy of {copied}"))
    else:
        count, first = len(planned.targets), planned.targets[0]
        print(printable(f"{count} files, {first} and others (-v lists them)"))
    if len(planned.targets) > 1 and any(len(file.tensors) > 1 for file in planned.files):
        share = planned.share_split
        parts = max(len(file.targets) for file in planned.files)
        each = planned.nbytes / parts
        print(f"{share:.0%} of the bytes are split; each part holds {amount(each)}")


def _print_joined(joined: JoinedFiles, dry_run: bool, verbose: bool) -> None:
    """Print a line for each joined file; if `dry_run`, also for each tensor."""
    for note in joined.notes:
        say(note)
    many = len(joined.targets) > MOST_LINES and not verbose and not dry_run
    if many:
        count, nbytes = len(joined.targets), amount(joined.nbytes)
        print(printable(f"{count} files, {nbytes}, {joined.targets[0]} and others (-v lists them)"))
        return
    for file in joined.files:
        if dry_run:
            count_of = f"{len(file.tensors)} tensors, " if file.whole[0].name else ""
            nbytes = amount(sum(tensor.nbytes for tensor in file.whole))
            print(printable(f"{file.target}: {count_of}{nbytes} of data"))
            for one, tensor in zip(file.tensors, file.whole, strict=True):
                how = "equal in all parts"
                if one.plan.axis is not None:
                    how = f"axis {one.plan.axis}, from {one.plan.count} parts"
                print(printable(f"  {tensor.name or 'array'}: {_describe(tensor)}, {how}"))
        else:
            print(printable(f"{file.target}: {amount(file.target.stat().st_size)}"))
    for path, content in joined.indexes:
        print(printable(f"{path}: {amount(len(content))}"))


def print_info(described: dict[str, Any]) -> None:
    """Print the files and tensors of checkpoints, and the split that they are parts of."""
    for one in described["checkpoints"]:
        count = sum(len(file["tensors"]) for file in one["files"])
        plural = "" if count == 1 else "s"
        line = f"{one['path']}: {count} tensor{plural}, {amount(one['nbytes'])}"
        if one["split"]:
            ((rule, value),) = one["split"]["rule"].items()
            line += f", rank {one['split']['rank']} of {one['split']['count']} by {rule}={value}"
        print(printable(line))
        for file in one["files"]:
            if file["path"] != one["path"]:
                print(printable(f"  {file['path']}: {amount(file['nbytes'])}"))
            for tensor in file["tensors"]:
                shape = tuple(tensor["shape"])
                line = f"{shape} {tensor['dtype']}, {amount(tensor['nbytes'])}"
                if tensor.get("axis") is not None:
                    lengths = " + ".join(map(str, tensor["sections"]))
                    line += f", a part of {lengths} along axis {tensor['axis']}"
                elif "axis" in tensor:
                    line += ", a copy"
                print(printable(f"    {tensor['name'] or 'array'}: {line}"))
    if described["complete"]:
        print("these are all parts of one split")
    elif described["problem"] and len(described["checkpoints"]) > 1:
        say(f"these are not all parts of one split: {described['problem']}")


def print_json(described: dict[str, Any]) -> None:
    """Print plain data for other programs."""
    import json

    print(json.dumps(described, indent=1))


def amount(nbytes: float) -> str:
    """Write a number of bytes in the unit that fits.

    Examples
    --------
    >>> amount(990), amount(25088), amount(7.6e9)
    ('990 bytes', '25.1 kB', '7.6 GB')
    """
    if nbytes < 10_000:
        return f"{nbytes:.0f} bytes"
    power = min(int(math.log10(nbytes)) // 3, 4)
    return f"{nbytes / 1000**power:.1f} {' kMGT'[power]}B"


def _lines(file: FilePlan, dry_run: bool, listed: bool) -> Iterator[str]:
    paths = ", ".join(map(str, file.paths))
    if [plan.name for plan in file.tensors] == [""]:
        (plan,) = file.tensors
        yield f"{paths}: {_describe(plan.tensor)}"
        for i, target in enumerate(file.targets if listed else ()):
            yield f"{target}: {_describe(plan.part(i))}"
        return

    divided = sum(plan.axis is not None for plan in file.tensors)
    count = len(file.tensors) + len(file.left_out)
    others = "copied" if divided < len(file.tensors) else "left out"
    rest = f", {count - divided} {others}" if divided < count else ""
    yield f"{paths}: {divided} of {count} tensors split{rest}"
    if dry_run:
        for plan in file.tensors:
            yield f"  {plan.name}: {_describe_split(plan)}"
        for name in file.left_out:
            yield f"  {name}: left out"
    for i, target in enumerate(file.targets if listed else ()):
        yield f"{target}: {len(file.tensors)} tensors, {amount(file.part_nbytes(i))}"


def _describe(tensor: Tensor) -> str:
    return f"{tensor.shape} {tensor.dtype}, {amount(tensor.nbytes)}"


def _describe_split(plan: TensorPlan) -> str:
    if plan.axis is None:
        return f"{_describe(plan.tensor)}, copied"
    runs = itertools.groupby(plan.part_shapes)
    shapes = ", ".join([f"{len(list(same))} x {shape}" for shape, same in runs])
    fused = f" in {len(plan.sections)} sections" if len(plan.sections) > 1 else ""
    copies = f", {plan.copies} copies of each piece" if plan.copies > 1 else ""
    return f"{plan.shape} {plan.dtype}, axis {plan.axis}{fused}, into {shapes}{copies}"
