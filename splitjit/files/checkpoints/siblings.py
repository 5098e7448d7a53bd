"""Find tensors that are split unlike their weight, and fused weights that are cut as one."""

import collections
import fnmatch
import glob
import itertools
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction

from splitjit.errors import shorten
from splitjit.files.file_plan import SplitFiles, TensorPlan

_WEIGHT = (
    r"weight(\._data)?|_weight_qdata|qweight|weight_packed|W_q|(weight\.)?blocks|(vq_)?codes|Qidxs"
)
"""Suffixes of weights."""

_FOLLOWS = (
    r"bias|biases|SCB|((input|output|vq)_)?(scales?|zeros?|zero_points?)(_inv|_inverse)?|qzeros?"
    r"|g_idx|_?weight(_[^.]+|\..+)|tables2?"
    r"|((vq|res|outlier)_)?(codebooks?|centroids|indices)(\.weight)?"
)
"""Suffixes of tensors that belong to the weight of their module: any that go on after its name."""

_NAME = re.compile(rf"(?:(.*?)[._])?({_WEIGHT}|{_FOLLOWS})")
"""The name of a tensor: its module, and the suffix."""

_TABLE = re.compile(
    r"quant_map$|quant_state|weight_(shape|format)$|^tables|(codebooks?|centroids)(\.weight)?$"
)
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
    plans = {plan.name: plan for plan in tensors}
    faults: list[tuple[str, str]] = []
    for module, names in _modules(plans).items():
        held = {suffix: plans[name] for suffix, name in names.items()}
        last = module.rpartition(".")[2]
        weights = [plan for suffix, plan in held.items() if re.fullmatch(f"|{_WEIGHT}", suffix)]
        output = _output_axis(weights[0], last, held.get("bias")) if weights else None
        if output is None:
            continue
        weight = weights[0]
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


def tables(names: Iterable[str]) -> set[str]:
    """Return the tensors that each part of a weight needs whole, such as codebooks."""
    found = set()
    for held in _modules(names).values():
        if any(re.fullmatch(f"{_WEIGHT}|.*indices", suffix) for suffix in held):
            found |= {name for suffix, name in held.items() if _TABLE.search(suffix)}
    return found


def as_patterns(planned: SplitFiles) -> list[str]:
    """Return patterns that split all tensors as these plans do, one for all layers if possible."""
    names = {name: "" for file in planned.files for name in file.left_out}
    for file in planned.files:
        for plan in file.joined or file.tensors:
            names[plan.name] = plan.choice.text() if plan.choice else ""
    whole, found = tables(names), {}
    for name, how in names.items():
        own = glob.escape(name)
        pattern = own if name in whole else _general(own)
        if how and pattern not in found:
            alike = {names[one] for one in fnmatch.filter(names, pattern)} == {how}
            found[pattern if alike else own] = how
    return [pattern + how for pattern, how in found.items()]


def find_alone(names: Iterable[str]) -> set[str]:
    """Return the tensors to whose modules no other tensor belongs."""
    return {name for held in _modules(names).values() if len(held) == 1 for name in held.values()}


def _modules(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the tensors of each module, by the suffix of their names."""
    modules: dict[str, dict[str, str]] = {}
    for name in names:
        found = _NAME.fullmatch(name)
        module, suffix = (found[1] or "", found[2]) if found else (name, "")
        modules.setdefault(module, {})[suffix] = name
    return modules


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
    if weight.name.endswith("codes"):  # other axes count groups of input features, and codebooks
        return 0
    return last if weight.name.endswith("qweight") else max(last - 1, 0)


def _fault(weight: TensorPlan, other: TensorPlan, output: int, suffix: str) -> str | None:
    """Say how the split of a tensor does not fit its weight; None if it fits."""
    axis = None
    if _TABLE.search(suffix):
        return None if other.axis is None else f"is {_how(other)}, but each part needs it whole"
    if _follows(weight, other, output):
        axis = weight.axis if len(other.shape) > 1 else 0
    if other.axis != axis:
        return f"is {_how(other)}, but {_general(weight.name)} is {_how(weight)}"
    if axis is None or _cut_alike(weight, other):
        return None
    fault = f"is split into {_lengths(other)}, but {_general(weight.name)} into {_lengths(weight)}"
    return f"{fault}: their parts hold other features; PATTERN=AXIS/LENGTHS gives the lengths"


def _lengths(plan: TensorPlan) -> str:
    return shorten([*map(list, plan.sections)][0 if len(plan.sections) == 1 else slice(None)])


def _cut_alike(*plans: TensorPlan) -> bool:
    """Return whether the parts of a weight and of another tensor hold the same features.

    An element of the shorter axis stands for several of the longer one, the last one perhaps for
    fewer.
    """
    long, short = sorted(plans, key=lambda plan: -sum(map(sum, plan.sections)))
    if all(len(sizes) < 2 for plan in plans for sizes in plan.sections):
        return True
    if [*map(len, long.sections)] != [*map(len, short.sections)]:
        return False
    ends = [[*itertools.accumulate(itertools.chain(*plan.sections))] for plan in (long, short)]
    length, count = ends[0][-1], ends[1][-1]
    pairs = {*zip(*ends, strict=True)} - {(0, 0), (length, count)}
    if any(0 in pair for pair in pairs):
        return False
    units = {Fraction(*pair) for pair in pairs}
    return len(units) <= 1 and all(
        unit * count == length
        or (length % count > 0 and unit == int(unit) and -(-length // unit) == count)
        for unit in units
    )


def _how(plan: TensorPlan) -> str:
    return "copied whole" if plan.axis is None else f"split along axis {plan.axis}"


def _follows(weight: TensorPlan, other: TensorPlan, output: int) -> bool:
    """Return whether a tensor has the axis along which its weight is split.

    A 1-D tensor has the axis of the weight that is as long; if both axes or neither are,
    the axis of the output features. ``g_idx`` gives the group of each input feature.
    """
    if weight.axis is None or other.shape in ((), (1,)):
        return False
    if len(other.shape) > 1:
        return weight.axis < len(other.shape) and other.shape[weight.axis] > 1
    if other.name.endswith("g_idx"):
        return weight.axis != output
    if weight.shape[output] == other.shape[0] or other.shape[0] not in weight.shape:
        return weight.axis == output
    return weight.shape[weight.axis] == other.shape[0]
