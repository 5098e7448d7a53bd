"""What `splitjit.split` does in compiled code of users; see `splitjit._njit`.

Compiled code fills a `Call` and calls these C functions by a table, `Functions`. Both are words in
memory. So the code of users is small, whatever the rule, the rank and the dtype are.
"""

from __future__ import annotations

from numba import types

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    allocate,
    call,
    copy_bytes,
    greatest,
    integers_at,
    least,
    out_of_line,
    release,
    reserve,
    words_at,
)
from splitjit._kernels.launch import call_loop
from splitjit._kernels.table import (
    CALL,
    COUNT,
    DIMS,
    FIXED,
    FUNCTIONS_AT,
    HEADER,
    LINE,
    LONG_RUN,
    MAX_RANK,
    NBYTES,
    NUMBA_DATA,
    NUMBA_ITEMS,
    NUMBA_ITEMSIZE,
    NUMBA_MEMORY,
    NUMBA_PARENT,
    NUMBA_SHAPE,
    OUTS_FAULT,
    RULE_FAULT,
    RUN,
    RUNS,
    SOURCE_OFFSET,
    TARGET_OFFSET,
    WORD,
    Arguments,
    row_words,
)
from splitjit._plan import rules

_MOST = (1 << 63) - 1
_DIMS = WORD * MAX_RANK

_wrap_axis, _check_lengths, _lengths_between, _by_chunk, _by_outputs, _by_splits, _by_sections = (
    jit(function, _nrt=False)
    for function in (
        rules.wrap_axis,
        rules.check_lengths,
        rules.lengths_between,
        *rules.CHUNKED.values(),
    )
)
_row_words = jit(row_words)
_count_longer, _size_of_part = jit(rules.count_longer), jit(rules.size_of_part)
_LENGTHS, _CHUNK, _NUM_OUTPUTS, _NUM_SPLITS, _INDICES, _ = range(len(rules.PARAMETERS))
_WRONG_VALUE = rules.WRONG_VALUE


# ---- the sizes of the parts ----------------------------------------------------------------
#
# Memory of a call:  the sizes, the numbers of the outputs by address, the layout record


@jit
def _integer_at(address, width):
    """Read an integer of so many bytes; a negative width says that it has no sign.

    Integers above the range of a word become the largest word.
    """
    word = reserve(WORD, WORD)
    words_at(word)[0] = 0
    nbytes = abs(width)
    copy_bytes(word, address, nbytes)
    n = words_at(word)[0]
    if width < 0:
        return _MOST if n < 0 else n
    unused = 8 * (WORD - nbytes)
    return (n << unused) >> unused


@jit
def _refuse(words, fault, first, second, third):
    """Note the values for the text of a fault, and return the fault."""
    words[CALL.first], words[CALL.second], words[CALL.third] = first, second, third
    return fault


@jit
def _chunks(rule, value, length):
    """Return the length of a chunk, the number of parts, and 0 or a fault."""
    if rule == _CHUNK:
        return _by_chunk(value, length)
    if rule == _NUM_OUTPUTS:
        return _by_outputs(value, length)
    if rule == _NUM_SPLITS:
        return _by_splits(value, length)
    return _by_sections(value, length)


@jit(_nrt=False)
def _measure(words, functions):
    """Compute the sizes of the parts; return 0 or a fault, which is negative without memory."""
    out_of_line()
    rank = words[CALL.rank]
    axis, fault = _wrap_axis(words[CALL.axis], rank)
    if fault:
        return _refuse(words, fault, words[CALL.axis], rank, rank - 1)
    words[CALL.axis] = axis
    length = words_at(words[CALL.x])[NUMBA_SHAPE + axis]
    rule, values, number = words[CALL.rule], words[CALL.values], words[CALL.number]
    step, width = words[CALL.step], words[CALL.width]
    value = chunk = 0
    count = number + (rule == _INDICES)
    if rule != _LENGTHS and rule != _INDICES:
        value = _integer_at(values, width)
        chunk, count, fault = _chunks(rule, value, length)
        if fault:
            return _refuse(words, RULE_FAULT + fault, value, length, count)
    memory = 0
    if count <= functions[FUNCTIONS_AT.most_parts]:
        memory = allocate(WORD * (count * (2 + _row_words(rank)) + HEADER + rank))
    if not memory:
        return -1
    sizes, order = words_at(memory), words_at(memory + WORD * count)
    if rule == _LENGTHS or rule == _INDICES:
        read = sizes if rule == _LENGTHS else order
        for i in range(number):
            read[i] = _integer_at(values + i * step, width)
        if rule == _LENGTHS:
            value, fault = _check_lengths(integers_at(memory, count), length, _MOST)
        else:
            cuts = integers_at(memory + WORD * count, number)
            value, fault = _lengths_between(cuts, length, integers_at(memory, count))
        if fault:
            release(memory)
            return _refuse(words, RULE_FAULT + fault, value, length, count)
    else:
        longer = _count_longer(chunk, count, length)
        for i in range(count):
            sizes[i] = _size_of_part(chunk, longer, i, length)
    words[CALL.memory], words[CALL.count] = memory, count
    return 0


def measure(address, functions):
    """Compute the sizes and the number of fresh parts; return 0 or a fault."""
    return _measure(words_at(address), words_at(functions))


# ---- fresh parts ---------------------------------------------------------------------------


@jit
def _new_part(words, address, size):
    """Write a new array at an address; return whether there is memory for it."""
    x, part = words_at(words[CALL.x]), words_at(address)
    rank = words[CALL.rank]
    items, nbytes = 1, x[NUMBA_ITEMSIZE]
    for d in range(rank - 1, -1, -1):
        extent = size if d == words[CALL.axis] else x[NUMBA_SHAPE + d]
        part[NUMBA_SHAPE + d], part[NUMBA_SHAPE + rank + d] = extent, nbytes
        if nbytes > _MOST // greatest(extent, 1):  # as of views that repeat an element
            return False
        items *= extent
        nbytes *= extent
    memory = call(words[CALL.new_memory], (nbytes, types.int32(LINE)))
    if not memory:
        return False
    part[NUMBA_MEMORY], part[NUMBA_PARENT] = memory, 0
    part[NUMBA_ITEMS], part[NUMBA_ITEMSIZE] = items, x[NUMBA_ITEMSIZE]
    part[NUMBA_DATA] = call(words[CALL.data_of], (memory,))
    return True


def parts(address, functions):
    """Make the parts that `measure` has counted, and copy to them; return -1 without memory."""
    words = words_at(address)
    memory = words[CALL.memory]
    sizes = words_at(memory)
    array = words[CALL.parts]
    row = WORD * (NUMBA_SHAPE + 2 * words[CALL.rank])
    made = 0
    while made < words[CALL.count] and _new_part(words, array, sizes[made]):
        array += row
        made += 1
    is_complete = made == words[CALL.count]
    if is_complete:
        _copy(words, words_at(functions), True)
    release(memory)
    return 0 if is_complete else -1


# ---- given parts ---------------------------------------------------------------------------


@jit
def _span(array, rank):
    """Return the start and the end of an array in memory, and whether it fills all between them.

    Of an array without elements, the start and the end are 0.
    """
    words = words_at(array)
    if words[NUMBA_ITEMS] == 0:
        return 0, 0, True
    start, end = words[NUMBA_DATA], words[NUMBA_DATA] + words[NUMBA_ITEMSIZE]
    for d in range(rank):
        last = (words[NUMBA_SHAPE + d] - 1) * words[NUMBA_SHAPE + rank + d]
        start += least(last, 0)
        end += greatest(last, 0)
    return start, end, end - start == words[NUMBA_ITEMS] * words[NUMBA_ITEMSIZE]


@jit
def _share(a, b, rank):
    """Return whether two arrays surely share memory: other arrays may be interleaved.

    The first and the last byte of a span belong to elements.
    """
    start, end, is_full = _span(a, rank)
    low, high, is_other_full = _span(b, rank)
    if start >= high or low >= end:
        return False
    if start == low or end == high:
        return True
    if is_full and (low > start or high < end):
        return True
    return is_other_full and (start > low or end < high)


@jit
def _check_parts(words):
    """Check the arrays that the parts are copied to; return 0 or a fault."""
    out_of_line()
    x, rank, axis = words[CALL.x], words[CALL.rank], words[CALL.axis]
    count, given = words[CALL.count], words[CALL.number_of_parts]
    if given != count:
        return _refuse(words, OUTS_FAULT, given, count, 0)
    sizes = words_at(words[CALL.memory])
    row = WORD * (NUMBA_SHAPE + 2 * rank)
    array = words[CALL.parts]
    is_apart = True
    highest = 0
    for i in range(count):
        for d in range(rank):
            extent = sizes[i] if d == axis else words_at(x)[NUMBA_SHAPE + d]
            if words_at(array)[NUMBA_SHAPE + d] != extent:
                return _refuse(words, OUTS_FAULT + 1, i, 0, 0)
        if _share(array, x, rank):
            return _refuse(words, OUTS_FAULT + 2, i, 0, 0)
        start, end, _ = _span(array, rank)
        if end:
            is_apart = is_apart and start >= highest
            highest = greatest(highest, end)
        array += row
    return 0 if is_apart else _check_overlaps(words, row)


@jit
def _check_overlaps(words, row):
    """Compare arrays in the order of their addresses; return 0 or a fault."""
    rank, count, parts = words[CALL.rank], words[CALL.count], words[CALL.parts]
    order = words_at(words[CALL.memory] + WORD * count)
    _sort_by_address(order, parts, row, count, rank)
    last = full = -1  # the array before, and the one that fills memory up to the highest address
    for k in range(count):
        i = order[k]
        array = parts + i * row
        _, end, is_full = _span(array, rank)
        if not end:
            continue
        for j in (last, full):
            if j >= 0 and _share(array, parts + j * row, rank):
                return _refuse(words, OUTS_FAULT + 3, least(i, j), greatest(i, j), 0)
        last = i
        if is_full and (full < 0 or end > _span(parts + full * row, rank)[1]):
            full = i
    return 0


@jit
def _sort_by_address(order, parts, row, count, rank):
    """Write the numbers of the arrays in the order of their addresses, by a heap sort."""
    for i in range(count):
        order[i] = i
    for step in range(count + count // 2 - 1, 0, -1):
        root, end = greatest(step - count, 0), least(step, count)
        if step < count:  # the heap is complete: move its largest item behind it
            order[0], order[step] = order[step], order[0]
        child = 2 * root + 1
        while child < end:
            if child + 1 < end and _is_before(order, child, child + 1, parts, row, rank):
                child += 1
            if not _is_before(order, root, child, parts, row, rank):
                break
            order[root], order[child] = order[child], order[root]
            root, child = child, 2 * child + 1


@jit
def _is_before(order, i, j, parts, row, rank):
    return _span(parts + order[i] * row, rank)[0] < _span(parts + order[j] * row, rank)[0]


def into(address, functions):
    """Copy to given parts; return 0 or a fault, and then nothing is copied."""
    words, table = words_at(address), words_at(functions)
    fault = _measure(words, table)
    if fault:
        return fault
    fault = _check_parts(words)
    if not fault:
        _copy(words, table, False)
    release(words[CALL.memory])
    return fault


# ---- the copy ------------------------------------------------------------------------------


@jit
def _is_even(words, row, d, inner):
    """Return whether dim `d` steps over dim `inner` evenly, in the source and in all parts.

    The dim -1 stands for an item.
    """
    rank, itemsize = words[CALL.rank], words_at(words[CALL.x])[NUMBA_ITEMSIZE]
    axis = words[CALL.axis]
    x, array = words_at(words[CALL.x]), words[CALL.parts]
    sizes = words_at(words[CALL.memory])
    for i in range(words[CALL.count]):
        if sizes[i] == 0:
            continue
        part = words_at(array + i * row)
        extent = source_step = step = 1
        if inner < 0:
            source_step = step = itemsize
        else:
            extent = part[NUMBA_SHAPE + inner]
            source_step = x[NUMBA_SHAPE + rank + inner]
            step = part[NUMBA_SHAPE + rank + inner]
        if part[NUMBA_SHAPE + rank + d] != extent * step:
            return False
        if x[NUMBA_SHAPE + rank + d] != extent * source_step:
            return False
    return True


@jit
def _has_one_item(words, row, d):
    """Return whether dim `d` has the extent 1 in all parts that are not empty."""
    if d != words[CALL.axis]:
        return words_at(words[CALL.x])[NUMBA_SHAPE + d] == 1
    sizes = words_at(words[CALL.memory])
    for i in range(words[CALL.count]):  # noqa: SIM110 - a generator is slow in compiled code
        if sizes[i] > 1:
            return False
    return True


@jit
def _lay_out(words, record, row):
    """Write the layout record of the copy, as `splitjit._copy.layout` does; return the least run.

    Dims that the source and all parts step through evenly are merged.
    """
    out_of_line()
    rank, x = words[CALL.rank], words_at(words[CALL.x])
    groups = words_at(reserve(_DIMS, WORD))  # of each dim: 0 if it is in the run, -1 if
    inners = words_at(reserve(_DIMS, WORD))  # it has one item; the innermost of a group
    dims = 0
    inner = -1
    for d in range(rank - 1, -1, -1):
        groups[d] = -1
        if _has_one_item(words, row, d):
            continue
        if not _is_even(words, row, d, inner):
            inners[dims] = d
            dims += 1
        groups[d] = dims
        inner = d
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
        extents, strides = words_at(target + WORD * FIXED), words_at(target + WORD * (FIXED + width))
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
def _copy(words, functions, are_fresh):
    """Copy `x` to the parts, on the calling thread."""
    x = words_at(words[CALL.x])
    if x[NUMBA_ITEMS] == 0 or x[NUMBA_ITEMSIZE] == 0:
        return
    record = words[CALL.memory] + WORD * 2 * words[CALL.count]
    row = WORD * (NUMBA_SHAPE + 2 * words[CALL.rank])
    shortest = _lay_out(words, record, row)
    # Fresh parts: the system has just zeroed their pages, so they are in the cache.
    is_large = x[NUMBA_ITEMS] * x[NUMBA_ITEMSIZE] >= (
        functions[FUNCTIONS_AT.stream_long_runs]
        if shortest >= LONG_RUN
        else functions[FUNCTIONS_AT.stream_short_runs]
    )
    stream = 1 if is_large and not are_fresh else 0
    loop = functions[FUNCTIONS_AT.stream] if stream else functions[FUNCTIONS_AT.copy]
    call_loop(loop, 0, 1, Arguments(stream, 0, x[NUMBA_DATA], record))


_SIGNATURE = types.intp(types.intp, types.intp)

FUNCTIONS = {
    "measure": (_SIGNATURE, jit(measure, _nrt=False)),
    "parts": (_SIGNATURE, jit(parts)),
    "into": (_SIGNATURE, jit(into, _nrt=False)),
}
