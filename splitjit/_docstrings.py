"""Docstrings that share sections: each text stands in the docstring of one function only."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def completed_by(like: Callable[..., Any]) -> Callable[[Function], Function]:
    """Return a decorator that adds the sections and parameters that a docstring lacks.

    Parameters
    ----------
    like : callable
        A function with a full docstring. Its first parameter may have another name.
    """

    def complete(function: Function) -> Function:
        if not like.__doc__:  # python -OO
            return function
        shared, own = _sections(like), _sections(function)
        entries = _entries(shared["Parameters"])
        names = [name for name in inspect.signature(function).parameters if name != "self"]
        first = next(iter(entries))
        entries[names[0]] = entries[first].replace(first, names[0], 1)
        entries |= _entries(own.get("Parameters", ""))
        sections = {title: shared[title] for title in shared if title != "Examples"} | own
        sections["Parameters"] = "\n".join([entries[name] for name in names if name in entries])
        titled = [f"{title}\n{'-' * len(title)}\n{sections[title]}" for title in sections if title]
        function.__doc__ = "\n\n".join([sections[""], *titled]) + "\n"
        return function

    return complete


def _sections(function: Callable[..., Any]) -> dict[str, str]:
    """Return the sections of a docstring by title; the summary has no title."""
    parts = re.split(r"\n*^(\w[\w ]*)\n-+\n", "\n" + (inspect.getdoc(function) or ""), flags=re.M)
    return dict(zip(["", *parts[1::2]], [part.strip() for part in parts[::2]], strict=True))


def _entries(parameters: str) -> dict[str, str]:
    """Return the descriptions of parameters by name."""
    entries = re.split(r"\n(?=\S)", parameters) if parameters else []
    return {re.match(r"\**(\w+)", entry)[1]: entry for entry in entries}  # type: ignore[index]
