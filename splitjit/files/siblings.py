"""Find weights whose bias, scale or zero point is not split as the weight is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from splitjit.files.plan import TensorPlan

_WEIGHTS = ("weight", "qweight", "weight_packed")
"""Last names of weights."""

_FOLLOWS = re.compile(
    r"bias|((weight|input|output)_)?(scales?|zeros?|zero_points?)(_inv|_inverse)?|qzeros?|g_idx"
)
"""Last names of tensors that belong to the weight of their module."""


def find_mismatches(tensors: Sequence[TensorPlan]) -> tuple[str, ...]:
    """Return a warning for each kind of module whose tensors are not split alike.

    Parameters
    ----------
    tensors : sequence of TensorPlan
        All tensors of a checkpoint.

    Returns
    -------
    tuple of str
        Modules whose names differ only in numbers share a warning.
    """
    modules: dict[str, dict[str, TensorPlan]] = {}
    for plan in tensors:
        module, _, name = plan.name.rpartition(".")
        modules.setdefault(module, {})[name] = plan
    counts: dict[tuple[str, str], int] = {}
    for module, held in modules.items():
        weight = next((held[name] for name in _WEIGHTS if name in held), None)
        for name, other in held.items():
            if weight and _FOLLOWS.fullmatch(name) and (fault := _fault(weight, other)):
                general = re.sub(r"(?<![^.])\d+(?![^.])", "*", f"{module}.{name}".lstrip("."))
                counts[general, fault] = counts.get((general, fault), 0) + 1
    return tuple(
        [
            f"{name} {fault}" + (f" ({count} tensors)" if count > 1 else "")
            for (name, fault), count in counts.items()
        ]
    )


def _fault(weight: TensorPlan, other: TensorPlan) -> str | None:
    """Say how the treatment of a tensor does not fit its weight; None if it fits."""
    if weight.axis is None:
        return None if other.axis is None else "is split, but its weight is copied whole"
    along = f"its weight is split along axis {weight.axis}"
    if other.axis is None and _follows(weight, other):
        return f"is copied whole, but {along}"
    if other.axis is not None and not _follows(weight, other):
        return f"is split, but {along}, which it does not have"
    return None


def _follows(weight: TensorPlan, other: TensorPlan) -> bool:
    """Return whether a tensor has the axis along which its weight is split.

    A one-dimensional tensor has the axis of the weight with as many elements. If both
    axes have as many, this is the axis of the output features: the first axis, or in
    packed weights the last one.
    """
    assert weight.axis is not None
    if len(other.shape) > 1:
        return weight.axis < len(other.shape) and other.shape[weight.axis] > 1
    if other.shape in ((), (1,)):
        return False
    output = len(weight.shape) - 1 if weight.name.endswith("qweight") else 0
    if weight.shape[output] == other.shape[0] or other.shape[0] not in weight.shape:
        return weight.axis == output
    return weight.shape[weight.axis] == other.shape[0]
