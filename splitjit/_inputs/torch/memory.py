"""Where torch tensors lie in memory."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np

from splitjit._inputs.torch.foreign import shape_of


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


def array_of(x: Any, word: Any) -> np.ndarray | None:
    """Return the memory of a tensor as an array, or None if it is not the whole tensor.

    Parameters
    ----------
    x : torch.Tensor
    word : torch.dtype or None
        The dtype to view `x` as, if NumPy lacks its own.
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
