"""How compiled code reads torch tensors: found and verified once.

torch has a stable C interface for compiled models, whose functions say where a tensor lies. It
lacks two things: the way from a Python object to torch's own struct, and the struct's dispatch
keys. Both words are found by their values, in tensors of several kinds. If anything differs from
what torch says in Python, compiled code reads no tensors, and Python asks about each.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from typing import Any

import numpy as np

from splitjit._abi.calls import TORCH_DTYPES, TensorFacts
from splitjit._abi.layout_record import WORD
from splitjit._inputs.torch import memory

_LARGEST = 26
"""The most words of torch's struct, as its source asserts."""

_FUNCTIONS = {
    "rank": "aoti_torch_get_dim",
    "shape": "aoti_torch_get_sizes",
    "strides": "aoti_torch_get_strides",
    "dtype": "aoti_torch_get_dtype",
    "data": "aoti_torch_get_data_ptr",
    "offset": "aoti_torch_get_storage_offset",
    "storage": "aoti_torch_get_storage_size",
}
_OTHERS = {
    "new_tensor": "aoti_torch_empty_strided",
    "drop": "aoti_torch_delete_tensor_object",
    "wrap": "_Z16THPVariable_WrapRKN2at10TensorBaseE",  # THPVariable_Wrap(at::TensorBase const&)
    "requires_grad": "_ZNK3c1010TensorImpl13requires_gradEv",  # TensorImpl::requires_grad() const
}


class Facts(np.ndarray):
    """The words of `TensorFacts` in memory.

    Attributes
    ----------
    kept : tuple
        What the addresses point to.
    dtypes : list
        The dtypes of torch by their numbers, each with its word (see `memory.words`) or None.
    """

    kept: tuple[Any, ...]
    dtypes: list[Any]


def tensor_facts() -> Facts | None:
    """Return how to read tensors, or None if this torch differs from what is known.

    No mode of torch may be active that records operators or changes them.
    """
    torch = sys.modules["torch"]
    try:
        with warnings.catch_warnings(), torch.inference_mode(False), torch.device("cpu"):
            warnings.simplefilter("ignore")  # torch calls some dtypes experimental
            return _facts(torch)
    except Exception:  # private parts of torch, any of which may be missing
        return None


def _facts(torch: Any) -> Facts | None:
    x = torch.ones(3, 4)
    with torch.inference_mode():
        inference = torch.ones(2)
    lazy = torch.ones(2, dtype=torch.complex64).conj()
    leaf = torch.ones(2, requires_grad=True)
    probes = [x, x[1:, ::2], inference, lazy, lazy.imag, leaf, leaf * 2, x.to("meta")]
    size = torch.Tensor.__basicsize__ // WORD
    addresses = [probe._cdata for probe in probes]
    implementation = _common_word([*map(id, probes)], addresses, range(2, size))
    sets = [_signed(torch._C._dispatch_keys(probe).raw_repr()) for probe in probes]
    keys_at = _common_word(addresses, sets, range(1, _LARGEST))
    if len({sets[0], sets[2], *sets[3:5], sets[-1]}) < 5:
        return None
    library = ctypes.CDLL(torch._C.__file__)  # also finds what it was linked with
    functions = {name: getattr(library, symbol) for name, symbol in _FUNCTIONS.items()}
    others = {name: getattr(library, symbol) for name, symbol in _OTHERS.items()}
    known = probes[:2] + probes[5:7]
    if not all(_is_right(probe, functions, others["requires_grad"]) for probe in known):
        return None
    made = _make(others, _ask(functions["dtype"], x))
    if made != (torch.Tensor, (2, 1), (1, 1), x.dtype, x.device, False, 1, sets[0]):
        return None
    dtypes, rows, kept = _dtypes_of(torch, functions["dtype"])
    facts = TensorFacts(
        tensor=id(torch.Tensor),
        parameter=id(torch.nn.Parameter),
        implementation=implementation,
        keys_at=keys_at,
        keys=sets[0],
        inference_keys=sets[2],
        dtypes=rows.ctypes.data,
        **{name: _address(function) for name, function in {**functions, **others}.items()},
    )
    words = np.array(facts, np.int64).view(Facts)
    words.kept, words.dtypes = (rows, kept, torch), dtypes
    return words


def _common_word(addresses: list[int], values: list[int], words: range) -> int:
    """Return the first word that has all of these values; read no more than needed."""
    for i in words:
        found = [ctypes.c_int64.from_address(address + WORD * i).value for address in addresses]
        if found == values:
            return i
    raise LookupError


def _signed(value: int) -> int:
    return ctypes.c_int64(value).value


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _ask(function: Any, x: Any) -> int:
    handle, answer = ctypes.c_int64(x._cdata), ctypes.c_int64(0)
    if function(ctypes.byref(handle), ctypes.byref(answer)):
        raise LookupError
    return answer.value


def _is_right(x: Any, functions: dict[str, Any], requires_grad: Any) -> bool:
    """Return whether torch's functions say of a tensor of rank 1 or 2 what Python says."""
    found = {name: _ask(function, x) for name, function in functions.items()}
    if found["rank"] != x.ndim:
        return False  # so the next lines stay within the struct
    places = [(ctypes.c_int64 * x.ndim).from_address(found[name]) for name in ("shape", "strides")]
    requires_grad.restype, requires_grad.argtypes = ctypes.c_bool, [ctypes.c_int64]
    return (
        [tuple(place) for place in places] == [tuple(x.shape), x.stride()]
        and found["data"] == x.data_ptr()
        and found["offset"] == x.storage_offset()
        and found["storage"] == x.untyped_storage().nbytes()
        and requires_grad(x._cdata) == x.requires_grad
    )


def _make(functions: dict[str, Any], dtype: int) -> tuple[Any, ...]:
    """Return what is known of a tensor that torch's functions made."""
    handle, words = ctypes.c_int64(0), ctypes.c_int64 * 2
    one, cpu = words(1, 1), ctypes.c_int32(0)
    arguments = ctypes.c_int64(2), words(2, 1), one, ctypes.c_int32(dtype), cpu, cpu
    if functions["new_tensor"](*arguments, ctypes.byref(handle)):
        raise LookupError
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64)
    x = kind(_address(functions["wrap"]))(handle)
    functions["drop"](handle)
    keys = _signed(sys.modules["torch"]._C._dispatch_keys(x).raw_repr())
    uses = sys.getrefcount(x) - 1
    return type(x), x.shape, x.stride(), x.dtype, x.device, x.requires_grad, uses, keys


def _dtypes_of(torch: Any, number_of: Any) -> tuple[list[Any], np.ndarray, list[np.dtype]]:
    """Return torch's dtypes by number, the table of `TensorFacts`, and NumPy's dtypes in it."""
    found: list[Any] = [None] * TORCH_DTYPES
    rows, kept = np.zeros((TORCH_DTYPES, 2), np.int64), []
    for dtype in {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}:
        try:
            x = torch.empty(1, dtype=dtype)
        except (RuntimeError, NotImplementedError, TypeError):
            continue
        word = memory.words().get(dtype)
        array, number = memory.array_of(x, word), _ask(number_of, x)
        if array is not None and array.itemsize == dtype.itemsize:
            found[number] = (dtype, word)
            rows[number] = id(array.dtype), array.itemsize
            kept.append(array.dtype)
    return found, rows, kept
