"""`splitjit.split` in users' compiled code; see `splitjit._njit`.

Compiled code fills a `Call` and calls these C functions through a table, `Functions`. Both are
words in memory. So users' code stays small, whatever the rule, rank and dtype.
"""

from __future__ import annotations

from splitjit._abi.calls import CALL, FUNCTIONS_AT, OUTS_FAULT, RULE_FAULT
from splitjit._abi.kernels import LINE
from splitjit._abi.layout_record import TARGET_OFFSET, WORD
from splitjit._abi.shared import MAPPED_FROM
from splitjit._abi.structs import ACQUIRE, ALLOCATE, GET_DATA, MANAGE_MEMORY, NUMBA
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    allocate,
    call,
    copy_bytes,
    integers_at,
    out_of_line,
    release,
    reserve,
    words_at,
)
from splitjit._kernels.overload_copy import (
    copy_laid_out,
    copy_to_given,
    lay_out,
    memory_words,
    record_of,
    refuse,
    row_of,
)
from splitjit._kernels.records import layout_at
from splitjit._plan import rules

_MOST = (1 << 63) - 1

_wrap_axis, _check_lengths, _lengths_between = (
    jit(function, _nrt=False)
    for function in (rules.wrap_axis, rules.check_lengths, rules.lengths_between)
)
_count_longer, _size_of_part = jit(rules.count_longer), jit(rules.size_of_part)
_KINDS = [*rules.PARAMETERS]
_LENGTHS, _INDICES = _KINDS.index(rules.LENGTHS), _KINDS.index(rules.INDICES)


# ---- the sizes of the parts ----------------------------------------------------------------
#
# Memory of a call: see `splitjit._kernels.overload_copy.memory_words`.


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
        return _MOST if n < 0 else n
    unused = 8 * (WORD - nbytes)
    return (n << unused) >> unused


def _one_of(kind, *others):
    """Make the function that applies one of these rules; `rule` is the number of its kind."""
    number, apply = _KINDS.index(kind), jit(rules.CHUNKED[kind], _nrt=False)
    apply_other = _one_of(*others) if others else None

    def chunks(rule, value, length):
        if apply_other is None or rule == number:
            return apply(value, length)
        return apply_other(rule, value, length)

    return jit(chunks)


_chunks = _one_of(*rules.CHUNKED)


@jit(_nrt=False)
def measure(address, functions):
    """Compute the sizes of the parts; return 0 or a fault, which is negative if memory runs out."""
    out_of_line()
    words = words_at(address)
    rank = words[CALL.rank]
    axis, fault = _wrap_axis(words[CALL.axis], rank)
    if fault:
        return refuse(words, fault, words[CALL.axis], rank, rank - 1)
    words[CALL.axis] = axis
    length = words_at(words[CALL.x])[NUMBA.shape + axis]
    rule, values, number = words[CALL.rule], words[CALL.values], words[CALL.number]
    step, width = words[CALL.step], words[CALL.width]
    value = chunk = 0
    count = number + (rule == _INDICES)
    if rule != _LENGTHS and rule != _INDICES:
        value = _integer_at(values, width)
        chunk, count, fault = _chunks(rule, value, length)
        if fault:
            return refuse(words, RULE_FAULT + fault, value, length, count)
    memory = 0
    if count <= words_at(functions)[FUNCTIONS_AT.most_parts]:
        memory = allocate(WORD * memory_words(rank, count))
    if not memory:
        return -1
    sizes, order = words_at(memory), words_at(memory + WORD * count)
    if rule == _LENGTHS or rule == _INDICES:  # noqa: SIM109 - a tuple is slow to compile
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
            return refuse(words, RULE_FAULT + fault, value, length, count)
    else:
        longer = _count_longer(chunk, count, length)
        for i in range(count):
            sizes[i] = _size_of_part(chunk, longer, i, length)
    words[CALL.memory], words[CALL.count] = memory, count
    return 0


# ---- fresh parts ---------------------------------------------------------------------------


@jit
def _bytes_of(words):
    """Return the bytes of the source, or -1 if no memory has room for them."""
    x = words_at(words[CALL.x])
    nbytes = x[NUMBA.itemsize]
    for d in range(words[CALL.rank]):
        if x[NUMBA.shape + d] == 0:
            return 0
    for d in range(words[CALL.rank]):
        if nbytes > _MOST // 2 // x[NUMBA.shape + d]:  # possible for views that repeat an element
            return -1
        nbytes *= x[NUMBA.shape + d]
    return nbytes


@jit
def _new_block(functions, numba, nbytes):
    """Return Numba's record of new memory, which has one reference; 0 if memory runs out."""
    if nbytes >= MAPPED_FROM:
        block = call(functions[FUNCTIONS_AT.allocate], (nbytes, functions[FUNCTIONS_AT.blocks]))
        if not block:
            return 0
        return call(numba[MANAGE_MEMORY], (block, functions[FUNCTIONS_AT.free_block]))
    return call(numba[ALLOCATE], (nbytes + LINE,))  # with room to align the block


@jit
def _write_parts(words, numba, memory, block, is_laid_out):
    """Write the arrays of the parts, which share a block of memory."""
    out_of_line()
    x, rank, sizes = words_at(words[CALL.x]), words[CALL.rank], words_at(words[CALL.memory])
    layout = layout_at(record_of(words))
    row = layout.rows
    array = words[CALL.parts]
    for i in range(words[CALL.count]):
        part = words_at(array)
        items, nbytes = 1, x[NUMBA.itemsize]
        for d in range(rank - 1, -1, -1):
            extent = sizes[i] if d == words[CALL.axis] else x[NUMBA.shape + d]
            part[NUMBA.shape + d], part[NUMBA.shape + rank + d] = extent, nbytes
            items *= extent
            nbytes *= extent
        part[NUMBA.memory], part[NUMBA.parent] = memory, 0
        part[NUMBA.items], part[NUMBA.itemsize] = items, x[NUMBA.itemsize]
        part[NUMBA.data] = block
        if is_laid_out and sizes[i]:  # the layout has no row for an empty part
            part[NUMBA.data] += words_at(row)[TARGET_OFFSET]
            row += layout.row
        if i > 0:
            call(numba[ACQUIRE], (memory,))
        array += row_of(words)


@jit
def _make_parts(words, functions):
    """Make the parts in one block, and copy; return -1 if memory runs out."""
    if words[CALL.count] == 0:
        return 0
    nbytes = _bytes_of(words)
    if nbytes < 0:
        return -1
    block_bytes = lay_out(words, functions, True) if nbytes else 0
    numba = words_at(functions[FUNCTIONS_AT.numba])
    memory = _new_block(functions, numba, block_bytes)
    if not memory:
        return -1
    block = -(-call(numba[GET_DATA], (memory,)) // LINE) * LINE
    _write_parts(words, numba, memory, block, nbytes > 0)
    if nbytes:
        copy_laid_out(words, functions, block)
    return 0


@jit
def parts(address, functions):
    """Make the parts that `measure` has counted, and copy; return -1 if memory runs out."""
    words = words_at(address)
    fault = _make_parts(words, words_at(functions))
    release(words[CALL.memory])
    return fault


# ---- given parts ---------------------------------------------------------------------------


@jit
def _check_shapes(words):
    """Check the number and the shapes of given parts; return 0 or a fault."""
    out_of_line()
    count, given, rank = words[CALL.count], words[CALL.number_of_parts], words[CALL.rank]
    if given != count:
        return refuse(words, OUTS_FAULT, given, count, 0)
    sizes, x = words_at(words[CALL.memory]), words_at(words[CALL.x])
    array = words[CALL.parts]
    for i in range(count):
        for d in range(rank):
            extent = sizes[i] if d == words[CALL.axis] else x[NUMBA.shape + d]
            if words_at(array)[NUMBA.shape + d] != extent:
                return refuse(words, OUTS_FAULT + 1, i, 0, 0)
        array += row_of(words)
    return 0


@jit(_nrt=False)
def into(address, functions):
    """Copy to given parts; return 0, or a fault without copying anything."""
    fault = measure(address, functions)
    if fault:
        return fault
    words = words_at(address)
    fault = _check_shapes(words)
    if not fault:
        fault = copy_to_given(words, words_at(functions))
    release(words[CALL.memory])
    return fault
