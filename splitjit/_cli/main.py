"""The command line: ``splitjit check`` and ``splitjit split``, or ``python -m splitjit``."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import splitjit
from splitjit._cli import check, files, report

DESCRIPTION = """\
Split the tensors in files along an axis into contiguous parts.

Each part is a file of the same format: FILE.npy becomes FILE.0.npy, FILE.1.npy
and so on. A .npz or .safetensors file holds many tensors by name: FILE.0.npz
holds part 0 of each tensor, FILE.1.npz holds part 1, and so on.

Files may be larger than memory. The command writes all parts of all files, or
none. It needs the safetensors package for .safetensors files, and tqdm for a
progress bar.
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

  A checkpoint for four tensor-parallel ranks. The rows of a weight are its output
  features, its columns are input features. Each rank gets a whole copy of every
  tensor that no pattern matches, such as norms. If projections are fused, split
  them first, as in the example above. --dry-run shows what would be written:
    python -m splitjit split model-*.safetensors --num-splits 4 --out shards \\
        --tensor '*.[qkv]_proj.weight=0' --tensor '*.o_proj.weight=1' \\
        --tensor '*.gate_proj.weight=0' --tensor '*.up_proj.weight=0' \\
        --tensor '*.down_proj.weight=1' --dry-run

exit status:
  0 if the parts are written, 2 if the split is refused or fails, 128 + N if
  signal N ends the command. If the status is not 0, no part is left behind,
  unless the signal came while the parts were moved into place: then all parts
  are there. After SIGKILL or a power failure, run the same command again: it
  first undoes or finishes what the killed command began.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that prints each error on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def run() -> NoReturn:
    """Run the command as a process: SIGTERM and SIGHUP end it as Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # not under nohup
            signal.signal(number, _interrupt)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if sys.argv[1:2] == ["check"] and check.shadows_installation():
        # -P: do not look for packages in the current directory
        command = [sys.executable, "-P", "-m", "splitjit", *sys.argv[1:]]
        sys.exit(subprocess.run(command, check=False).returncode)
    sys.exit(main())


def _interrupt(number: int, frame: Any) -> NoReturn:
    """Raise what Ctrl-C raises, so that unfinished parts are removed."""
    raise KeyboardInterrupt(number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default, the arguments of the process.

    Returns
    -------
    int
        The exit status: 1 if `check` found a wrong part, 2 if `split` was refused
        or failed, 128 + N if signal N interrupted the command, else 0.

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
    except BrokenPipeError:  # the reader has ended, as in `… | head`; drop the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (splitjit.SplitError, OSError, MemoryError) as error:
        report.say(str(error))
        return 2
    except KeyboardInterrupt as interrupt:
        report.say("interrupted")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    return 0


def _split(arguments: argparse.Namespace) -> None:
    axis = arguments.axis
    finished: frozenset[str] = frozenset()
    if not arguments.dry_run:
        finished = files.recover(arguments.files, arguments.out)
    planned = files.plan_files(
        arguments.files,
        arguments.split,
        axis=axis,
        num_outputs=arguments.num_outputs,
        num_splits=arguments.num_splits,
        indices=arguments.indices,
        num_sections=arguments.num_sections,
        select=[(pattern, axis if own is None else own) for pattern, own in arguments.tensor]
        or None,
        copy_others=arguments.others == "copy",
        folder=arguments.out,
    )
    if arguments.dry_run:
        files.check_targets(planned, arguments.force)
    else:
        nbytes = sum(file.nbytes for file in planned)
        with report.show_progress(nbytes, arguments.quiet) as progress:
            files.write_parts(planned, arguments.force, progress, finished)
    if not arguments.quiet:
        report.print_report(planned, arguments.dry_run)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=report.program(), description="Split tensors into contiguous parts.")
    parser.add_argument("--version", action="version", version=splitjit.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser(
        "check",
        help="split typical arrays, compare with NumPy, print the speed",
        description="Split typical arrays, compare each part byte for byte with NumPy's, and "
        "print the speed, the versions and the machine. Checks the installed package, even if the "
        "current directory has a folder splitjit. The exit status is 1 if a part is wrong.",
    )
    split = commands.add_parser(
        "split",
        help="split the tensors in files: .npy, .npz, .safetensors",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    split.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a file to split")
    rules = split.add_argument_group("rule (give exactly one)").add_mutually_exclusive_group(
        required=True
    )
    rules.add_argument(
        "--num-splits",
        type=int,
        metavar="N",
        help="N equal parts; refused if the axis length is not a multiple of N",
    )
    rules.add_argument(
        "--num-outputs",
        type=int,
        metavar="N",
        help="N parts; the last ones are smaller if the axis length is not a multiple of N",
    )
    rules.add_argument(
        "--split",
        type=_lengths,
        metavar="LENGTHS",
        help="lengths of the parts: 2,4 makes a part of length 2 and a part of length 4; 4 makes "
        "parts of length 4, the last one smaller; '4,' (with a comma) makes one part of length 4",
    )
    rules.add_argument(
        "--num-sections",
        type=int,
        metavar="N",
        help="N parts whose lengths differ by at most one, longer ones first",
    )
    rules.add_argument(
        "--indices",
        type=_indices,
        metavar="INDICES",
        help="cut before these indices: 2,4 makes three parts; write --indices=-2,-1 to count "
        "from the end of the axis",
    )
    which = split.add_argument_group("tensors")
    which.add_argument(
        "--axis", type=int, default=0, help="axis to split; -1 is the last axis (default: 0)"
    )
    which.add_argument(
        "--tensor",
        type=_pattern,
        action="append",
        default=[],
        metavar="PATTERN[=AXIS]",
        help="split the tensors whose names match PATTERN, along AXIS instead of --axis; "
        "* matches any text, ? one character, [qk] one of these characters. This option may be "
        "repeated: the first pattern that matches a name counts (default: all tensors)",
    )
    which.add_argument(
        "--others",
        choices=["copy", "skip"],
        default="copy",
        help="copy each other tensor into every part, or leave it out (default: copy)",
    )
    output = split.add_argument_group("output")
    output.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the parts (default: the file's folder)"
    )
    output.add_argument("--force", action="store_true", help="overwrite existing files")
    split.add_argument(
        "--dry-run", action="store_true", help="print what would be written, and write nothing"
    )
    split.add_argument("--quiet", action="store_true", help="print only errors")
    return parser


def _lengths(text: str) -> int | list[int]:
    """Parse a chunk length, or part lengths if there is a comma."""
    try:
        if "," in text:
            return [int(length) for length in text.removesuffix(",").split(",")]
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be an integer, or integers separated by commas"
        ) from None


def _indices(text: str) -> list[int]:
    """Parse one index, or several with commas."""
    indices = _lengths(text)
    return [indices] if isinstance(indices, int) else indices


def _pattern(text: str) -> tuple[str, int | None]:
    """Parse a pattern of names, and the axis that may follow."""
    axis = re.search(r"=(-?[0-9]+)$", text)
    return (text[: axis.start()], int(axis[1])) if axis else (text, None)
