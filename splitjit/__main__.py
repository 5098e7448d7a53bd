"""The command line: ``python -m splitjit check`` and ``python -m splitjit split``."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import splitjit
from splitjit import check, files


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
        refused, else 0.

    Raises
    ------
    SystemExit
        With status 2, if the arguments are wrong.
    """
    arguments = _parser().parse_args(argv)
    if arguments.command == "check":
        return check.run()
    try:
        _split(arguments)
    except (splitjit.SplitError, OSError, MemoryError) as error:
        print("python -m splitjit:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


def _split(arguments: argparse.Namespace) -> None:
    plan = files.plan_file(
        arguments.file,
        arguments.split,
        axis=arguments.axis,
        num_outputs=arguments.num_outputs,
        num_splits=arguments.num_splits,
        folder=arguments.out,
    )
    if arguments.dry_run:
        files.check_targets(plan, arguments.force)
    else:
        files.write_parts(plan, arguments.force)
    paths = [plan.path, *plan.targets]
    for path, shape in zip(paths, [plan.plan.shape, *plan.plan.output_shapes], strict=True):
        print(f"{path}: {shape} {plan.dtype}, {math.prod(shape) * plan.dtype.itemsize} bytes")


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
        help="split a .npy file into .npy files",
        description="Split a .npy file along an axis into FILE.0.npy, FILE.1.npy and so on. "
        "The files are memory-mapped and may be larger than memory. All parts are written, or "
        "none: exit status 2 if the split is refused or fails.",
    )
    split.add_argument("file", type=Path, metavar="FILE.npy", help="the file to split")
    split.add_argument(
        "--axis", type=int, default=0, help="axis to split; -1 is the last (default: 0)"
    )
    rules = split.add_mutually_exclusive_group(required=True)
    rules.add_argument(
        "--num-outputs", type=int, metavar="N", help="N parts, the last ones smaller if need be"
    )
    rules.add_argument("--num-splits", type=int, metavar="N", help="N equal parts, or an error")
    rules.add_argument(
        "--split",
        type=_lengths,
        metavar="LENGTHS",
        help="2,4 is a part of length 2 and one of length 4; 4 is parts of length 4, the last "
        "one smaller; 4, (with a comma) is one part of length 4",
    )
    split.add_argument(
        "--out", type=Path, metavar="DIR", help="where the parts go (default: beside the file)"
    )
    split.add_argument(
        "--dry-run", action="store_true", help="say what would be written, and write nothing"
    )
    split.add_argument("--force", action="store_true", help="overwrite files that exist")
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


if __name__ == "__main__":
    sys.exit(main())
