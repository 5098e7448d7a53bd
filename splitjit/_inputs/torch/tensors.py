"""torch tensors. If kernels reach the memory, they split it as an array of the same bits.

========  ====================================================================
tensor    ``x.numpy()``, or the same bits as integers if NumPy lacks the dtype
parts     ``torch.from_numpy(part)``, viewed as the dtype of `x`
========  ====================================================================

Both directions share the memory, and the planner, copies and kernels see only the arrays.
Otherwise torch makes the parts, see `foreign.py`. A tensor exists only if torch was imported, so
`sys.modules` has torch.
"""

import sys
from typing import Any

import numpy as np

from splitjit._abi.thresholds import THRESHOLDS
from splitjit._inputs.input import Copies, Input, LibraryTargets, Request
from splitjit._inputs.torch import foreign, memory
from splitjit._inputs.torch.memory import TORCH, look_up
from splitjit._plan.arguments import listed
from splitjit._plan.plan import Plan
from splitjit.errors import OUT, SplitError, SplitTypeError, X, kind_of, pairs, reason

_OF_TORCH = (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError)
"""Errors with which torch operators refuse a tensor. Tracers stop a trace with other classes."""


def is_tensor(x: object) -> bool:
    """Return whether `x` is a tensor of torch. If torch was never imported, it cannot be one."""
    kind = type(x)
    return kind in TORCH.kinds or issubclass(kind, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_dtype(dtype: object) -> bool:
    """Return whether `dtype` is a dtype of torch."""
    return issubclass(type(dtype), getattr(sys.modules.get("torch"), "dtype", ()))


def dtype_of(x: Any) -> Any:
    """Return the dtype of a tensor and, if it is quantized, the scheme, the scale and the zero."""
    if not x.is_quantized:
        return x.dtype
    is_affine = x.qscheme() is sys.modules["torch"].per_tensor_affine
    return x.dtype, x.qscheme(), *((x.q_scale(), x.q_zero_point()) if is_affine else ())


def is_compiling() -> bool:
    """Return whether torch.compile is tracing."""
    return bool(sys.modules["torch"].compiler.is_compiling())


class Tensor(Input):
    """A torch tensor.

    Its memory is found when somebody asks for it: torch's own operator does not need it.
    """

    library = "torch"

    def __init__(self, x: Any, in_reach: bool) -> None:
        self.x, self._in_reach = x, in_reach
        self._array: np.ndarray | None = None

    @property
    def array(self) -> np.ndarray | None:  # type: ignore[override]
        """The memory, which kernels read. None if torch makes the parts."""
        if self._in_reach and self._array is None:  # torch.compile cannot trace a cached property
            self._array = memory.array_of(self.x)
            if self._array is None:
                self._in_reach = False
                _refuse(self.x, X)
        return self._array

    @property
    def dtype(self) -> Any:
        """The dtype and, of a quantized tensor, what its items mean: torch would convert them."""
        return dtype_of(self.x)

    def operator(self, request: Request, out: Any) -> tuple[Plan, list[Any] | None] | None:
        """Return the plan and the tensors for the parts, if torch's own operator makes them."""
        if not self._in_reach:
            return None
        plan = request.plan_of(self.x.shape)
        targets = memory.own_list(out)
        return (plan, targets) if memory.suits_operator(self.x, plan, targets) else None

    def made_by_operator(self, plan: Plan, targets: list[Any] | None) -> list[Any]:
        """Return the parts that torch's own operator has made, or has written to tensors."""
        parts = memory.split_by_operator(self.x, plan, targets)
        if not self.x.requires_grad:  # with a gradient, it also splits what kernels split without
            plan._use(memory.operator_for(self.x.dtype, self.x.nbytes < THRESHOLDS.large))
        return parts

    def joined(self, parts: list[Any], axis: int, out: Any, stacks: bool) -> Any:
        """Return the tensor that torch makes of parts, or writes to `out`."""
        if out is not None:
            _tensors_like(self.dtype, [out])  # torch would convert the values
            _refuse(out, f"{OUT}[0]")
        return memory.joined(parts, axis, out, stacks)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape: plain integers, or symbols if a tracer has dynamic shapes."""
        return foreign.shape_of(self.x)

    def views(self, plan: Plan) -> list[Any]:
        """Return views made by torch."""
        return list(foreign.split_with_sizes(self.x, plan.sizes, plan.axis))

    def made_by_library(self, request: Request, copy: bool) -> list[Any]:
        """Return copies or views made by torch."""
        parts = foreign.views_of(self.x, request)
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
        return not self._in_reach and is_compiling()

    def targets_of_library(self, request: Request, out: Any) -> LibraryTargets:
        """Return the tensors of `out`, the views that torch writes to them, and their places."""
        x, views = self.x, self.made_by_library(request, False)
        tensors = _tensors_like(self.dtype, out)
        torch = sys.modules["torch"]
        for i, target in enumerate(tensors):
            _refuse(target, f"{OUT}[{i}]")
            if target.device != x.device:
                rule = f"must be on the device of {X}, {x.device}"
                raise SplitError.of(f"{OUT}[{i}] on the device {target.device}", rule)
            level = torch._C._functorch.maybe_get_level
            if torch._C._functorch.is_batchedtensor(x) and level(target) < level(x):
                rule = "vmap writes no batch to a tensor without one"
                raise SplitTypeError.of(f"{OUT}[{i}] of type {kind_of(target)}", rule)
            if torch.is_grad_enabled() and (x.requires_grad or target.requires_grad):
                received = f"{X} or {OUT}[{i}] that requires a gradient"
                rule = f"a split with {OUT}= records no gradient; split without, or under no_grad"
                raise SplitTypeError.of(received, rule)
        if foreign.is_planned(self.shape):
            return tensors, views, memory.places_of([*tensors, x])
        check_shapes(tensors, views)
        return tensors, views, []


# ---- memory ------------------------------------------------------------------------------


def in_reach(x: Any) -> bool:
    """Return whether kernels may read a tensor; before the first one, look torch up."""
    if not TORCH.kinds and not is_compiling():
        look_up()
    return bool(TORCH.in_reach(x))


def tensor_input(x: Any) -> Tensor:
    """Adapt a tensor. Kernels split it if they can reach its memory.

    Raises
    ------
    SplitTypeError
        If neither kernels nor torch can make the parts.
    """
    if in_reach(x) and not x.is_nested:  # a nested tensor has no shape
        without_grad = x.requires_grad and not sys.modules["torch"].is_grad_enabled()
        return Tensor(x.detach() if without_grad else x, True)
    _refuse(x, X)
    return Tensor(x, False)


def _refuse(x: Any, name: str) -> None:
    """Refuse tensors that torch cannot split, or that do not fit in their storage."""
    refuse_layout(x, name)
    if not is_compiling() and memory.has_lost_memory(x):  # torch.compile knows no memory
        nbytes = memory.unwrapped(x).untyped_storage().nbytes()
        shrunk = f"its storage was resized to {nbytes} bytes, and its elements need more"
        rule = shrunk if nbytes else "its memory was freed"
        raise SplitTypeError.of(f"{name} of type {kind_of(x)}", rule)


def refuse_layout(x: Any, name: str) -> None:
    """Refuse nested and sparse tensors, which lack a shape or strides."""
    if not is_tensor(x) or is_compiling():
        return
    if x.is_nested:
        rule = "must not be nested; pass the tensors of its .unbind()"
    elif x.layout is not sys.modules["torch"].strided:
        rule = f"must not have the layout {x.layout}; pass its .to_dense()"
    else:
        return
    raise SplitTypeError.of(f"{name} of type {kind_of(x)}", rule)


# ---- parts and outputs -------------------------------------------------------------------


def empty(plan: Plan, dtype: Any) -> list[Any]:
    """Return new tensors for the parts of a plan, made by torch."""
    if str(dtype).startswith(("torch.qint", "torch.quint")):
        raise SplitTypeError.of(pairs(dtype=dtype), "quantized tensors need a scale, too")
    make = sys.modules["torch"].empty
    try:
        return [make(shape, dtype=dtype) for shape in plan.output_shapes]
    except (RuntimeError, TypeError) as error:
        text = reason(error).partition("\n")[0]
        if "memory" in text:
            raise MemoryError(text) from error
        raise SplitError.of(pairs(shape=plan.shape), text) from error  # extents beyond 64 bits


def out_arrays(out: Any, dtype: Any) -> tuple[list[Any], list[np.ndarray]]:
    """Return `out`'s tensors and their memory; refuse all but CPU tensors of a dtype."""
    tensors = _tensors_like(dtype, out)
    arrays: list[np.ndarray] = []
    for i, part in enumerate(tensors):
        # A subclass or a wrapper may have other memory; `tensor_input` has checked all modes.
        array = memory.array_of(part) if type(part) in TORCH.kinds else None
        if array is None:
            _refuse(part, f"{OUT}[{i}]")
            rule = f"must be a CPU tensor that needs no gradient, as {X} is"
            if part.is_conj() or part.is_neg():
                rule = "must not be a lazy conjugate or negative: its memory has other values"
            raise SplitTypeError.of(f"{OUT}[{i}] of type {kind_of(part)}", rule)
        arrays.append(array)
    return tensors, arrays


def _tensors_like(dtype: Any, out: Any) -> list[Any]:
    """Return the tensors of `out`; refuse those of another dtype or inference mode."""
    tensors = listed(out)
    any_mode = is_compiling() or sys.modules["torch"].is_inference_mode_enabled()
    for i, part in enumerate(tensors):  # a trace cannot tell the mode
        if not is_tensor(part):
            hint = "torch.from_numpy makes tensors of arrays"
            received = f"{OUT}[{i}] of type {kind_of(part)}"
            raise SplitTypeError.of(received, f"must be a torch tensor, as {X} is", hint)
        if dtype_of(part) != dtype:
            rule = f"the dtype must be the dtype of {X}, {dtype}"
            raise SplitTypeError.of(f"{OUT}[{i}] of dtype {dtype_of(part)}", rule)
        if not any_mode and part.is_inference():
            rule = "a tensor of torch.inference_mode() is written only under this mode"
            raise SplitTypeError.of(f"{OUT}[{i}] of type {kind_of(part)}", rule)
    return tensors


def check_shapes(tensors: list[Any], views: list[Any]) -> None:
    """Refuse outputs whose shapes differ from the parts, and outputs given twice.

    For tensors that torch.compile traces or that have symbolic shapes: they have no plan, and
    their memory is unknown.
    """
    if len(tensors) != len(views):
        rule = f"must have an array for each of {len(views)} parts"
        raise SplitError.of(f"{OUT} of {len(tensors)} arrays", rule)
    for i, (target, view) in enumerate(zip(tensors, views, strict=True)):
        given, shape = foreign.shape_of(target), foreign.shape_of(view)
        extents = zip((len(given), *given), (len(shape), *shape), strict=False)
        if [1 for a, b in extents if foreign.differ_in_graph(a, b)]:
            received = f"{OUT}[{i}] of shape {given}"
            raise SplitError.of(received, f"part {i} has shape {shape}")
        if [j for j in range(i) if tensors[j] is target]:
            raise SplitError.of(f"{OUT}[{i}]", "must not be another output, too")
