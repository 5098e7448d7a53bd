"""Which axes of scales, zero points and packed weights follow the features of a weight.

A weight of a linear layer has output features and input features. A quantised layer has
several tensors instead of the weight, or besides it. Their axes count features, or blocks of
features: the 128 rows and columns that share a scale, the features of a group, or the values
packed into one element. So the plan for the weight says how to split them all.

=====================  ====================================================================
method                 source of the layout
=====================  ====================================================================
`fp8`                  transformers, ``integrations/finegrained_fp8.py``
`fbgemm_fp8`           transformers, ``integrations/fbgemm_fp8.py``
`gptq`, `awq`          the packages gptqmodel and autoawq; `awq` only in the version GEMM
`compressed-tensors`   the package compressed-tensors, ``compressors``
=====================  ====================================================================
"""

import math
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from splitjit.errors import SplitError, shorten
from splitjit.files.patterns import Choice


class Feature(NamedTuple):
    """How an axis of a tensor counts the features of its weight.

    Attributes
    ----------
    axis : int
    per : Fraction
        Number of features that one element of the axis stands for.
    why : str
        What makes it more than one, for refusals.
    """

    axis: int
    per: Fraction = Fraction(1)
    why: str = ""


Layouts = Mapping[str, Feature | None]
"""For the last part of each name, the axis that is split; None if there is no such axis."""

_PACKED = (".qweight", ".weight_packed")
"""How the names of tensors end that stand for a weight."""

_TENSORS = {
    "fp8": {"weight": "0 1", "weight_scale_inv": "0b 1b"},
    "fbgemm_fp8": {"weight": "0 1", "weight_scale": "0 -"},
    "gptq": {"qweight": "1 0p", "qzeros": "1p 0g", "scales": "1 0g", "g_idx": "- 0"},
    "awq": {"qweight": "1p 0", "qzeros": "1p 0g", "scales": "1 0g"},
}
"""For each tensor of a method, the axes of the output and of the input features, - if it has none.

b: blocks of features share an element, g: groups do, p: an element packs the values of several.
Tensors of one number, such as the scale of all activations, need no entry: each part holds them.
"""

_FORMATS = {"gptq": ("checkpoint_format", "gptq", "gptq_v2"), "awq": ("version", "gemm")}
"""The key of a method's format, and the formats whose layouts are known, the default first."""

_SCALES = {"tensor": "- -", "channel": "0 -", "group": "0 1g", "block": "0b 1b"}
"""The layouts of the scales of compressed-tensors, by strategy."""


def modules(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the tensors of each quantised module, without its bias, by the name of its weight.

    A tensor whose name goes on after the name of another one belongs to the same module.

    Examples
    --------
    >>> modules(["q.qweight", "q.scales", "q.bias", "o.weight", "o.bias"])
    {'q.weight': ['q.qweight', 'q.scales']}
    >>> modules(["q.weight", "q.weight.absmax"])
    {'q.weight': ['q.weight', 'q.weight.absmax']}
    """
    found: dict[str, list[str]] = {}
    known = dict.fromkeys(names)
    for name in known:
        starts = [name[:i] for i, char in enumerate(name) if char == "."]
        owner = next((start for start in starts if start in known), name)
        module, _, last = owner.rpartition(".")
        if module and last != "bias":
            found.setdefault(f"{module}.weight", []).append(name)
    return {
        weight: held
        for weight, held in found.items()
        if (weight in held and len(held) > 1) or any(name.endswith(_PACKED) for name in held)
    }


def layouts(config: Mapping[str, Any], weight: str, side: int) -> Layouts:
    """Return how the axes of the tensors of a module count the features of its weight.

    Parameters
    ----------
    config : mapping
        The quantization of the checkpoint, as its config.json describes it.
    weight : str
        The name of the weight of the module.
    side : int
        The axis of the weight: 0 for the output features, 1 for the input features.

    Returns
    -------
    mapping of str to Feature or None
        Empty if the layouts of the method are unknown.
    """
    method = str(config.get("quant_method"))
    if method == "compressed-tensors":
        return _compressed(config, weight, side)
    key, *known = _FORMATS.get(method, ("",))
    form = str(config.get(key, config.get("format", *known[:1])))
    if method not in _TENSORS or (known and form.lower() not in known):
        return {}
    bits = config.get("bits", config.get("w_bit"))
    group = None if config.get("desc_act") else config.get("group_size", config.get("q_group_size"))
    blocks = config.get("weight_block_size")
    return _layouts(_TENSORS[method], side, bits, group, blocks, "weight_block_size")


def _compressed(config: Mapping[str, Any], weight: str, side: int) -> Layouts:
    group = _group_of(config, weight)
    scheme, form = group.get("weights", {}), group.get("format") or config.get("format")
    scale = _SCALES.get(scheme.get("strategy"))
    if scale is None:
        return {}
    held = dict.fromkeys(("weight_scale", "weight_zero_point"), scale)
    held |= {"weight_g_idx": "- 0", "weight_shape": "- -"}
    if form == "pack-quantized":
        held["weight_packed"] = "0 1p"
        if scale != "- -":  # one element packs the zero points of this many rows
            held["weight_zero_point"] = f"0p {scale.split()[1]}"
    elif form in ("float-quantized", "int-quantized", "naive-quantized"):
        held["weight"] = "0 1"
    else:
        return {}
    size = None if scheme.get("actorder") else scheme.get("group_size")
    blocks = scheme.get("block_structure") or (1, 1)
    return _layouts(held, side, scheme["num_bits"], size, blocks, "block_structure")


def _layouts(
    table: Mapping[str, str], side: int, bits: Any, group: Any, blocks: Any, why: str
) -> Layouts:
    """Read a table of layouts, for this number of bits and these sizes of groups and blocks.

    A group of size -1 holds all input features.
    """

    def feature(word: str) -> Feature | None:
        if word == "-":
            return None
        axis, unit = int(word[0]), word[1:]
        if unit == "p":
            return Feature(axis, Fraction(32, int(bits)), f"{bits}-bit values packed into int32")
        if unit == "g" and grouped:
            return Feature(axis, Fraction(group), f"group_size {group}")
        if unit == "b" and blocks:
            return Feature(axis, Fraction(blocks[axis]), f"{why} {blocks[axis]}")
        return None if unit else Feature(axis)

    grouped = group is not None and int(group) > 0
    return {name: feature(words.split()[side]) for name, words in table.items()}


def named(config: Mapping[str, Any]) -> str:
    """Return how refusals call a quantization."""
    method = config.get("quant_method")
    return f"the quantization {shorten(method)}" if method else "an unnamed quantization"


def _group_of(config: Mapping[str, Any], weight: str) -> Mapping[str, Any]:
    """Return the compressed-tensors group that quantises the weight of a module, if any."""
    module = weight.rpartition(".")[0]
    given: Mapping[str, Mapping[str, Any]] = config.get("config_groups") or {}
    groups = [one for one in given.values() if one.get("weights")]
    for group in groups:
        for target in group.get("targets", ()):
            if target == module or (target[:3] == "re:" and re.match(target[3:], module)):
                return group
    linear = [group for group in groups if "Linear" in group.get("targets", ())]
    return linear[0] if len(linear) == 1 else {}


def follow(
    names: list[str], weight: str, choice: Choice, config: Mapping[str, Any], single: Container[str]
) -> dict[str, Choice]:
    """Return how to split the tensors of a quantised module like its weight.

    Parameters
    ----------
    names : list of str
        The tensors of the module, without its bias.
    weight : str
        The name of its weight.
    choice : Choice
        How the weight would be split if it were not quantised.
    config : mapping
        As for `layouts`.
    single : container of str
        The tensors of one number, which each part holds if their layout is unknown.

    Returns
    -------
    dict of str to Choice
        Tensors that each part holds whole have no choice.

    Raises
    ------
    SplitError
        If the layout of a tensor is unknown.
    """
    known = layouts(config, weight, choice.axis) if choice.axis < 2 else {}
    module = weight.removesuffix("weight")
    suffixes = {name: name.removeprefix(module) for name in names}
    if needed := [name for name in names if suffixes[name] not in known and name not in single]:
        rest = f"splitjit does not know this tensor of {named(config)}; give patterns for "
        rest += f"{', '.join(map(suffixes.__getitem__, needed))} of {module.removesuffix('.')}"
        raise SplitError("files", needed[0], rest)
    found = {name: one for name, suffix in suffixes.items() if (one := known.get(suffix))}
    unit = math.lcm(*filter(None, choice.heads), *[one.per.numerator for one in found.values()])
    whys = list(dict.fromkeys(one.why for one in found.values() if one.why))
    side = "output" if choice.axis == 0 else "input"
    if choice.head:
        whys.append(f"heads of {choice.head}")
    block = f"blocks of {unit} {side} features ({', '.join(whys)})"
    return {name: _scaled(name, choice, one, unit, block) for name, one in found.items()}


def _scaled(name: str, choice: Choice, feature: Feature, unit: int, block: str) -> Choice:
    """Return the choice for a tensor whose axis counts blocks of features."""
    followed = replace(choice, pattern=name, axis=feature.axis)
    if unit == 1:
        return followed
    lengths = choice.sections or ()
    if any(length % unit for length in lengths):  # only a single part is whole
        lengths, unit = (sum(lengths),), sum(lengths)
        block = f"sections of {unit} features that are not whole {block}"
    sections = tuple([math.ceil(length / feature.per) for length in lengths]) or None
    head, shared = math.ceil(unit / feature.per), choice.shared and unit == choice.head
    return replace(followed, sections=sections, head=head, shared=shared, block=block)
