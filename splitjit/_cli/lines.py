"""Lines on standard error, and JSON. It imports little, so that the command speaks at once."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any


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
