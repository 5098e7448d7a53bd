"""Rare events, logged to ``splitjit`` at level DEBUG.

This module never imports logging: if the program has not imported it, nobody is listening.
"""

from __future__ import annotations

import sys


def debug(message: str, *arguments: object) -> None:
    """Log an event; only for events that take longer than this call."""
    logging = sys.modules.get("logging")
    if logging is not None and hasattr(logging, "getLogger"):  # else it is only half imported
        logging.getLogger("splitjit").debug(message, *arguments)
