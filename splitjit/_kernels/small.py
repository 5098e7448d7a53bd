"""Check arrays and copy them in one call, which takes less time than one check in Python.

The functions read NumPy arrays and Python lists where these lie in memory; see
`splitjit._kernels.table` for the fields. They hold Python's global interpreter lock (GIL),
so that no other thread changes these objects, or the record of the outputs, meanwhile.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from numba import njit, types

from splitjit._kernels.compiling import compile_cached, jit
from splitjit._kernels.intrinsics import words_at
from splitjit._kernels.launch import call_loop
from splitjit._kernels.records import expected_at, layout_at
from splitjit._kernels.table import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    INT_MASK,
    LINE,
    LIST_ITEMS,
    LIST_LENGTH,
    NBYTES,
    OBJECT_TYPE,
    TARGET_OFFSET,
    WORD,
    Arguments,
    Expected,
)

_FIELDS = len(Expected._fields)


class _Array(NamedTuple):
    """The fields of an ndarray, with pointers to its shape and strides."""

    type: int
    data: int
    rank: int
    shape: Any
    strides: Any
    dtype: int
    flags: int


@jit(inline="always")
def _array_at(address):
    words = words_at(address)
    return _Array(
        words[OBJECT_TYPE],
        words[ARRAY_DATA],
        words[ARRAY_RANK] & INT_MASK,
        words_at(words[ARRAY_SHAPE]),
        words_at(words[ARRAY_STRIDES]),
        words[ARRAY_DTYPE],
        words[ARRAY_FLAGS] & INT_MASK,
    )


def _into(source, outputs, expected):
    """Copy an array to the arrays of a list if all of them are as expected.

    Parameters
    ----------
    source : int
        Address of the array.
    outputs : int
        Address of the list.
    expected : int
        Address of the record of `Expected`.

    Returns
    -------
    int
        1, or 0 if nothing has been copied.
    """
    call = expected_at(expected)
    shape = words_at(expected + WORD * _FIELDS)
    strides = words_at(expected + WORD * (_FIELDS + call.rank))
    sizes = words_at(expected + WORD * (_FIELDS + 2 * call.rank))
    x = words_at(source)
    if x[OBJECT_TYPE] != call.array_type:  # only an ndarray has the other fields
        return 0
    x = _array_at(source)
    if x.dtype != call.dtype or x.rank != call.rank:
        return 0
    for d in range(call.rank):
        if x.shape[d] != shape[d] or x.strides[d] != strides[d]:
            return 0
    start, stop = x.data + call.start, x.data + call.stop
    given = words_at(outputs)
    if given[LIST_LENGTH] != call.count:
        return 0
    items = words_at(given[LIST_ITEMS])
    layout = layout_at(call.outputs)
    row = layout.rows
    for i in range(call.count):
        if words_at(items[i])[OBJECT_TYPE] != call.array_type:
            return 0
        part = _array_at(items[i])
        if part.dtype != call.dtype or part.rank != call.rank:
            return 0
        if part.flags & call.flags != call.flags:
            return 0
        for d in range(call.rank):
            if part.shape[d] != (sizes[i] if d == call.axis else shape[d]):
                return 0
        if sizes[i] == 0:  # the layout has no row for it
            continue
        words = words_at(row)
        first, last = part.data, part.data + words[NBYTES]
        if first < stop and start < last:
            return 0
        for earlier in range(layout.rows, row, layout.row):
            other = words_at(earlier)
            if first < other[TARGET_OFFSET] + other[NBYTES] and other[TARGET_OFFSET] < last:
                return 0
        words[TARGET_OFFSET] = first
        row += layout.row
    call_loop(call.loop, 0, 1, Arguments(call.stream, 0, x.data, call.outputs))
    return 1


def _fresh(source, memory, expected):
    """Copy an array to an aligned block in new memory.

    Parameters
    ----------
    source, memory : int
        Addresses of the array, which is as expected, and of the array over the memory.
    expected : int
        Address of the record of `Expected`.

    Returns
    -------
    int
        The byte of the memory at which the block starts.
    """
    call = expected_at(expected)
    address = words_at(memory)[ARRAY_DATA]
    start = -address % LINE
    data = words_at(source)[ARRAY_DATA]
    call_loop(call.loop, 0, 1, Arguments(call.stream, address + start, data, call.fresh))
    return start


@functools.cache
def small_copies():
    """Compile both functions, or load them from the cache.

    Returns
    -------
    into, fresh : callable
        The compiled functions without Numba's dispatchers, which take 0.1 µs for a call.
    """
    signature = types.intp(types.intp, types.intp, types.intp)
    functions = [compile_cached(njit, signature, f, nogil=False) for f in (_into, _fresh)]
    return tuple(f.get_overload(signature.args) for f in functions)
