"""Large blocks of memory for fresh parts, kept for reuse.

The system zeroes each page of fresh memory at first touch, which costs more than the copy. So a
freed block waits in a slot of the block record until parts of about its size need it. On Linux,
blocks lie in huge pages. Numba frees arrays on any thread and without the GIL, so a slot changes
hands by one atomic exchange.

Before its memory, a block has a line with the bytes of the memory, the address of the record, and
the address of the block.
"""

import sys

from numba import int32, intp, types

from splitjit._abi.calls import BLOCKS, SLOTS, WORD, Expected
from splitjit._abi.kernels import LINE
from splitjit._abi.structs import ARRAY
from splitjit._kernels.compiling import jit
from splitjit._kernels.core import c_api
from splitjit._kernels.ir.intrinsics import (
    add_to,
    address_of_function,
    allocate,
    exchange,
    out_of_line,
    read_word,
    release,
    stored,
    words_at,
)
from splitjit._kernels.ir.records import read

_give_back = types.ExternalFunction("give_back", intp(intp))

_ROOM = 2 * LINE  # for the line before the memory, and to align both

if sys.platform == "linux":
    _READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, _HUGE_PAGES = 0x3, 0x22, 14
    _mmap = types.ExternalFunction("mmap", intp(intp, intp, *[int32] * 3, intp))
    _advise = types.ExternalFunction("madvise", int32(intp, intp, int32))
    _unmap = types.ExternalFunction("munmap", int32(intp, intp))

    @jit
    def _map(size):
        block = _mmap(0, size, _READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, -1, 0)
        if block == -1:
            return 0
        _advise(block, size, _HUGE_PAGES)
        return block

else:
    _map = allocate

    @jit
    def _unmap(block, size):
        release(block)


@jit
def _line_of(memory):
    """Return the words before the memory: its bytes, the record, the block."""
    return words_at(memory - LINE)


@jit
def _slot(record, i):
    """Return the address of a slot."""
    return record + WORD * (BLOCKS.slots + i)


@jit
def _take(record, nbytes):
    """Return kept memory of at least `nbytes` and at most twice that, or 0."""
    for i in range(SLOTS):
        slot = _slot(record, i)
        memory = exchange(slot, 0) if read_word(slot) else 0
        if memory:
            size = _line_of(memory)[0]
            if nbytes <= size <= 2 * nbytes:
                add_to(record + WORD * BLOCKS.kept, -size)
                return memory
            _put(record, slot, memory)
    return 0


@jit
def _put(record, slot, memory):
    """Put memory, or 0, in a slot; free what was there."""
    out_of_line()
    before = exchange(slot, memory)
    if before:
        line = _line_of(before)
        add_to(record + WORD * BLOCKS.kept, -line[0])
        _unmap(line[2], line[0] + _ROOM)


@jit
def take_block(nbytes, record):
    """Return the address of memory, aligned to `LINE`, or 0 if memory runs out.

    Before memory runs out, all kept blocks are freed.
    """
    if nbytes < 0:  # a sum of lengths that has overflowed
        return 0
    memory = _take(record, nbytes)
    if not memory:
        block = _map(nbytes + _ROOM)
        if not block:
            clear(record)
            block = _map(nbytes + _ROOM)
        if not block:
            return 0
        memory = (block + _ROOM - 1) // LINE * LINE
        line = _line_of(memory)
        line[0], line[1], line[2] = nbytes, record, block
    return memory


@jit
def free_block(memory):
    """Keep a block for reuse, and free others while more is kept than the limit allows."""
    size, record = _line_of(memory)[0], _line_of(memory)[1]
    kept, limit = record + WORD * BLOCKS.kept, record + WORD * BLOCKS.limit
    add_to(kept, size)
    for _ in range(SLOTS):
        if read_word(kept) > read_word(limit):
            _put(record, _slot_in_turn(record), 0)
    slot = _slot_in_turn(record)
    for i in range(SLOTS):
        if not read_word(_slot(record, i)):
            slot = _slot(record, i)
    _put(record, slot, memory)
    if read_word(kept) > read_word(limit):  # the block alone is too large, or others came
        _put(record, slot, 0)


@jit
def _slot_in_turn(record):
    """Return the next slot to empty.

    All slots take turns. So a block that nobody needs any more is freed at some point.
    """
    return _slot(record, add_to(record + WORD * BLOCKS.evicted, 1) % SLOTS)


@jit
def clear(record):
    """Free all kept blocks."""
    for i in range(SLOTS):
        _put(record, _slot(record, i), 0)


# ---- for Python --------------------------------------------------------------------------


@jit
def lease(record, nbytes):
    """``lease(nbytes)``: return a byte array over a block, which it gives back when it is freed.

    `record` is an array with the words of `Expected`.
    """
    return leased(read(Expected, words_at(record)[ARRAY.data]), c_api.as_integer(nbytes))


@jit
def leased(call, nbytes):
    """Return a byte array over a block; see `lease`."""
    memory = take_block(nbytes, call.blocks)
    if not memory:
        c_api.set_error(call.error, call.message)
        return 0
    owner = c_api.capsule_of(memory, 0, address_of_function(_give_back))
    if not owner:
        free_block(memory)
        return 0
    array = c_api.new_array(call, call.byte, 1, stored((nbytes,)), memory, owner)
    c_api.decrement(owner)  # the array has its own reference
    return array


@jit
def give_back(owner):
    """Free the block of a capsule, as Python frees the capsule."""
    free_block(c_api.memory_of(owner, 0))
    return 0
