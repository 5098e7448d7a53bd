"""The options of a split, a join or a reshard: which tensors are split, and where files go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from splitjit.errors import SplitError, shorten
from splitjit.files.places import StrPath

_FIELD = re.compile(r"\{(?:rank|part)(?::0?[1-9]d?)?\}|\{stem\}")
"""A field of a name; a number may have a format, such as ``{rank:02d}``."""

_ALLOWED = {"others": ("copy", "skip"), "layout": ("files", "ranks")}


@dataclass(frozen=True, slots=True)
class Options:
    """The parameters of `plan_files` that are not the rule."""

    axis: int | None
    tensors: Sequence[str] | None
    tp_plan: bool
    config: StrPath | None
    out: StrPath | None
    copy_config: bool | None
    layout: str | None = None
    name: str | None = None
    others: str = "copy"

    def __post_init__(self) -> None:
        for option, allowed in _ALLOWED.items():
            value = getattr(self, option)
            if value not in (*allowed, None):
                rule = f"must be {' or '.join(map(repr, allowed))}"
                raise SplitError("files", f"{option}={shorten(value)}", rule)
        if self.name is None:
            return
        if any(c in "{}/\\" for c in _FIELD.sub("", self.name)):
            rule = "must be a file name with the fields {rank}, {part} or {stem}, and no others"
            raise SplitError("files", f"name={shorten(self.name)}", rule)
        if self.layout == "files" and "{rank" not in self.name:
            rule = "must contain {rank}, so that parts have different names"
            raise SplitError("files", f"name={shorten(self.name)}", rule)

    @property
    def say_how(self) -> bool:
        """Whether they say how the tensors are split."""
        return self.axis is not None or bool(self.tensors) or self.tp_plan

    @property
    def ranks(self) -> bool:
        """Whether each rank has a folder."""
        return self.layout == "ranks"
