"""Lay out, check and run copies in users' compiled code."""

from __future__ import annotations

from splitjit._abi import columns
from splitjit._abi.calls import CALL, FUNCTIONS_AT, OUTS_FAULT, Arguments, LayoutRequest
from splitjit._abi.layout_record import LOOP, STREAM, WORD, most_words
from splitjit._abi.shared import ALLOWED, CHUNKS_PER_THREAD, SPACING
from splitjit._abi.structs import NUMBA
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
    return WORD * (NUMBA.shape + 2 * words[CALL.rank])


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
    x = words[CALL.x]
    request = LayoutRequest(
        words[CALL.rank], words[CALL.axis], words[CALL.count], words_at(x)[NUMBA.itemsize],
        x + WORD * NUMBA.shape, words[CALL.memory],
        0 if are_fresh else words[CALL.parts] + WORD * NUMBA.data, row_of(words),
        functions[FUNCTIONS_AT.stream_short_runs], functions[FUNCTIONS_AT.stream_long_runs],
        record_of(words),
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
    nbytes = x[NUMBA.items] * x[NUMBA.itemsize]
    team, helpers = functions[FUNCTIONS_AT.team], 0
    if nbytes >= functions[FUNCTIONS_AT.shared_from]:
        helpers = read_word(team + SPACING * ALLOWED)
    chunks = least(nbytes // functions[FUNCTIONS_AT.chunk], CHUNKS_PER_THREAD * (helpers + 1))
    loop = functions[FUNCTIONS_AT.plain + header[LOOP]]
    arguments = stored(Arguments(header[STREAM], target, x[NUMBA.data], record))
    call(functions[FUNCTIONS_AT.share], (team, loop, helpers, chunks, arguments))


# ---- shared memory ---------------------------------------------------------------------------


_columns = jit_all(columns)
_are_apart, _find_meeting = _columns["are_apart"], _columns["find_meeting"]
_lowest_at, _length_at = _columns["lowest_at"], _columns["length_at"]


@jit
def _sort(lows, places, count):
    """Sort arrays by their lowest addresses, by shell sort."""
    out_of_line()
    gap = 1
    while gap < count:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            low, place, k = lows[i], places[i], i
            while k >= gap and lows[k - gap] > low:
                lows[k], places[k] = lows[k - gap], places[k - gap]
                k -= gap
            lows[k], places[k] = low, place
        gap //= 3


@jit
def _part_at(arrays, rank, itemsize, x, count, lows, places):
    """Return the index of a part whose address range meets that of the source, or -1."""
    low = _lowest_at(arrays, rank, x)
    end = low + _length_at(arrays, rank, itemsize, x, _MOST)
    for k in range(count):
        if low < lows[k] + _length_at(arrays, rank, itemsize, places[k], _MOST) and lows[k] < end:
            return places[k]
    return -1


@jit
def check_apart(words):
    """Return 0, or a fault if two arrays may share memory."""
    out_of_line()
    rank, axis, parts = words[CALL.rank], words[CALL.axis], words[CALL.count]
    memory, row = words[CALL.memory], row_of(words) // WORD
    sizes, lows = words_at(memory), words_at(memory + WORD * parts)
    places = words_at(memory + WORD * (2 * parts + 1))
    arrays = words_at(words[CALL.parts] + WORD * NUMBA.data)  # shape and strides follow the address
    x = (words[CALL.x] - words[CALL.parts]) // WORD
    itemsize, count = words_at(words[CALL.x])[NUMBA.itemsize], 0
    for i in range(parts):
        if sizes[i] > 0:
            lows[count], places[count] = _lowest_at(arrays, rank, i * row), i * row
            count += 1
    _sort(lows, places, count)
    if not _are_apart(arrays, rank, axis, itemsize, count, lows, places):
        k = _find_meeting(arrays, rank, itemsize, count, lows, places)
        first, second = places[k - 1] // row, places[k] // row
        return refuse(words, OUTS_FAULT + 3, least(first, second), greatest(first, second), 0)
    meets = _part_at(arrays, rank, itemsize, x, count, lows, places)
    if meets < 0:
        return 0
    lows[count], places[count] = _lowest_at(arrays, rank, x), x
    _sort(lows, places, count + 1)
    if _are_apart(arrays, rank, axis, itemsize, count + 1, lows, places):
        return 0
    return refuse(words, OUTS_FAULT + 2, meets // row, 0, 0)


@jit
def copy_to_given(words, functions):
    """Copy `x` to given parts; return 0, or a fault if two arrays share memory."""
    x = words_at(words[CALL.x])
    if x[NUMBA.items] == 0 or x[NUMBA.itemsize] == 0:
        return 0
    fault = check_apart(words)
    if not fault:
        lay_out(words, functions, False)
        copy_laid_out(words, functions, 0)
    return fault
