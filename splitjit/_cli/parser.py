"""The arguments of the command, and its help.

Each command has a function that adds its options. The function's docstring is the description in
the help; from the line ``examples:`` on, it follows the options. A function that adds options to
several commands has their help in its docstring.
"""

import argparse
import inspect
import itertools
import re
from collections.abc import Callable
from typing import Any, NoReturn

import splitjit
from splitjit._cli.lines import program
from splitjit._plan.rules import COUNTS
from splitjit.errors import did_you_mean

# ---- the commands ------------------------------------------------------------------------


def _check(parser: argparse.ArgumentParser) -> None:
    """Split typical arrays, and compare each part byte for byte with NumPy's.

    Also print the speed, the versions and the machine. The exit status is 1 if a part is wrong.
    """
    _flag(parser, "--json", text="print one JSON object, for other programs")


def _warmup(parser: argparse.ArgumentParser) -> None:
    """Compile all kernels, or load them from the cache.

    A later process with the same cache then compiles nothing; NUMBA_CACHE_DIR says where the cache
    is. The exit status is 2 if a kernel cannot be loaded.
    """
    text = "exit with status 1 if a kernel was not in the cache, and had to be compiled"
    _flag(parser, "--check", text=text)


def _cache(parser: argparse.ArgumentParser) -> None:
    """Print the folders that may hold compiled kernels, and how many bytes they take."""
    text = "remove the kernels of all versions of splitjit from them; "
    _flag(parser, "--clear", text=text + "they are compiled again when they are next needed")
    _flag(parser, "--json", text="print JSON, for other programs")


def _split(parser: argparse.ArgumentParser) -> None:
    r"""Split the tensors in files along an axis into contiguous parts.

    Each part is a file of the same format: FILE.npy becomes FILE.0.npy, FILE.1.npy
    and so on. A .npz or .safetensors file holds many tensors by name: FILE.0.npz
    holds part 0 of each tensor, FILE.1.npz holds part 1, and so on.

    FILE may also be a model.safetensors.index.json, or a folder that has one, or that
    has a model.safetensors: all files of the checkpoint are split. --layout ranks
    writes one folder for each rank.

    Files may be larger than memory. The command writes all parts of all files, or
    none. It needs the safetensors package for .safetensors files, transformers and
    torch for --tp-plan, and tqdm for a progress bar.

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
        python -m splitjit split model --num-splits 4 --layout ranks --out shards \
            --tensor '*.qkv_proj.weight=0:4096,1024,1024' --tensor '*.o_proj.weight=1' \
            --tensor '*.gate_up_proj.weight=0:14336,14336' \
            --tensor '*.down_proj.weight=1' --dry-run

      A fused projection into query, key and value:
        python -m splitjit split m.safetensors --split 4096,1024,1024 \
            --tensor '*.qkv_proj.weight' --others skip

    exit status:
      0 if the parts are written, 2 if the split is refused or fails, 128 + N if
      signal N ends the command. If the status is not 0, no part is left behind,
      unless the command ended while the parts were moved into place: then some files
      can be old and some new, each complete; the same command with --force finishes.
    """
    parser.add_argument("paths", metavar="FILE", nargs="+", help="a file, an index or a folder")
    _rule(parser)
    tensors = _tensors(parser)
    text = "copy each other tensor into every part, or leave it out (default: copy)"
    tensors.add_argument("--others", choices=["copy", "skip"], default="copy", help=text)
    output = _output(parser, metavar="DIR", help="folder of the parts (default: FILE's folder)")
    _names(output, default="files")


def _join(parser: argparse.ArgumentParser) -> None:
    r"""Join the parts of a split.

    Parts are files of one format, or the folders of ranks, whose files are joined
    by tensor name. If `split` wrote the parts, the joined files equal the original
    files byte for byte.

    .safetensors files and folders of ranks that `split` wrote say themselves how
    they were split, and may be given in any order. For other parts, give the
    --tensor patterns, the --tp-plan or the --axis of the split. If their paths differ
    only in numbers, they are put in the order of these; otherwise, give them in their
    order. A tensor that was copied must be equal in all parts, and is written once.

    The command writes all joined files, or none.

    examples:
      Columns of a matrix:
        python -m splitjit join x.0.npy x.1.npy x.2.npy --axis 1 --out x.npy

      The ranks of a checkpoint:
        python -m splitjit join shards/rank-* --out joined

      The ranks of a checkpoint that another program has split:
        python -m splitjit join shards/rank-0 shards/rank-1 --out joined \
            --tp-plan --config model

    exit status:
      as for `split`
    """
    parser.add_argument("paths", metavar="PART", nargs="+", help=_PART)
    _tensors(parser)
    text = "the joined file; if the parts are folders, the folder of the joined files"
    _output(parser, metavar="FILE", help=text, required=True)


def _reshard(parser: argparse.ArgumentParser) -> None:
    """Split the parts of a split again, into another number of parts.

    Give all parts: files of one format, or the folders of ranks. The new parts
    equal those that `split` would make of the whole files, but no whole file is
    written. Tensors are split along the same axes as before; tensors that were
    copied must be equal in all parts, and are copied again.

    The command writes all new parts, or none.

    examples:
      A checkpoint for four ranks, from its shards for two ranks:
        python -m splitjit reshard shards-2/rank-* --num-splits 4 --out shards-4

    exit status:
      as for `split`
    """
    parser.add_argument("paths", metavar="PART", nargs="+", help=_PART)
    _rule(parser)
    _tensors(parser)
    _names(_output(parser, metavar="DIR", help="folder of the parts", required=True))


def _info(parser: argparse.ArgumentParser) -> None:
    """List the tensors of files, indexes or folders, with their dtypes, shapes and bytes.

    For the parts of a split, print how they were split, and a line for each part. Only headers are
    read.
    """
    parser.add_argument("paths", metavar="FILE", nargs="+", help="a file, an index or a folder")
    _flag(parser, "--tensors", text="also list the tensors of a split")
    _flag(parser, "--json", text="print JSON, for other programs")


_COMMANDS = _check, _warmup, _cache, _split, _join, _reshard, _info
COMMANDS = {function.__name__[1:]: function for function in _COMMANDS}
"""For each command, the function that adds its options."""

# ---- options that several commands have --------------------------------------------------

_PART = "a part: a file or the folder of a rank; or a folder that holds all parts"


def _flag(group: argparse._ActionsContainer, *names: str, text: str | None) -> None:
    group.add_argument(*names, action="store_true", help=text)


def _option(
    group: argparse._ActionsContainer, function: Callable[..., object], name: str, **given: Any
) -> None:
    """Add an option. The docstring of the function that calls this has its help."""
    text = inspect.cleandoc(function.__doc__ or "")
    texts = dict(re.findall(r"^(--[\w-]+): (.+(?:\n +.+)*)", text, re.MULTILINE))
    group.add_argument(name, help=texts.get(name), **given)


def _rule(parser: argparse.ArgumentParser) -> None:
    """Add the options for the rule.

    --split: lengths of the parts: 2,4 makes a part of length 2 and a part of length 4; one length
        may be -1 and takes the rest; 4 makes parts of length 4, the last one smaller; '4,' (with
        a comma) makes one part of length 4
    --indices: cut before these indices: 2,4 makes three parts; write --indices=-2,-1 to count from
        the end of the axis
    """
    titled = parser.add_argument_group("rule (give exactly one)")
    rule = titled.add_mutually_exclusive_group(required=True)
    _option(rule, _rule, "--split", metavar="LENGTHS", type=_lengths)
    for name, meaning in COUNTS.items():
        rule.add_argument(f"--{name.replace('_', '-')}", metavar="N", type=int, help=meaning)
    _option(rule, _rule, "--indices", metavar="INDICES", type=_indices)


def _tensors(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the options that say which tensors are split.

    --axis: axis of the split, if no pattern or record of parts gives it; -1 is the last axis
        (default of split: 0; if there are several tensors, --axis, --tensor or --tp-plan must say
        which are split)
    --tensor: split the tensors whose names match PATTERN, along AXIS instead of --axis; * matches
        any text, ? one character, [qk] one of these characters. 'PATTERN=AXIS:4096,1024,1024' is
        for fused tensors: along the axis lie sections of these lengths, the rule splits each one,
        and a part holds its pieces of all sections; with @128 at the end, no cut goes through a
        head of length 128, and 768,96@24,64@16 gives each section its own heads. PATTERN=AXIS/3,5
        gives the lengths of the parts for these tensors only. This option may be repeated: the
        first pattern that matches a name counts (default: all tensors)
    --tp-plan: split the tensors that no pattern matches as the model's tensor-parallel plan in
        transformers says, or a preset of splitjit if transformers has none, and copy the tensors
        that the plan does not name; --dry-run prints the patterns that do the same
    --config: config.json of the model, or its folder, for --tp-plan (default: beside FILE)
    """
    group = parser.add_argument_group("tensors")
    _option(group, _tensors, "--axis", type=int)
    _option(group, _tensors, "--tensor", dest="tensors", metavar="PATTERN[=AXIS]", action="append")
    _option(group, _tensors, "--tp-plan", action="store_true")
    _option(group, _tensors, "--config", metavar="PATH")
    return group


def _names(group: argparse._ArgumentGroup, default: str | None = None) -> None:
    """Add the options for the names of parts.

    --layout: files: FILE.0.npy, FILE.1.npy, …; ranks: rank-0/FILE.npy, rank-1/FILE.npy, …, and an
        index of the .safetensors files in each folder (default: files; of reshard: as before)
    --name: name of each part, with the fields {rank}, {stem} (the name of FILE without suffix) and
        {part} (the number of the file in its checkpoint): 'rank{rank}.safetensors'. Files of a
        checkpoint whose parts have the same name share one part
    """
    _option(group, _names, "--layout", choices=["files", "ranks"], default=default)
    _option(group, _names, "--name", metavar="NAME")


def _output(parser: argparse.ArgumentParser, **out: Any) -> argparse._ArgumentGroup:
    """Add the options for what is written and printed.

    --copy-config: copy config.json, generation_config.json and the files of the tokenizer, which
        all parts must hold alike, into each folder that is written (default: for ranks)
    """
    _flag(parser, "--dry-run", text="print what would be written, and write nothing")
    output = parser.add_argument_group("output")
    output.add_argument("--out", **out)
    _flag(output, "--force", text="overwrite existing files")
    _option(output, _output, "--copy-config", action=argparse.BooleanOptionalAction)
    group = parser.add_mutually_exclusive_group()
    _flag(group, "--quiet", text="print only errors")
    _flag(group, "-v", "--verbose", text="list all files, even if there are many")
    _flag(group, "--json", text="print the plan as JSON, for other programs")
    return output


def _indices(text: str) -> list[int]:
    """Parse integers with commas between them."""
    try:
        return [int(index) for index in text.removesuffix(",").split(",")]
    except ValueError:
        rule = "must be an integer, or integers separated by commas"
        raise argparse.ArgumentTypeError(f"{text!r} {rule}") from None


def _lengths(text: str) -> int | list[int]:
    """Parse a chunk length, or part lengths if there is a comma."""
    lengths = _indices(text)
    return lengths if "," in text else lengths[0]


# ---- the parser --------------------------------------------------------------------------


class Parser(argparse.ArgumentParser):
    """A parser that prints each error on one line, and names unknown options first."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments. An unknown option is refused before an argument that is missing.

        So is an abbreviated one.
        """
        own = args if self._subparsers is None else args[:1]  # the rest are those of the command
        for word in itertools.takewhile(lambda word: word != "--", own):
            option, known = word.partition("=")[0], self._option_string_actions
            if word.startswith("--") and option not in known:
                self.error(f"unrecognized argument: {option}{did_you_mean(option, known)}")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End the command with one line, which names the nearest choice or the way to write it."""
        if re.search(r"unrecognized arguments: -?\d", message):
            message += "; numbers need commas between them, as in --split 2,3"
        if wrong := re.search(r"invalid choice: '(.+)' \(choose from (.+)\)", message):
            message += did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2]))
        if message.endswith("expected one argument"):
            message += '; a value that begins with "-" needs "=", as in --split=-1,2'
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command.

    Parameters
    ----------
    only : str, optional
        The one command to parse, which is faster than all of them.
    """
    parser = Parser(prog=program(), description="Split tensors into contiguous parts.")
    parser.add_argument("--version", action="version", version=f"splitjit {splitjit.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in [only] if only in COMMANDS else COMMANDS:
        text = inspect.cleandoc(COMMANDS[command].__doc__ or "")  # Python 3.13 needs no cleandoc
        about, examples, epilog = text.partition("examples:\n")
        line = about[:1].lower() + about[1:].partition(".\n")[0]
        added = commands.add_parser(command, help=line, description=about, epilog=examples + epilog)
        if examples:
            added.formatter_class = argparse.RawDescriptionHelpFormatter
        COMMANDS[command](added)
    return parser
