"""Lay out, check and run copies in users' compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

from splitjit._abi import merge
from splitjit._abi.calls import CALL, FUNCTIONS_AT, OUTS_FAULT
from splitjit._abi.kernels import LONG_RUN
from splitjit._abi.layout_record import (
    COUNT,
    DIMS,
    FIXED,
    HEADER,
    MAX_RANK,
    NBYTES,
    RUN,
    RUNS,
    SOURCE_OFFSET,
    TARGET_OFFSET,
    WORD,
    row_words,
)
from splitjit._abi.overlap import Strided
from splitjit._abi.shared import ALLOWED, CHUNKS_PER_THREAD, SPACING
from splitjit._abi.structs import NUMBA_DATA, NUMBA_ITEMS, NUMBA_ITEMSIZE, NUMBA_SHAPE
from splitjit._kernels.apart import are_apart, end_of, find_shared, lowest
from splitjit._kernels.compiling import jit, jit_all
from splitjit._kernels.intrinsics import (
    call,
    greatest,
    least,
    out_of_line,
    read_word,
    reserve,
    words_at,
)
from splitjit._kernels.records import layout_at

_MOST = (1 << 63) - 1
_DIMS = WORD * MAX_RANK
_ARGUMENTS = 4 * WORD
_row_words = jit(row_words)


@jit
def refuse(words, fault, first, second, third):
    """Note the values for a fault's text, and return the fault."""
    words[CALL.first], words[CALL.second], words[CALL.third] = first, second, third
    return fault


class _Arrays(NamedTuple):
    """The source and the parts of a call, which are Numba arrays."""

    x: Any
    rank: int
    axis: int
    count: int
    sizes: Any
    parts: int
    row: int


@jit
def _arrays_of(words):
    rank = words[CALL.rank]
    row = WORD * (NUMBA_SHAPE + 2 * rank)
    x, sizes = words_at(words[CALL.x]), words_at(words[CALL.memory])
    return _Arrays(x, rank, words[CALL.axis], words[CALL.count], sizes, words[CALL.parts], row)


@jit
def _is_even(arrays, d, inner):
    """Return whether dim `d` steps evenly over dim `inner`; -1 stands for an item."""
    x, strides = arrays.x, NUMBA_SHAPE + arrays.rank
    for i in range(arrays.count):
        if arrays.sizes[i] == 0:
            continue
        part = words_at(arrays.parts + i * arrays.row)
        extent = 1
        source_step = step = x[NUMBA_ITEMSIZE]
        if inner >= 0:
            extent = part[NUMBA_SHAPE + inner]
            source_step, step = x[strides + inner], part[strides + inner]
        if part[strides + d] != extent * step or x[strides + d] != extent * source_step:
            return False
    return True


@jit
def _has_one_item(arrays, d):
    """Return whether dim `d` has extent 1 in all non-empty parts."""
    if d != arrays.axis:
        return arrays.x[NUMBA_SHAPE + d] == 1
    for i in range(arrays.count):  # noqa: SIM110 - a generator is slow in compiled code
        if arrays.sizes[i] > 1:
            return False
    return True


_compiled = jit_all(merge, is_even=_is_even, has_one_item=_has_one_item)
_order_dims, _merge = _compiled["order_dims"], _compiled["merge"]


@jit
def _first_part(arrays):
    """Return the address of the first part that is not empty."""
    i = 0
    while arrays.sizes[i] == 0:
        i += 1
    return arrays.parts + i * arrays.row


@jit
def _lay_out(words, record):
    """Write the layout record, as `splitjit._copy.layout` does; return the shortest run."""
    out_of_line()
    arrays = _arrays_of(words)
    rank, x, row = arrays.rank, arrays.x, arrays.row
    order = words_at(reserve(_DIMS, WORD))
    groups = words_at(reserve(_DIMS, WORD))
    inners = words_at(reserve(_DIMS, WORD))
    _order_dims(rank, words_at(_first_part(arrays) + WORD * (NUMBA_SHAPE + rank)), order)
    dims = _merge(arrays, rank, order, groups, inners)
    header = words_at(record)
    width = greatest(dims, 1)
    source_strides = words_at(record + WORD * HEADER)
    source_strides[0] = 0
    for g in range(dims):
        source_strides[dims - 1 - g] = x[NUMBA_SHAPE + rank + inners[g]]
    sizes = words_at(words[CALL.memory])
    target = record + WORD * (HEADER + width)
    source_offset = count = runs = 0
    shortest = _MOST
    for i in range(words[CALL.count]):
        if sizes[i] == 0:
            continue
        part, fields = words_at(words[CALL.parts] + i * row), words_at(target)
        extents, strides = (
            words_at(target + WORD * FIXED),
            words_at(target + WORD * (FIXED + width)),
        )
        extents[0], strides[0] = 1, 0
        for g in range(dims):
            extents[g] = 1
            strides[dims - 1 - g] = part[NUMBA_SHAPE + rank + inners[g]]
        run = x[NUMBA_ITEMSIZE]
        for d in range(rank):
            if groups[d] == 0:
                run *= part[NUMBA_SHAPE + d]
            elif groups[d] > 0:
                extents[dims - groups[d]] *= part[NUMBA_SHAPE + d]
        nbytes = part[NUMBA_ITEMS] * x[NUMBA_ITEMSIZE]
        fields[SOURCE_OFFSET], fields[TARGET_OFFSET] = source_offset, part[NUMBA_DATA]
        fields[RUN], fields[NBYTES] = run, nbytes
        runs_here = nbytes // greatest(run, 1)
        runs = runs_here if count == 0 or runs == runs_here else 0
        shortest = least(shortest, run)
        source_offset += sizes[i] * x[NUMBA_SHAPE + rank + words[CALL.axis]]
        target += WORD * _row_words(width)
        count += 1
    header[DIMS], header[COUNT], header[RUNS] = width, count, runs
    return shortest


@jit
def _check_apart(words, layout):
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
def copy_parts(words, functions, are_fresh):
    """Copy `x` to the parts, with helpers if they pay; return 0, or a fault of given parts."""
    x = words_at(words[CALL.x])
    if x[NUMBA_ITEMS] == 0 or x[NUMBA_ITEMSIZE] == 0:
        return 0
    record = words[CALL.memory] + WORD * 4 * words[CALL.count]
    shortest = _lay_out(words, record)
    fault = 0 if are_fresh else _check_apart(words, layout_at(record))
    if fault:
        return fault
    # Parts from malloc are in the cache, because the system has just zeroed their pages.
    nbytes = x[NUMBA_ITEMS] * x[NUMBA_ITEMSIZE]
    is_large = nbytes >= (
        functions[FUNCTIONS_AT.stream_long_runs]
        if shortest >= LONG_RUN
        else functions[FUNCTIONS_AT.stream_short_runs]
    )
    is_mapped = functions[FUNCTIONS_AT.blocks] != 0
    stream = 1 if is_large and (is_mapped or not are_fresh) else 0
    loop = functions[FUNCTIONS_AT.stream] if stream else functions[FUNCTIONS_AT.plain]
    team = functions[FUNCTIONS_AT.team]
    helpers = 0
    if nbytes >= functions[FUNCTIONS_AT.shared_from]:
        helpers = read_word(team + SPACING * ALLOWED)
    chunks = least(nbytes // functions[FUNCTIONS_AT.chunk], CHUNKS_PER_THREAD * (helpers + 1))
    arguments = reserve(_ARGUMENTS, WORD)
    call_arguments = words_at(arguments)
    call_arguments[0], call_arguments[1] = stream, 0
    call_arguments[2], call_arguments[3] = x[NUMBA_DATA], record
    call(functions[FUNCTIONS_AT.share], (team, loop, helpers, chunks, arguments))
    return 0
