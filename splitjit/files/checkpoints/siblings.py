"""Find tensors that are split unlike their weight, and fused weights that are cut as one."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence

from splitjit.files.file_plan import TensorPlan

_WEIGHT = r"weight(\._data)?|_weight_qdata|qweight|weight_packed|W_q|(weight\.)?blocks"
"""Suffixes of weights."""

_FOLLOWS = (
    r"bias|biases|SCB|((input|output)_)?(scales?|zeros?|zero_points?)(_inv|_inverse)?|qzeros?|g_idx"
    r"|_?weight(_[^.]+|\..+)"
)
"""Suffixes of tensors that belong to the weight of their module: any that go on after its name."""

_NAME = re.compile(rf"(?:(.*?)[._])?({_WEIGHT}|{_FOLLOWS})")
"""The name of a tensor: its module, and the suffix."""

_TABLE = re.compile(r"quant_map$|quant_state|weight_(shape|format)$")
"""Suffixes of tensors that each part of a weight needs whole."""

_FUSED = re.compile(r"qkv(_proj)?|Wqkv|gate_up_proj|query_key_value|c_attn|in_proj")
"""Names of modules in whose weight several projections are usually fused."""

_CONV1D = re.compile(r"c_attn|c_proj|c_fc|q_attn")
"""Names of modules that may be a Conv1D, whose rows are input features, as in GPT-2."""


def find_mismatches(tensors: Sequence[TensorPlan]) -> list[str]:
    """Return a warning for each kind of module whose tensors are not split alike.

    Parameters
    ----------
    tensors : sequence of TensorPlan
        All tensors of a checkpoint.

    Returns
    -------
    list of str
        Modules whose names differ only in numbers share a warning.
    """
    modules: dict[str, dict[str, TensorPlan]] = {}
    for plan in tensors:
        found = _NAME.fullmatch(plan.name)
        module, suffix = (found[1] or "", found[2]) if found else (plan.name, "")
        modules.setdefault(module, {})[suffix] = plan
    faults: list[tuple[str, str]] = []
    for module, held in modules.items():
        last = module.rpartition(".")[2]
        weights = [plan for suffix, plan in held.items() if re.fullmatch(f"|{_WEIGHT}", suffix)]
        if not weights:
            continue
        weight = weights[0]
        output = _output_axis(weight, last, held.get("bias"))
        if output is None:
            continue
        given = weight.choice and not weight.choice.planned and not weight.choice.head
        as_one = weight.axis == output and len(weight.sections) == 1
        if _FUSED.fullmatch(last) and given and as_one:
            fault = "is split as one, but several projections are usually fused in it: "
            fault += "give their lengths, as in PATTERN=AXIS:LENGTHS"
            faults.append((_general(weight.name), fault))
        index = held.get("g_idx") or held.get("weight_g_idx")
        for suffix, other in held.items():
            if index and index.axis is not None and other.axis is None:
                continue  # the index looks up each rank's groups among all groups
            if suffix == "bias" and len(other.shape) > 1:
                continue  # of stacked experts, whose output features may be on either axis
            if other not in weights and (wrong := _fault(weight, other, output, suffix)):
                faults.append((_general(other.name), wrong))
    counts = collections.Counter(faults).items()
    return [f"{name} {fault}" + f" ({n} tensors)" * (n > 1) for (name, fault), n in counts]


def _general(name: str) -> str:
    """Return a name without the numbers of layers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _output_axis(weight: TensorPlan, module: str, bias: TensorPlan | None) -> int | None:
    """Return the axis of the output features; None if a Conv1D may have it on either axis.

    The columns of a Conv1D are output features. Only a bias as long as they are shows this.
    """
    shape, last = weight.shape, len(weight.shape) - 1
    if _CONV1D.fullmatch(module) and len(shape) == 2:
        found = [axis for axis in (0, 1) if bias and bias.shape == (shape[axis],)]
        return found[0] if len(found) == 1 else None
    return last if weight.name.endswith("qweight") else max(last - 1, 0)


def _fault(weight: TensorPlan, other: TensorPlan, output: int, suffix: str) -> str | None:
    """Say how the split of a tensor does not fit its weight; None if it fits."""
    axis = None
    if _TABLE.search(suffix):
        return None if other.axis is None else f"is {_how(other)}, but each part needs it whole"
    if weight.axis is not None and _follows(weight, other, output):
        axis = weight.axis if len(other.shape) > 1 else 0
    if other.axis == axis:
        return None
    return f"is {_how(other)}, but {_general(weight.name)} is {_how(weight)}"


def _how(plan: TensorPlan) -> str:
    return "copied whole" if plan.axis is None else f"split along axis {plan.axis}"


def _follows(weight: TensorPlan, other: TensorPlan, output: int) -> bool:
    """Return whether a tensor has the axis along which its weight is split.

    A 1-D tensor has the axis of the weight that is as long; if both axes or neither are,
    the axis of the output features. ``g_idx`` gives the group of each input feature.
    """
    assert weight.axis is not None
    if len(other.shape) > 1:
        return weight.axis < len(other.shape) and other.shape[weight.axis] > 1
    if other.shape in ((), (1,)):
        return False
    if other.name.endswith("g_idx"):
        return weight.axis != output
    if weight.shape[output] == other.shape[0] or other.shape[0] not in weight.shape:
        return weight.axis == output
    return weight.shape[weight.axis] == other.shape[0]
