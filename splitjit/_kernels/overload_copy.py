"""Lay out, check and run copies in users' compiled code."""

from __future__ import annotations

from typing import NamedTuple

from splitjit._abi import columns
from splitjit._abi.calls import CALL, FUNCTIONS_AT, OUTS_FAULT, Arguments, LayoutRequest
from splitjit._abi.layout_record import LOOP, STREAM, WORD, most_words
from splitjit._abi.shared import ALLOWED, CHUNKS_PER_THREAD, SPACING
from splitjit._abi.structs import NUMBA_DATA, NUMBA_ITEMS, NUMBA_ITEMSIZE, NUMBA_SHAPE
from splitjit._kernels.compiling import jit, jit_all
from splitjit._kernels.intrinsics import (
    call,
    greatest,
    least,
    out_of_line,
    read_word,
    stored,
    words_at,
)

_MOST = (1 << 63) - 1
_most_words = jit(most_words)


@jit
def refuse(words, fault, first, second, third):
    """Note the values for a fault's text, and return the fault."""
    words[CALL.first], words[CALL.second], words[CALL.third] = first, second, third
    return fault


@jit
def row_of(words):
    """Return the bytes of a Numba array of the call's rank."""
    return WORD * (NUMBA_SHAPE + 2 * words[CALL.rank])


@jit
def memory_words(rank, count):
    """Return the words of a call's memory: the sizes, two for each array, the layout record."""
    return 3 * count + 2 + _most_words(rank, count)


@jit
def record_of(words):
    """Return the address of the layout record in the call's memory; see `memory_words`."""
    return words[CALL.memory] + WORD * (3 * words[CALL.count] + 2)


@jit
def lay_out(words, functions, are_fresh):
    """Write the layout record; return the bytes of a block for the parts."""
    out_of_line()
    x, rank, parts = words_at(words[CALL.x]), words[CALL.rank], words[CALL.parts]
    shape = words[CALL.x] + WORD * NUMBA_SHAPE
    strides = WORD * (NUMBA_SHAPE + rank)
    stream_short_runs = functions[FUNCTIONS_AT.stream_short_runs]
    stream_long_runs = functions[FUNCTIONS_AT.stream_long_runs]
    if are_fresh and functions[FUNCTIONS_AT.blocks] == 0:
        # A block from malloc is in the cache, because the system has just zeroed its pages.
        stream_short_runs = stream_long_runs = _MOST
    request = LayoutRequest(
        rank, words[CALL.axis], words[CALL.count], x[NUMBA_ITEMSIZE],
        shape, shape + WORD * rank, words[CALL.memory],
        0 if are_fresh else parts + WORD * NUMBA_DATA, parts + strides,
        row_of(words), stream_short_runs, stream_long_runs, record_of(words),
    )  # fmt: skip
    return call(functions[FUNCTIONS_AT.lay_out], (stored(request),))


@jit
def copy_laid_out(words, functions, target):
    """Run the copy in the layout record, with helpers if they pay.

    Target offsets are relative to the address `target`.
    """
    out_of_line()
    x, record = words_at(words[CALL.x]), record_of(words)
    header = words_at(record)
    nbytes = x[NUMBA_ITEMS] * x[NUMBA_ITEMSIZE]
    team, helpers = functions[FUNCTIONS_AT.team], 0
    if nbytes >= functions[FUNCTIONS_AT.shared_from]:
        helpers = read_word(team + SPACING * ALLOWED)
    chunks = least(nbytes // functions[FUNCTIONS_AT.chunk], CHUNKS_PER_THREAD * (helpers + 1))
    loop = functions[FUNCTIONS_AT.plain + header[LOOP]]
    arguments = stored(Arguments(header[STREAM], target, x[NUMBA_DATA], record))
    call(functions[FUNCTIONS_AT.share], (team, loop, helpers, chunks, arguments))


# ---- shared memory ---------------------------------------------------------------------------


class _Arrays(NamedTuple):
    """The given parts and the source, which comes last; all are Numba arrays."""

    parts: int
    row: int
    count: int
    rank: int
    x: int


@jit
def _array_at(arrays, i):
    return words_at(arrays.x if i == arrays.count else arrays.parts + i * arrays.row)


@jit
def _address_at(arrays, i):
    return _array_at(arrays, i)[NUMBA_DATA]


@jit
def _extent_at(arrays, i, d):
    return _array_at(arrays, i)[NUMBA_SHAPE + d]


@jit
def _stride_at(arrays, i, d):
    return _array_at(arrays, i)[NUMBA_SHAPE + arrays.rank + d]


@jit
def _sort(order, keys, count):
    """Sort numbers by their keys, by shell sort."""
    out_of_line()
    gap = 1
    while gap < count:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            moved, k = order[i], i
            while k >= gap and keys[order[k - gap]] > keys[moved]:
                order[k] = order[k - gap]
                k -= gap
            order[k] = moved
        gap //= 3


_compiled = jit_all(
    columns,
    address_at=_address_at,
    extent_at=_extent_at,
    stride_at=_stride_at,
    sort=_sort,
    min=least,
)
_are_apart, _find_meeting = _compiled["are_apart"], _compiled["find_meeting"]
_lowest_at, _length_at = _compiled["lowest_at"], _compiled["length_at"]


@jit
def _part_at(arrays, itemsize, full, lows, order):
    """Return the number of a part whose address range meets that of the source, or -1."""
    x, rank = arrays.count, arrays.rank
    low = _lowest_at(arrays, rank, x)
    end = low + _length_at(arrays, rank, itemsize, x, _MOST)
    for k in range(full):
        i = order[k]
        if low < lows[i] + _length_at(arrays, rank, itemsize, i, _MOST) and lows[i] < end:
            return i
    return -1


@jit
def check_apart(words):
    """Return 0, or a fault if two arrays may share memory."""
    out_of_line()
    count, rank = words[CALL.count], words[CALL.rank]
    arrays = _Arrays(words[CALL.parts], row_of(words), count, rank, words[CALL.x])
    sizes, lows = words_at(words[CALL.memory]), words_at(words[CALL.memory] + WORD * count)
    order = words_at(words[CALL.memory] + WORD * (2 * count + 1))
    full, axis = 0, words[CALL.axis]
    itemsize = words_at(words[CALL.x])[NUMBA_ITEMSIZE]
    for i in range(count):
        if sizes[i] > 0:
            order[full] = i
            full += 1
    if not _are_apart(arrays, rank, axis, itemsize, full, lows, order):
        k = _find_meeting(arrays, rank, itemsize, full, lows, order)
        first, second = least(order[k - 1], order[k]), greatest(order[k - 1], order[k])
        return refuse(words, OUTS_FAULT + 3, first, second, 0)
    meets = _part_at(arrays, itemsize, full, lows, order)
    if meets < 0:
        return 0
    order[full] = count
    if _are_apart(arrays, rank, axis, itemsize, full + 1, lows, order):
        return 0
    return refuse(words, OUTS_FAULT + 2, meets, 0, 0)


@jit
def copy_to_given(words, functions):
    """Copy `x` to given parts; return 0, or a fault if two arrays share memory."""
    x = words_at(words[CALL.x])
    if x[NUMBA_ITEMS] == 0 or x[NUMBA_ITEMSIZE] == 0:
        return 0
    fault = check_apart(words)
    if not fault:
        lay_out(words, functions, False)
        copy_laid_out(words, functions, 0)
    return fault
