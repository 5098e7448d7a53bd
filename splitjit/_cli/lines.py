"""What the command says: lines, amounts, options and JSON. It imports little, to speak at once."""

import contextlib
import math
import sys
from pathlib import Path
from typing import Any

from splitjit.errors import SplitError, in_words


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
        text = error.strerror or str(error)
        return text if error.filename is None else f"{error.filename}: {text}"
    if not isinstance(error, SplitError):
        return str(error) or "not enough memory"
    says = _as_given, _as_given, as_option
    received, rule, hint = map(in_words, error.texts, says)
    said = "" if error.operator == "files" else f"{error.operator}: "
    return f"{said}{received}: {rule}" + (f"; {hint}" if hint else "")


def as_option(name: str, equals: str, value: str) -> str:
    """Write a parameter as an option: ``num_outputs=5`` as ``--num-outputs 5``."""
    option = name.replace("tensors", "tensor").replace("_", "-")
    if value in ("True", "False"):
        return f"--{option}" if value == "True" else f"--no-{option}"
    if value.startswith("("):
        value = value.strip("(),").replace(" ", "")
    return f"--{option} {value}".rstrip()


def _as_given(name: str, equals: str, value: str) -> str:
    """Write a parameter whose value may come from a file or a pattern, and not from an option."""
    if name in ("axis", "shape", "sections", "lengths") and equals + value != "=":
        return f"{name} {value}".rstrip()
    return as_option(name, equals, value)


def number_of(count: int, what: str) -> str:
    """Return a number and a noun: ``1 tensor``, ``2 tensors``."""
    return f"{count} {what}{'s' * (count != 1)}"


def amount(nbytes: float) -> str:
    """Format a number of bytes in a unit that fits.

    Examples
    --------
    >>> amount(990), amount(25088), amount(7.6e9)
    ('990 bytes', '25.1 kB', '7.6 GB')
    """
    if nbytes < 10_000:
        return f"{nbytes:.0f} bytes"
    power = min(int(math.log10(nbytes)) // 3, 4)
    return f"{nbytes / 1000**power:.1f} {' kMGT'[power]}B"
