"""Where torch tensors lie in memory, and which of them kernels may read.

====================================  ==========================================================
question                              what a kernel would miss
====================================  ==========================================================
class other than Tensor, Parameter    a subclass computes in its own way: FakeTensor, DTensor
``__torch_dispatch__`` mode           ``make_fx`` and FakeTensorMode record each operator
``__torch_function__`` mode           ``make_fx(pre_dispatch=True)``, user modes, default devices
functorch transform                   ``vmap``, ``grad``, ``jvp``, ``functionalize``: wrappers,
                                      whose memory is not their own
``torch.jit.trace``                   it records each operator: a copy would be a constant
forward-mode AD level                 a dual tensor has a tangent beside its memory
``Tensor.numpy`` refuses              gradients, devices, lazy conjugates, quantized tensors
address 0, but not empty              functional tensors, and storages that were freed
====================================  ==========================================================

`torch.compiler.is_compiling` comes before all of these, because torch.compile cannot trace them.
Most of these checks call ``torch._C``: the public functions take longer. If a version
of torch lacks one, torch makes all parts, which is correct but slower.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from splitjit._inputs.torch.foreign import shape_of

TORCH: Any = SimpleNamespace(kinds=(), cat=None, stack=None, in_reach=lambda x: False)
"""What `look_up` has found in torch, once a tensor has been split.

Attributes
----------
kinds : tuple of type
    Tensor and Parameter.
split_copy : callable
    Torch's operator ``split_with_sizes_copy``.
cat, stack : callable
    Torch's own functions, which a program may replace.
in_reach : callable
    Tells whether kernels may read a tensor: it is of these kinds, and torch does nothing else with
    operators now than to carry them out. The tensor must also pass ``x.numpy()``, and have an
    address other than 0.
"""


@functools.cache
def look_up() -> None:
    """Look up in torch what each split needs, which costs as much as the checks."""
    torch = sys.modules["torch"]
    TORCH.in_reach = _reach_of_kernels()
    TORCH.split_copy, TORCH.cat, TORCH.stack = torch.split_with_sizes_copy, torch.cat, torch.stack
    TORCH.kinds = torch.Tensor, torch.nn.Parameter


def _reach_of_kernels() -> Callable[[Any], bool]:
    """Return `TORCH.in_reach`."""
    torch = sys.modules["torch"]
    forward_ad = torch.autograd.forward_ad
    try:
        is_tracing = torch._C._is_tracing
        in_function_mode = torch._C._is_torch_function_mode_enabled
        count_dispatch_modes = torch._C._len_torch_dispatch_stack
        in_functorch = torch._C._are_functorch_transforms_active
        forward_ad._current_level  # noqa: B018
    except AttributeError:
        return lambda x: False
    is_traced, kinds = torch.compiler.is_dynamo_compiling, (torch.Tensor, torch.nn.Parameter)

    def in_reach(x: Any) -> bool:
        if is_traced() or type(x) not in kinds or count_dispatch_modes() or in_functorch():
            return False
        return not (is_tracing() or forward_ad._current_level >= 0 or in_function_mode())

    return in_reach


@functools.cache
def words() -> dict[Any, Any]:
    """Map each dtype that NumPy lacks to an integer dtype of equal size.

    Quantized dtypes are left out: their tensors hold more than their items.
    """
    torch = sys.modules["torch"]
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    dtypes = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    names = {dtype: str(dtype).removeprefix("torch.") for dtype in dtypes}
    native = {np.dtype(code).name for code in "?bhilqBHILQefdFD"}
    return {
        dtype: integers[dtype.itemsize]
        for dtype, name in names.items()
        if not (name in native or name.startswith(("qint", "quint")))
    }


def array_of(x: Any) -> np.ndarray | None:
    """Return the memory of a tensor as an array, or None if it is not the whole tensor."""
    array: np.ndarray
    word = words().get(x.dtype)
    try:
        if x.requires_grad and sys.modules["torch"].is_grad_enabled():
            return None
        x = x.detach()  # a new tensor, which no other thread can change by `set_` or `resize_`
        # `numpy` refuses other devices and lazy conjugates, and fixes the size of the storage.
        array = (x if word is None else x.view(word)).numpy()
    except MemoryError:
        raise
    except Exception:
        return None
    return array if not array.size or (x.data_ptr() and lies_in_storage(x)) else None


def lies_in_storage(x: Any) -> bool:
    """Return whether a non-empty tensor fits in its storage, which may have been shrunk."""
    if x.is_contiguous():
        nbytes = int(x.nbytes)
    else:  # torch has no negative strides
        steps = zip(x.shape, x.stride(), strict=True)
        nbytes = (1 + sum([(int(n) - 1) * int(step) for n, step in steps])) * x.element_size()
    offset = int(x.storage_offset())
    if offset:
        nbytes += offset * x.element_size()
    return nbytes <= int(x.untyped_storage().nbytes())


def _quiet(x: Any) -> Any:
    """Silence torch's warnings about addresses of fake tensors and numbers in a trace."""
    torch = sys.modules["torch"]
    if type(x) in (torch.Tensor, torch.nn.Parameter) and not torch.jit.is_tracing():
        return contextlib.nullcontext()
    return warnings.catch_warnings(action="ignore")


def address_of(x: Any) -> int:
    """Return the address of a tensor, or 0 for tracers and wrappers, which have no memory."""
    try:
        with _quiet(x):
            return int(x.data_ptr()) if x.untyped_storage().data_ptr() else 0
    except (NotImplementedError, RuntimeError):
        return 0


def is_in_storage(x: Any) -> bool:
    """Return whether a tensor of any class fits in its storage."""
    with _quiet(x):
        return not int(x.numel()) or lies_in_storage(x)


def places_of(tensors: list[Any]) -> list[np.ndarray]:
    """Return arrays that overlap exactly as the tensors do. Nothing may read or write them.

    A tensor without CPU memory gets an address that no program can have, one for each storage.
    """
    storages: dict[int, int] = {}
    return [_place_of(x, storages) for x in tensors]


def _place_of(x: Any, storages: dict[int, int]) -> np.ndarray:
    address = address_of(x) if x.device.type == "cpu" else 0
    with _quiet(x):
        size = x.element_size()
        if not address:
            try:
                key, offset = x.untyped_storage()._cdata, int(x.storage_offset()) * size
            except (AttributeError, NotImplementedError, RuntimeError):  # a wrapper has no storage
                key, offset = id(x), 0
            address = storages.setdefault(key, _NOWHERE + _ROOM * len(storages)) + offset
        interface = {
            "data": (address, False),
            "shape": shape_of(x),
            "strides": tuple([int(n) * size for n in x.stride()]),
            "typestr": np.dtype((np.void, size)).str,
            "version": 3,
        }
    return np.asarray(SimpleNamespace(__array_interface__=interface))


_NOWHERE = 1 << 57
"""Above any address of a program."""

_ROOM = 1 << 44
"""Larger than any storage."""


def has_lost_memory(torch: Any, x: Any) -> bool:
    """Return whether a tensor's storage was freed. Operators of torch would crash on it."""
    has_storage = x.device.type in _WITH_STORAGES and not torch._is_functional_tensor(x)
    if not has_storage or x._is_zerotensor():
        return False
    return bool(x.numel()) and not x.untyped_storage().nbytes()


_WITH_STORAGES = ("cpu", "cuda", "mps", "xpu")
"""Devices whose tensors keep their memory in a storage. On others it may have 0 bytes."""


def tensors_over(parts: list[np.ndarray], dtype: Any) -> list[Any]:
    """Return arrays as tensors of a dtype; see `array_of`.

    Each tensor has its own storage, so `torch.save` writes no other part.
    """
    from_numpy = sys.modules["torch"].from_numpy
    if dtype not in words():
        return list(map(from_numpy, parts))
    return [from_numpy(part).view(dtype) for part in parts]
