"""What the commands ``split`` and ``join`` print: progress, errors, and a report of the parts."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from splitjit.files import FilePlan, SplitFiles, TensorPlan
from splitjit.files.formats.base import Tensor
from splitjit.files.joining import JoinedFiles
from splitjit.files.verbs import Progress

BAR_AFTER = 1.0
"""Seconds until a progress bar appears."""

LINE_EVERY = 10.0
"""Seconds between two lines of progress, which are printed if there is no bar."""


def program() -> str:
    """Return the name by which the user called the command."""
    return "splitjit" if Path(sys.argv[0]).stem == "splitjit" else "python -m splitjit"


def say(message: str) -> None:
    """Print one line on standard error, if someone still reads it."""
    with contextlib.suppress(BrokenPipeError):
        print(f"{program()}:", _printable(" ".join(message.split())), file=sys.stderr)


def _printable(text: str) -> str:
    """Escape control characters: names come from files and could control the terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


@contextlib.contextmanager
def show_progress(quiet: bool) -> Iterator[Progress | None]:
    """Show how many bytes are written, if this takes more than a moment."""
    if quiet:
        yield None
    elif sys.stderr.isatty() and importlib.util.find_spec("tqdm"):
        from tqdm import tqdm

        with contextlib.ExitStack() as stack:
            bars: list[tqdm] = []

            def update(written: int, total: int) -> None:
                if not bars:
                    bar = tqdm(total=total, unit="B", unit_scale=True, delay=BAR_AFTER, leave=False)
                    bars.append(stack.enter_context(bar))
                bars[0].update(written - bars[0].n)

            yield update
    else:
        yield _Lines()


class _Lines:
    """Print a line of progress every `LINE_EVERY` seconds."""

    def __init__(self) -> None:
        self.begun = self.printed = time.monotonic()

    def __call__(self, written: int, total: int) -> None:
        now = time.monotonic()
        if now - self.printed >= LINE_EVERY:
            self.printed = now
            share = f"{written / total:.0%} of {total / 1e9:.1f} GB"
            say(f"{share} written in {now - self.begun:.0f} s")


def print_report(planned: SplitFiles, dry_run: bool) -> None:
    """Print a line for each file and each part; if `dry_run`, also for each tensor."""
    for warning in planned.warnings:
        say(f"warning: {warning}")
    for file in planned.files:
        for line in _lines(file, dry_run):
            print(_printable(line))
    for path, content in planned.indexes:
        print(_printable(f"{path}: {len(content)} bytes"))
    for path, copied in planned.copies:
        print(_printable(f"{path}: a copy of {copied}"))


def print_joined(joined: JoinedFiles, dry_run: bool) -> None:
    """Print a line for each joined file; if `dry_run`, also for each tensor."""
    for note in joined.notes:
        say(note)
    for file in joined.files:
        if dry_run:
            count = f"{len(file.tensors)} tensors, " if file.whole[0].name else ""
            nbytes = sum(tensor.nbytes for tensor in file.whole)
            print(_printable(f"{file.target}: {count}{nbytes} bytes of data"))
            for one, tensor in zip(file.tensors, file.whole, strict=True):
                how = "equal in all parts"
                if one.plan.axis is not None:
                    how = f"axis {one.plan.axis}, from {one.plan.count} parts"
                print(_printable(f"  {tensor.name or 'array'}: {_describe(tensor)}, {how}"))
        else:
            print(_printable(f"{file.target}: {file.target.stat().st_size} bytes"))
    for path, content in joined.indexes:
        print(_printable(f"{path}: {len(content)} bytes"))


def _lines(file: FilePlan, dry_run: bool) -> Iterator[str]:
    paths = ", ".join(map(str, file.paths))
    if [plan.name for plan in file.tensors] == [""]:
        (plan,) = file.tensors
        yield f"{paths}: {_describe(plan.tensor)}"
        for i, target in enumerate(file.targets):
            yield f"{target}: {_describe(plan.part(i))}"
        return

    divided = sum(plan.axis is not None for plan in file.tensors)
    count = len(file.tensors) + len(file.left_out)
    others = "copied" if divided < len(file.tensors) else "left out"
    yield f"{paths}: {divided} of {count} tensors split, {count - divided} {others}"
    if dry_run:
        for plan in file.tensors:
            yield f"  {plan.name}: {_describe_split(plan)}"
        for name in file.left_out:
            yield f"  {name}: left out"
    for i, target in enumerate(file.targets):
        yield f"{target}: {len(file.tensors)} tensors, {file.part_nbytes(i)} bytes"


def _describe(tensor: Tensor) -> str:
    return f"{tensor.shape} {tensor.dtype}, {tensor.nbytes} bytes"


def _describe_split(plan: TensorPlan) -> str:
    if plan.axis is None:
        return f"{_describe(plan.tensor)}, copied"
    runs = itertools.groupby(plan.part_shapes)
    shapes = ", ".join([f"{len(list(same))} x {shape}" for shape, same in runs])
    fused = f" in {len(plan.sections)} sections" if len(plan.sections) > 1 else ""
    copies = f", {plan.copies} copies of each piece" if plan.copies > 1 else ""
    return f"{plan.shape} {plan.dtype}, axis {plan.axis}{fused}, into {shapes}{copies}"
