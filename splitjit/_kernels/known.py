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
    x = _array_at(source)
    if x.dtype != call.dtype or x.rank != call.rank:
        return False
    shape, strides, _ = _extents_at(expected, call.rank)
    for d in range(call.rank):  # noqa: SIM110 - a generator is slow in compiled code
        if x.shape[d] != shape[d] or x.strides[d] != strides[d]:
            return False
    return True


@jit(inline="always")
def _fit(call, expected, source, outputs, known):
    """Return whether the arrays of a list fit, and share no memory with the source.

    If `known`, they must be the outputs of the layout. Otherwise they must share no memory
    with each other, and become the outputs of the layout.
    """
    x = _array_at(source)
    shape, _, sizes = _extents_at(expected, call.rank)
    start, stop = x.data + call.start, x.data + call.stop
    given = words_at(outputs)
    if given[LIST_LENGTH] != call.count:
        return False
    items = words_at(given[LIST_ITEMS])
    layout = layout_at(call.outputs)
    row = layout.rows
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
        if known:
            if first != words[TARGET_OFFSET]:
                return False
        else:
            for earlier in range(layout.rows, row, layout.row):
                other = words_at(earlier)
                if first < other[TARGET_OFFSET] + other[NBYTES] and other[TARGET_OFFSET] < last:
                    return False
            words[TARGET_OFFSET] = first
        row += layout.row
    return True


def _into(expected, source, outputs):
    """Copy an array to the arrays of a list if all of them are as expected.

    Parameters
    ----------
    expected : int
        Address of the record of `Expected`.
    source : object
        Any object.
    outputs : list

    Returns
    -------
    int
        1, or 0 if nothing has been copied.
    """
    call = expected_at(expected)
    x = address_of(source)
    if not _is_expected(call, expected, x):
        return 0
    if not _fit(call, expected, x, address_of(outputs), False):
        return 0
    data = words_at(x)[ARRAY_DATA]
    call_loop(call.loop, 0, 1, Arguments(call.stream, 0, data, call.outputs))
    return 1


def _fresh(expected, is_checked, source):
    """Copy an array to new parts in one block of memory if the array is as expected.

    Parameters
    ----------
    expected : int
        Address of the record of `Expected`.
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
    call = expected_at(expected)
    if not is_checked and not _is_expected(call, expected, address_of(source)):
        return reference_to(new_list(0))
    x = words_at(address_of(source))
    memory = _bytes(call, 0)
    if not memory:
        return reference_to(0)
    block = -(-words_at(memory)[ARRAY_DATA] // LINE) * LINE
    parts = _parts_of(call, expected, x[ARRAY_DTYPE], memory, block, new_list(call.count))
    decrement(memory)  # each part has a reference of its own
    if parts:
        call_loop(call.loop, 0, 1, Arguments(call.stream, block, x[ARRAY_DATA], call.fresh))
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


def _source(expected, source):
    """Return the address of the first element of an array, or 0 if it is not as expected."""
    x = address_of(source)
    if not _is_expected(expected_at(expected), expected, x):
        return 0
    return words_at(x)[ARRAY_DATA]


def _source_and_outputs(expected, source, outputs):
    """Return the same, or 0 if the arrays of a list are not the known outputs, or share memory."""
    call = expected_at(expected)
    x = address_of(source)
    if not call.outputs or not _is_expected(call, expected, x):
        return 0
    if not _fit(call, expected, x, address_of(outputs), True):
        return 0
    return words_at(x)[ARRAY_DATA]


def _parts(expected, source, memory, block):
    """Make the parts of an array, which is as expected, over a block of memory.

    Parameters
    ----------
    expected : int
        Address of the record of `Expected`.
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
    call = expected_at(expected)
    lease = _bytes(call, block)
    if not lease:
        return reference_to(0)
    parts = 0
    if set_base(call, lease, address_of(memory)):
        dtype = words_at(address_of(source))[ARRAY_DTYPE]
        parts = _parts_of(call, expected, dtype, lease, block, new_list(call.count + 1))
    if parts:
        set_item(parts, call.count, lease)
    else:
        decrement(lease)
    return reference_to(parts)


_SIGNATURES = {
    _into: types.intp(types.intp, OBJECT, OBJECT),
    _fresh: OBJECT(types.intp, types.intp, OBJECT),
    _source: types.intp(types.intp, OBJECT),
    _source_and_outputs: types.intp(types.intp, OBJECT, OBJECT),
    _parts: OBJECT(types.intp, OBJECT, OBJECT, types.intp),
}


@functools.cache
def small_code():
    """Compile the functions for small arrays, or load them from the cache.

    Returns
    -------
    into, fresh : callable
        The compiled functions without Numba's dispatchers, which take 0.1 µs for a call.
    """
    return _compiled(_into), _compiled(_fresh)


@functools.cache
def large_code():
    """Compile the functions for large arrays, or load them from the cache; see `small_code`.

    Returns
    -------
    source, source_and_outputs, parts : callable
    """
    return _compiled(_source), _compiled(_source_and_outputs), _compiled(_parts)


def _compiled(function):
    signature = _SIGNATURES[function]
    return compile_cached(njit, signature, function, nogil=False).get_overload(signature.args)
