"""``splitjit completion``: the completion script for a shell, written by shtab."""

from __future__ import annotations

from argparse import _SubParsersAction

from splitjit._cli.parser import make_parser
from splitjit.errors import SplitError


def script(shell: str) -> str:
    """Return the script for a shell. It holds all options, so that TAB starts no Python."""
    try:
        import shtab
    except ImportError:
        rule, hint = "this command needs the package shtab", "pip install shtab"
        raise SplitError("completion", f"shell={shell!r}", rule, hint=hint) from None
    parser = make_parser("splitjit")
    choices = [one.choices for one in parser._actions if isinstance(one, _SubParsersAction)]
    for action in [action for command in choices[0].values() for action in command._actions]:
        if action.dest in ("paths", "config", "out"):
            action.complete = shtab.FILE
    return str(shtab.complete(parser, shell))
