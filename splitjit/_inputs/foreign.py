"""Tensors that kernels do not read: torch makes the parts by its own public operators.

So gradients, tangents, batches, shapes without data, devices and exporters work as they do for
``torch.split``. torch.compile traces `ForeignTensor`, so its code is integers and tensors only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

from splitjit._plan.arguments import check_views, normalize_axis, sequence
from splitjit._plan.dtypes import NAMES_IN_TORCH
from splitjit._plan.plan import Plan
from splitjit._plan.rules import (
    CHUNK,
    INDICES,
    LENGTHS,
    NUM_OUTPUTS,
    NUM_SECTIONS,
    NUM_SPLITS,
    Rule,
)
from splitjit._plan.sizes import sizes_of
from splitjit.errors import SplitError, SplitTypeError, kind_of, reason

PlanOf = Callable[[tuple[int, ...]], Plan]
"""Returns the plan for arrays of a shape, or refuses the shape."""

_OF_TORCH = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)
"""Errors by which operators of torch refuse a tensor. Tracers use other classes to stop a trace."""


NO_GRADIENT = "a split with out= records no gradient; call it without out=, or under no_grad"


class ForeignTensor:
    """A tensor to split by the operators of torch.

    Parameters
    ----------
    x : torch.Tensor
    """

    __slots__ = ("tensor",)

    def __init__(self, x: Any) -> None:
        self.tensor = x

    @property
    def dtype(self) -> Any:
        """The dtype of the tensor."""
        return self.tensor.dtype

    @property
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        return NAMES_IN_TORCH.get(str(self.tensor.dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape: plain integers, or the symbols of a tracer with dynamic shapes."""
        return _shape(sys.modules["torch"], self.tensor)

    def split(
        self, plan_of: PlanOf, axis: SupportsIndex, rule: Rule | None, out: Any, copy: Any
    ) -> list[Any]:
        """Split the tensor.

        Parameters
        ----------
        plan_of : callable
            Returns the plan for a shape.
        axis : int
        rule : Rule or None
            None if `plan_of` has one plan, and only checks the shape.
        out, copy
            See `splitjit.split`.
        """
        if sys.modules["torch"].compiler.is_compiling():
            return self._split(plan_of, axis, rule, out, copy)
        try:
            return self._split(plan_of, axis, rule, out, copy)
        except _OF_TORCH as error:
            if isinstance(error, SplitError) or type(error) not in _OF_TORCH:
                raise
            rule_text = f"torch refuses: {reason(error)}"
            raise SplitTypeError("split", f"x of type {kind_of(self.tensor)}", rule_text) from error

    def _split(
        self, plan_of: PlanOf, axis: SupportsIndex, rule: Rule | None, out: Any, copy: Any
    ) -> list[Any]:
        x, torch = self.tensor, sys.modules["torch"]
        shape = self.shape
        if rule is None:
            plan = plan_of(shape)
            axis, rule = plan.axis, (LENGTHS, plan.sizes)
        index = normalize_axis(axis, shape)
        rule = _with_rest(rule, shape[index], x.shape[index])
        if torch.compiler.is_compiling() or [n for n in shape if type(n) is not int]:
            if not _fits(rule, shape[index]):
                plan_of(tuple([int(n) for n in shape]))  # raises
        else:
            plan_of(shape)  # may raise
        parts = _views_by_rule(torch, x, index, rule, shape[index])
        if copy is not True:
            check_views(out, copy)
            return list(parts)
        if out is not None:
            return _into(torch, x, parts, out)
        return [part.clone(memory_format=torch.contiguous_format) for part in parts]


def _shape(torch: Any, x: Any) -> tuple[int, ...]:
    if torch.compiler.is_compiling() or not torch.jit.is_tracing():
        return tuple(x.shape)
    with warnings.catch_warnings():  # the trace does not depend on these numbers
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        return tuple([int(n) for n in x.shape])


def _with_rest(rule: Rule, length: int, traced: Any) -> Rule:
    """Replace a length of -1 by what the others leave of an axis, as `replace_rest` does."""
    kind, value = rule
    if kind != LENGTHS or not isinstance(value, tuple):
        return rule
    others = [n for n in value if n != -1]  # torch.compile does not find -1 by `in`
    if len(others) + 1 != len(value) or [n for n in others if n < 0] or sum(others) > length:
        return rule  # no rest, or refused later
    return LENGTHS, tuple([traced - sum(others) if n == -1 else n for n in value])


def _views_by_rule(torch: Any, x: Any, axis: int, rule: Rule, length: Any) -> Any:
    """Return the parts, in a graph by operators that are right for other lengths or refuse them.

    The sizes are computed from ``x.shape``, so that a graph records how. If another length does
    not fit the rule, the sizes do not sum to the length: torch and ONNX Runtime refuse it then.
    They are computed without `min`, which would make torch.export add guards.
    """
    kind: str = rule[0]
    value: Any = rule[1]
    tracing = not torch.compiler.is_compiling() and torch.jit.is_tracing()
    to_slices = tracing and torch.onnx.is_in_onnx_export()  # ONNX slices refuse no length
    if to_slices and kind == NUM_SPLITS and length:
        return torch.chunk(x, value, axis)  # so no item is lost
    is_fixed = not tracing or not length or (to_slices and kind == CHUNK)
    if is_fixed and not torch.compiler.is_dynamo_compiling() and type(length) is int:
        lengths, runs = sizes_of((length,), 0, rule)
        sizes = list(lengths or [n for n, count in runs for _ in range(count)])
        return torch.split_with_sizes(x, sizes, axis)
    traced = x.shape[axis]
    if kind == INDICES:
        return _slices(x, axis, _as_int64(value))
    if kind == NUM_OUTPUTS:
        chunk = (traced + value - 1) // value
        return _slices(x, axis, [i * chunk for i in range(1, value)])
    if kind == LENGTHS:
        sizes = list(value)
    elif kind == NUM_SPLITS:
        sizes = [traced // value for _ in range(value)]
    elif kind == NUM_SECTIONS:
        sizes = [(traced + value - 1 - i) // value for i in range(value)]
    else:
        count = (length + value - 1) // value  # the graph is for this number of parts
        sizes = [value for _ in range(count)]
        if count > 0:
            sizes[-1] = (traced - 1) % value + 1
    return torch.split_with_sizes(x, sizes, axis)


def _as_int64(indices: Sequence[int]) -> list[int]:
    """Return indices as torch and ONNX can hold them; all of them are clamped to an axis."""
    return [min(max(i, 1 - (1 << 63)), (1 << 63) - 1) for i in indices]


def _slices(x: Any, axis: int, cuts: list[Any]) -> list[Any]:
    """Cut before each index. Slices are clamped to the axis."""
    whole, ends = (slice(None),) * axis, [0, *cuts, None]
    return [x[(*whole, slice(ends[i], ends[i + 1]))] for i in range(len(ends) - 1)]


def _fits(rule: Rule, length: int) -> bool:
    """Return whether a rule fits a length that may be a symbol; ask of it no more than needed."""
    kind, value = rule
    if not isinstance(value, tuple):
        return value >= 1 and (kind != NUM_SPLITS or length % value == 0)
    if kind == LENGTHS:
        return not [n for n in value if n < 0] and sum(value) == length
    cuts = _as_int64(value)
    if [i for i in cuts if i < 0]:
        cuts = [min(max(i + length if i < 0 else i, 0), length) for i in cuts]
    return not [i for i in range(1, len(cuts)) if cuts[i] < cuts[i - 1]]


def _into(torch: Any, x: Any, parts: list[Any], out: Any) -> list[Any]:
    """Write parts to tensors, as operators of torch with ``out=`` do; check all tensors before."""
    tensors = sequence(out)
    if tensors is None:
        received = f"out of type {kind_of(out)}"
        raise SplitTypeError("split", received, "must be a sequence of torch tensors, as x is one")
    if len(tensors) != len(parts):
        rule = f"must have an array for each of {len(parts)} parts"
        raise SplitError("split", f"out of {len(tensors)} arrays", rule)
    for i, (target, part) in enumerate(zip(tensors, parts, strict=True)):
        if not isinstance(target, torch.Tensor):
            hint = "torch.from_numpy makes tensors of arrays"
            received = f"out[{i}] of type {kind_of(target)}"
            raise SplitTypeError("split", received, "must be a torch tensor, as x is", hint=hint)
        _check_target(torch, x, part, target, i)
    for target, part in zip(tensors, parts, strict=True):
        target.copy_(part)
    return list(tensors)


def _check_target(torch: Any, x: Any, part: Any, target: Any, i: int) -> None:
    if target.dtype != x.dtype:
        rule = f"the dtype must be the dtype of x, {x.dtype}"
        raise SplitTypeError("split", f"out[{i}] of dtype {target.dtype}", rule)
    if target.device != x.device:
        rule = f"must be on the device of x, {x.device}"
        raise SplitError("split", f"out[{i}] on the device {target.device}", rule)
    given, shape = _shape(torch, target), _shape(torch, part)
    if given != shape:
        raise SplitError("split", f"out[{i}] of shape {given}", f"part {i} has shape {shape}")
    if torch.is_grad_enabled() and (x.requires_grad or target.requires_grad):
        raise SplitTypeError("split", f"x or out[{i}] that requires a gradient", NO_GRADIENT)
    if not torch.compiler.is_compiling() and 0 not in shape and _share_storage(x, target):
        rule = "must not share a storage where torch makes the parts"
        raise SplitError("split", f"out[{i}] and x", rule)


def _share_storage(a: Any, b: Any) -> bool:
    try:
        shared: bool = a.untyped_storage()._cdata == b.untyped_storage()._cdata
    except (AttributeError, NotImplementedError, RuntimeError):  # a wrapper has no storage
        return False
    return shared


def views(x: Any, sizes: Sequence[int], axis: int) -> list[Any]:
    """Return the parts of a tensor as views, of the class Tensor."""
    torch = sys.modules["torch"]
    if type(x) is not torch.Tensor:
        x = x.detach().as_subclass(torch.Tensor)
    return list(torch.split_with_sizes(x, sizes, axis))
