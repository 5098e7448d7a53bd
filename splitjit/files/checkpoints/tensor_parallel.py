"""Which tensors are split along which axis, by the model's plan in transformers."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from splitjit._plan.arguments import Shape
from splitjit.errors import SplitError, shorten
from splitjit.files.checkpoints import ask_transformers, presets, quantised
from splitjit.files.formats.base import TensorFile
from splitjit.files.patterns import Choice


class Style(NamedTuple):
    """How a style splits the tensors of a module.

    Attributes
    ----------
    axis : int
        The axis of a weight. A negative one counts from the end: experts are stacked in front.
    bias : bool
        Whether a bias is split, too. If not, each rank has the whole bias.
    sections : int
        Number of equal sections along the axis, if projections are fused.
    heads : bool
        Whether each rank computes its own heads. Otherwise ranks gather all heads first.
    """

    axis: int
    bias: bool
    sections: int = 1
    heads: bool = False


_STYLES = {
    "colwise": Style(-2, True, heads=True),
    **dict.fromkeys(("colwise_rep", "colwise_gather_output", "embedding_rowwise"), Style(-2, True)),
    "packed_colwise": Style(-2, True, 2),
    "rowwise": Style(-1, False, heads=True),
    **dict.fromkeys(("rowwise_rep", "rowwise_split_input", "embedding_colwise"), Style(-1, False)),
    "packed_rowwise": Style(-1, False, 2),
    "conv1d_colwise": Style(-1, True, heads=True),
    "conv1d_rowwise": Style(-2, False, heads=True),
    "conv1d_qkv": Style(-1, True, 3, heads=True),
    "channels": Style(0, True),
}
"""The styles of transformers and of presets that split tensors."""

_WHOLE = {
    *("all_reduce", "ep_router", "local_params", "mla_kv_a_proj", "moe_identity_expert"),
    *("moe_tp_experts", "replicate", "replicated_with_grad_allreduce", "sequence_parallel"),
}
"""Styles under which each rank holds the whole tensor."""

_KEY_VALUE = {"k_proj", "v_proj", "key", "value"}
"""Names of modules that compute only keys or only values."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The tensor-parallel plan of a model.

    Attributes
    ----------
    model : str
        Name of the class in transformers.
    family : str
        The type of the model, as its configuration names it.
    styles : dict of str to (str, list of int)
        The style and the shape of each parameter that the plan names.
    heads : dict of str to (int, int)
        The numbers of heads and of key-value heads, 0 without attention: those of the model under
        "", and those of modules that have their own numbers, such as ``layers.3`` or CLIP's vision
        model.
    origins : dict of str to (list, list)
        For each tensor of the checkpoint, and for each weight that it holds quantised, the
        parameters that transformers makes of it, and the operations that make them.
    tied : sequence of str
        Parameters that share their data with another one. A checkpoint may lack them.
    quantization : dict, optional
        The quantization of the checkpoint, as its configuration describes it.
    preset : bool, default False
        Whether transformers has no plan, and a preset of splitjit is used.
    """

    model: str
    family: str
    styles: Mapping[str, tuple[str, list[int]]]
    heads: Mapping[str, tuple[int, int]]
    origins: Mapping[str, tuple[list[str], list[list[Any]]]]
    tied: Sequence[str] = ()
    quantization: Mapping[str, Any] | None = None
    preset: bool = False


def load(config: Path, names: Sequence[str]) -> ModelPlan:
    """Ask transformers for the plan of a model.

    Parameters
    ----------
    config : Path
        ``config.json`` of the model, or its folder.
    names : sequence of str
        The tensors of the checkpoint.

    Raises
    ------
    SplitError
        If there is no configuration, or no plan or preset for the model.
    """
    file = config / "config.json" if config.is_dir() else config
    if not file.is_file():
        rule = "does not exist, and the plan of a model needs its config.json"
        raise SplitError("files", str(file), rule, hint="\0config\0 gives its path")
    # -P keeps the modules beside the script from hiding packages of the same names.
    command = [sys.executable, "-P", ask_transformers.__file__, str(file.absolute())]
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONIOENCODING": "utf-8"}
    asked = json.dumps([*dict.fromkeys([*names, *quantised.modules(names)])])
    ended = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", input=asked,
        env={**os.environ, **quiet},
    )  # fmt: skip
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        raise SplitError("files", str(file), f"no tensor-parallel plan: {lines[-1]}")
    plan: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    parameters = plan.pop("parameters")
    styles = plan["styles"] or presets.styles(plan["family"], parameters)
    if not styles:
        rest = f"the plan of {plan['model']} names no tensor; give patterns"
        raise SplitError("files", str(file), rest)
    return ModelPlan(**{**plan, "styles": styles, "preset": not plan["styles"]})


Skip = Callable[[str], object]
"""Tells whether a pattern, and not the plan, says how a named tensor is split."""


def choices(
    plan: ModelPlan, names: Sequence[str], skip: Skip, single: Container[str] = ()
) -> dict[str, Choice]:
    """Return how the plan splits the tensors of a checkpoint.

    Parameters
    ----------
    plan : ModelPlan
    names : sequence of str
        The tensors of the checkpoint.
    skip : callable
        Tells whether the plan does not apply to a named tensor.
    single : container of str
        The tensors of one number.

    Returns
    -------
    dict of str to Choice

    Raises
    ------
    SplitError
        If the style of a tensor is unknown, or if transformers converts the tensor in a
        way that its parts cannot follow.
    """
    modules = {
        weight: held
        for weight, held in quantised.modules(names).items()
        if plan.quantization or any(name.startswith(f"{weight}.") for name in held)
    }
    apart = {name for held in modules.values() for name in held}
    plain = [name for name in names if name not in apart and not skip(name)]
    made = {name: choice for name in plain if (choice := _choice(plan, name))}
    for weight, held in modules.items():
        if choice := _choice(plan, weight):
            free = [name for name in held if not skip(name)]
            made |= quantised.follow(free, weight, choice, plan.quantization or {}, single)
    return made


def _choice(plan: ModelPlan, name: str) -> Choice | None:
    """Return how the plan splits a tensor that is not quantised; None if it is copied.

    If transformers turns it into several parameters, all must be split alike.
    """
    targets, _ = plan.origins[name]
    found = [_choice_of(plan, name, target) for target in targets]
    if any(one != found[0] for one in found):
        rest = f"transformers makes {' and '.join(targets[:4])} of it, and its plan does not split "
        rest += "them alike; give a pattern that says how to split it"
        raise SplitError("files", name, rest)
    return found[0]


def _choice_of(plan: ModelPlan, name: str, target: str) -> Choice | None:
    """Return how the plan splits a tensor, for one of its parameters."""
    if target not in plan.styles or plan.styles[target][0] in _WHOLE:
        return None
    style, whole = plan.styles[target]
    if style == "fused_groups":
        return _fused_groups(plan, name, target, whole[0])
    if style not in _STYLES:
        rule = "a style of transformers that splitjit does not know; split this tensor by patterns"
        raise SplitError("files", f"{name}, style {shorten(style)}", rule)
    known = _STYLES[style]
    if len(whole) < 2 and not known.bias:
        return None
    axis = max(len(whole) + known.axis, 0) if known.axis < 0 else known.axis
    sections = (whole[axis] // known.sections,) * known.sections
    head, shared = _head(plan, target, style, sections[0])
    targets, operations = plan.origins[name]
    choice = Choice(name, axis, sections, None, head, shared and not operations, planned=True)
    return _before(choice, operations, len(targets), whole) if operations else choice


def _before(choice: Choice, operations: list[list[Any]], count: int, shape: list[int]) -> Choice:
    """Return how a tensor is split before transformers converts it.

    Parameters
    ----------
    choice : Choice
        How the parameter is split, by the name of the tensor.
    operations : list
        What transformers does with the tensor to make the parameter.
    count : int
        Number of parameters that the tensor becomes.
    shape : list of int
        The shape of the parameter.
    """
    axis, sections, head = choice.axis, choice.sections or (), choice.head
    rank, length = len(shape), shape[axis]
    for operation, *dims in reversed(operations):
        dims = [dim % rank for dim in dims]
        if operation in ("Chunk", "Concatenate", "Interleave") and dims[0] != axis:
            continue  # nothing changes along the axis
        if operation == "Concatenate":  # the tensor is one of the sections
            sections = ()
        elif operation == "MergeModulelist" and dims == [0] and axis > 0:
            axis, rank = axis - 1, rank - 1  # the tensor belongs to one expert
        elif operation == "Transpose":
            axis = {dims[0]: dims[1], dims[1]: dims[0]}.get(axis, axis)
        elif operation == "Chunk" and len(sections) < 2:
            sections = (length,) * count
        elif operation == "Interleave" and len(sections) < 3:
            sections, head = (), 2  # the rows of two sections alternate: keep pairs whole
        else:
            rest = f"transformers makes its parameter by {operation}, which parts cannot follow; "
            rest += "give a pattern that says how to split it"
            raise SplitError("files", choice.pattern, rest)
    if len(sections) < 2 and count > 1:  # each parameter has its own length
        sections = ()
    return replace(choice, axis=axis, sections=sections or None, head=head)


def check_shapes(
    plan: ModelPlan, planned: Mapping[str, Choice], skip: Skip, files: Iterable[TensorFile]
) -> None:
    """Check that a checkpoint fits the model.

    Parameters
    ----------
    plan : ModelPlan
    planned : mapping of str to Choice
        The tensors that the plan splits.
    skip : callable
        Tells whether a pattern matches a tensor.
    files : iterable of TensorFile
        The whole files of the checkpoint.

    Raises
    ------
    SplitError
        If a tensor is missing, has another shape, or is in two files.
    """
    shapes: dict[str, Shape] = {}
    for file in files:
        for name in file.tensors:
            if name in shapes:
                rule = "two files hold it; with a \0tp_plan\0, give the files of one model"
                raise SplitError("files", shorten(name), rule)
            shapes[name] = file.tensor(name).shape
    made = {name: [*plan.origins[name][0]] for name in shapes}
    for weight, held in quantised.modules(shapes).items():
        if weight not in held:  # packed tensors stand for it
            made[held[0]] += plan.origins[weight][0]
    found = {target for targets in made.values() for target in targets} | {*plan.tied}
    by_pattern = any(plan.styles.keys().isdisjoint(made[name]) and skip(name) for name in made)

    of = f" of {quantised.named(plan.quantization)}" if plan.quantization else ""
    fix = f"give the whole checkpoint, or patterns for the tensors{of} that stand for it"

    def has(target: str) -> str:
        return f"the model {plan.model} has it with shape {tuple(plan.styles[target][1])}; {fix}"

    for target, (style, _) in plan.styles.items():
        if style not in _WHOLE and target not in found and not by_pattern:
            raise SplitError("files", f"{target}, missing", has(target))
    for name, choice in planned.items():
        (target, *_), operations = plan.origins[name]
        shape, rest = shapes[name], ""
        if choice.block:
            length = sum(choice.sections or ())
            if len(shape) <= choice.axis or (length and shape[choice.axis] != length):
                rest = f"must have length {length or 'of whole blocks'} along axis {choice.axis}, "
                rest += f"since the plan of {plan.model} splits it in {choice.block}"
        elif not operations and target in plan.styles and shape != tuple(plan.styles[target][1]):
            rest = has(target)
        if rest:
            raise SplitError("files", f"{name}, of shape {shape}", rest)


def _fused_groups(plan: ModelPlan, name: str, target: str, length: int) -> Choice:
    """Return how to split a weight with queries, keys and values group by group."""
    heads, groups = _heads(plan, target.split("."))
    if groups > 1:
        return Choice(name, 0, (length,), None, length // groups, planned=True)
    head = length // (heads + 2)
    return Choice(name, 0, (heads * head, head, head), None, head, True, planned=True)


def _heads(plan: ModelPlan, path: Sequence[str]) -> tuple[int, int]:
    """Return the numbers of heads and of key-value heads at a place in the model."""
    inside = f".{'.'.join(path)}."
    own = [heads for place, heads in plan.heads.items() if place and f".{place}." in inside]
    return [*own, plan.heads.get("", (0, 0))][0]


def _head(plan: ModelPlan, name: str, style: str, length: int) -> tuple[int | None, bool]:
    """Return the length of the heads that no cut may go through, and whether ranks share heads.

    `length` is the length of a section. There may be fewer key and value heads than ranks. Then
    several ranks need each head whole, if ranks compute their own heads.
    """
    *path, module, _ = ["", *name.split(".")]
    attention = any("attn" in part or "attention" in part.lower() for part in path)
    separate = module in _KEY_VALUE
    fused = "qkv" in module or "query_key_value" in module
    heads = _heads(plan, path)[separate or fused] if attention and _STYLES[style].heads else 0
    if not heads or length % heads:
        return None, False
    return length // heads, separate and style == "colwise"
