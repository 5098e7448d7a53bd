"""Find tensors that are split unlike their weight, and fused weights that are cut as one."""

from __future__ import annotations

import collections
import re
from collections.abc import Mapping, Sequence

from splitjit._files.file_plan import TensorPlan

_WEIGHTS = ("weight", "qweight", "weight_packed")
"""Suffixes of weights."""

_FOLLOWS = re.compile(
    r"bias|((weight|input|output)_)?(scales?|zeros?|zero_points?)(_inv|_inverse)?|qzeros?"
    r"|(weight_)?g_idx"
)
"""Suffixes of tensors that belong to the weight of their module."""

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
        module, _, name = plan.name.rpartition(".")
        modules.setdefault(module, {})[name] = plan
    by_bias = {axis for module, held in modules.items() for axis in _axis_of_bias(module, held)}
    faults: list[tuple[str, str]] = []
    for module, held in modules.items():
        last = module.rpartition(".")[2]
        weight = next((held[name] for name in _WEIGHTS if name in held), None)
        if weight is None:
            continue
        may_be_conv1d = bool(_CONV1D.fullmatch(last))
        if may_be_conv1d and not by_bias and len({*weight.shape}) == 1:
            continue  # nothing shows which axis has the output features, and so the bias
        output = _output_axis(weight, may_be_conv1d and 1 in by_bias)
        if _FUSED.fullmatch(last) and _is_cut_as_one(weight, output):
            fault = "is split as one, but several projections are usually fused in it: "
            fault += "give their lengths, as in PATTERN=AXIS:LENGTHS"
            faults.append((_general(weight.name), fault))
        index = held.get("g_idx") or held.get("weight_g_idx")
        for name, other in held.items():
            if index and index.axis is not None and other.axis is None:
                continue  # the index looks up each rank's groups among all groups
            if _FOLLOWS.fullmatch(name) and (found := _fault(weight, other, output)):
                faults.append((_general(other.name), found))
    counts = collections.Counter(faults).items()
    return [f"{name} {fault}" + f" ({n} tensors)" * (n > 1) for (name, fault), n in counts]


def _general(name: str) -> str:
    """Return a name without the numbers of layers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def _axis_of_bias(module: str, held: Mapping[str, TensorPlan]) -> list[int]:
    """Return the output axis that the bias reveals: in a Conv1D, columns are output features."""
    if not _CONV1D.fullmatch(module.rpartition(".")[2]) or not {"weight", "bias"} <= held.keys():
        return []
    weight, bias = held["weight"].shape, held["bias"].shape
    if len(weight) != 2 or weight[0] == weight[1]:
        return []
    return [axis for axis in (0, 1) if bias == weight[axis : axis + 1]]


def _output_axis(weight: TensorPlan, conv1d: bool) -> int:
    """Return the axis of the output features."""
    if conv1d or weight.name.endswith("qweight"):
        return len(weight.shape) - 1
    return max(len(weight.shape) - 2, 0)


def _is_cut_as_one(weight: TensorPlan, output: int) -> bool:
    """Return whether a pattern cuts the output features without regard to fused sections."""
    choice = weight.choice
    if weight.axis != output or choice is None or choice.planned or choice.head:
        return False
    return len(weight.sections) == 1


def _fault(weight: TensorPlan, other: TensorPlan, output: int) -> str | None:
    """Say how the split of a tensor does not fit its weight; None if it fits."""
    name = _general(weight.name)
    if weight.axis is None:
        return None if other.axis is None else f"is split, but {name} is copied whole"
    along = f"{name} is split along axis {weight.axis}"
    follows = _follows(weight, other, output)
    if other.axis is None and follows:
        return f"is copied whole, but {along}"
    if other.axis is not None and not follows:
        return f"is split, but {along}, which it does not have"
    if other.axis is not None and len(other.shape) > 1 and other.axis != weight.axis:
        return f"is split along axis {other.axis}, but {along}"
    return None


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
