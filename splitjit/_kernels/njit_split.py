"""`splitjit.split` in users' compiled code; see `splitjit._njit`.

Compiled code fills a `Call` and calls these C functions through a table, `Functions`. Both are
words in memory. So users' code stays small, whatever the rule, rank and dtype. `measure` writes its
results, and each refusal its values, back to the `Call`.
"""

from splitjit._abi.calls import (
    AT,
    CALL,
    MOST,
    OUTS_FAULT,
    RULE_FAULT,
    WORD,
    Arguments,
    Call,
    Functions,
    Header,
    LayoutRequest,
)
from splitjit._abi.kernels import LINE
from splitjit._abi.structs import MEM_INFO, NUMBA
from splitjit._abi.thresholds import LARGE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import (
    add_to,
    allocate,
    copy_bytes,
    exchange,
    out_of_line,
    read_word,
    release,
    stored,
    words_at,
)
from splitjit._kernels.ir.intrinsics import call as call_address
from splitjit._kernels.ir.records import aligned, most_words, read
from splitjit._plan import rules

_wrap_axis = jit(rules.wrap_axis)
_count_parts = jit(rules.count_parts)
_check_lengths = jit(rules.check_lengths)
_lengths_between = jit(rules.lengths_between)
_size_of_part = jit(rules.size_of_part)


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
def _record_of(call):
    """Return the address of the layout record, which follows the sizes in the call's memory."""
    return call.memory + WORD * call.count


# ---- the sizes of the parts ----------------------------------------------------------------


@jit
def _integer_at(address, width):
    """Read an integer of `width` bytes; a negative width means unsigned.

    Integers above the range of a word become the largest word.
    """
    word = stored((0,))
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
    axis, fault = _wrap_axis(call.axis, call.rank)
    if fault:
        return _refuse(address, fault, call.axis, call.rank, call.rank - 1)
    length = words_at(call.x)[NUMBA.shape + axis]
    value = 0
    count = call.number + (call.rule == rules.INDICES)
    if call.rule != rules.LENGTHS and call.rule != rules.INDICES:
        value = _integer_at(call.values, call.width)
        count, fault = _count_parts(call.rule, value, length)
        if fault:
            return _refuse(address, RULE_FAULT + fault, value, length, count)
    memory = 0
    if count <= table.most_parts:
        nbytes = WORD * (count + most_words(call.rank, count))
        memory = allocate(nbytes)
        if not memory:
            call_address(table.clear, (table.blocks,))
            memory = allocate(nbytes)
    if not memory:
        return -1
    sizes = words_at(memory)
    if call.rule == rules.LENGTHS or call.rule == rules.INDICES:
        for i in range(call.number):
            sizes[i] = _integer_at(call.values + i * call.step, call.width)
        if call.rule == rules.LENGTHS:
            value, fault = _check_lengths(sizes, count, length, MOST)
        else:
            value, fault = _lengths_between(sizes, call.number, length, sizes)
        if fault:
            release(memory)
            return _refuse(address, RULE_FAULT + fault, value, length, count)
    else:
        for i in range(count):
            sizes[i] = _size_of_part(call.rule, value, i, length)
    words = words_at(address)
    words[CALL.axis], words[CALL.count], words[CALL.memory] = axis, count, memory
    return 0


# ---- the copy --------------------------------------------------------------------------------


@jit
def _request_of(call, table, parts):
    """Return the request for a copy to given parts, or to fresh ones if their address is 0."""
    return LayoutRequest(
        call.rank, call.axis, call.count, words_at(call.x)[NUMBA.itemsize],
        call.x + WORD * NUMBA.shape, call.memory,
        parts and parts + WORD * NUMBA.data, _row_of(call.rank),
        table.stream_short_runs, table.stream_long_runs, _record_of(call),
    )  # fmt: skip


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
    if nbytes >= table.large:
        # Once Numba has started its threads, the team must know where the user's limit is.
        limit = table.team + AT.numba
        if read_word(limit) == 0:
            exchange(limit, call_address(table.find_symbol, (table.numba_limit,)))
        call_address(table.share, (table.team, loop, nbytes, arguments))
    else:
        call_address(loop, (0, 1, arguments))


# ---- fresh parts ---------------------------------------------------------------------------


@jit
def _new_block(table, nbytes):
    """Return Numba's `MemInfo` of new memory, which has one reference; 0 if memory runs out."""
    if nbytes < LARGE:
        # With room to align the block.
        memory = call_address(table.new_mem_info, (nbytes + LINE, 0))
        if memory:
            return memory
    block = call_address(table.take_block, (nbytes, table.blocks))
    memory = call_address(table.new_mem_info, (0, table.free_block)) if block else 0
    if memory:
        words_at(memory)[MEM_INFO.data] = block  # which Numba will give to `free_block`
    return memory


@jit
def _write_parts(call, memory, block):
    """Write the arrays of the parts, which lie in a block of memory as `lay_out` places them."""
    out_of_line()
    x, rank, sizes = words_at(call.x), call.rank, words_at(call.memory)
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
        block += aligned(nbytes)
        array += _row_of(rank)
    add_to(memory + WORD * MEM_INFO.references, call.count - 1)


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
    block = 0
    if nbytes:
        block = call_address(table.lay_out, (stored(_request_of(call, table, 0)),))
    memory = _new_block(table, block)
    if not memory:
        return -1
    block = -(-words_at(memory)[MEM_INFO.data] // LINE) * LINE
    _write_parts(call, memory, block)
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
    shapes, differs = words_at(address + WORD * len(CALL)), False
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
        request = stored(_request_of(call, table, call.parts))
        found = call_address(table.find_shared, (request,))
        if found:
            at = words_at(_record_of(call))
            fault = _refuse(address, OUTS_FAULT + 1 + found, at[0], at[1], 0)
        else:
            call_address(table.lay_out, (request,))
            _copy_laid_out(call, table, 0)
    release(call.memory)
    return fault
