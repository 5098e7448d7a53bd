"""Check arrays and make them, in less time than Python takes for one check, and copy small ones.

The functions read NumPy arrays and Python lists where these lie in memory; see
`splitjit._kernels.table` for the fields. They hold Python's global interpreter lock (GIL),
so that no other thread changes these objects, or the record of the outputs, meanwhile.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from numba import njit, types

from splitjit._kernels.compiling import compile_cached, jit
from splitjit._kernels.intrinsics import reserve, words_at
from splitjit._kernels.launch import call_loop
from splitjit._kernels.records import expected_at, layout_at
from splitjit._kernels.references import (
    OBJECT,
    address_of,
    decrement,
    increment,
    new_array,
    new_list,
    reference_to,
    set_base,
    set_item,
)
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
    MAX_RANK,
    NBYTES,
    OBJECT_TYPE,
    TARGET_OFFSET,
    WORD,
    Arguments,
    Expected,
)

_FIELDS = len(Expected._fields)
_SHAPE = WORD * MAX_RANK  # bytes

_MOST_COMPARED = 512
"""Each of so many outputs is compared with all outputs before it. If there are more, they must lie
in the order of their addresses."""


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
def _data_of(array):
    """Return the address of the first element of an ndarray."""
    return words_at(address_of(array))[ARRAY_DATA]


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


@jit(inline="always")
def _extents_at(expected, rank):
    """Return the shape of the source, its strides, and the sizes, which follow `Expected`."""
    shape = expected + WORD * _FIELDS
    row = WORD * rank
    return words_at(shape), words_at(shape + row), words_at(shape + 2 * row)


@jit(inline="always")
def _is_expected(call, expected, source):
    """Return whether an object is an array of the expected shape, dtype and strides."""
    if words_at(source)[OBJECT_TYPE] != call.array_type:  # only an ndarray has the other fields
        return False
    return _is_as(call, expected, source, call.dtype)


@jit(inline="always")
def _is_as(call, expected, source, dtype):
    """Return whether an ndarray has the expected shape and strides, and a dtype."""
    x = _array_at(source)
    if x.dtype != dtype or x.rank != call.rank:
        return False
    shape, strides, _ = _extents_at(expected, call.rank)
    for d in range(call.rank):  # noqa: SIM110 - a generator is slow in compiled code
        if x.shape[d] != shape[d] or x.strides[d] != strides[d]:
            return False
    return True


@jit(inline="always")
def _fit(call, expected, source, outputs, layout):
    """Return whether the arrays of a list fit, and share no memory with any other array.

    Write their addresses to the layout record at the address `layout`.
    """
    x = _array_at(source)
    shape, _, sizes = _extents_at(expected, call.rank)
    start, stop = x.data + call.start, x.data + call.stop
    given = words_at(outputs)
    if given[LIST_LENGTH] != call.count:
        return False
    items = words_at(given[LIST_ITEMS])
    record = layout_at(layout)
    row = record.rows
    highest = 0  # the end of the outputs so far
    for i in range(call.count):
        if words_at(items[i])[OBJECT_TYPE] != call.array_type:
            return False
        part = _array_at(items[i])
        if part.dtype != call.dtype or part.rank != call.rank:
            return False
        if part.flags & call.flags != call.flags:
            return False
        for d in range(call.rank):
            if part.shape[d] != (sizes[i] if d == call.axis else shape[d]):
                return False
        if sizes[i] == 0:  # the layout has no row for it
            continue
        words = words_at(row)
        first, last = part.data, part.data + words[NBYTES]
        if first < stop and start < last:
            return False
        if first < highest:
            if call.count > _MOST_COMPARED:
                return False
            for earlier in range(record.rows, row, record.row):
                other = words_at(earlier)
                if first < other[TARGET_OFFSET] + other[NBYTES] and other[TARGET_OFFSET] < last:
                    return False
        highest = max(highest, last)
        words[TARGET_OFFSET] = first
        row += record.row
    return True


def _into(record, layout, source, outputs):
    """Check a source and the arrays of a list, and copy if the record has a loop.

    Parameters
    ----------
    record : ndarray
        The record of `Expected`.
    layout : ndarray
        A layout record, to which this function writes the addresses of the outputs.
    source : object
        Any object.
    outputs : list

    Returns
    -------
    int
        The address of the first element of the source, or 0 if an array is not as expected,
        or if two arrays share memory. Then nothing has been copied.
    """
    expected = _data_of(record)
    call = expected_at(expected)
    x = address_of(source)
    if not _is_expected(call, expected, x):
        return 0
    to = _data_of(layout)
    if not _fit(call, expected, x, address_of(outputs), to):
        return 0
    data = words_at(x)[ARRAY_DATA]
    if call.loop:
        call_loop(call.loop, 0, 1, Arguments(call.stream, 0, data, to))
    return data


def _fresh(record, is_checked, source):
    """Copy an array to new parts in one block of memory if the array is as expected.

    Objects are made before the address of the data is read: to make them may start Python's
    garbage collector, and a finalizer may change the array.

    Parameters
    ----------
    record : ndarray
        The record of `Expected`.
    is_checked : int
        1 if the caller knows that the array is as expected. Its dtype may be another object
        that is equal to the expected one.
    source : object
        Any object.

    Returns
    -------
    list of ndarray
        The parts, or an empty list if nothing has been copied. The call raises MemoryError
        if there is not enough memory.
    """
    expected = _data_of(record)
    call = expected_at(expected)
    array = address_of(source)
    if not is_checked and not _is_expected(call, expected, array):
        return reference_to(new_list(0))
    dtype = words_at(array)[ARRAY_DTYPE]
    increment(dtype)
    memory = _bytes(call, 0)
    parts = 0
    block = 0
    if memory:
        block = -(-words_at(memory)[ARRAY_DATA] // LINE) * LINE
        parts = _parts_of(call, expected, dtype, memory, block, new_list(call.count))
        decrement(memory)  # each part has a reference of its own
    if parts:
        if _is_as(call, expected, array, dtype):
            data = words_at(array)[ARRAY_DATA]
            call_loop(call.loop, 0, 1, Arguments(call.stream, block, data, call.fresh))
        else:
            decrement(parts)
            parts = new_list(0)
    decrement(dtype)
    return reference_to(parts)


@jit(inline="always")
def _bytes(call, data):
    """Make the array of the bytes of a block, over given memory, or over new memory."""
    length = reserve(WORD, WORD)
    words_at(length)[0] = call.nbytes
    return new_array(call, call.byte, 1, length, data)


@jit(inline="always")
def _parts_of(call, expected, dtype, memory, block, parts):
    """Put arrays over a block into a list; return the list, or 0 if NumPy has set an error."""
    if not parts:
        return 0
    shape = reserve(_SHAPE, WORD)
    extents = words_at(shape)
    whole, _, sizes = _extents_at(expected, call.rank)
    for d in range(call.rank):
        extents[d] = whole[d]
    layout = layout_at(call.fresh)
    row = layout.rows
    for i in range(call.count):
        extents[call.axis] = sizes[i]
        data = block
        if sizes[i]:  # the layout has no row for an empty part
            data += words_at(row)[TARGET_OFFSET]
            row += layout.row
        part = new_array(call, dtype, call.rank, shape, data)
        set_item(parts, i, part)  # the list drops the part if there is an error
        if not part or not set_base(call, part, memory):
            decrement(parts)
            return 0
    return parts


def _source(record, source):
    """Return the address of the first element of an array, or 0 if it is not as expected."""
    expected = _data_of(record)
    x = address_of(source)
    if not _is_expected(expected_at(expected), expected, x):
        return 0
    return words_at(x)[ARRAY_DATA]


def _parts(record, source, memory, block):
    """Make the parts of an array, which is as expected, over a block of memory.

    Parameters
    ----------
    record : ndarray
        The record of `Expected`.
    source : ndarray
    memory : object
        The owner of the memory.
    block : int
        Address of the block.

    Returns
    -------
    list of ndarray
        The parts, uninitialized, and at last the array that is the base of all of them.
    """
    expected = _data_of(record)
    call = expected_at(expected)
    dtype = words_at(address_of(source))[ARRAY_DTYPE]
    increment(dtype)  # a finalizer may give the source another dtype
    lease = _bytes(call, block)
    parts = 0
    if lease:
        if set_base(call, lease, address_of(memory)):
            parts = _parts_of(call, expected, dtype, lease, block, new_list(call.count + 1))
        if parts:
            set_item(parts, call.count, lease)
        else:
            decrement(lease)
    decrement(dtype)
    return reference_to(parts)


_SIGNATURES = {
    _into: types.intp(OBJECT, OBJECT, OBJECT, OBJECT),
    _fresh: OBJECT(OBJECT, types.intp, OBJECT),
    _parts: OBJECT(OBJECT, OBJECT, OBJECT, types.intp),
    _source: types.intp(OBJECT, OBJECT),
}


@functools.cache
def code():
    """Compile the functions of entries, or load them from the cache.

    Returns
    -------
    into, fresh, parts, source : callable
        The compiled functions without Numba's dispatchers, which take 0.1 µs for a call.
    """
    return tuple([_compiled(function) for function in _SIGNATURES])


def _compiled(function):
    signature = _SIGNATURES[function]
    return compile_cached(njit, signature, function, nogil=False).get_overload(signature.args)
