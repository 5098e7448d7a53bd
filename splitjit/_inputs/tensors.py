"""Tensors of torch: split as arrays of the same bits, without importing torch.

========  ====================================================================
tensor    ``x.numpy()``, or the same bits as integers if NumPy lacks the dtype
parts     ``torch.from_numpy(part)``, viewed as the dtype of `x`
========  ====================================================================

Both directions share the memory. The planner, the routes and the kernels see only
the arrays. A tensor exists only if torch was imported, so `sys.modules` has torch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from splitjit._inputs.arrays import Copies
from splitjit._plan.arguments import check_views, sequence
from splitjit._plan.dtypes import tensor_type
from splitjit._plan.plan import Plan
from splitjit.errors import SplitTypeError, kind_of, reason


def is_tensor(x: object) -> bool:
    """Return whether `x` is a tensor of torch. If torch was never imported, it cannot be one."""
    return issubclass(type(x), getattr(sys.modules.get("torch"), "Tensor", ()))


def is_dtype(dtype: object) -> bool:
    """Return whether `dtype` is a dtype of torch."""
    return issubclass(type(dtype), getattr(sys.modules.get("torch"), "dtype", ()))


class TensorSource:
    """A CPU tensor to split; the parts are tensors.

    Parameters
    ----------
    x : torch.Tensor

    Raises
    ------
    SplitTypeError
        If the memory of `x` does not hold its values, or a split would lose the gradient.

    Attributes
    ----------
    array : ndarray
        The memory of the tensor.
    dtype : torch.dtype
    """

    __slots__ = ("array", "dtype", "tensor", "word")

    def __init__(self, x: Any) -> None:
        self.tensor = x
        self.dtype = x.dtype
        self.word = _words().get(x.dtype)
        self.array = _memory(x, self.word)

    @property
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        if self.word is None:
            return tensor_type(self.array.dtype)
        return "tensor(bfloat16)" if str(self.dtype) == "torch.bfloat16" else None

    def split(self, plan: Plan, out: Any, copy: Any, copies: Copies) -> list[Any]:
        """Split the tensor, see `splitjit.split`."""
        if copy is not True:
            check_views(out, copy)
            return _views(plan, self.tensor)
        if out is None:
            parts = copies.run(plan, self.array, None, True)
            return _tensors(parts, self.dtype if self.word else None)
        tensors, arrays = out_arrays(out, self.dtype)
        copies.run(plan, self.array, arrays, True)
        mark_written(tensors)
        return tensors


@functools.cache
def _words() -> dict[Any, Any]:
    """Return the integer dtype of equal size for each dtype that NumPy lacks.

    Quantized dtypes are left out: their tensors hold more than their items.
    """
    torch = sys.modules["torch"]
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    dtypes = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    names = {dtype: str(dtype).removeprefix("torch.") for dtype in dtypes}
    native = {np.dtype(code).name for code in "?bhilqBHILQefdFD"}
    return {
        dtype: words[dtype.itemsize]
        for dtype, name in names.items()
        if not (name in native or name.startswith(("qint", "quint")))
    }


def _memory(x: Any, word: Any, name: str = "x") -> np.ndarray:
    """Return the memory of a tensor as an array.

    Parameters
    ----------
    x : torch.Tensor
    word : torch.dtype or None
        The dtype of equal size if NumPy lacks the dtype of `x`.
    name : str
        The name of the tensor in refusals.
    """
    array: np.ndarray
    cause = None
    try:
        if word is None:
            array = x.numpy()  # refuses all tensors that `_fix` names
            return array
        if not (x.requires_grad and sys.modules["torch"].is_grad_enabled()):
            array = x.view(word).numpy()
            return array
    except Exception as error:
        cause = error
    rule, hint = _fix(x) or ("must be a CPU tensor with memory", reason(cause) if cause else "")
    rule = f"{rule}; {hint}"  # not a hint, which operators drop
    raise SplitTypeError("split", f"{name} of type {kind_of(x)}", rule) from cause


def _fix(x: Any) -> tuple[str, str] | None:
    """Return why a tensor is refused, and the fix."""
    torch = sys.modules["torch"]
    if x.is_nested:
        return "must not be nested", "split each tensor of its .unbind()"
    if x.layout is not torch.strided:
        return f"must not have the layout {x.layout}", "pass its .to_dense()"
    if x.device.type == "meta":
        return "must have data", "splitjit.plan_split takes its shape"
    if x.device.type != "cpu":
        return f"must be on the CPU, not on {x.device}", "pass its .cpu()"
    if x.is_quantized:
        return "must not be quantized", "pass its .int_repr()"
    if x.requires_grad and torch.is_grad_enabled():
        rule = "a split records no gradient"
        return rule, "pass its .detach(), split under torch.no_grad(), or call torch.split"
    if x.is_conj():
        return "must not be conjugated lazily", "pass its .resolve_conj()"
    if x.is_neg():
        return "must not be negated lazily", "pass its .resolve_neg()"
    return None


def _views(plan: Plan, x: Any) -> list[Any]:
    torch = sys.modules["torch"]
    if type(x) is not torch.Tensor:  # base class, like the parts that are copies
        x = x.detach().as_subclass(torch.Tensor)
    return list(torch.split_with_sizes(x, plan.sizes, plan.axis))


def _tensors(parts: list[np.ndarray], dtype: Any) -> list[Any]:
    """Return arrays as tensors, viewed as `dtype` unless it is None.

    Each tensor has a storage of its own, so `torch.save` writes no other part.
    """
    from_numpy = sys.modules["torch"].from_numpy
    if dtype is None:
        return list(map(from_numpy, parts))
    return [from_numpy(part).view(dtype) for part in parts]


def out_arrays(out: Any, dtype: Any) -> tuple[list[Any], list[np.ndarray]]:
    """Return the tensors of `out` and their memory; refuse all but tensors of a dtype."""
    tensors = sequence(out)
    if tensors is None:
        received = f"out of type {kind_of(out)}"
        raise SplitTypeError("split", received, "must be a sequence of torch tensors, as x is one")
    word = _words().get(dtype)
    arrays = []
    for i, part in enumerate(tensors):
        if not is_tensor(part):
            hint = "torch.from_numpy makes tensors of arrays"
            received = f"out[{i}] of type {kind_of(part)}"
            raise SplitTypeError("split", received, "must be a torch tensor, as x is", hint=hint)
        if part.dtype is not dtype:
            rule = f"the dtype must be the dtype of x, {dtype}"
            raise SplitTypeError("split", f"out[{i}] of dtype {part.dtype}", rule)
        arrays.append(_memory(part, word, f"out[{i}]"))
    return list(tensors), arrays


def mark_written(tensors: Sequence[Any]) -> None:
    """Tell torch that tensors were written to, so that autograd refuses values it has saved."""
    sys.modules["torch"].autograd.graph.increment_version(tensors)


def empty(plan: Plan, dtype: Any, empty_parts: Callable[..., list[np.ndarray]]) -> list[Any]:
    """Return new arrays, made by `empty_parts`, as tensors of a dtype; see `SplitPlan.empty`."""
    torch = sys.modules["torch"]
    word = _words().get(dtype)
    memory = _memory(torch.empty(0, dtype=dtype, device="cpu"), word, "dtype")
    return _tensors(empty_parts(plan, memory.dtype), dtype if word else None)


# ---- torch.compile -----------------------------------------------------------------------


def is_compiling() -> bool:
    """Return whether torch.compile traces this call."""
    compiling: bool = sys.modules["torch"].compiler.is_compiling()
    return compiling


@functools.cache
def uncompiled(function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return a function that torch.compile calls between two graphs, and does not trace."""
    torch = sys.modules["torch"]
    disabled: Callable[..., list[Any]] = torch.compiler.disable(
        function, reason="splitjit copies memory by its address"
    )
    return disabled
