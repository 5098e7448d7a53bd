"""Which tensors are split along which axis, as the model's plan in transformers says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitjit._plan.arguments import Shape
from splitjit.errors import SplitError, shorten
from splitjit.files import ask_transformers
from splitjit.files.patterns import Choice

_SECONDS = 600
"""The most seconds to wait for the plan of a model."""

_OUTPUT = {"colwise", "colwise_rep", "colwise_gather_output", "embedding_rowwise"}
"""Styles that split the output features (weight and bias), or the rows of an embedding."""

_INPUT = {"rowwise", "rowwise_rep", "rowwise_split_input", "embedding_colwise"}
"""Styles that split the input features (only the weight), or the columns of an embedding."""

_PACKED = {"packed_colwise": _OUTPUT, "packed_rowwise": _INPUT}
"""Styles of two fused weights: two equal sections lie along the axis."""

_WHOLE = {
    "all_reduce",
    "ep_router",
    "local_params",
    "mla_kv_a_proj",
    "moe_identity_expert",
    "moe_tp_experts",
    "replicate",
    "replicated_with_grad_allreduce",
    "sequence_parallel",
}
"""Styles under which each rank holds the whole tensor."""

_BY_HEADS = {"colwise", "rowwise"}
"""Styles under which each rank computes its own heads. Other styles gather all heads first."""

_KEY_VALUE = {"k_proj", "v_proj", "key", "value"}
"""Names of modules that compute only keys or only values."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The tensor-parallel plan of a model.

    Attributes
    ----------
    model : str
        Name of the class in transformers.
    styles : dict of str to (str, list of int)
        The style and the shape of each tensor that the plan names.
    heads : int
    key_value_heads : int
    tied : tuple of str
        Tensors that share their data with another one. A checkpoint may lack them.
    """

    model: str
    styles: dict[str, tuple[str, list[int]]]
    heads: int
    key_value_heads: int
    tied: tuple[str, ...]


def load(config: Path) -> ModelPlan:
    """Ask transformers for the plan of a model.

    Parameters
    ----------
    config : Path
        ``config.json`` of the model, or its folder.

    Raises
    ------
    SplitError
        If there is no configuration, or if transformers has no plan for the model.
    """
    file = config / "config.json" if config.is_dir() else config
    if not file.is_file():
        rule = "the plan of a model needs its config.json; config gives its path"
        raise SplitError("files", str(file), rule)
    # -P keeps the modules beside the script from hiding packages of the same names.
    command = [sys.executable, "-P", ask_transformers.__file__, str(file.absolute())]
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "PYTHONIOENCODING": "utf-8"}
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, **quiet},
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        rule = f"transformers needs more than {_SECONDS} s to make this model without data"
        raise SplitError("files", str(file), rule) from None
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        raise SplitError("files", str(file), f"no tensor-parallel plan: {lines[-1]}")
    plan: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    styles = {name: (style, shape) for name, (style, shape) in plan.pop("styles").items()}
    if not styles:
        raise SplitError("files", str(file), f"the plan of {plan['model']} names no tensor")
    return ModelPlan(styles=styles, tied=tuple(plan.pop("tied")), **plan)


def choices(plan: ModelPlan, skip: Callable[[str], bool]) -> dict[str, Choice]:
    """Return how the plan splits each tensor that it splits.

    Parameters
    ----------
    plan : ModelPlan
    skip : callable
        Tells whether the plan does not count for the tensor of a name.

    Returns
    -------
    dict of str to Choice

    Raises
    ------
    SplitError
        If the style of a tensor is unknown.
    """
    made = {}
    for name, (style, shape) in plan.styles.items():
        if style not in _WHOLE and not skip(name):
            axis, sections = _axis_and_sections(name, style, shape)
            if axis is not None:
                head, shared = _head(plan, name, style, shape[axis])
                if head and sections is None:
                    sections = (shape[axis],)
                made[name] = Choice(name, axis, sections, None, head, shared)
    return made


def check_shapes(plan: ModelPlan, names: Iterable[str], shapes: Mapping[str, Shape]) -> None:
    """Check that a checkpoint is of the model.

    Parameters
    ----------
    plan : ModelPlan
    names : iterable of str
        The tensors that the plan splits.
    shapes : mapping of str to tuple of int
        The shapes of the whole tensors of the checkpoint.

    Raises
    ------
    SplitError
        If a tensor is missing or has another shape.
    """
    for name in names:
        shape = tuple(plan.styles[name][1])
        if name not in shapes and name in plan.tied:
            continue
        if shapes.get(name) != shape:
            found = f"of shape {shapes[name]}" if name in shapes else "missing"
            rule = f"the model {plan.model} has it with shape {shape}; give the whole checkpoint"
            raise SplitError("files", f"{name}, {found}", rule)


def _axis_and_sections(
    name: str, style: str, shape: list[int]
) -> tuple[int | None, tuple[int, ...] | None]:
    kind = _PACKED.get(style, {style})
    if kind & _OUTPUT:
        axis: int | None = max(len(shape) - 2, 0)  # experts are stacked along the first axis
    elif kind & _INPUT:
        axis = len(shape) - 1 if len(shape) > 1 else None  # each rank has the whole bias
    else:
        rule = "a style of transformers that splitjit does not know; split this tensor by patterns"
        raise SplitError("files", f"{name}, style {shorten(style)}", rule)
    if style not in _PACKED or axis is None:
        return axis, None
    return axis, (shape[axis] // 2,) * 2


def _head(plan: ModelPlan, name: str, style: str, length: int) -> tuple[int | None, bool]:
    """Return the length of the heads that no cut may go through, and whether ranks share heads.

    Key and value heads may be fewer than ranks. Then each one is needed whole by
    several ranks, if the ranks compute with their own heads.
    """
    *path, module, _ = ["", *name.split(".")]
    attention = any("attn" in part or "attention" in part for part in path)
    if not attention or style not in _BY_HEADS:
        return None, False
    separate = module in _KEY_VALUE
    fused = "qkv" in module or "query_key_value" in module
    heads = plan.key_value_heads if separate or fused else plan.heads
    if length % heads:
        return None, False
    return length // heads, separate and style == "colwise"
