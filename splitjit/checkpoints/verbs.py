"""What the public functions and the command do: plan to split, to join and to split again.

`plan_split`, `plan_join` and `plan_reshard` read headers and return a plan; `write` carries it out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splitjit._plan.arguments import Shape
from splitjit._plan.rules import CHUNK, Rule
from splitjit.checkpoints import index, splitting
from splitjit.checkpoints.index import Checkpoint, is_folder
from splitjit.checkpoints.naming import Where as Where
from splitjit.checkpoints.writing import write as write
from splitjit.errors import SplitError, shorten
from splitjit.files import patterns
from splitjit.files.formats.base import TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.places import StrPath
from splitjit.files.places import check_targets as check_targets
from splitjit.files.plan import SplitFiles
from splitjit.files.splitting import Chooser

if TYPE_CHECKING:  # a split of one file imports little
    from splitjit.checkpoints.joining import JoinedFiles
    from splitjit.checkpoints.tensor_parallel import ModelPlan

Planned = tuple["ModelPlan", Mapping[str, Choice], Callable[[str], bool]]
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
    checkpoints = [index.read(path) for path in paths]
    kind, value = rule
    if which.tp_plan and (kind == CHUNK or isinstance(value, tuple)):
        raise SplitError("files", "tp_plan=True", "needs a number of ranks: give num_splits")
    choose, planned = _chooser(checkpoints, which, checkpoints[0].folder)
    if planned:
        _check_shapes(planned, _shapes(checkpoints))
    parts = splitting.plan_parts(checkpoints, rule, choose, where, "split")
    if planned and planned[0].preset:
        model, family = planned[0].model, planned[0].family
        note = f"transformers has no plan for {model}; the preset of splitjit for {family} is used"
        parts = replace(parts, warnings=(note, *parts.warnings))
    return parts


def plan_join(paths: list[Path], out: Path, which: Which) -> JoinedFiles:
    """Plan how parts are joined. This does not check whether the joined files exist."""
    parts = [index.read(path) for path in paths]
    choose, planned = _chooser_of_parts(parts, which)
    from splitjit.checkpoints import joining

    joined = joining.plan_whole(parts, choose, out)
    if planned:
        shapes = {tensor.name: tensor.shape for file in joined.files for tensor in file.whole}
        _check_shapes(planned, shapes)
    return joined


def plan_reshard(paths: list[Path], rule: Rule, which: Which, where: Where) -> SplitFiles:
    """Plan to split parts again. This does not check whether the new parts exist."""
    parts = [index.read(path) for path in paths]
    layout = where.layout or ("ranks" if is_folder(parts[0]) else "files")
    choose, planned = _chooser_of_parts(parts, which)
    from splitjit.checkpoints import whole

    made = whole.read_parts(parts, choose)
    if planned:
        _check_shapes(planned, _shapes([made]))

    def as_before(name: str, file: TensorFile) -> Choice | None:
        assert isinstance(file, whole.WholeFile)
        return file.choice(name)

    return splitting.plan_parts([made], rule, as_before, replace(where, layout=layout), "reshard")


def describe_files(paths: Sequence[Path]) -> dict[str, Any]:
    """Describe files, indexes and folders, and the split that they are parts of."""
    from splitjit.checkpoints import described

    return described.describe_files(paths)


def _check_shapes(planned: Planned, shapes: Mapping[str, Shape]) -> None:
    from splitjit.checkpoints import tensor_parallel

    tensor_parallel.check_shapes(*planned, shapes)


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
        from splitjit.checkpoints import tensor_parallel

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
