"""Small copies: one compiled call checks the arrays, or makes them, and copies.

A copy of 10 KB takes 0.2 µs. Checks in Python take 6 µs, because each attribute of an
array is a Python object, and NumPy takes 0.3 µs to make a part. The compiled functions of
`splitjit._kernels.small` read the fields of arrays and lists in memory, and make arrays by
NumPy's C functions in 0.1 µs. If a given array is not as expected, they copy nothing, and
the checks in Python decide.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjit._core.arrays import address_of
from splitjit._core.layout import ALIGNMENT, block_layout, fresh_layout
from splitjit._core.loading import jit_disabled, load, loaded
from splitjit._core.plan import SplitPlan
from splitjit._core.threads import loop_address
from splitjit._kernels import table
from splitjit._kernels.table import Expected

_MOST_PARTS = 64
"""The compiled check compares each output with all outputs before it."""

_API_VERSION = 0x02000000  # of NumPy 2


class SmallCopy(NamedTuple):
    """The compiled copy of arrays of one shape, dtype and strides.

    Attributes
    ----------
    into : callable
        ``into(x, outputs)`` copies `x` to the arrays of the list `outputs`, and returns 1.
        If an array is not as expected, or if two arrays may share memory, it copies nothing
        and returns 0.
    fresh : callable
        ``fresh(x)`` copies `x` to new parts in one block, each aligned to a cache line, and
        returns them in a list. If `x` is not as expected, it returns an empty list.
    fresh_checked : callable
        The same for an array of the expected shape and strides, and of an equal dtype.
    kept : tuple
        The objects whose addresses the functions hold. Hold this tuple during a call.
    """

    into: Callable[[Any, list[Any]], int]
    fresh: Callable[[Any], list[np.ndarray]]
    fresh_checked: Callable[[np.ndarray], list[np.ndarray]]
    kept: tuple[Any, ...]


def small_copy(
    plan: SplitPlan,
    dtype: np.dtype,
    strides: tuple[int, ...],
    bounds: tuple[int, int],
    stream: int,
    if_loaded: bool,
) -> SmallCopy | None:
    """Prepare the copy of small arrays.

    Parameters
    ----------
    plan : SplitPlan
    dtype : dtype
        The dtype of all arrays.
    strides : tuple of int
        The strides of the source, in bytes.
    bounds : (int, int)
        The source lies between these offsets from its first element.
    stream : int
        See `splitjit._kernels.table.Arguments`.
    if_loaded : bool
        Whether to prepare the copy only if its code is already loaded.

    Returns
    -------
    SmallCopy or None
        None if the code is not loaded, or cannot read arrays here, or if there are too many parts.
    """
    if len(plan) > _MOST_PARTS or not _READS_ARRAYS or _API is None:
        return None
    code = (loaded if if_loaded else load)(_code)
    if code is None:
        return None
    layout = fresh_layout(plan, strides, dtype.itemsize)
    loop = load(loop_address, layout.loop)
    if loop is None:
        return None
    outputs = layout.record.copy()
    words = Expected(
        array_type=id(np.ndarray),
        dtype=id(dtype),
        flags=table.C_CONTIGUOUS | table.WRITEABLE,
        rank=len(plan.shape),
        axis=plan.axis,
        count=len(plan),
        start=bounds[0],
        stop=bounds[1],
        stream=stream,
        loop=loop,
        fresh=layout.address,
        outputs=address_of(outputs),
        nbytes=block_layout(plan, dtype.itemsize).nbytes + ALIGNMENT,
        byte=id(_BYTE),
        new_array=_API[table.NEW_FROM_DESCR],
        set_base=_API[table.SET_BASE_OBJECT],
    )
    record = np.array([*words, *plan.shape, *strides, *plan.sizes], np.int64)
    into, fresh = code
    address = address_of(record)
    return SmallCopy(
        into=functools.partial(into, address),
        fresh=functools.partial(fresh, address, False),
        fresh_checked=functools.partial(fresh, address, True),
        kept=(dtype, layout, outputs, record),
    )


def load_small() -> None:
    """Compile the code of small copies, or load it from the cache."""
    load(_code, wait=True)
    for loop in table.LOOPS:
        load(loop_address, loop, wait=True)


def _code() -> tuple[Callable[..., Any], ...] | None:
    if jit_disabled():
        return None
    from splitjit._kernels.small import small_copies

    into, fresh = small_copies()
    return into, fresh


def _word(address: int, index: int) -> int:
    return ctypes.c_ssize_t.from_address(address + table.WORD * index).value


def _reads_arrays() -> bool:
    """Return whether arrays and lists lie in memory as the compiled functions expect."""
    is_gil_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    if sys.implementation.name != "cpython" or not is_gil_enabled():
        return False
    if np.dtype(np.intp).itemsize != table.WORD:
        return False
    strided = np.zeros((4, 6), np.int8)[::2, 1:4].T
    arrays: list[np.ndarray] = [np.zeros((2, 3)), strided, np.frombuffer(b"read-only", np.uint8)]
    items = [_word(_word(id(arrays), table.LIST_ITEMS), i) for i in range(len(arrays))]
    if _word(id(arrays), table.LIST_LENGTH) != len(arrays) or items != list(map(id, arrays)):
        return False
    return all(_lies_as_expected(array) for array in arrays)


def _lies_as_expected(array: np.ndarray) -> bool:
    at, rank = id(array), array.ndim
    shape, strides = _word(at, table.ARRAY_SHAPE), _word(at, table.ARRAY_STRIDES)
    found = [_word(at, i) for i in (table.OBJECT_TYPE, table.ARRAY_DATA, table.ARRAY_DTYPE)]
    ints = [_word(at, i) & table.INT_MASK for i in (table.ARRAY_RANK, table.ARRAY_FLAGS)]
    if found != [id(np.ndarray), array.ctypes.data, id(array.dtype)]:
        return False
    if ints != [rank, array.flags.num] or strides != shape + table.WORD * rank:
        return False  # so the next lines read only memory of the array
    extents = tuple([_word(shape, d) for d in range(rank)])
    return (
        extents == array.shape and tuple([_word(strides, d) for d in range(rank)]) == array.strides
    )


def _api() -> Sequence[int] | None:
    """Return the addresses of NumPy's C functions, or None if they are those of another version."""
    try:
        capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    except (ImportError, AttributeError):
        return None
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    address = kind(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, None)
    functions = (ctypes.c_ssize_t * (table.SET_BASE_OBJECT + 1)).from_address(address)
    version = ctypes.PYFUNCTYPE(ctypes.c_uint)(functions[table.API_VERSION])
    return list(functions) if version() == _API_VERSION else None


_READS_ARRAYS = _reads_arrays()
_API = _api()
_BYTE = np.dtype(np.uint8)
