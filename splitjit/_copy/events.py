"""Rare events for the logger ``splitjit``, at the level DEBUG.

The standard library's logging is not imported here: a program that has not imported it has not
configured it either, so nobody would read the messages.
"""

from __future__ import annotations

import sys


def debug(message: str, *arguments: object) -> None:
    """Log a message about an event that takes longer than the call of this function."""
    logging = sys.modules.get("logging")
    if logging is not None and hasattr(logging, "getLogger"):  # else it is half imported
        logging.getLogger("splitjit").debug(message, *arguments)
