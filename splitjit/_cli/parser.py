"""The arguments of the command, and its help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

import splitjit
from splitjit._cli.lines import program

DESCRIPTION = """\
Split the tensors in files along an axis into contiguous parts.

Each part is a file of the same format: FILE.npy becomes FILE.0.npy, FILE.1.npy
and so on. A .npz or .safetensors file holds many tensors by name: FILE.0.npz
holds part 0 of each tensor, FILE.1.npz holds part 1, and so on.

FILE may also be a model.safetensors.index.json, or a folder that has one: all
files of the checkpoint are split. --layout ranks writes one folder for each rank.

Files may be larger than memory. The command writes all parts of all files, or
none. It needs the safetensors package for .safetensors files, transformers and
torch for --tp-plan, and tqdm for a progress bar.
"""

EXAMPLES = """\
examples:
  Columns of a matrix, in three equal parts:
    python -m splitjit split x.npy --axis 1 --num-splits 3

  Chunks of 1000 rows, the last one smaller:
    python -m splitjit split x.npy --split 1000

  A checkpoint for four tensor-parallel ranks, as transformers would shard it:
    python -m splitjit split model --tp-plan --num-splits 4 --layout ranks --out shards

  The same by patterns. The rows of a weight are its output features, its columns
  are input features. Query, key and value are fused into one weight here, and
  each rank gets a quarter of each. Each rank also gets a whole copy of every
  tensor that no pattern matches, such as norms. --dry-run shows what would be
  written:
    python -m splitjit split model --num-splits 4 --layout ranks --out shards \\
        --tensor '*.qkv_proj.weight=0:4096,1024,1024' --tensor '*.o_proj.weight=1' \\
        --tensor '*.gate_up_proj.weight=0:14336,14336' \\
        --tensor '*.down_proj.weight=1' --dry-run

  A fused projection into query, key and value:
    python -m splitjit split m.safetensors --split 4096,1024,1024 \\
        --tensor '*.qkv_proj.weight' --others skip

exit status:
  0 if the parts are written, 2 if the split is refused or fails, 128 + N if
  signal N ends the command. If the status is not 0, no part is left behind,
  unless the signal came while the parts were moved into place: then all parts
  are there. After SIGKILL or a power failure, run the same command again: it
  first undoes or finishes what the killed command began.
"""

JOIN_DESCRIPTION = """\
Join the parts of a split.

Parts are files of one format, or the folders of ranks, whose files are joined
by tensor name. If `split` wrote the parts, the joined files equal the original
files byte for byte.

.safetensors files and folders of ranks that `split` wrote say themselves how
they were split, and may be given in any order. For other parts, give them in
their order, with the --tensor patterns, the --tp-plan or the --axis of the
split. A tensor that was copied must be equal in all parts, and is written once.

The command writes all joined files, or none.
"""

JOIN_EXAMPLES = """\
examples:
  Columns of a matrix:
    python -m splitjit join x.0.npy x.1.npy x.2.npy --axis 1 --out x.npy

  The ranks of a checkpoint:
    python -m splitjit join shards/rank-* --out joined

  The ranks of a checkpoint that another program has split:
    python -m splitjit join shards/rank-0 shards/rank-1 --out joined \\
        --tp-plan --config model

exit status:
  0 if the files are written, 2 if the join is refused or fails, 128 + N if
  signal N ends the command. If the status is not 0, nothing is left behind.
"""

RESHARD_DESCRIPTION = """\
Split the parts of a split again, into another number of parts.

Give all parts: files of one format, or the folders of ranks. The new parts
equal those that `split` would make of the whole files, but no whole file is
written. Tensors are split along the same axes as before; tensors that were
copied must be equal in all parts, and are copied again.

The command writes all new parts, or none.
"""

RESHARD_EXAMPLES = """\
examples:
  A checkpoint for four ranks, from its shards for two ranks:
    python -m splitjit reshard shards-2/rank-* --num-splits 4 --out shards-4

exit status:
  as for `split`
"""


class Parser(argparse.ArgumentParser):
    """A parser that prints each error on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def make_parser(name: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command, by the name of the user or by another one."""
    parser = Parser(prog=name or program(), description="Split tensors into contiguous parts.")
    parser.add_argument("--version", action="version", version=splitjit.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    check = commands.add_parser(
        "check",
        help="split typical arrays, compare with NumPy, print the speed",
        description="Split typical arrays, compare each part byte for byte with NumPy's, and "
        "print the speed, the versions and the machine. Checks the installed package, even if the "
        "current directory has a folder splitjit. The exit status is 1 if a part is wrong.",
    )
    check.add_argument(
        "--json", action="store_true", help="print one JSON object, for other programs"
    )
    warmup = commands.add_parser(
        "warmup",
        help="compile all kernels now, for example when a container is built",
        description="Compile all kernels, or load them from the cache. A later process with the "
        "same cache then compiles nothing; NUMBA_CACHE_DIR says where the cache is.",
    )
    warmup.add_argument(
        "--check",
        action="store_true",
        help="exit with status 1 if a kernel was not in the cache, and had to be compiled",
    )
    completion = commands.add_parser(
        "completion",
        help="print the script by which a shell completes this command",
        description="Print the script by which a shell completes the command splitjit. It needs "
        "the package shtab. In bash: splitjit completion bash > "
        "~/.local/share/bash-completion/completions/splitjit",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "tcsh"], help="the shell")
    split = commands.add_parser(
        "split",
        help="split the tensors in files: .npy, .npz, .safetensors",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    split.add_argument(
        "paths", nargs="+", metavar="FILE", help="a file to split, or an index or a folder"
    )
    _add_rule(split)
    _add_tensors(split, 0).add_argument(
        "--others",
        choices=["copy", "skip"],
        default="copy",
        help="copy each other tensor into every part, or leave it out (default: copy)",
    )
    _add_output(split, resharding=False)
    _add_running(split)
    _add_join(commands)
    _add_reshard(commands)
    _add_info(commands)
    return parser


def _add_rule(parser: argparse.ArgumentParser) -> None:
    """Add the options that give the rule."""
    rules = parser.add_argument_group("rule (give exactly one)").add_mutually_exclusive_group(
        required=True
    )
    for option, (read, metavar, text) in _RULES.items():
        rules.add_argument(option, type=read, metavar=metavar, help=text)


def _add_output(parser: argparse.ArgumentParser, resharding: bool) -> None:
    """Add the options that say where the parts are written."""
    output = parser.add_argument_group("output")
    folder = "folder of the parts" + ("" if resharding else " (default: FILE's folder)")
    output.add_argument("--out", metavar="DIR", required=resharding, help=folder)
    output.add_argument(
        "--layout",
        choices=["files", "ranks"],
        default=None if resharding else "files",
        help="files: FILE.0.npy, FILE.1.npy, …; ranks: rank-0/FILE.npy, rank-1/FILE.npy, …, and an "
        "index of the .safetensors files in each folder (default: "
        + ("as before)" if resharding else "files)"),
    )
    output.add_argument(
        "--name",
        metavar="NAME",
        help="name of each part, with the fields {rank}, {stem} (the name of FILE without suffix) "
        "and {part} (the number of the file in its checkpoint): 'rank{rank}.safetensors'. "
        "Files of a checkpoint whose parts have the same name share one part",
    )
    output.add_argument(
        "--copy-config",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="copy config.json, generation_config.json and the files of the tokenizer into each "
        "folder of parts (default: with --layout ranks)",
    )
    output.add_argument("--force", action="store_true", help="overwrite existing files")


def _add_join(commands: Any) -> None:
    join = commands.add_parser(
        "join",
        help="join the parts of files again",
        description=JOIN_DESCRIPTION,
        epilog=JOIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    join.add_argument(
        "paths", nargs="+", metavar="PART", help="a part: a file, or the folder of a rank"
    )
    _add_tensors(join, None)
    output = join.add_argument_group("output")
    output.add_argument(
        "--out",
        metavar="FILE",
        required=True,
        help="the joined file; if the parts are folders, the folder of the joined files",
    )
    output.add_argument("--force", action="store_true", help="overwrite existing files")
    _add_running(join)


def _add_reshard(commands: Any) -> None:
    reshard = commands.add_parser(
        "reshard",
        help="split parts again, into another number of parts",
        description=RESHARD_DESCRIPTION,
        epilog=RESHARD_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reshard.add_argument(
        "paths", nargs="+", metavar="PART", help="a part: a file, or the folder of a rank"
    )
    _add_rule(reshard)
    _add_tensors(reshard, None)
    _add_output(reshard, resharding=True)
    _add_running(reshard)


def _add_info(commands: Any) -> None:
    info = commands.add_parser(
        "info",
        help="list the tensors of files, and the split that they are parts of",
        description="List the tensors of files, indexes or folders, with their dtypes, shapes and "
        "bytes. For parts of a split, also print how they were split, and whether all parts are "
        "given. Only headers are read.",
    )
    info.add_argument("paths", nargs="+", metavar="FILE", help="a file, an index or a folder")
    info.add_argument("--json", action="store_true", help="print JSON, for other programs")


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written, and write nothing"
    )
    printing = parser.add_mutually_exclusive_group()
    printing.add_argument("--quiet", action="store_true", help="print only errors")
    printing.add_argument(
        "-v", "--verbose", action="store_true", help="list all files, even if there are many"
    )
    printing.add_argument(
        "--json", action="store_true", help="print the plan as JSON, for other programs"
    )


def _add_tensors(parser: argparse.ArgumentParser, axis: int | None) -> Any:
    """Add the options that say which tensors are split, and along which axis."""
    which = parser.add_argument_group("tensors")
    which.add_argument(
        "--axis",
        type=int,
        default=axis,
        help="axis to split; -1 is the last axis (default: 0)"
        if axis == 0
        else "axis that was split, if no pattern or record gives it; -1 is the last axis",
    )
    which.add_argument(
        "--tensor",
        dest="tensors",
        action="append",
        metavar="PATTERN[=AXIS]",
        help="split the tensors whose names match PATTERN, along AXIS instead of --axis; "
        "* matches any text, ? one character, [qk] one of these characters. "
        "'PATTERN=AXIS:4096,1024,1024' is for fused tensors: along the axis lie sections of these "
        "lengths, the rule splits each one, and a part holds its pieces of all sections. "
        "PATTERN=AXIS/3,5 gives the lengths of the parts for these tensors only. This option may "
        "be repeated: the first pattern that matches a name counts (default: all tensors)",
    )
    which.add_argument(
        "--tp-plan",
        action="store_true",
        help="split the tensors that no pattern matches as the model's tensor-parallel plan in "
        "transformers says, or a preset of splitjit if transformers has none, and copy the tensors "
        "that the plan does not name",
    )
    which.add_argument(
        "--config",
        metavar="PATH",
        help="config.json of the model, or its folder, for --tp-plan (default: beside FILE)",
    )
    return which


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


_RULES: dict[str, tuple[Callable[[str], Any], str, str]] = {
    "--split": (
        _lengths,
        "LENGTHS",
        "lengths of the parts: 2,4 makes a part of length 2 and a part of length 4; one length may "
        "be -1 and takes the rest; 4 makes parts of length 4, the last one smaller; '4,' (with a "
        "comma) makes one part of length 4",
    ),
    "--num-outputs": (
        int,
        "N",
        "N parts; the last ones are smaller if the axis length is not a multiple of N",
    ),
    "--num-splits": (int, "N", "N equal parts; refused if the axis length is not a multiple of N"),
    "--indices": (
        _indices,
        "INDICES",
        "cut before these indices: 2,4 makes three parts; write --indices=-2,-1 to count "
        "from the end of the axis",
    ),
    "--num-sections": (int, "N", "N parts whose lengths differ by at most one, longer ones first"),
}
"""The options that give a rule: how to read the value, its name, and the help."""
