"""Rare events, logged to ``splitjit``."""

import sys
import warnings


def debug(message: str, *arguments: object) -> None:
    """Log an event at level DEBUG; only for events that take longer than this call.

    This never imports logging: if the program has not imported it, nobody is listening.
    """
    logging = sys.modules.get("logging")
    if logging is not None and hasattr(logging, "getLogger"):  # else it is only half imported
        logging.getLogger("splitjit").debug(message, *arguments)


def warn_of_variable(name: str, value: str, rule: str) -> None:
    """Warn that a variable of the environment has a value of no meaning, at import."""
    warnings.warn(f"{name}={value[:40]!r} must be {rule}", RuntimeWarning, stacklevel=3)


def warn(message: str, *arguments: object) -> None:
    """Log what the user should act on; without any configuration, it goes to standard error."""
    import logging

    logging.getLogger("splitjit").warning(message, *arguments)
