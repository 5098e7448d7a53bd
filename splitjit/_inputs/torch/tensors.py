"""torch tensors. If kernels reach the memory, they split it as an array of the same bits.

========  ====================================================================
tensor    ``x.numpy()``, or the same bits as integers if NumPy lacks the dtype
parts     ``torch.from_numpy(part)``, viewed as the dtype of `x`
========  ====================================================================

Both directions share the memory, and the planner, copies and kernels see only the arrays.
Otherwise torch makes the parts, see `foreign.py`. A tensor exists only if torch was imported, so
`sys.modules` has torch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from splitjit._inputs.input import Copies, Input, Request
from splitjit._inputs.torch import memory
from splitjit._inputs.torch.foreign import exceeds, is_planned, shape_of, views_of
from splitjit._inputs.torch.memory import TORCH, look_up
from splitjit._plan.arguments import listed
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError, SplitTypeError, kind_of

_OF_TORCH = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)
"""Errors with which torch operators refuse a tensor. Tracers stop a trace with other classes."""


def is_tensor(x: object) -> bool:
    """Return whether `x` is a tensor of torch. If torch was never imported, it cannot be one."""
    kind = type(x)
    return kind in TORCH.kinds or issubclass(kind, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_dtype(dtype: object) -> bool:
    """Return whether `dtype` is a dtype of torch."""
    return issubclass(type(dtype), getattr(sys.modules.get("torch"), "dtype", ()))


def is_compiling() -> bool:
    """Return whether torch.compile is tracing."""
    compiling: bool = sys.modules["torch"].compiler.is_compiling()
    return compiling


class Tensor(Input):
    """A torch tensor."""

    __slots__ = ()

    library = "torch"

    def __init__(self, x: Any, array: np.ndarray | None = None) -> None:
        self.x, self.array = x, array

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape: plain integers, or symbols if a tracer has dynamic shapes."""
        return shape_of(self.x)

    def views(self, plan: Plan) -> list[Any]:
        """Return views made by torch."""
        return list(sys.modules["torch"].split_with_sizes(self.x, plan.sizes, plan.axis))

    def made_by_library(self, request: Request, copy: bool) -> list[Any]:
        """Return copies or views made by torch."""
        parts = views_of(self.x, request)
        if copy:
            contiguous = sys.modules["torch"].contiguous_format
            parts = [part.clone(memory_format=contiguous) for part in parts]
        return parts

    def wrap(self, parts: list[np.ndarray], masks: list[np.ndarray] | None = None) -> list[Any]:
        """Return tensors over the memory of the parts."""
        return memory.tensors_over(parts, self.x.dtype)

    def targets(self, out: Any) -> tuple[list[Any], Copies]:
        """Return tensors and their memory; refuse anything but CPU tensors of `x`'s dtype."""
        tensors, arrays = out_arrays(out, self.x.dtype)
        return tensors, [(self.array, arrays)]

    def wrote(self, out: list[Any], written: list[list[np.ndarray]]) -> None:
        """Tell torch about the writes, so that autograd refuses values it has saved."""
        sys.modules["torch"].autograd.graph.increment_version(out)

    def refused(self, error: Exception) -> bool:
        """Return whether torch refuses the tensor."""
        return type(error) in _OF_TORCH

    def is_traced(self) -> bool:
        """Return whether torch.compile is tracing."""
        return self.array is None and is_compiling()

    def targets_of_library(
        self, request: Request, out: Any
    ) -> tuple[list[Any], list[Any], list[np.ndarray]]:
        """Return the tensors of `out`, the views that torch writes to them, and their places."""
        views = self.made_by_library(request, False)
        tensors = self._targets_of_torch(out)
        if is_planned(self.shape):
            return tensors, views, memory.places_of([*tensors, self.x])
        check_shapes(tensors, views)
        return tensors, views, []

    def _targets_of_torch(self, out: Any) -> list[Any]:
        """Return the tensors of `out` for torch to write to; refuse those unlike `x`."""
        x, tensors = self.x, listed(out)
        torch = sys.modules["torch"]
        any_mode = is_compiling() or torch.is_inference_mode_enabled()  # a trace cannot tell
        for i, target in enumerate(tensors):
            _check_kind(target, i, x.dtype, any_mode)
            if target.device != x.device:
                rule = f"must be on the device of x, {x.device}"
                raise SplitError.of([(f"out[{i}]", f" on the device {target.device}")], rule)
            if torch.is_grad_enabled() and (x.requires_grad or target.requires_grad):
                received = [(f"x or out[{i}]", " that requires a gradient")]
                rule = "a split with out= records no gradient; split without, or under no_grad"
                raise SplitTypeError.of(received, rule)
        return tensors


# ---- memory ------------------------------------------------------------------------------


def tensor_input(x: Any) -> Tensor:
    """Adapt a tensor. Kernels split it if they can reach its memory.

    Raises
    ------
    SplitTypeError
        If neither kernels nor torch can make the parts.
    """
    if is_compiling():
        return Tensor(x)
    look_up()
    if TORCH.in_reach(x) and not (x.requires_grad and sys.modules["torch"].is_grad_enabled()):
        bare = x.detach() if x.requires_grad else x
        array = memory.array_of(bare)
        if array is not None:
            return Tensor(bare, array)
    _refuse(x, "x")
    return Tensor(x)


def _refuse(x: Any, name: str) -> None:
    """Refuse tensors that torch cannot split, or that do not fit in their storage."""
    torch = sys.modules["torch"]
    rule = ""
    if x.is_nested:
        rule = "must not be nested; split each tensor of its .unbind()"
    elif x.layout is not torch.strided:
        rule = f"must not have the layout {x.layout}; pass its .to_dense()"
    elif memory.address_of(x):
        if not memory.is_in_storage(x):
            nbytes = x.untyped_storage().nbytes()
            rule = f"its storage was resized to {nbytes} bytes, and its elements need more"
    elif TORCH.in_reach(x) and memory.has_lost_memory(torch, x):
        rule = "its memory was freed"
    if rule:
        raise SplitTypeError.of([(name, f" of type {kind_of(x)}")], rule)


# ---- parts and outputs -------------------------------------------------------------------


def out_arrays(out: Any, dtype: Any) -> tuple[list[Any], list[np.ndarray]]:
    """Return `out`'s tensors and their memory; refuse all but CPU tensors of a dtype."""
    tensors = listed(out)
    any_mode = sys.modules["torch"].is_inference_mode_enabled()
    arrays: list[np.ndarray] = []
    for i, part in enumerate(tensors):
        _check_kind(part, i, dtype, any_mode)
        # A subclass or a wrapper may have other memory; `tensor_input` has checked all modes.
        array = memory.array_of(part) if type(part) in TORCH.kinds else None
        if array is None:
            _refuse(part, f"out[{i}]")
            rule = "must be a CPU tensor that needs no gradient, as x is"
            if part.is_conj() or part.is_neg():
                rule = "must not be a lazy conjugate or negative: its memory has other values"
            raise SplitTypeError.of([(f"out[{i}]", f" of type {kind_of(part)}")], rule)
        arrays.append(array)
    return tensors, arrays


def _check_kind(part: Any, i: int, dtype: Any, any_mode: bool) -> None:
    """Refuse an output of another type, dtype or inference mode."""
    if not is_tensor(part):
        hint = "torch.from_numpy makes tensors of arrays"
        received = [(f"out[{i}]", f" of type {kind_of(part)}")]
        raise SplitTypeError.of(received, "must be a torch tensor, as x is", hint)
    if part.dtype is not dtype:
        rule = f"the dtype must be the dtype of x, {dtype}"
        raise SplitTypeError.of([(f"out[{i}]", f" of dtype {part.dtype}")], rule)
    if not any_mode and part.is_inference():
        rule = "a tensor of torch.inference_mode() is written only under this mode"
        raise SplitTypeError.of([(f"out[{i}]", f" of type {kind_of(part)}")], rule)


def check_shapes(tensors: list[Any], views: list[Any]) -> None:
    """Refuse outputs whose shapes differ from the parts, and outputs given twice.

    For tensors that torch.compile traces or that have symbolic shapes: they have no plan, and
    their memory is unknown.
    """
    if len(tensors) != len(views):
        rule = f"must have an array for each of {len(views)} parts"
        raise SplitError.of([("out", f" of {len(tensors)} arrays")], rule)
    for i, (target, view) in enumerate(zip(tensors, views, strict=True)):
        given, shape = shape_of(target), shape_of(view)
        pairs = zip((len(given), *given), (len(shape), *shape), strict=False)
        if [1 for a, b in pairs if exceeds(a, b) or exceeds(b, a)]:
            received = [(f"out[{i}]", f" of shape {given}")]
            raise SplitError.of(received, f"part {i} has shape {shape}")
        if [j for j in range(i) if tensors[j] is target]:
            raise SplitError.of([(f"out[{i}]", "")], "must not be another output, too")
