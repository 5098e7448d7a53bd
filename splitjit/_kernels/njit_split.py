"""`splitjit.split` in users' compiled code; see `splitjit._njit`.

Compiled code fills a `Call` and calls these C functions through a table, `Functions`. Both are
words in memory. So users' code stays small, whatever the rule, rank and dtype. `measure` writes its
results, and each refusal its values, back to the `Call`.
"""

from __future__ import annotations

from splitjit._abi import columns
from splitjit._abi.calls import (
    CALL,
    MOST_HELPERS,
    OUTS_FAULT,
    RULE_FAULT,
    Arguments,
    Call,
    Functions,
    LayoutRequest,
)
from splitjit._abi.kernels import LARGE, LINE
from splitjit._abi.layout_record import MOST, ROW, WORD, Header, most_words
from splitjit._abi.structs import ACQUIRE, ALLOCATE, GET_DATA, MANAGE_MEMORY, NUMBA
from splitjit._kernels.compiling import jit, jit_all
from splitjit._kernels.ir.intrinsics import (
    allocate,
    copy_bytes,
    integers_at,
    out_of_line,
    release,
    reserve,
    stored,
    words_at,
)
from splitjit._kernels.ir.intrinsics import call as call_address
from splitjit._kernels.ir.records import layout_at, read
from splitjit._plan import rules

columns, rules = jit_all(columns), jit_all(rules)
_most_words = jit(most_words)
_CALL_WORDS = len(CALL)


# ---- the memory of a call --------------------------------------------------------------------


@jit
def _refuse(address, fault, first, second, third):
    """Note the values for a fault's text in the `Call`, and return the fault."""
    words = words_at(address)
    words[CALL.first], words[CALL.second], words[CALL.third] = first, second, third
    return fault


@jit
def _row_of(rank):
    """Return the bytes of a Numba array."""
    return WORD * (NUMBA.shape + 2 * rank)


@jit
def _memory_words(rank, count):
    """Return the words of a call's memory: the sizes, two for each array, the layout record."""
    return 3 * count + 2 + _most_words(rank, count)


@jit
def _record_of(call):
    """Return the address of the layout record in the call's memory; see `_memory_words`."""
    return call.memory + WORD * (3 * call.count + 2)


# ---- the sizes of the parts ----------------------------------------------------------------


@jit
def _integer_at(address, width):
    """Read an integer of `width` bytes; a negative width means unsigned.

    Integers above the range of a word become the largest word.
    """
    word = reserve(WORD, WORD)
    words_at(word)[0] = 0
    nbytes = abs(width)
    copy_bytes(word, address, nbytes)
    n = words_at(word)[0]
    if width < 0:
        return MOST if n < 0 else n
    unused = 8 * (WORD - nbytes)
    return (n << unused) >> unused


@jit
def measure(address, functions):
    """Compute the sizes of the parts; return 0 or a fault, which is negative if memory runs out."""
    out_of_line()
    call, table = read(Call, address), read(Functions, functions)
    axis, fault = rules.wrap_axis(call.axis, call.rank)
    if fault:
        return _refuse(address, fault, call.axis, call.rank, call.rank - 1)
    length = words_at(call.x)[NUMBA.shape + axis]
    value = 0
    count = call.number + (call.rule == rules.INDICES)
    if call.rule != rules.LENGTHS and call.rule != rules.INDICES:
        value = _integer_at(call.values, call.width)
        count, fault = rules.count_parts(call.rule, value, length)
        if fault:
            if value == MOST and call.width == -WORD:  # it may have been larger
                value = words_at(call.values)[0]
            return _refuse(address, RULE_FAULT + fault, value, length, count)
    memory = 0
    if count <= table.most_parts:
        nbytes = WORD * _memory_words(call.rank, count)
        memory = allocate(nbytes)
        if not memory:
            call_address(table.clear, (table.blocks,))
            memory = allocate(nbytes)
    if not memory:
        return -1
    sizes, order = words_at(memory), words_at(memory + WORD * count)
    if call.rule == rules.LENGTHS or call.rule == rules.INDICES:
        given = sizes if call.rule == rules.LENGTHS else order
        for i in range(call.number):
            given[i] = _integer_at(call.values + i * call.step, call.width)
        if call.rule == rules.LENGTHS:
            value, fault = rules.check_lengths(integers_at(memory, count), length, MOST)
        else:
            cuts = integers_at(memory + WORD * count, call.number)
            value, fault = rules.lengths_between(cuts, length, integers_at(memory, count))
        if fault:
            release(memory)
            return _refuse(address, RULE_FAULT + fault, value, length, count)
    else:
        for i in range(count):
            sizes[i] = rules.size_of_part(call.rule, value, i, length)
    words = words_at(address)
    words[CALL.axis], words[CALL.count], words[CALL.memory] = axis, count, memory
    return 0


# ---- the copy --------------------------------------------------------------------------------


@jit
def _lay_out(call, table, are_fresh):
    """Write the layout record; return the bytes of a block for the parts."""
    out_of_line()
    request = LayoutRequest(
        call.rank, call.axis, call.count, words_at(call.x)[NUMBA.itemsize],
        call.x + WORD * NUMBA.shape, call.memory,
        0 if are_fresh else call.parts + WORD * NUMBA.data, _row_of(call.rank),
        table.stream_short_runs, table.stream_long_runs, _record_of(call),
    )  # fmt: skip
    return call_address(table.lay_out, (stored(request),))


@jit
def _copy_laid_out(call, table, target):
    """Copy as the layout record says, with helpers if they pay.

    Target offsets are relative to the address `target`.
    """
    out_of_line()
    x, record = words_at(call.x), _record_of(call)
    header = read(Header, record)
    nbytes = x[NUMBA.items] * x[NUMBA.itemsize]
    loop = words_at(table.loops)[header.loop]
    arguments = stored(Arguments(header.stream, target, x[NUMBA.data], record))
    call_address(table.share, (table.team, loop, nbytes, MOST_HELPERS, arguments))


# ---- fresh parts ---------------------------------------------------------------------------


@jit
def _new_block(table, nbytes):
    """Return Numba's record of new memory, which has one reference; 0 if memory runs out."""
    numba = words_at(table.numba)
    if nbytes < LARGE:
        memory = call_address(numba[ALLOCATE], (nbytes + LINE,))  # with room to align the block
        if memory:
            return memory
    block = call_address(table.take_block, (nbytes, table.blocks))
    return call_address(numba[MANAGE_MEMORY], (block, table.free_block)) if block else 0


@jit
def _write_parts(call, numba, memory, block, is_laid_out):
    """Write the arrays of the parts, which share a block of memory."""
    out_of_line()
    x, rank, sizes = words_at(call.x), call.rank, words_at(call.memory)
    layout = layout_at(_record_of(call))
    row = layout.rows
    array = call.parts
    for i in range(call.count):
        part = words_at(array)
        items, nbytes = 1, x[NUMBA.itemsize]
        for d in range(rank - 1, -1, -1):
            extent = sizes[i] if d == call.axis else x[NUMBA.shape + d]
            part[NUMBA.shape + d], part[NUMBA.shape + rank + d] = extent, nbytes
            items *= extent
            nbytes *= extent
        part[NUMBA.memory], part[NUMBA.parent] = memory, 0
        part[NUMBA.items], part[NUMBA.itemsize] = items, x[NUMBA.itemsize]
        part[NUMBA.data] = block
        if is_laid_out and sizes[i]:  # the layout has no row for an empty part
            part[NUMBA.data] += words_at(row)[ROW.target_offset]
            row += layout.row
        if i > 0:
            call_address(numba[ACQUIRE], (memory,))
        array += _row_of(rank)


@jit
def _make_and_copy(call, table):
    """Make the parts in one block, and copy; return -1 if memory runs out."""
    if call.count == 0:
        return 0
    x = words_at(call.x)
    nbytes, room, is_empty = x[NUMBA.items] * x[NUMBA.itemsize], MOST // 2, False
    for d in range(call.rank):
        room //= max(x[NUMBA.shape + d], 1)
        is_empty |= x[NUMBA.shape + d] == 0
    if room < x[NUMBA.itemsize] and not is_empty:  # a view that repeats its elements
        return -1
    memory = _new_block(table, _lay_out(call, table, True) if nbytes else 0)
    if not memory:
        return -1
    numba = words_at(table.numba)
    block = -(-call_address(numba[GET_DATA], (memory,)) // LINE) * LINE
    _write_parts(call, numba, memory, block, nbytes > 0)
    if nbytes:
        _copy_laid_out(call, table, block)
    return 0


@jit
def make_parts(address, functions):
    """Make the parts that `measure` has counted, and copy; return -1 if memory runs out."""
    call = read(Call, address)
    fault = _make_and_copy(call, read(Functions, functions))
    release(call.memory)
    return fault


# ---- shared memory: see `splitjit._abi.columns` ------------------------------------------


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
    """Return the index of a part whose addresses overlap those of the source, or -1."""
    low = columns.lowest_at(arrays, rank, x)
    end = low + columns.length_at(arrays, rank, itemsize, x, MOST)
    for k in range(count):
        stop = lows[k] + columns.length_at(arrays, rank, itemsize, places[k], MOST)
        if low < stop and lows[k] < end:
            return places[k]
    return -1


@jit
def _check_apart(address, call):
    """Return 0, or a fault if two arrays, or two elements of a part, may share memory.

    `columns` takes arrays by their index in a table of words. Here the table is all memory from the
    first part on. The source lies elsewhere, so its index may be negative or beyond the parts.
    """
    out_of_line()
    rank, axis, parts, row = call.rank, call.axis, call.count, _row_of(call.rank) // WORD
    sizes, lows = words_at(call.memory), words_at(call.memory + WORD * parts)
    places = words_at(call.memory + WORD * (2 * parts + 1))
    arrays = words_at(call.parts + WORD * NUMBA.data)  # shape and strides follow the address
    x = (call.x - call.parts) // WORD
    itemsize, count = words_at(call.x)[NUMBA.itemsize], 0
    for i in range(parts):
        if sizes[i] > 0:
            if not columns.are_rows_apart(arrays, rank, i * row, -1, itemsize):
                return _refuse(address, OUTS_FAULT + 4, i, 0, 0)
            lows[count], places[count] = columns.lowest_at(arrays, rank, i * row), i * row
            count += 1
    _sort(lows, places, count)
    if not columns.are_apart(arrays, rank, axis, itemsize, count, lows, places):
        k = columns.find_meeting(arrays, rank, itemsize, count, lows, places)
        first, second = places[k - 1] // row, places[k] // row
        return _refuse(address, OUTS_FAULT + 3, min(first, second), max(first, second), 0)
    meets = _part_at(arrays, rank, itemsize, x, count, lows, places)
    if meets < 0:
        return 0
    lows[count], places[count] = columns.lowest_at(arrays, rank, x), x
    _sort(lows, places, count + 1)
    if columns.are_apart(arrays, rank, axis, itemsize, count + 1, lows, places):
        return 0
    return _refuse(address, OUTS_FAULT + 2, meets // row, 0, 0)


# ---- given parts ---------------------------------------------------------------------------


@jit
def _check_shapes(address, call):
    """Check the number and the shapes of given parts; return 0 or a fault.

    The shapes of the part checked last, given and right, are written behind the `Call`.
    """
    out_of_line()
    if call.number_of_parts != call.count:
        return _refuse(address, OUTS_FAULT, call.number_of_parts, call.count, 0)
    sizes, x, array = words_at(call.memory), words_at(call.x), call.parts
    shapes, differs = words_at(address + WORD * _CALL_WORDS), False
    for i in range(call.count):
        for d in range(call.rank):
            extent = sizes[i] if d == call.axis else x[NUMBA.shape + d]
            shapes[d], shapes[call.rank + d] = words_at(array)[NUMBA.shape + d], extent
            differs |= shapes[d] != extent
        if differs:
            return _refuse(address, OUTS_FAULT + 1, i, 0, 0)
        array += _row_of(call.rank)
    return 0


@jit
def copy_parts(address, functions):
    """Copy to given parts; return 0, or a fault without copying anything."""
    fault = measure(address, functions)
    if fault:
        return fault
    call, table = read(Call, address), read(Functions, functions)
    x = words_at(call.x)
    fault = _check_shapes(address, call)
    if not fault and x[NUMBA.items] != 0 and x[NUMBA.itemsize] != 0:
        fault = _check_apart(address, call)
        if not fault:
            _lay_out(call, table, False)
            _copy_laid_out(call, table, 0)
    release(call.memory)
    return fault
