"""What the user asks for, and where it goes: names of parts, files beside the weights."""

from __future__ import annotations

import filecmp
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from splitjit.errors import SplitError, pairs
from splitjit.files.checkpoints.index import Checkpoint
from splitjit.files.file_plan import FilePlan, SplitFiles
from splitjit.files.formats.base import TensorFile
from splitjit.files.places import StrPath, check_places

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
                raise SplitError("files", pairs(**{option: value}), rule)
        if self.name is None:
            return
        if any(c in "{}/\\" for c in _FIELD.sub("", self.name)):
            rule = "must be a file name with the fields {rank}, {part} or {stem}, and no others"
            raise SplitError("files", pairs(name=self.name), rule)
        if self.layout == "files" and "{rank" not in self.name:
            rule = "must contain {rank}, so that parts have different names"
            raise SplitError("files", pairs(name=self.name), rule)

    @property
    def say_how(self) -> bool:
        """Whether they say how the tensors are split."""
        return self.axis is not None or bool(self.tensors) or self.tp_plan

    @property
    def ranks(self) -> bool:
        """Whether each rank has a folder."""
        return self.layout == "ranks"


def plan_writes(
    one: Checkpoint,
    files: Sequence[FilePlan],
    indexes: Sequence[tuple[Path, bytes]],
    options: Options,
    to_folders: bool,
) -> SplitFiles:
    """Return the plan of all files to write, with copies of configurations for their folders.

    There are no copies if the options say so, or if they say nothing and `to_folders` is False.

    Raises
    ------
    SplitError
        If two folders hold different files of the same name, if two new files have the same
        place, or if one replaces an input.
    """
    found: list[Path] = []
    wanted = to_folders if options.copy_config is None else options.copy_config
    sources = dict.fromkeys([part.folder for part in one.parts or (one,)])
    for name in _NAMES if wanted else ():
        held = [folder / name for folder in sources if (folder / name).is_file()]
        for other in held[1:]:
            if not filecmp.cmp(held[0], other, shallow=False):
                rule = "must be alike in all parts; \0copy_config=False\0 leaves out such files"
                raise SplitError("join", f"{held[0]} and {other}", rule)
        found += held[:1]
    folders = dict.fromkeys([path.parent for file in files for path in file.targets])
    copies = tuple([(folder / path.name, path) for folder in folders for path in found])
    made = [(file.paths, file.targets) for file in files]
    made += [((path,), (target,)) for target, path in copies]
    inputs = tuple([file.path for part in one.parts for file in part.files])
    check_places([*made, (inputs, ())])
    return SplitFiles(tuple(files), tuple(indexes), (), copies, int(options.ranks))


def name_part(options: Options, one: Checkpoint, file: TensorFile, rank: int) -> Path:
    """Return the path of a part of a file.

    Raises
    ------
    SplitError
        If the name does not have the suffix of the file.
    """
    template = options.name or ("{stem}{suffix}" if options.ranks else "{stem}.{rank}{suffix}")
    part, stem = one.files.index(file), file.path.name.removesuffix(file.suffix)
    made = template.format(rank=rank, part=part, stem=stem, suffix=file.suffix)
    if not made.endswith(file.suffix):
        rule = f"the parts of {file.path} must have a name that ends in {file.suffix}"
        raise SplitError("files", pairs(name=options.name), rule)
    folder = one.folder if options.out is None else Path(options.out)
    return folder / f"rank-{rank}" / made if options.ranks else folder / made
