"""The command line: ``python -m splitjit check`` and ``python -m splitjit split``."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import splitjit
from splitjit._cli import check, files
from splitjit._cli.formats import Tensor

BAR_AFTER = 1.0
"""Seconds until a progress bar appears."""

LINE_EVERY = 10.0
"""Seconds from one line of progress to the next, where there is no bar."""

DESCRIPTION = """\
Split tensors in files along an axis into contiguous parts.

FILE.npy gives FILE.0.npy, FILE.1.npy and so on, one a part. Of FILE.npz and
FILE.safetensors, which hold many tensors by name, FILE.0.npz holds part 0 of
each tensor, FILE.1.npz part 1, and so on. Files may be larger than memory. Of
all files all parts are written, or none. Files of safetensors need the package
of that name, a progress bar needs tqdm.
"""

EXAMPLES = """\
examples:
  Columns of a matrix, in three equal parts:
    python -m splitjit split x.npy --axis 1 --num-splits 3

  Chunks of 1000 rows, the last one smaller:
    python -m splitjit split x.npy --split 1000

  A fused projection into query, key and value:
    python -m splitjit split m.safetensors --split 4096,1024,1024 \\
        --tensor '*.qkv_proj.weight' --others skip

  A checkpoint for four tensor-parallel ranks. Output features are rows of a
  weight, input features are columns; what is not named here, such as norms,
  goes to each rank whole. Fused projections are cut apart first, as above.
  See first what it would do:
    python -m splitjit split model-*.safetensors --num-splits 4 --out shards \\
        --tensor '*.[qkv]_proj.weight=0' --tensor '*.o_proj.weight=1' \\
        --tensor '*.gate_proj.weight=0' --tensor '*.up_proj.weight=0' \\
        --tensor '*.down_proj.weight=1' --dry-run

exit status: 0 if the parts are written, 2 if the split is refused or fails,
128 + the number of the signal that ended it. Nothing is left behind then; after
SIGKILL or a power failure, give the same command again.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, optional
        Its arguments; by default those of the process.

    Returns
    -------
    int
        The exit status: 1 where `check` found a wrong part, 2 where `split`
        refused, 128 and the number of a signal that interrupted, else 0.

    Raises
    ------
    SystemExit
        With status 2, if the arguments are wrong.
    """
    arguments = _parser().parse_args(argv)
    try:
        if arguments.command == "check":
            return check.run()
        _split(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # as in `… | head`: there is no one to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (splitjit.SplitError, OSError, MemoryError) as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt as interrupt:
        _say("interrupted")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    return 0


def _say(message: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads it
        print("python -m splitjit:", _printable(" ".join(message.split())), file=sys.stderr)


def _printable(text: str) -> str:
    """Escape what could steer a terminal: names come from files, which may be hostile."""
    return text if text.isprintable() else repr(text)[1:-1]


def _split(arguments: argparse.Namespace) -> None:
    axis = arguments.axis
    planned = files.plan_files(
        arguments.files,
        arguments.split,
        axis=axis,
        num_outputs=arguments.num_outputs,
        num_splits=arguments.num_splits,
        select=[(pattern, axis if own is None else own) for pattern, own in arguments.tensor]
        or None,
        copy_others=arguments.others == "copy",
        folder=arguments.out,
    )
    if arguments.dry_run:
        files.check_targets(planned, arguments.force)
    else:
        nbytes = sum(file.nbytes for file in planned)
        with _progress(nbytes, arguments.quiet) as progress:
            files.write_parts(planned, arguments.force, progress)
    if not arguments.quiet:
        for file in planned:
            for line in _report(file, arguments.dry_run):
                print(_printable(line))


@contextlib.contextmanager
def _progress(nbytes: int, quiet: bool) -> Iterator[files.Progress]:
    """Show how much of so many bytes is written, where it takes more than a moment."""
    if quiet:
        yield lambda written: None
    elif sys.stderr.isatty() and importlib.util.find_spec("tqdm"):
        from tqdm import tqdm

        with tqdm(total=nbytes, unit="B", unit_scale=True, delay=BAR_AFTER, leave=False) as bar:
            yield bar.update
    else:
        yield _Lines(nbytes)


class _Lines:
    """A line of progress every `LINE_EVERY`."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.written = 0
        self.begun = self.said = time.monotonic()

    def __call__(self, written: int) -> None:
        self.written += written
        now = time.monotonic()
        if now - self.said >= LINE_EVERY:
            self.said = now
            share = f"{self.written / self.nbytes:.0%} of {self.nbytes / 1e9:.1f} GB"
            _say(f"{share} written in {now - self.begun:.0f} s")


def _report(file: files.FileSplit, dry_run: bool) -> Iterator[str]:
    """Give a line for a file and for each of its parts; a dry run, for each tensor."""
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
        fates = {split.tensor.name: split for split in file.tensors}
        for name in names:
            yield f"  {name}: {_fate(fates.get(name))}"
    for i, target in enumerate(file.targets):
        tensors = file.part(i)
        nbytes = sum(tensor.nbytes for tensor in tensors)
        yield f"{target}: {len(tensors)} tensors, {nbytes} bytes"


def _describe(tensor: Tensor) -> str:
    return f"{tensor.shape} {tensor.dtype}, {tensor.nbytes} bytes"


def _fate(split: files.TensorSplit | None) -> str:
    if split is None:
        return "left out"
    if split.plan is None:
        return f"{_describe(split.tensor)}, copied"
    runs = itertools.groupby(split.plan.output_shapes)
    shapes = ", ".join([f"{len(list(same))} x {shape}" for shape, same in runs])
    return f"{split.tensor.shape} {split.tensor.dtype}, axis {split.plan.axis}, into {shapes}"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m splitjit", description="Split tensors into contiguous parts.")
    parser.add_argument("--version", action="version", version=splitjit.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    commands.add_parser(
        "check",
        help="split real workloads, compare with NumPy, print how fast it was",
        description="Split real workloads, verify each part byte for byte against NumPy, and "
        "print how fast it was, and on what. Exit status 1 if a part is wrong.",
    )

    split = commands.add_parser(
        "split",
        help="split files of tensors: .npy, .npz, .safetensors",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    split.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a file to split")
    rules = split.add_argument_group("how (exactly one)").add_mutually_exclusive_group(
        required=True
    )
    rules.add_argument("--num-splits", type=int, metavar="N", help="N equal parts, or an error")
    rules.add_argument(
        "--num-outputs", type=int, metavar="N", help="N parts, the last ones smaller if need be"
    )
    rules.add_argument(
        "--split",
        type=_lengths,
        metavar="LENGTHS",
        help="2,4 is a part of length 2 and one of length 4; 4 is parts of length 4, the last "
        "one smaller; 4, (with a comma) is one part of length 4",
    )
    which = split.add_argument_group("what")
    which.add_argument(
        "--axis", type=int, default=0, help="axis to split; -1 is the last (default: 0)"
    )
    which.add_argument(
        "--tensor",
        type=_pattern,
        action="append",
        default=[],
        metavar="PATTERN[=AXIS]",
        help="split the tensors whose names match, along this axis instead of --axis; * is any "
        "text, ? a character, [qk] one of these. May be given several times: the first that "
        "matches counts (default: all tensors)",
    )
    which.add_argument(
        "--others",
        choices=["copy", "skip"],
        default="copy",
        help="copy other tensors into every part, or leave them out (default: copy)",
    )
    where = split.add_argument_group("where")
    where.add_argument(
        "--out", type=Path, metavar="DIR", help="where the parts go (default: beside the file)"
    )
    where.add_argument("--force", action="store_true", help="overwrite files that exist")
    split.add_argument(
        "--dry-run", action="store_true", help="say what would be written, and write nothing"
    )
    split.add_argument("--quiet", action="store_true", help="print nothing but errors")
    return parser


def _lengths(text: str) -> int | list[int]:
    """Read a chunk length, or lengths if there is a comma."""
    try:
        if "," in text:
            return [int(length) for length in text.removesuffix(",").split(",")]
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a length nor lengths with commas between"
        ) from None


def _pattern(text: str) -> tuple[str, int | None]:
    """Read a pattern of names, and an axis if one follows."""
    axis = re.search(r"=(-?[0-9]+)$", text)
    return (text[: axis.start()], int(axis[1])) if axis else (text, None)


def _interrupt(number: int, frame: Any) -> NoReturn:
    """End like Ctrl-C does, so that what was begun is removed."""
    raise KeyboardInterrupt(number)


def run() -> NoReturn:
    """Run the command as a process of its own: SIGTERM and SIGHUP end it as Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores it
            signal.signal(number, _interrupt)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main())
