"""Split the tensors of files into parts, and join the parts again.

The command ``python -m splitjit`` does the same. Files may be larger than memory: a .npy, .npz or
.safetensors file, a ``model.safetensors.index.json``, or a folder with it or ``model.safetensors``.

A `TensorFile` of `formats` reads a format, and a `FileWriter` writes it. `patterns` choose how
tensors are split, `file_plan` plans the parts, and its plan is data that `tiles` carries out: it
writes the parts, tile by tile. `staging` keeps all files whole, by way of `disk`. These modules
know nothing of models: `checkpoints` does, and its docstring is the path of a command, step by
step. The public functions call its `operations`, and import it when first used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack

from splitjit._plan.arguments import OtherRules, named_rule
from splitjit.files.file_plan import FilePlan, SplitFiles, TensorPlan
from splitjit.files.staging import StrPath, check_targets
from splitjit.files.tiles import Progress

__all__ = ["FilePlan", "SplitFiles", "TensorPlan"]
__all__ += ["describe_files", "join_files", "plan_files", "reshard_files", "split_files"]


def plan_files(
    paths: StrPath | Iterable[StrPath],
    split: Any = None,
    *,
    axis: int | None = None,
    tensors: Sequence[str] | None = None,
    tp_plan: bool = False,
    config: StrPath | None = None,
    others: Literal["copy", "skip"] = "copy",
    layout: Literal["files", "ranks"] = "files",
    name: str | None = None,
    out: StrPath | None = None,
    copy_config: bool | None = None,
    force: bool = False,
    **rule: Unpack[OtherRules],
) -> SplitFiles:
    """Plan the split of files. This reads headers and samples, and writes nothing.

    Parameters
    ----------
    paths : path or iterable of path
        Files (.npy, .npz or .safetensors), indexes of .safetensors files
        (``model.safetensors.index.json``), or folders with one, or with a ``model.safetensors``.
    split, axis, num_outputs, num_splits, indices, num_sections
        The rule, as in `splitjit.split`. The axis is 0 by default. For an index, a
        folder or a file of several tensors, `axis`, `tensors` or `tp_plan` is needed.
    tensors : sequence of str, optional
        The tensors to split, as patterns: ``"PATTERN"``, ``"PATTERN=AXIS"``,
        ``"PATTERN=AXIS:4096,1024,1024"`` for fused sections of these lengths, each of
        which the rule splits, or ``"PATTERN=AXIS/3,5"`` for parts of these lengths.
        ``"PATTERN=AXIS:4096,1024,1024@128"`` cuts no head of length 128, and
        ``"PATTERN=AXIS:768,96@24,64@16"`` gives each section its own heads.
        The first pattern that matches a name counts. By default, all tensors are split
        along `axis`. 0-D tensors, and tables that each part of a weight needs whole,
        such as codebooks, are copied unless a pattern is their full name.
    tp_plan : bool, default False
        Whether the tensor-parallel plan of the model in transformers gives the axes of
        the tensors that no pattern matches. Requires the packages transformers
        and torch.
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
        The folder of the parts. By default, the folder of each file or link. For an
        index or a folder, it is needed unless the layout is "ranks".
    copy_config : bool, optional
        Whether each folder of parts gets copies of the configuration and the tokenizer
        that lie beside the files. By default, the folders of ranks get them.
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
    options = axis, tensors, tp_plan, config, out, copy_config, layout, name, others
    planned = _plan("plan_files", paths, split, rule, options)
    check_targets(planned.targets, force)
    return planned


def split_files(
    paths: StrPath | Iterable[StrPath],
    split: Any = None,
    *,
    axis: int | None = None,
    tensors: Sequence[str] | None = None,
    tp_plan: bool = False,
    config: StrPath | None = None,
    others: Literal["copy", "skip"] = "copy",
    layout: Literal["files", "ranks"] = "files",
    name: str | None = None,
    out: StrPath | None = None,
    copy_config: bool | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **rule: Unpack[OtherRules],
) -> SplitFiles:
    """Split files: write all parts of all files, or none.

    Parameters
    ----------
    paths, split, axis, num_outputs, num_splits, indices, num_sections, tensors, tp_plan, \
config, others, layout
        What is split, and how, as in `plan_files`.
    name, out, copy_config, force
        Where the parts are written, as in `plan_files`.
    progress : callable, optional
        Called with the number of bytes written so far, and the total.

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
    ...     _ = join_files(done.targets, joined, axis=0)
    ...     print(np.load(joined))
    [3 4 5]
    [0 1 2 3 4 5]
    """
    options = axis, tensors, tp_plan, config, out, copy_config, layout, name, others
    return _write(_plan("split_files", paths, split, rule, options), force, progress)


def join_files(
    paths: Iterable[StrPath],
    out: StrPath,
    *,
    axis: int | None = None,
    tensors: Sequence[str] | None = None,
    tp_plan: bool = False,
    config: StrPath | None = None,
    copy_config: bool | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[Path, ...]:
    """Join parts: write all joined files, or none.

    Parts that `split_files` wrote give the original files back, byte for byte if ``np.save``,
    ``np.savez`` or the safetensors package wrote those. Otherwise headers may differ.

    Parameters
    ----------
    paths : iterable of path
        The parts in order: files, the folders of ranks, or one folder that holds these.
        Parts that record how they were split are put in the order of their ranks, and
        parts whose paths differ only in numbers in the order of these.
    out : path
        The joined file. If the parts are folders, the folder of the joined files.
    axis : int, optional
        The axis along which the parts were split, if no pattern gives it. By default,
        axis 0 for patterns.
    tensors, tp_plan, config
        The tensors that were split, as in `plan_files`. Every other tensor was copied,
        and must be equal in all parts. The configuration may also lie beside the
        folders of the ranks. .safetensors files and folders of ranks that `split_files`
        wrote record how they were split, and then the record counts. For other parts,
        `axis`, `tensors` or `tp_plan` is needed; for .npy files, `axis`.
    copy_config : bool, optional
        Whether the folder of the joined files gets the configuration and the tokenizer
        that the parts hold. By default, if the parts are folders.
    force : bool, default False
        Whether joined files may overwrite existing files.
    progress : callable, optional
        Called with the number of bytes written so far, and the total.

    Returns
    -------
    tuple of Path
        The files that were written.

    Raises
    ------
    SplitError
        If nothing says how the parts were split, if they do not fit together, if a
        tensor or a configuration that was copied differs between parts, or if a part is
        damaged or changes while it is read.
    OSError
        If a file cannot be read or written.

    See Also
    --------
    split_files : Split files, with an example.
    """
    from splitjit.files.checkpoints import operations, sharding

    options = sharding.Options(axis, tensors, tp_plan, config, out, copy_config)
    return _write(operations.plan_join(paths, options), force, progress).targets


def reshard_files(
    paths: StrPath | Iterable[StrPath],
    split: Any = None,
    *,
    axis: int | None = None,
    tensors: Sequence[str] | None = None,
    tp_plan: bool = False,
    config: StrPath | None = None,
    layout: Literal["files", "ranks"] | None = None,
    name: str | None = None,
    out: StrPath,
    copy_config: bool | None = None,
    force: bool = False,
    progress: Progress | None = None,
    **rule: Unpack[OtherRules],
) -> SplitFiles:
    """Split parts again, into another number of parts, without a whole copy on disk.

    The new parts equal those that `split_files` would make of the whole files.

    Parameters
    ----------
    paths : iterable of path
        All parts of one split: files, the folders of ranks, or one folder that holds
        these.
    split
        The length of each part, as in `splitjit.split`.
    axis : int, optional
        See `tensors`.
    num_outputs, num_splits, indices, num_sections
        The other rules, as in `splitjit.split`.
    tensors, tp_plan, config
        How the parts were split, as in `join_files`. Not needed if the parts record
        it. The new parts are split along the same axes.
    layout, name
        The names of the new parts, as in `plan_files`. By default, folders of ranks are
        split into folders of ranks.
    out : path
        The folder of the new parts.
    copy_config : bool, optional
        As in `plan_files`.
    force : bool, default False
        Whether the new parts may overwrite existing files.
    progress : callable, optional
        Called with the number of bytes written so far, and the total.

    Returns
    -------
    SplitFiles
        The plan that was carried out.

    Raises
    ------
    SplitError
        If the parts do not fit together, as in `join_files`, or if the new split is
        refused, as in `split_files`.
    OSError
        If a file cannot be read or written.

    See Also
    --------
    split_files : Split files.
    join_files : Join the parts.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npy")
    ...     np.save(path, np.arange(12))
    ...     done = split_files(path, num_splits=2)
    ...     name = "y.{rank}.npy"
    ...     done = reshard_files(done.targets, num_splits=3, axis=0, name=name, out=folder)
    ...     print([target.name for target in done.targets], np.load(done.targets[2]))
    ['y.0.npy', 'y.1.npy', 'y.2.npy'] [ 8  9 10 11]
    """
    options = axis, tensors, tp_plan, config, out, copy_config, layout, name
    return _write(_plan("reshard_files", paths, split, rule, options), force, progress)


def describe_files(paths: StrPath | Iterable[StrPath]) -> dict[str, Any]:
    """Describe files: their tensors, and the split that they are parts of.

    Parameters
    ----------
    paths : path or iterable of path
        Files, indexes, or folders, as in `plan_files`, or parts, as in `join_files`.

    Returns
    -------
    dict
        Plain data that ``json.dump`` can write. ``"checkpoints"`` has an entry for each
        path: its ``"files"`` with their ``"tensors"``, and ``"split"``, which is None
        or has the rank, the number of parts and the rule. ``"complete"`` tells whether
        the paths are all parts of one split, and ``"problem"`` the reason if they are
        not; both are None if no path is a part.

    Raises
    ------
    SplitError
        If a file is not of its format, or if what it says about its split is wrong.
    OSError
        If a file cannot be read.

    Examples
    --------
    >>> import numpy as np, os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.npy")
    ...     np.save(path, np.zeros((4, 6), np.float32))
    ...     found = describe_files(path)
    >>> found["checkpoints"][0]["files"][0]["tensors"]
    [{'name': '', 'dtype': 'float32', 'shape': [4, 6], 'nbytes': 96}]
    """
    from splitjit.files.checkpoints import operations

    return operations.describe_files(paths)


def _plan(operator: str, paths: Any, split: Any, rule: OtherRules, options: Any) -> SplitFiles:
    """Plan a split or a reshard. `options` are the values of `sharding.Options`."""
    given = named_rule(operator, split, rule)
    from splitjit.files.checkpoints import operations, sharding

    plan = operations.plan_reshard if operator == "reshard_files" else operations.plan_split
    return plan(paths, given, sharding.Options(*options))


def _write(planned: SplitFiles, force: bool, progress: Progress | None) -> SplitFiles:
    from splitjit.files.checkpoints import operations

    operations.write(planned, force, progress)
    return planned
