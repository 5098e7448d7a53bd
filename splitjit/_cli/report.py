"""Output of the command: progress, errors, and a report of the parts."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from splitjit._cli.files import FileSplit, Progress, TensorSplit
from splitjit._cli.formats.base import Tensor

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
def show_progress(nbytes: int, quiet: bool) -> Iterator[Progress]:
    """Show how many of `nbytes` bytes are written, if this takes more than a moment."""
    if quiet:
        yield lambda written: None
    elif sys.stderr.isatty() and importlib.util.find_spec("tqdm"):
        from tqdm import tqdm

        with tqdm(total=nbytes, unit="B", unit_scale=True, delay=BAR_AFTER, leave=False) as bar:
            yield bar.update
    else:
        yield _Lines(nbytes)


class _Lines:
    """Print a line of progress every `LINE_EVERY` seconds."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.written = 0
        self.begun = self.printed = time.monotonic()

    def __call__(self, written: int) -> None:
        self.written += written
        now = time.monotonic()
        if now - self.printed >= LINE_EVERY:
            self.printed = now
            share = f"{self.written / self.nbytes:.0%} of {self.nbytes / 1e9:.1f} GB"
            say(f"{share} written in {now - self.begun:.0f} s")


def print_report(planned: Sequence[FileSplit], dry_run: bool) -> None:
    """Print a line for each file and each part; if `dry_run`, also for each tensor."""
    for file in planned:
        for line in _lines(file, dry_run):
            print(_printable(line))


def _lines(file: FileSplit, dry_run: bool) -> Iterator[str]:
    path, names = file.source.path, file.source.names
    if names == ("",) and file.tensors:
        yield f"{path}: {_describe(file.tensors[0].tensor)}"
        for i, target in enumerate(file.targets):
            yield f"{target}: {_describe(*file.part(i))}"
        return

    divided = sum(split.plan is not None for split in file.tensors)
    others = "copied" if divided < len(file.tensors) else "left out"
    yield f"{path}: {divided} of {len(names)} tensors split, {len(names) - divided} {others}"
    if dry_run:
        splits = {split.tensor.name: split for split in file.tensors}
        for name in names:
            yield f"  {name}: {_describe_split(splits.get(name))}"
    for i, target in enumerate(file.targets):
        tensors = file.part(i)
        nbytes = sum(tensor.nbytes for tensor in tensors)
        yield f"{target}: {len(tensors)} tensors, {nbytes} bytes"


def _describe(tensor: Tensor) -> str:
    return f"{tensor.shape} {tensor.dtype}, {tensor.nbytes} bytes"


def _describe_split(split: TensorSplit | None) -> str:
    if split is None:
        return "left out"
    if split.plan is None:
        return f"{_describe(split.tensor)}, copied"
    runs = itertools.groupby(split.plan.output_shapes)
    shapes = ", ".join([f"{len(list(same))} x {shape}" for shape, same in runs])
    return f"{split.tensor.shape} {split.tensor.dtype}, axis {split.plan.axis}, into {shapes}"
