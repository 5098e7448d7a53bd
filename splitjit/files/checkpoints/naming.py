"""What the user asks for, and where it goes: names of parts, files beside the weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from splitjit.errors import SplitError, shorten
from splitjit.files.checkpoints.index import Checkpoint
from splitjit.files.formats.base import TensorFile
from splitjit.files.places import StrPath

_FIELD = re.compile(r"\{(?:rank|part)(?::0?[1-9]d?)?\}|\{stem\}")
"""A field of a name; a number may have a format, such as ``{rank:02d}``."""

_ALLOWED = {"others": ("copy", "skip"), "layout": ("files", "ranks")}


_NAMES = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model"),
    *("sentencepiece.bpe.model", "chat_template.jinja", "chat_template.json"),
)
"""Names that Hugging Face's libraries give to configurations and tokenizers."""


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


def companions(
    folders: Sequence[Path], targets: Sequence[Path], options: Options, default: bool
) -> list[tuple[Path, Path]]:
    """Return the copies of configurations for each target folder, and their sources.

    There are none if the options say so, or if they say nothing and `default` is False.

    Raises
    ------
    SplitError
        If two folders hold different files of the same name.
    """
    found: list[Path] = []
    wanted = default if options.copy_config is None else options.copy_config
    for name in _NAMES if wanted else ():
        held = [folder / name for folder in folders if (folder / name).is_file()]
        for other in held[1:]:
            if other.read_bytes() != held[0].read_bytes():
                rule = "must be alike in all parts; copy_config=False leaves out such files"
                raise SplitError("join", f"{held[0]} and {other}", rule)
        found += held[:1]
    return [(target / path.name, path) for target in targets for path in found]


def name_part(options: Options, one: Checkpoint, file: TensorFile, rank: int) -> Path:
    """Return the path of a part of a file.

    Raises
    ------
    SplitError
        If the name does not have the suffix of the file.
    """
    template = options.name or ("{stem}{suffix}" if options.ranks else "{stem}.{rank}{suffix}")
    made = template.format(
        rank=rank,
        part=one.files.index(file),
        stem=file.path.name.removesuffix(file.suffix),
        suffix=file.suffix,
    )
    if not made.endswith(file.suffix):
        rule = f"the parts of {file.path} must have a name that ends in {file.suffix}"
        raise SplitError("files", f"name={options.name!r}", rule)
    folder = one.folder if options.out is None else Path(options.out)
    return folder / f"rank-{rank}" / made if options.ranks else folder / made
