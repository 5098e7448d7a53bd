"""Lines on standard error, and JSON. It imports little, so that the command speaks at once."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

from splitjit.errors import SplitError

_PARAMETER = re.compile(
    r"\b(num_\w+|tp_plan|split(?= must)|config(?= gives)|(?:split|indices|axis|shape|sections"
    r"|lengths|force|copy_config|tensors|out|name)(?==))"
    r"(?:=(\([^)]*\)|[^\s,;]*))?"
)
"""A parameter of a function in a refusal, and its value."""


def program() -> str:
    """Return the name that the command was called by."""
    return "splitjit" if Path(sys.argv[0]).stem == "splitjit" else "python -m splitjit"


def say(message: str) -> None:
    """Print one line on standard error, if anyone still reads it."""
    with contextlib.suppress(BrokenPipeError):
        print(f"{program()}:", printable(" ".join(message.split())), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Escape control characters: names come from files and could control the terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def print_json(found: dict[str, Any]) -> None:
    """Print plain data for other programs."""
    import json

    print(json.dumps(found, indent=1))


def sentence(error: Exception) -> str:
    """Return what went wrong, in the words of the command."""
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"{error.filename} does not exist"
    if isinstance(error, OSError):
        what, separator, rest = str(error).rpartition("; ")  # the first is the name of a file
        text = error.strerror or what + separator + in_options(rest)
        return text if error.filename is None else f"{error.filename}: {text}"
    if not isinstance(error, SplitError):
        return str(error) or "not enough memory"
    received, rule, hint = error.received, in_options(error.rule), in_options(error.hint)
    if _PARAMETER.match(received):  # otherwise it can be the name of a file
        received = re.sub("--axis (?=-?[0-9])", "axis ", in_options(received))  # perhaps not given
    said = "" if error.operator == "files" else f"{error.operator}: "
    return f"{said}{received}: {rule}" + (f"; {hint}" if hint else "")


def in_options(text: str) -> str:
    """Write parameters as options: ``num_outputs=5`` as ``--num-outputs 5``."""
    return _PARAMETER.sub(_as_option, text)


def _as_option(found: re.Match[str]) -> str:
    name, value = found[1], found[2] or ""
    if name in ("shape", "sections", "lengths"):
        return f"{name} {value}"
    if name == "tensors":
        return "--tensor"
    if name == "copy_config":
        return "--copy-config" if value == "True" else "--no-copy-config"
    value = "" if value == "True" else value.strip("(),").replace(" ", "")
    return f"--{name.replace('_', '-')} {value}".rstrip()


def number_of(count: int, what: str) -> str:
    """Return a number and a noun: ``1 tensor``, ``2 tensors``."""
    return f"{count} {what}{'s' * (count != 1)}"
