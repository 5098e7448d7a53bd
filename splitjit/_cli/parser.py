"""The arguments of the command, and its help."""

from __future__ import annotations

import argparse
import os
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
  are there. After SIGKILL or a power failure, some files can be old and some new,
  each complete: run the same command again with --force.
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

LAYOUT = """\
files: FILE.0.npy, FILE.1.npy, …; ranks: rank-0/FILE.npy, rank-1/FILE.npy, …, and an index of the
.safetensors files in each folder"""


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


COMMANDS = {
    "check": (
        "split typical arrays, compare with NumPy, print the speed",
        "Split typical arrays, compare each part byte for byte with NumPy's, and print the speed, "
        "the versions and the machine. Checks the installed package, even if the current directory "
        "has a folder splitjit. The exit status is 1 if a part is wrong.",
        None,
    ),
    "warmup": (
        "compile all kernels now, for example when a container is built",
        "Compile all kernels, or load them from the cache. A later process with the same cache "
        "then compiles nothing; NUMBA_CACHE_DIR says where the cache is.",
        None,
    ),
    "cache": (
        "print where the compiled kernels are, or remove them",
        "Print the folders that may hold compiled kernels, and how many bytes they take. Kernels "
        "are compiled again when they are next needed.",
        None,
    ),
    "completion": (
        "print the script by which a shell completes this command",
        "Print the script by which a shell completes the command splitjit. It needs the package "
        "shtab. In bash: splitjit completion bash > "
        "~/.local/share/bash-completion/completions/splitjit",
        None,
    ),
    "split": ("split the tensors in files: .npy, .npz, .safetensors", DESCRIPTION, EXAMPLES),
    "join": ("join the parts of files again", JOIN_DESCRIPTION, JOIN_EXAMPLES),
    "reshard": (
        "split parts again, into another number of parts",
        RESHARD_DESCRIPTION,
        RESHARD_EXAMPLES,
    ),
    "info": (
        "list the tensors of files, and the split that they are parts of",
        "List the tensors of files, indexes or folders, with their dtypes, shapes and bytes. For "
        "parts of a split, also print how they were split, and whether all parts are given. Only "
        "headers are read.",
        None,
    ),
}
"""For each command: its line in the help, its description, and what follows the options."""

_RULE, _PRINTING = "rule (give exactly one)", "printing"

OPTIONS = {
    "": {
        "check: --json": "print one JSON object, for other programs",
        "warmup: --check": """
            exit with status 1 if a kernel was not in the cache, and had to be compiled""",
        "cache: --clear": "remove the kernels of all versions of splitjit from these folders",
        "cache: --json": "print JSON, for other programs",
        "completion: shell": "the shell",
        "split: paths FILE": "a file to split, or an index or a folder",
        "join reshard: paths PART": "a part: a file, or the folder of a rank",
        "info: paths FILE": "a file, an index or a folder",
        "info: --json": "print JSON, for other programs",
        "split join reshard: --dry-run": "print what would be written, and write nothing",
    },
    _RULE: {
        "split reshard: --split LENGTHS": """
            lengths of the parts: 2,4 makes a part of length 2 and a part of length 4; one length
            may be -1 and takes the rest; 4 makes parts of length 4, the last one smaller; '4,'
            (with a comma) makes one part of length 4""",
        "split reshard: --num-outputs N": """
            N parts; the last ones are smaller if the axis length is not a multiple of N""",
        "split reshard: --num-splits N": """
            N equal parts; refused if the axis length is not a multiple of N""",
        "split reshard: --indices INDICES": """
            cut before these indices: 2,4 makes three parts; write --indices=-2,-1 to count from
            the end of the axis""",
        "split reshard: --num-sections N": """
            N parts whose lengths differ by at most one, longer ones first""",
    },
    "tensors": {
        "split: --axis": "axis to split; -1 is the last axis (default: 0)",
        "join reshard: --axis": """
            axis that was split, if no pattern or record gives it; -1 is the last axis""",
        "split join reshard: --tensor PATTERN[=AXIS]": """
            split the tensors whose names match PATTERN, along AXIS instead of --axis; * matches
            any text, ? one character, [qk] one of these characters. 'PATTERN=AXIS:4096,1024,1024'
            is for fused tensors: along the axis lie sections of these lengths, the rule splits
            each one, and a part holds its pieces of all sections. PATTERN=AXIS/3,5 gives the
            lengths of the parts for these tensors only. This option may be repeated: the first
            pattern that matches a name counts (default: all tensors)""",
        "split join reshard: --tp-plan": """
            split the tensors that no pattern matches as the model's tensor-parallel plan in
            transformers says, or a preset of splitjit if transformers has none, and copy the
            tensors that the plan does not name""",
        "split join reshard: --config PATH": """
            config.json of the model, or its folder, for --tp-plan (default: beside FILE)""",
        "split: --others": """
            copy each other tensor into every part, or leave it out (default: copy)""",
    },
    "output": {
        "split: --out DIR": "folder of the parts (default: FILE's folder)",
        "reshard: --out DIR": "folder of the parts",
        "join: --out FILE": """
            the joined file; if the parts are folders, the folder of the joined files""",
        "split: --layout": f"{LAYOUT} (default: files)",
        "reshard: --layout": f"{LAYOUT} (default: as before)",
        "split reshard: --name NAME": """
            name of each part, with the fields {rank}, {stem} (the name of FILE without suffix) and
            {part} (the number of the file in its checkpoint): 'rank{rank}.safetensors'. Files of a
            checkpoint whose parts have the same name share one part""",
        "split reshard: --copy-config": """
            copy config.json, generation_config.json and the files of the tokenizer into each
            folder of parts (default: with --layout ranks)""",
        "split join reshard: --force": "overwrite existing files",
    },
    _PRINTING: {
        "split join reshard: --quiet": "print only errors",
        "split join reshard: -v --verbose": "list all files, even if there are many",
        "split join reshard: --json": "print the plan as JSON, for other programs",
    },
}
"""The options of each group: which commands have it, its names, its argument, and its help.

An option that takes no argument, and has no line in `TAKES`, is a flag.
"""

TAKES: dict[str, dict[str, Any]] = {
    "shell": {"choices": ["bash", "zsh", "tcsh"]},
    "paths": {"nargs": "+"},
    "--split": {"type": _lengths},
    "--num-outputs": {"type": int},
    "--num-splits": {"type": int},
    "--indices": {"type": _indices},
    "--num-sections": {"type": int},
    "--axis": {"type": int},
    "split --axis": {"default": 0},
    "--tensor": {"dest": "tensors", "action": "append"},
    "--others": {"choices": ["copy", "skip"], "default": "copy"},
    "join --out": {"required": True},
    "reshard --out": {"required": True},
    "--layout": {"choices": ["files", "ranks"]},
    "split --layout": {"default": "files"},
    "--copy-config": {"action": argparse.BooleanOptionalAction, "default": None},
}
"""How argparse reads an option; a name after a command is for that command only."""


class Format(argparse.HelpFormatter):
    """Help as wide as the terminal. argparse would import shutil for this: 2 ms per command."""

    def __init__(self, prog: str, **given: Any) -> None:
        try:
            columns = int(os.environ.get("COLUMNS", "")) or os.get_terminal_size().columns
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, **{"width": columns - 2, **given})


class RawFormat(Format, argparse.RawDescriptionHelpFormatter):
    """Help whose description is printed as it is."""


class Parser(argparse.ArgumentParser):
    """A parser that prints each error on one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def make_parser(name: str | None = None, only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command.

    Parameters
    ----------
    name : str, optional
        The name of the command; by default, the name that it was called by.
    only : str, optional
        The one command to parse, which is faster than all of them.
    """
    about = "Split tensors into contiguous parts."
    parser = Parser(prog=name or program(), description=about, formatter_class=Format)
    parser.add_argument("--version", action="version", version=splitjit.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in [only] if only in COMMANDS else COMMANDS:
        _add_command(commands, str(command))
    return parser


def _add_command(commands: Any, command: str) -> None:
    about, description, epilog = COMMANDS[command]
    kind = RawFormat if epilog else Format
    parser = commands.add_parser(
        command, help=about, description=description, epilog=epilog, formatter_class=kind
    )
    for group, options in OPTIONS.items():
        own = [key for key in options if command in key.partition(":")[0].split()]
        made = parser
        if own and group == _PRINTING:
            made = parser.add_mutually_exclusive_group()
        elif own and group:
            made = parser.add_argument_group(group)
            made = made.add_mutually_exclusive_group(required=True) if group == _RULE else made
        for key in own:
            names = key.partition(":")[2].split()
            keywords = {"metavar": names.pop()} if names[-1].isupper() else {}
            keywords |= TAKES.get(names[0], {}) | TAKES.get(f"{command} {names[0]}", {})
            line = " ".join(options[key].split())
            made.add_argument(*names, help=line, **keywords or {"action": "store_true"})
