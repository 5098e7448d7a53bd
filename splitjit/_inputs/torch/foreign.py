"""Parts of tensors as views, made with torch's public operators.

This way gradients, tangents, batches, shapes without data, devices and exporters work as in
``torch.split``. torch.compile traces these functions, so they use only integers and tensors.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any, cast

from splitjit._inputs.input import Request
from splitjit._plan import rules
from splitjit._plan.arguments import MOST_IN_MEMORY, normalize_axis
from splitjit._plan.plan import sizes_of


def views_of(x: Any, request: Request) -> list[Any]:
    """Return the parts of a tensor as views."""
    shape = shape_of(x)
    has_plan = request.plan is not None or is_planned(shape)
    if has_plan:
        request.plan_of(shape)  # may raise
    index = normalize_axis(request.axis, shape)
    rule = _with_rest(request.rule, shape[index], x.shape[index])
    if not has_plan and not _fits(rule, shape[index]):
        request.plan_of(tuple([int(n) for n in shape]))  # raises
    return list(_views_by_rule(x, index, rule, shape[index]))


def is_planned(shape: tuple[Any, ...]) -> bool:
    """Return whether a shape can be planned: not under torch.compile, nor with symbols."""
    compiling = sys.modules["torch"].compiler.is_compiling()
    return not compiling and not [n for n in shape if type(n) is not int]


def shape_of(x: Any) -> tuple[Any, ...]:
    """Return the shape: plain integers, or symbols if a tracer has dynamic shapes."""
    torch = sys.modules["torch"]
    if torch.compiler.is_compiling() or not torch.jit.is_tracing():
        return tuple(x.shape)
    with warnings.catch_warnings():  # the trace does not depend on these numbers
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return tuple([int(n) for n in x.shape])


def _with_rest(rule: rules.Rule, length: int, traced: Any) -> rules.Rule:
    """Replace a length of -1 by the rest of the axis, as `check_lengths` does."""
    kind, value = rule
    if kind != rules.LENGTHS or not isinstance(value, tuple):
        return rule
    others = [n for n in value if not surely(n == -1)]  # under torch.compile, `in` misses -1
    if len(others) + 1 != len(value) or [n for n in others if exceeds(0, n)]:
        return rule  # no rest, or refused later
    if exceeds(sum(others), length):
        return rule
    return rules.LENGTHS, tuple([traced - sum(others) if surely(n == -1) else n for n in value])


def surely(condition: Any) -> bool:
    """Return whether a condition holds; False if only the values at run time will tell.

    Such values are the numbers in a tensor, for a graph that torch.compile or an exporter makes.
    """
    symbolic_shapes = sys.modules.get("torch.fx.experimental.symbolic_shapes")
    return bool(getattr(symbolic_shapes, "guard_or_false", bool)(condition))


def exceeds(number: Any, limit: Any) -> bool:
    """Return whether a number exceeds a limit; if only run time will tell, the graph checks it."""
    if surely(number > limit):
        return True
    sys.modules["torch"]._check(number <= limit)
    return False


def differ_in_graph(n: Any, m: Any) -> bool:
    """Return whether two numbers differ; see `exceeds`."""
    return exceeds(n, m) or exceeds(m, n)


def _views_by_rule(x: Any, axis: int, rule: rules.Rule, length: Any) -> Any:
    """Return the parts; in a graph, use operators that work for other lengths or refuse them.

    The sizes are computed from ``x.shape``, so that a graph records the formula. If another length
    breaks the rule, the sizes do not sum to it, and torch and ONNX Runtime refuse it. The formulas
    avoid `min`, which would make torch.export add guards.
    """
    torch = sys.modules["torch"]
    kind, value = rule[0], cast(Any, rule[1])
    tracing = not torch.compiler.is_compiling() and torch.jit.is_tracing()
    to_slices = tracing and torch.onnx.is_in_onnx_export()  # ONNX Slice accepts any length
    if to_slices and kind == rules.NUM_SPLITS and length:
        return torch.chunk(x, value, axis)  # so that no item is lost
    is_fixed = not tracing or not length or (to_slices and kind == rules.CHUNK)
    if is_fixed and not torch.compiler.is_dynamo_compiling() and type(length) is int:
        sizes = list(sizes_of((length,), 0, rule, MOST_IN_MEMORY))
        return split_with_sizes(x, sizes, axis)
    traced = x.shape[axis]
    if kind == rules.INDICES:
        parts = _slices(x, axis, _as_int64(value))
        if not tracing:  # parts between descending indices are longer than the axis
            exceeds(sum([part.shape[axis] for part in parts]), traced)
        return parts
    if kind == rules.NUM_OUTPUTS:
        chunk = (traced + value - 1) // value
        return _slices(x, axis, [i * chunk for i in range(1, value)])
    if kind == rules.LENGTHS:
        sizes = list(value)
    elif kind == rules.NUM_SECTIONS:  # without the comparison in `size_of_part`
        sizes = [(traced + value - 1 - i) // value for i in range(value)]
    elif kind == rules.CHUNK:
        count = (length + value - 1) // value  # the graph is fixed to this number of parts
        sizes = [value for _ in range(count)]
        if count > 0:
            sizes[-1] = (traced - 1) % value + 1
    else:
        sizes = [rules.size_of_part(kind, value, i, traced) for i in range(value)]
    return torch.split_with_sizes(x, sizes, axis)


def split_with_sizes(x: Any, sizes: Sequence[int], axis: int) -> Any:
    """Return views by torch's own function, even if a program has replaced the public one."""
    return sys.modules["torch"]._C._VariableFunctions.split_with_sizes(x, sizes, axis)


def _as_int64(indices: Sequence[int]) -> list[int]:
    """Clamp indices to int64, for torch and ONNX; slicing clamps them to the axis anyway."""
    most = (1 << 63) - 1
    return [most if surely(i > most) else -most if surely(i < -most) else i for i in indices]


def _slices(x: Any, axis: int, cuts: list[Any]) -> list[Any]:
    """Cut before each index. Slices are clamped to the axis."""
    whole, ends = (slice(None),) * axis, [0, *cuts, None]
    return [x[(*whole, slice(ends[i], ends[i + 1]))] for i in range(len(ends) - 1)]


def _fits(rule: rules.Rule, length: int) -> bool:
    """Return whether a rule fits a length that may be a symbol; add as few guards as possible."""
    kind, value = rule
    if not isinstance(value, tuple):
        return not (exceeds(1, value) or (kind == rules.NUM_SPLITS and exceeds(length % value, 0)))
    if kind == rules.LENGTHS:
        if [n for n in value if exceeds(0, n)]:
            return False
        return not (exceeds(sum(value), length) or exceeds(length, sum(value)))
    cuts = _as_int64(value)
    if [i for i in cuts if surely(i < 0)]:
        cuts = [min(max(i + length if surely(i < 0) else i, 0), length) for i in cuts]
    return not [i for i in range(1, len(cuts)) if surely(cuts[i] < cuts[i - 1])]
