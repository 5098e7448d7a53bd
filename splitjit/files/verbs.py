"""What the public functions and the command do: split, join, and split again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from splitjit._plan.arguments import Shape
from splitjit._plan.rules import CHUNK, Rule
from splitjit.errors import SplitError, shorten
from splitjit.files import (
    checkpoint,
    joining,
    naming,
    patterns,
    splitting,
    tensor_parallel,
    whole,
    writing,
)
from splitjit.files.checkpoint import Checkpoint
from splitjit.files.formats.base import TensorFile
from splitjit.files.joined import JoinedFiles
from splitjit.files.patterns import Choice
from splitjit.files.plan import SplitFiles
from splitjit.files.splitting import Chooser
from splitjit.files.tensor_parallel import ModelPlan

StrPath = str | os.PathLike[str]
"""A path as users give it."""

Progress = Callable[[int, int], object]
"""Called with the number of bytes written so far, and the number of all bytes to write."""

Planned = tuple[ModelPlan, Mapping[str, Choice], Callable[[str], bool]]
"""The plan of a model, what it splits, and whether a pattern counts for a name instead."""


@dataclass(frozen=True, slots=True)
class Which:
    """Which tensors are split, and along which axis: the parameters of `plan_files`."""

    axis: int | None
    tensors: Sequence[str] | None
    tp_plan: bool
    config: StrPath | None

    @property
    def given(self) -> bool:
        """Whether the user says how the tensors are split."""
        return self.axis is not None or bool(self.tensors) or self.tp_plan


@dataclass(frozen=True, slots=True)
class Where:
    """What is written, and where: the parameters of `plan_files`."""

    others: str
    layout: str | None
    name: str | None
    out: StrPath | None
    copy_config: bool | None


def as_paths(paths: StrPath | Iterable[StrPath]) -> list[Path]:
    """Return paths as a list; one path is a list of one."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else [*paths]
    for path in given:
        if isinstance(path, str) and re.match(r"[a-z][a-z0-9+.-]+://", path):
            rule = "must be a local path; fetch the file first, with the tool of its storage"
            raise SplitError("files", shorten(path), rule)
    found = [Path(path) for path in given]
    if not found:
        raise SplitError("files", "paths=[]", "must name a file")
    return found


def plan_split(paths: list[Path], rule: Rule, which: Which, where: Where) -> SplitFiles:
    """Plan the split of files. This does not check whether the parts exist."""
    _check_option("others", where.others, ("copy", "skip"))
    _check_option("layout", where.layout, ("files", "ranks"))
    checkpoints = [checkpoint.read(path) for path in paths]
    if which.tp_plan:
        _check_ranks(rule)
    choose, planned = _chooser(checkpoints, which, checkpoints[0].folder)
    if planned:
        tensor_parallel.check_shapes(*planned, _shapes(checkpoints))
    parts = _plan_parts(checkpoints, rule, choose, where, "split")
    if planned and planned[0].preset:
        model, family = planned[0].model, planned[0].family
        note = f"transformers has no plan for {model}; the preset of splitjit for {family} is used"
        parts = replace(parts, warnings=(note, *parts.warnings))
    return parts


def split(
    paths: list[Path],
    rule: Rule,
    which: Which,
    where: Where,
    force: bool,
    progress: Progress | None,
) -> SplitFiles:
    """Split files: write all parts of all files, or none."""
    planned = plan_split(paths, rule, which, where)
    writing.write_split(planned, force, _counter(progress, planned.nbytes))
    return planned


def plan_join(paths: list[Path], out: Path, which: Which) -> JoinedFiles:
    """Plan how parts are joined. This does not check whether the joined files exist."""
    parts = [checkpoint.read(path) for path in paths]
    choose, planned = _chooser_of_parts(parts, which)
    joined = joining.plan_whole(parts, choose, out)
    if planned:
        shapes = {tensor.name: tensor.shape for file in joined.files for tensor in file.whole}
        tensor_parallel.check_shapes(*planned, shapes)
    return joined


def join(
    paths: list[Path], out: Path, which: Which, force: bool, progress: Progress | None
) -> JoinedFiles:
    """Join parts: write all joined files, or none."""
    joined = plan_join(paths, out, which)
    writing.write_join(joined, force, _counter(progress, joined.nbytes))
    return joined


def plan_reshard(paths: list[Path], rule: Rule, which: Which, where: Where) -> SplitFiles:
    """Plan to split parts again. This does not check whether the new parts exist."""
    parts = [checkpoint.read(path) for path in paths]
    layout = where.layout or ("ranks" if joining.is_folder(parts[0]) else "files")
    _check_option("layout", layout, ("files", "ranks"))
    choose, planned = _chooser_of_parts(parts, which)
    made = whole.read_parts(parts, choose)
    if planned:
        tensor_parallel.check_shapes(*planned, _shapes([made]))

    def as_before(name: str, file: TensorFile) -> Choice | None:
        assert isinstance(file, whole.WholeFile)
        return file.choice(name)

    return _plan_parts([made], rule, as_before, replace(where, layout=layout), "reshard")


def reshard(
    paths: list[Path],
    rule: Rule,
    which: Which,
    where: Where,
    force: bool,
    progress: Progress | None,
) -> SplitFiles:
    """Split parts again: write all new parts, or none."""
    planned = plan_reshard(paths, rule, which, where)
    writing.write_split(planned, force, _counter(progress, planned.nbytes))
    return planned


def _plan_parts(
    checkpoints: list[Checkpoint], rule: Rule, choose: Chooser, where: Where, operator: str
) -> SplitFiles:
    layout = where.layout or "files"
    return splitting.plan_parts(
        checkpoints,
        rule,
        choose,
        naming.namer(where.name, layout, None if where.out is None else Path(where.out)),
        copy_others=where.others == "copy",
        merge=where.name is not None,
        ranks=layout == "ranks",
        copy_config=layout == "ranks" if where.copy_config is None else where.copy_config,
        operator=operator,
    )


def _check_option(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        names = " or ".join(map(repr, allowed))
        raise SplitError("files", f"{option}={shorten(value)}", f"must be {names}")


def _check_ranks(rule: Rule) -> None:
    """Check that a rule makes the same number of parts of every axis."""
    kind, value = rule
    if kind == CHUNK or isinstance(value, tuple):
        raise SplitError("files", "tp_plan=True", "needs a number of ranks: give num_splits")


def _counter(progress: Progress | None, total: int) -> Callable[[int], object]:
    """Return a function that adds up the bytes written, and reports the sum."""
    written = 0

    def count(nbytes: int) -> None:
        nonlocal written
        written += nbytes
        if progress is not None:
            progress(written, total)

    return count


def _shapes(checkpoints: Sequence[Checkpoint]) -> dict[str, Shape]:
    """Return the shapes of all tensors by name; no two may have the same name."""
    shapes: dict[str, Shape] = {}
    for file in [file for one in checkpoints for file in one.files]:
        for name in file.names:
            if name in shapes:
                rule = "two files hold it; with a tp_plan, give the files of one model"
                raise SplitError("files", shorten(name), rule)
            shapes[name] = file.tensor(name).shape
    return shapes


# ---- which tensors -----------------------------------------------------------------------


def _chooser_of_parts(
    parts: list[Checkpoint], which: Which
) -> tuple[Chooser | None, Planned | None]:
    """Return how the user says that parts were split; None if the user does not say it."""
    if not which.given:
        return None, None
    folder = parts[0].folder
    return _chooser(parts, which, folder, folder.parent)


def _chooser(
    checkpoints: Sequence[Checkpoint], which: Which, *folders: Path
) -> tuple[Chooser, Planned | None]:
    """Return how to split the tensor of a name: by patterns, then by the plan of the model."""
    axis = which.axis or 0
    chosen = [patterns.parse(text, axis) for text in which.tensors or ()]
    names = [name for one in checkpoints for file in one.files for name in file.names]
    patterns.check_matches(chosen, names)

    def by_pattern(name: str) -> bool:
        return any(choice.matches(name) for choice in chosen)

    model = None
    planned: Mapping[str, Choice] = {}
    if which.tp_plan:
        model = tensor_parallel.load(_config(which.config, *folders), names)
        planned = tensor_parallel.choices(model, names, by_pattern)
    default = None if chosen or model else Choice("*", axis)

    def choose(name: str, file: TensorFile) -> Choice | None:
        first = next((choice for choice in chosen if choice.matches(name)), None)
        return first or planned.get(name, default)

    return choose, (model, planned, by_pattern) if model else None


def _config(config: StrPath | None, *folders: Path) -> Path:
    """Return the configuration of a model: the one given, or the first one in these folders."""
    if config is not None:
        return Path(config)
    found = [folder for folder in folders if (folder / "config.json").exists()]
    return [*found, folders[0]][0]
