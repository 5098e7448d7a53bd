"""Plan the split of checkpoints: the parts of each tensor, the file of each part, the indexes.

`Options` are what the user asks for. `plan_writes` adds the files beside the weights.
"""

import filecmp
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splitjit._plan.rules import Rule
from splitjit.errors import SplitError, SplitTypeError, pairs
from splitjit.files import file_plan
from splitjit.files.checkpoints import index, siblings
from splitjit.files.checkpoints.index import MANIFEST, Checkpoint
from splitjit.files.checkpoints.record import Record, manifest
from splitjit.files.file_plan import Chooser, FilePlan, SplitFiles, TensorPlan, percent
from splitjit.files.formats.base import TensorFile
from splitjit.files.staging import StrPath, check_places

_FIELD = re.compile(r"\{(?:rank|part)(?::0?[1-9]d?)?\}|\{stem\}")
"""A field of a name; a number may have a format, such as ``{rank:02d}``."""

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
        for option, *allowed in (("others", "copy", "skip"), ("layout", "files", "ranks")):
            value = getattr(self, option)
            if value not in (*allowed, None):
                rule = f"must be {' or '.join(map(repr, allowed))}"
                raise SplitError("files", pairs(**{option: value}), rule)
        paths = (self.config, self.out, self.name)
        index.as_paths([one for one in paths if one is not None] or ".")
        if not isinstance(self.tensors, (list, tuple, type(None))):
            rule = "must be a list or a tuple of patterns"
            raise SplitTypeError("files", pairs(tensors=self.tensors), rule)
        if self.name is None:
            return
        if not isinstance(self.name, str):
            raise SplitTypeError("files", pairs(name=self.name), "must be a string")
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


def plan_parts(
    checkpoints: Sequence[Checkpoint], rule: Rule, choose: Chooser, options: Options
) -> SplitFiles:
    """Plan the split of checkpoints.

    Raises
    ------
    SplitError
        If the rule does not fit a tensor or makes different numbers of parts, or if two
        parts would have the same file name.
    """
    inputs = [file for one in checkpoints for file in one.files]
    alone = siblings.find_alone([name for file in inputs for name in file.tensors])
    tensors = {file: file_plan.plan_tensors(file, rule, choose, alone) for file in inputs}
    if options.others == "skip":
        tensors = {file: [one for one in tensors[file] if one.axis is not None] for file in inputs}
    plans = [plan for file in inputs for plan in tensors[file]]
    count = file_plan.count_parts(plans, rule)
    if not count:
        for file in inputs:  # if only 0-D tensors match, the first one is refused
            file_plan.plan_tensors(file, rule, choose, alone, scalars=True)
        if any(file.tensors for file in inputs) and all(plan.axis is None for plan in plans):
            rest = "no tensor would be split; a table, such as a codebook, needs its full name"
            raise SplitError("split", str(inputs[0].path), rest)
    made_of = checkpoints[0].made_of or index.digest(inputs)
    recorded = options.ranks or any(file.suffix == ".safetensors" for file in inputs)
    blank = Record(made_of, 0, count, rule, {}) if count and recorded else None
    if count > 1 and isinstance(rule[1], tuple) and not options.ranks:
        _check_unrecorded(plans)
    # The files whose parts have the same names, by these names; others are alone.
    groups: dict[tuple[tuple[Path, ...], TensorFile | None], list[TensorFile]] = {}
    for one in checkpoints:
        for file in one.files:
            ranks = range(count if tensors[file] else 0)
            targets = tuple([_name_part(options, one, file, i) for i in ranks])
            merged = options.name is not None and targets and file.suffix == ".safetensors"
            groups.setdefault((targets, None if merged else file), []).append(file)
    files = [_plan_file(own, targets, tensors, blank) for (targets, _), own in groups.items()]
    indexes = _make_indexes(checkpoints, files, count) if options.ranks else []
    planned = plan_writes(checkpoints[0].parts or checkpoints, files, indexes, options)
    return replace(planned, warnings=tuple(_warnings(planned, inputs, count)))


def _check_unrecorded(plans: list[TensorPlan]) -> None:
    """Check that a join can tell from the lengths of the parts where sections were cut.

    If sections of different lengths are cut at given places, two cuts can give the same lengths.
    """
    for plan in plans:
        lengths = [*map(sum, plan.sections)]
        if len({*lengths}) > 1 and plan.file.suffix != ".safetensors":
            rule = "the parts would not record where sections of different lengths are cut: give "
            rule += "\0layout='ranks'\0, which records it, or a number of parts"
            raise SplitError("split", f"{plan.file.path}, {plan.name} in {lengths}", rule)


def _warnings(planned: SplitFiles, inputs: Sequence[TensorFile], count: int) -> Iterable[str]:
    """Say what is odd about a split, although it is possible."""
    yield from siblings.find_mismatches([plan for file in planned.files for plan in file.tensors])
    for file in inputs:
        if not file.tensors:
            yield f"{file.path} is empty: it holds no tensor"
    if not count and any(file.tensors for file in inputs):
        yield "no part is written: the rule makes no parts of an axis of length 0"
    if count > 1 and planned.share_split < 0.5:
        share = f"{percent(planned.share_split)} of the bytes are split"
        yield f"only {share}; each part holds a copy of the rest"


Plans = Mapping[TensorFile, list[TensorPlan]]
"""The plans of the tensors of each file."""


def _plan_file(
    files: list[TensorFile], targets: tuple[Path, ...], tensors: Plans, blank: Record | None
) -> FilePlan:
    """Plan the parts of a file, or of .safetensors files whose parts have the same names."""
    plans = [replace(plan, count=len(targets)) for file in files for plan in tensors[file]]
    choices = {plan.name: plan.choice for plan in plans}
    left_out = tuple([name for file in files for name in file.tensors if name not in choices])
    _check_merged(plans)
    name = files[0].path.name if len(files) == 1 else None
    for path in [files[0].path, *targets[:1]] if blank else ():
        if not index.is_file_name(path.name):
            rule = "records cannot hold this name, since some systems have no such file; rename it"
            raise SplitError("split", str(path), rule)
    record = blank and replace(blank, tensors=choices, file=name)
    if files[0].suffix == ".safetensors":  # widest first, as the package writes them: aligned
        plans.sort(key=lambda plan: -plan.tensor.bits)
    paths = tuple([read.path for file in files for read in file.inputs])
    return FilePlan(paths, targets, tuple(plans), left_out, files[0], record)


def _check_merged(plans: list[TensorPlan]) -> None:
    """Check that one file can hold the tensors of several files."""
    holders: dict[str, TensorFile] = {}
    for plan in plans:
        first, file = plans[0].file, plan.file
        if holders.setdefault(plan.name, file) is not file:
            received = f"{plan.name} in {holders[plan.name].path} and {file.path}"
            raise SplitError("split", received, "only one file of a rank may hold a tensor")
        if file.metadata != first.metadata:
            rule = "files that are merged must have the same metadata; put {stem} into the name"
            raise SplitError("split", f"{first.path} and {file.path}", rule)


Indexes = list[tuple[Path, bytes]]
"""The paths and the contents of indexes and manifests."""


def _make_indexes(checkpoints: Sequence[Checkpoint], files: list[FilePlan], count: int) -> Indexes:
    """Make a manifest for each folder of parts, and an index of its .safetensors files."""
    folders: dict[Path, list[FilePlan]] = {}
    for file in files:
        if file.targets:
            folders.setdefault(file.targets[0].parent, []).append(file)
    made: Indexes = []
    for group in folders.values():
        indexed = [file for file in group if file.targets[0].suffix == ".safetensors"]
        held = {plan.file for file in indexed for plan in file.tensors}
        like = next((one for one in checkpoints if one.index and held & {*one.files}), None)
        content, name = (like.index, like.index_name) if like else (None, index.NAME)
        for i in range(count if indexed else 0):
            parts = [(file.targets[i].name, file.part(i)) for file in indexed]
            target = indexed[0].targets[i].with_name(name)
            made.append((target, index.dump(index.make(content, parts))))
        wholes = {file.record.file: file for file in group}
        for file in group:
            if file.record.file and (other := wholes[file.record.file]) is not file:
                rule = "a folder of a rank cannot hold parts of two files of one name; rename one"
                raise SplitError("split", f"{file.paths[0]} and {other.paths[0]}", rule)
        for i in range(count):
            records = {file.targets[i].name: file.record for file in group}
            made.append((group[0].targets[i].with_name(MANIFEST), manifest(records, i)))
    return made


# ---- where the parts go -------------------------------------------------------------------


def plan_writes(
    parts: Sequence[Checkpoint], files: Sequence[FilePlan], indexes: Indexes, options: Options
) -> SplitFiles:
    """Return the plan of all files, with copies of configurations for their folders.

    `parts` are the inputs: the parts to join, or the checkpoints to split. If the options do not
    say whether there are copies, there are if the new files go into folders of their own.

    Raises
    ------
    SplitError
        If the inputs of a folder hold different files of the same name, if two new files have
        the same place, or if one replaces an input.
    """
    found: list[Path] = []
    to_folders = options.ranks if options.layout else parts[0].is_folder  # a join has no layout
    wanted = to_folders if options.copy_config is None else options.copy_config
    inputs = [file.path for part in parts for file in part.files]
    for part in parts:
        beside = [part.folder / name for name in (part.index_name, MANIFEST)]
        inputs += [path for path in beside if part.is_folder and path.exists()]
    sources = dict.fromkeys([part.folder for part in parts])
    apart = options.out is None  # each checkpoint has its own folders
    for name in _NAMES if wanted else ():
        held = [folder / name for folder in sources if (folder / name).is_file()]
        inputs += held
        for other in held[1:]:
            if not (apart or filecmp.cmp(held[0], other, shallow=False)):
                rule = "must be alike in all inputs; \0copy_config=False\0 leaves out such files"
                raise SplitError("join", f"{held[0]} and {other}", rule)
        found += held if apart else held[:1]
    folders = dict.fromkeys([path.parent for file in files for path in file.targets])
    for folder in folders:
        if options.ranks and (folder.is_symlink() or (folder.exists() and not folder.is_dir())):
            raise NotADirectoryError(f"{folder} must be a folder, and not a link to one")
    copies = [(folder / path.name, path) for folder in folders for path in found]
    if apart:
        copies = [(new, old) for new, old in copies if old.parent in new.parents[:2]]
    made = [(file.paths[0], target) for file in files for target in file.targets]
    made += [(path, target) for target, path in copies]
    made += [(parts[0].path, target) for target, _ in indexes]
    check_places(inputs, made)
    return SplitFiles(tuple(files), tuple(indexes), (), tuple(copies))


def _name_part(options: Options, one: Checkpoint, file: TensorFile, rank: int) -> Path:
    """Return the path of a part of a file.

    Raises
    ------
    SplitError
        If the name does not have the suffix of the file.
    """
    template = options.name or ("{stem}{suffix}" if options.ranks else "{stem}.{rank}{suffix}")
    part, stem = one.files.index(file), file.path.name.removesuffix(file.suffix)
    made = template.format(rank=rank, part=part, stem=stem, suffix=file.suffix)
    if options.name and Path(made).suffix != file.suffix:  # ".npz" alone would be no suffix
        rule = f"the parts of {file.path} must have names that end in {file.suffix}"
        raise SplitError("files", pairs(name=options.name), rule)
    folder = one.folder if options.out is None else Path(options.out)
    return folder / f"rank-{rank}" / made if options.ranks else folder / made
