"""Split the tensors of files into parts, and join the parts again.

The command ``python -m splitjit`` calls these functions. Files may be larger than
memory: a .npy, .npz or .safetensors file, an index ``model.safetensors.index.json``,
or a folder that has such an index.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from splitjit._plan.arguments import Shape, rule_of
from splitjit._plan.rules import CHUNK, Rule
from splitjit.errors import SplitError, shorten
from splitjit.files import (
    checkpoint,
    joining,
    naming,
    patterns,
    splitting,
    tensor_parallel,
    transaction,
    writing,
)
from splitjit.files.checkpoint import Checkpoint
from splitjit.files.patterns import Choice
from splitjit.files.plan import FilePlan, SplitFiles, TensorPlan

__all__ = ["FilePlan", "SplitFiles", "TensorPlan", "join_files", "plan_files", "split_files"]

StrPath = str | os.PathLike[str]
"""A path as users give it."""

Progress = Callable[[int, int], object]
"""Called with the number of bytes written so far, and the number of all bytes to write."""


def plan_files(
    paths: StrPath | Iterable[StrPath],
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    num_splits: int | None = None,
    indices: Sequence[int] | None = None,
    num_sections: int | None = None,
    tensors: Sequence[str] | None = None,
    tp_plan: bool = False,
    config: StrPath | None = None,
    others: Literal["copy", "skip"] = "copy",
    layout: Literal["files", "ranks"] = "files",
    name: str | None = None,
    out: StrPath | None = None,
    force: bool = False,
) -> SplitFiles:
    """Plan the split of files. This reads only their headers and writes nothing.

    Parameters
    ----------
    paths : path or iterable of path
        Files (.npy, .npz or .safetensors), indexes of .safetensors files
        (``model.safetensors.index.json``), or folders with such an index.
    split, axis, num_outputs, num_splits, indices, num_sections
        The rule, as in `splitjit.split`.
    tensors : sequence of str, optional
        The tensors to split, as patterns: ``"PATTERN"``, ``"PATTERN=AXIS"``,
        ``"PATTERN=AXIS:4096,1024,1024"`` for fused sections of these lengths, each of
        which the rule splits, or ``"PATTERN=AXIS/3,5"`` for parts of these lengths.
        The first pattern that matches a name counts. By default, all tensors are split
        along `axis`, except 0-D tensors, which are copied.
    tp_plan : bool, default False
        Whether the tensor-parallel plan of the model in transformers gives the axes of
        the tensors that no pattern matches. Requires ``splitjit[transformers]``.
    config : path, optional
        ``config.json`` of the model, or its folder. By default, the folder of the files.
    others : {"copy", "skip"}, default "copy"
        Whether each part holds a copy of every other tensor.
    layout : {"files", "ranks"}, default "files"
        ``"files"``: part 0 of ``FILE.npy`` is ``FILE.0.npy``. ``"ranks"``: it is
        ``rank-0/FILE.npy``, and each rank's folder gets an index of its .safetensors files.
    name : str, optional
        The name of each part, with the fields ``{rank}``, ``{stem}`` (the name of the
        file without its suffix) and ``{part}`` (the number of the file, from 0).
        .safetensors files whose parts have the same name share one part.
    out : path, optional
        The folder of the parts. By default, the folder in which each file or link lies.
    force : bool, default False
        Whether parts may overwrite existing files.

    Returns
    -------
    SplitFiles
        The parts of each tensor, the files to write, and warnings.

    Raises
    ------
    SplitError
        If a file is not of its format, if the rule does not fit a tensor or makes
        different numbers of parts, or if two parts would have the same file name.
    OSError
        If a file cannot be read, or if a part exists and `force` is False.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npy")
    ...     np.save(path, np.zeros((4, 6), np.float32))
    ...     plan = plan_files(path, num_splits=2, axis=1)
    >>> plan.files[0].tensors[0].part_shapes, [target.name for target in plan.targets]
    (((4, 3), (4, 3)), ['x.0.npy', 'x.1.npy'])
    """
    rule = rule_of(split, num_outputs, num_splits, indices, num_sections)
    planned = _plan(paths, rule, axis, tensors, tp_plan, config, others, layout, name, out)
    transaction.check(planned.targets, force)
    return planned


def split_files(
    paths: StrPath | Iterable[StrPath],
    split: Any = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    num_splits: int | None = None,
    indices: Sequence[int] | None = None,
    num_sections: int | None = None,
    tensors: Sequence[str] | None = None,
    tp_plan: bool = False,
    config: StrPath | None = None,
    others: Literal["copy", "skip"] = "copy",
    layout: Literal["files", "ranks"] = "files",
    name: str | None = None,
    out: StrPath | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> SplitFiles:
    """Split files: write all parts of all files, or none.

    Parameters
    ----------
    paths, split, axis, num_outputs, num_splits, indices, num_sections, tensors, tp_plan, \
config, others, layout
        What is split, and how, as in `plan_files`.
    name, out, force
        Where the parts are written, as in `plan_files`.
    progress : callable, optional
        Called with the number of bytes written so far, and the number of all bytes.

    Returns
    -------
    SplitFiles
        The plan that was carried out.

    Raises
    ------
    SplitError
        If the split is refused, as in `plan_files`, or if a file is damaged or changes
        while it is read.
    OSError
        If a file cannot be read or written, for example because a part exists or the
        disk is full.

    See Also
    --------
    join_files : Join the parts again.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path, joined = os.path.join(folder, "x.npy"), os.path.join(folder, "joined.npy")
    ...     np.save(path, np.arange(6))
    ...     done = split_files(path, num_splits=2)
    ...     print(np.load(done.targets[1]))
    ...     _ = join_files(done.targets, joined)
    ...     print(np.load(joined))
    [3 4 5]
    [0 1 2 3 4 5]
    """
    rule = rule_of(split, num_outputs, num_splits, indices, num_sections)
    paths = _paths(paths)
    folders = [path if path.is_dir() else path.parent for path in paths]
    finished = transaction.recover(folders if out is None else [Path(out)]).finished
    planned = _plan(paths, rule, axis, tensors, tp_plan, config, others, layout, name, out)
    writing.write_split(planned, force, _counter(progress, planned.nbytes), finished)
    return planned


def join_files(
    paths: Iterable[StrPath],
    out: StrPath,
    *,
    axis: int | None = None,
    tensors: Sequence[str] | None = None,
    tp_plan: bool = False,
    config: StrPath | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Join parts: write all joined files, or none.

    Parts that `split_files` wrote give the original files back, byte for byte.

    Parameters
    ----------
    paths : iterable of path
        The parts in their order: files, or the folders of ranks.
    out : path
        The joined file. If the parts are folders, the folder of the joined files.
    axis : int, optional
        The axis along which the parts were split, if no pattern gives it. By default,
        axis 0 for .npy files and patterns. For files that hold tensors by name, give
        `axis`, `tensors` or `tp_plan`: some tensors may have been copied, or split
        along another axis, and the parts do not say so.
    tensors, tp_plan, config
        The tensors that were split, as in `plan_files`. Every other tensor was copied,
        and must be equal in all parts. The configuration may also lie beside the
        folders of the ranks.
    force : bool, default False
        Whether joined files may overwrite existing files.
    progress : callable, optional
        Called with the number of bytes written so far, and the number of all bytes.

    Returns
    -------
    tuple of Path
        The files that were written.

    Raises
    ------
    SplitError
        If nothing says how tensors with names were split, if the parts do not fit
        together, if a tensor that was copied differs between parts, or if a part is
        damaged or changes while it is read.
    OSError
        If a file cannot be read or written.

    See Also
    --------
    split_files : Split files, with an example.
    """
    paths, out = _paths(paths), Path(out)
    is_folder = paths[0].is_dir() or paths[0].name.endswith(checkpoint.SUFFIX)
    finished = transaction.recover([out if is_folder else out.parent]).finished
    parts = [checkpoint.read(path) for path in paths]
    if axis is None and not tensors and not tp_plan:
        joining.check_unnamed(parts[0])
    axis = axis or 0
    chosen = [patterns.parse(text, axis) for text in tensors or ()]
    planned = None
    if tp_plan:
        folder = parts[0].folder
        model = tensor_parallel.load(_config(config, folder, folder.parent))
        planned = tensor_parallel.choices(model, len(parts), _matches(chosen))
    joined = joining.plan_whole(parts, _chooser(parts, chosen, axis, planned), out)
    if tp_plan:
        shapes = {tensor.name: tensor.shape for file in joined.files for tensor in file.whole}
        tensor_parallel.check_shapes(model, planned or (), shapes)
    writing.write_join(joined, force, _counter(progress, joined.nbytes), finished)
    return joined.targets


def _plan(
    paths: StrPath | Iterable[StrPath],
    rule: Rule,
    axis: int,
    tensors: Sequence[str] | None,
    tp_plan: bool,
    config: StrPath | None,
    others: str,
    layout: str,
    name: str | None,
    out: StrPath | None,
) -> SplitFiles:
    """Plan the split of files. This does not check whether the parts exist."""
    _check_option("others", others, ("copy", "skip"))
    _check_option("layout", layout, ("files", "ranks"))
    namer = naming.namer(name, layout, None if out is None else Path(out))
    checkpoints = [checkpoint.read(path) for path in _paths(paths)]
    chosen = [patterns.parse(text, axis) for text in tensors or ()]
    planned = None
    if tp_plan:
        ranks = _ranks_of(rule)
        model = tensor_parallel.load(_config(config, checkpoints[0].folder))
        planned = tensor_parallel.choices(model, ranks, _matches(chosen))
        tensor_parallel.check_shapes(model, planned, _shapes(checkpoints))
    return splitting.plan_parts(
        checkpoints,
        rule,
        _chooser(checkpoints, chosen, axis, planned),
        namer,
        copy_others=others == "copy",
        merge=name is not None,
        ranks=layout == "ranks",
    )


def _check_option(option: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        names = " or ".join(map(repr, allowed))
        raise SplitError("files", f"{option}={shorten(value)}", f"must be {names}")


def _counter(progress: Progress | None, total: int) -> Callable[[int], object]:
    """Return a function that adds up the bytes written, and reports the sum."""
    written = 0

    def count(nbytes: int) -> None:
        nonlocal written
        written += nbytes
        if progress is not None:
            progress(written, total)

    return count


def _paths(paths: StrPath | Iterable[StrPath]) -> list[Path]:
    """Return paths as a list; one path is a list of one."""
    if isinstance(paths, (str, os.PathLike)):
        return [Path(paths)]
    found = [Path(path) for path in paths]
    if not found:
        raise SplitError("files", "paths=[]", "must name a file")
    return found


def _ranks_of(rule: Rule) -> int:
    """Return the number of parts that a rule makes of every axis."""
    kind, value = rule
    if kind == CHUNK or isinstance(value, tuple):
        raise SplitError("files", "tp_plan=True", "needs a number of ranks: give num_splits")
    return value


def _config(config: StrPath | None, *folders: Path) -> Path:
    """Return the configuration of a model: the one given, or the first one in these folders."""
    if config is not None:
        return Path(config)
    found = [folder for folder in folders if (folder / "config.json").exists()]
    return [*found, folders[0]][0]


def _matches(chosen: list[Choice]) -> Callable[[str], bool]:
    """Return a function that tells whether a pattern matches a name."""
    return lambda name: any(choice.matches(name) for choice in chosen)


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


def _chooser(
    checkpoints: Sequence[Checkpoint],
    chosen: list[Choice],
    axis: int,
    planned: Mapping[str, Choice] | None,
) -> splitting.Chooser:
    """Return a function that says how to split the tensor of a name: patterns, then the plan."""
    names = [name for one in checkpoints for file in one.files for name in file.names]
    patterns.check_matches(chosen, names)
    default = None if chosen or planned is not None else Choice("*", axis)

    def choose(name: str) -> Choice | None:
        by_pattern = next((choice for choice in chosen if choice.matches(name)), None)
        return by_pattern or (planned or {}).get(name, default)

    return choose
