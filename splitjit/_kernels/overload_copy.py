"""Lay out, check and run copies in users' compiled code."""

from __future__ import annotations

from splitjit._abi.calls import CALL, FUNCTIONS_AT, OUTS_FAULT, Arguments, LayoutRequest
from splitjit._abi.layout_record import LOOP, STREAM, WORD
from splitjit._abi.overlap import Strided
from splitjit._abi.shared import ALLOWED, CHUNKS_PER_THREAD, SPACING
from splitjit._abi.structs import NUMBA_DATA, NUMBA_ITEMS, NUMBA_ITEMSIZE, NUMBA_SHAPE
from splitjit._kernels.apart import are_apart, end_of, find_shared, lowest
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import call, least, out_of_line, read_word, words_at
from splitjit._kernels.launch import stored
from splitjit._kernels.records import layout_at

_MOST = (1 << 63) - 1


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
def record_of(words):
    """Return the address of the layout record, which follows the sizes in the call's memory."""
    return words[CALL.memory] + WORD * 4 * words[CALL.count]


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


@jit
def check_apart(words, layout):
    """Return 0, or a fault if two arrays share memory."""
    x, rank = words_at(words[CALL.x]), words[CALL.rank]
    shape = words[CALL.x] + WORD * NUMBA_SHAPE
    extents, strides = words_at(shape), words_at(shape + WORD * rank)
    low = lowest(x[NUMBA_DATA], rank, extents, strides)
    source = Strided(low, x[NUMBA_ITEMSIZE], rank, extents, strides)
    if are_apart(layout, low, end_of(source), False):
        return 0
    i, j = find_shared(layout, source, words[CALL.memory] + WORD * words[CALL.count])
    if i < 0:
        return 0
    first = _number_of(words, i)
    if j < 0:
        return refuse(words, OUTS_FAULT + 2, first, 0, 0)
    return refuse(words, OUTS_FAULT + 3, first, _number_of(words, j), 0)


@jit
def _number_of(words, row):
    """Return the number of the part in a row of the layout record, which has no empty parts."""
    sizes = words_at(words[CALL.memory])
    i = 0
    while sizes[i] == 0 or row > 0:
        row -= sizes[i] > 0
        i += 1
    return i


@jit
def copy_to_given(words, functions):
    """Copy `x` to given parts; return 0, or a fault if two arrays share memory."""
    x = words_at(words[CALL.x])
    if x[NUMBA_ITEMS] == 0 or x[NUMBA_ITEMSIZE] == 0:
        return 0
    lay_out(words, functions, False)
    fault = check_apart(words, layout_at(record_of(words)))
    if not fault:
        copy_laid_out(words, functions, 0)
    return fault
