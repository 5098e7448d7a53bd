"""Tensors of torch whose memory kernels reach: split as arrays of the same bits.

========  ====================================================================
tensor    ``x.numpy()``, or the same bits as integers if NumPy lacks the dtype
parts     ``torch.from_numpy(part)``, viewed as the dtype of `x`
========  ====================================================================

Both directions share the memory. The planner, the recipes and the kernels see only
the arrays. A tensor exists only if torch was imported, so `sys.modules` has torch.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from splitjit._inputs.arrays import Copies
from splitjit._inputs.foreign import NO_GRADIENT, ForeignTensor, views
from splitjit._inputs.reach import reach_of_kernels
from splitjit._plan.arguments import check_views, sequence
from splitjit._plan.dtypes import tensor_type
from splitjit._plan.plan import Plan
from splitjit.errors import SplitTypeError, kind_of

_KNOWN: list[type] = []
"""The classes Tensor and Parameter, once a tensor was split."""


def is_tensor(x: object) -> bool:
    """Return whether `x` is a tensor of torch. If torch was never imported, it cannot be one."""
    kind = type(x)
    return kind in _KNOWN or issubclass(kind, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_dtype(dtype: object) -> bool:
    """Return whether `dtype` is a dtype of torch."""
    return issubclass(type(dtype), getattr(sys.modules.get("torch"), "dtype", ()))


class TensorSource:
    """A CPU tensor to split; the parts are tensors.

    Parameters
    ----------
    x : torch.Tensor
    array : ndarray
        The memory of the tensor.
    dtype : torch.dtype
    word : torch.dtype or None
        The dtype of the array if NumPy lacks the dtype of `x`.
    """

    __slots__ = ("array", "dtype", "tensor", "word")

    def __init__(self, x: Any, array: np.ndarray, dtype: Any, word: Any) -> None:
        self.tensor, self.array, self.dtype, self.word = x, array, dtype, word

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.array.shape

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
            return views(self.tensor, plan.sizes, plan.axis)
        if out is None:
            parts = copies.run(plan, self.array, None, True)
            return _tensors(parts, self.dtype if self.word else None)
        tensors, arrays = out_arrays(out, self.dtype)
        copies.run(plan, self.array, arrays, True)
        mark_written(tensors)
        return tensors


class GradientSource(TensorSource):
    """A CPU tensor that requires a gradient: torch makes the parts, and later joins the gradients.

    Kernels with a backward of our own take 1.2 times as long, forward and backward, at 1 to 16 MB.
    """

    __slots__ = ()

    def split(self, plan: Plan, out: Any, copy: Any, copies: Copies) -> list[Any]:
        """Split the tensor, see `splitjit.split`."""
        torch = sys.modules["torch"]
        if copy is not True:
            check_views(out, copy)
            return list(torch.split_with_sizes(self.tensor, plan.sizes, plan.axis))
        if out is not None:
            raise SplitTypeError("split", "x that requires a gradient", NO_GRADIENT)
        return list(torch.split_with_sizes_copy(self.tensor, plan.sizes, plan.axis))


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


_ASKED: list[Callable[..., Any]] = []
"""`is_compiling` of torch, and the `reader`, once a tensor was split: to find them takes longer."""


def tensor_source(x: Any) -> TensorSource | ForeignTensor:
    """Return the source that splits a tensor: by kernels if they reach its memory.

    Raises
    ------
    SplitTypeError
        If neither kernels nor torch can make the parts.
    """
    if not _ASKED and not is_compiling():
        _ASKED.extend([sys.modules["torch"].compiler.is_compiling, reader()])
    if not _ASKED or _ASKED[0]():
        return ForeignTensor(x)
    source: TensorSource | None
    if x.requires_grad and type(x) in _KNOWN:  # `x.numpy()` would raise an error, which takes 30 µs
        source = _ASKED[1](x.detach())
        if source is not None:
            kind = GradientSource if sys.modules["torch"].is_grad_enabled() else TensorSource
            return kind(x, source.array, source.dtype, source.word)
    else:
        source = _ASKED[1](x)
    if source is None:
        _refuse(x, "x")
        return ForeignTensor(x)
    return source


@functools.cache
def reader() -> Callable[[Any], TensorSource | None]:
    """Return the function that returns the source of a tensor, or None if kernels do not reach it.

    It keeps what it needs of torch: to look it up in each call would take as long as to ask it.
    """
    word_of, in_reach = _words().get, reach_of_kernels()
    torch = sys.modules["torch"]
    _KNOWN.extend([torch.Tensor, torch.nn.Parameter])

    def read(x: Any) -> TensorSource | None:
        if not in_reach(x):
            return None
        dtype = x.dtype
        word = word_of(dtype)
        array = _memory(x, word)
        return None if array is None else TensorSource(x, array, dtype, word)

    return read


def _memory(x: Any, word: Any) -> np.ndarray | None:
    """Return the memory of a tensor as an array, or None if it does not hold all of the tensor.

    Parameters
    ----------
    x : torch.Tensor
    word : torch.dtype or None
        The dtype of equal size if NumPy lacks the dtype of `x`.
    """
    array: np.ndarray
    try:
        if word is None:
            array = x.numpy()  # refuses gradients, other devices and lazy conjugates
        elif x.requires_grad and sys.modules["torch"].is_grad_enabled():
            return None
        else:
            array = x.view(word).numpy()
    except MemoryError:
        raise
    except Exception:
        return None
    return array if x.data_ptr() or not array.size else None


def _refuse(x: Any, name: str) -> None:
    """Refuse tensors that torch cannot split, and those whose memory was freed."""
    torch = sys.modules["torch"]
    rule = ""
    if x.is_nested:
        rule = "must not be nested; split each tensor of its .unbind()"
    elif x.layout is not torch.strided:
        rule = f"must not have the layout {x.layout}; pass its .to_dense()"
    elif reach_of_kernels()(x) and _has_lost_memory(torch, x):
        rule = "its memory was freed"
    if rule:
        raise SplitTypeError("split", f"{name} of type {kind_of(x)}", rule)


def _has_lost_memory(torch: Any, x: Any) -> bool:
    """Return whether the storage of a tensor was freed. Operators of torch would crash then."""
    if x.device.type not in _WITH_STORAGES or torch._is_functional_tensor(x):
        return False
    if x._is_zerotensor():
        return False
    return bool(x.numel()) and not x.untyped_storage().nbytes()


_WITH_STORAGES = ("cpu", "cuda", "mps", "xpu")
"""Devices whose tensors have their memory in a storage. Others may have storages of 0 bytes."""


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
    arrays: list[np.ndarray] = []
    for i, part in enumerate(tensors):
        if not is_tensor(part):
            hint = "torch.from_numpy makes tensors of arrays"
            received = f"out[{i}] of type {kind_of(part)}"
            raise SplitTypeError("split", received, "must be a torch tensor, as x is", hint=hint)
        if part.dtype is not dtype:
            rule = f"the dtype must be the dtype of x, {dtype}"
            raise SplitTypeError("split", f"out[{i}] of dtype {part.dtype}", rule)
        array = _memory(part, word) if type(part) in _KNOWN else None  # modes: see tensor_source
        if array is None:
            _refuse(part, f"out[{i}]")
            rule = "must be a CPU tensor that needs no gradient, as x is"
            raise SplitTypeError("split", f"out[{i}] of type {kind_of(part)}", rule)
        arrays.append(array)
    return list(tensors), arrays


def mark_written(tensors: Sequence[Any]) -> None:
    """Tell torch that tensors were written to, so that autograd refuses values it has saved."""
    _increment_version()(tensors)


@functools.cache  # to look it up takes longer than to call it
def _increment_version() -> Callable[[Sequence[Any]], None]:
    increment: Callable[[Sequence[Any]], None] = sys.modules[
        "torch"
    ].autograd.graph.increment_version
    return increment


def empty(plan: Plan, dtype: Any, empty_parts: Callable[..., list[np.ndarray]]) -> list[Any]:
    """Return new arrays, made by `empty_parts`, as tensors of a dtype; see `SplitPlan.empty`."""
    torch = sys.modules["torch"]
    word = _words().get(dtype)
    item = torch.empty(0, dtype=dtype, device="cpu")
    memory = _memory(item, word) if reach_of_kernels()(item) else None
    if memory is None:  # FakeTensorMode makes tensors without memory
        return [torch.empty(shape, dtype=dtype) for shape in plan.output_shapes]
    return _tensors(empty_parts(plan, memory.dtype), dtype if word else None)


def is_compiling() -> bool:
    """Return whether torch.compile traces this call."""
    ask = _ASKED[0] if _ASKED else sys.modules["torch"].compiler.is_compiling
    compiling: bool = ask()
    return compiling
