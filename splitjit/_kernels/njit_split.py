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
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import (
    add_to,
    allocate,
    call_address,
    copy_bytes,
    exchange,
    out_of_line,
    read_word,
    release,
    stored,
    words_at,
)
from splitjit._kernels.ir.records import aligned, most_words, read
from splitjit._plan import rules

_wrap_axis = jit(rules.wrap_axis)
_count_parts = jit(rules.count_parts)
_check_lengths = jit(rules.check_lengths)
_lengths_between = jit(rules.lengths_between)
_size_of_part = jit(rules.size_of_part)


# ---- the memory of a call --------------------------------------------------------------------


@jit
def _refuse(address, fault, first, second, third, fourth):
    """Note the values for a fault's text in the `Call`, and return the fault."""
    words = words_at(address)
    words[CALL.first], words[CALL.second] = first, second
    words[CALL.third], words[CALL.fourth] = third, fourth
    return fault


@jit
def _nbytes_of_array(rank):
    """Return the bytes of a Numba array."""
    return WORD * (NUMBA.shape + 2 * rank)


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
        return _refuse(address, fault, call.axis, call.rank, call.rank - 1, 0)
    length = words_at(call.x)[NUMBA.shape + axis]
    value = 0
    count = call.number + (call.rule == rules.INDICES)
    if call.rule != rules.LENGTHS and call.rule != rules.INDICES:
        value = _integer_at(call.values, call.width)
        count, fault = _count_parts(call.rule, value, length)
        if fault:
            return _refuse(address, RULE_FAULT + fault, value, length, count, 0)
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
            return _refuse(address, RULE_FAULT + fault, value, length, count, 0)
    else:
        for i in range(count):
            sizes[i] = _size_of_part(call.rule, value, i, length)
    words = words_at(address)
    words[CALL.axis], words[CALL.count], words[CALL.memory] = axis, count, memory
    return 0


# ---- new parts -------------------------------------------------------------------------------


@jit
def _new_block(table, nbytes):
    """Return Numba's `MemInfo` of new memory, which has one reference; 0 if memory runs out."""
    if nbytes < table.large:
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
    """Write the arrays of the parts, which lie in a block of memory one after another."""
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
        array += _nbytes_of_array(rank)
    add_to(memory + WORD * MEM_INFO.references, call.count - 1)


@jit
def _make_parts(call, table):
    """Make the parts in one block of memory; return 0, or -1 if memory runs out."""
    out_of_line()
    if call.count == 0:
        return 0
    x, sizes = words_at(call.x), words_at(call.memory)
    nbytes, room = 1.0 * x[NUMBA.itemsize], 0
    for d in range(call.rank):
        nbytes *= x[NUMBA.shape + d]
    if nbytes > MOST // 2:  # a view that repeats its elements
        return -1
    step = x[NUMBA.items] * x[NUMBA.itemsize] // max(x[NUMBA.shape + call.axis], 1)
    for i in range(call.count):
        room += aligned(sizes[i] * step)
    memory = _new_block(table, room)
    if not memory:
        return -1
    _write_parts(call, memory, aligned(words_at(memory)[MEM_INFO.data]))
    return 0


# ---- given parts -----------------------------------------------------------------------------


@jit
def _check_parts(address, call, table, request):
    """Check the number, the shapes and the memory of given parts; return 0 or a fault."""
    out_of_line()
    if call.number_of_parts != call.count:
        return _refuse(address, OUTS_FAULT, call.number_of_parts, call.count, 0, 0)
    sizes, x, array = words_at(call.memory), words_at(call.x), call.parts
    for i in range(call.count):
        for d in range(call.rank):
            extent = sizes[i] if d == call.axis else x[NUMBA.shape + d]
            given = words_at(array)[NUMBA.shape + d]
            if given != extent:
                return _refuse(address, OUTS_FAULT + 1, i, d, given, extent)
        array += _nbytes_of_array(call.rank)
    found = call_address(table.find_shared, (request,))
    if found:
        at = words_at(read(LayoutRequest, request).record)
        return _refuse(address, OUTS_FAULT + 1 + found, at[0], at[1], 0, 0)
    return 0


# ---- the copy --------------------------------------------------------------------------------


@jit
def _copy(call, table, request):
    """Lay out a copy, and make it, with helpers if they pay."""
    out_of_line()
    call_address(table.lay_out, (request,))
    x, record = words_at(call.x), read(LayoutRequest, request).record
    header = read(Header, record)
    nbytes = x[NUMBA.items] * x[NUMBA.itemsize]
    loop = words_at(table.loops)[header.loop]
    arguments = stored(Arguments(header.stream, 0, x[NUMBA.data], record))
    if nbytes >= table.large:
        # Once Numba has started its threads, the team must know where the user's limit is.
        limit = table.team + AT.numba
        if read_word(limit) == 0:
            exchange(limit, call_address(table.find_symbol, (table.numba_limit,)))
        call_address(table.share, (table.team, loop, nbytes, arguments))
    else:
        call_address(loop, (0, 1, arguments))


@jit
def copy_parts(address, functions):
    """Make the parts that `measure` has counted, or check given ones, and copy to them.

    Return 0 or a fault, which is negative if memory runs out. Then nothing has been copied.
    """
    call, table = read(Call, address), read(Functions, functions)
    x = words_at(call.x)
    request = stored(
        LayoutRequest(
            call.rank, call.axis, call.count, x[NUMBA.itemsize],
            call.x + WORD * NUMBA.shape, call.memory,
            call.parts + WORD * NUMBA.data, _nbytes_of_array(call.rank),
            table.stream_short_runs, table.stream_long_runs, call.memory + WORD * call.count, 0,
        )
    )  # fmt: skip
    if call.number_of_parts == -1:
        fault = _make_parts(call, table)
    else:
        fault = _check_parts(address, call, table, request)
    if not fault and x[NUMBA.items] != 0 and x[NUMBA.itemsize] != 0:
        _copy(call, table, request)
    release(call.memory)
    return fault
