"""Large blocks for fresh parts in users' compiled code, kept for reuse.

The system zeroes each page of fresh memory at first touch, which costs more than the copy. So
these blocks lie in huge pages, and a freed block waits in a slot of the block record until a
part of about its size needs it. Numba frees arrays on any thread and without the GIL, so a slot
changes hands by one atomic exchange.

Before the memory that Numba gets, a block has a line with its size and the record's address.
"""

from __future__ import annotations

from numba import types

from splitjit._abi.kernels import LINE
from splitjit._abi.layout_record import WORD
from splitjit._abi.shared import BLOCKS_KEPT, BLOCKS_LIMIT, SLOTS, SLOTS_AT
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import add_to, exchange, read_word, words_at

_READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, _HUGE_PAGES = 0x3, 0x22, 14  # of Linux

_map = types.ExternalFunction(
    "mmap", types.intp(types.intp, types.intp, *[types.int32] * 3, types.intp)
)
_advise = types.ExternalFunction("madvise", types.int32(types.intp, types.intp, types.int32))
_unmap = types.ExternalFunction("munmap", types.int32(types.intp, types.intp))


@jit
def _take(record, nbytes):
    """Return a kept block of at least `nbytes` and at most twice that, or 0."""
    for i in range(SLOTS):
        slot = record + WORD * (SLOTS_AT + i)
        if not read_word(slot):
            continue
        block = exchange(slot, 0)
        if block:
            size = words_at(block)[0]
            if nbytes <= size <= 2 * nbytes:
                add_to(record + WORD * BLOCKS_KEPT, -size)
                return block
            _put(record, slot, block)
    return 0


@jit
def _put(record, slot, block):
    """Put a block in a slot; free the block that was there."""
    before = exchange(slot, block)
    if before:
        add_to(record + WORD * BLOCKS_KEPT, -words_at(before)[0])
        _unmap(before, words_at(before)[0])


@jit
def allocate(nbytes, record):
    """Return the address of memory, or 0 if memory runs out."""
    size = nbytes + LINE
    block = _take(record, size)
    if not block:
        block = _map(0, size, _READ_AND_WRITE, _PRIVATE_AND_ANONYMOUS, -1, 0)
        if block == -1:
            return 0
        _advise(block, size, _HUGE_PAGES)
        words_at(block)[0], words_at(block)[1] = size, record
    return block + LINE


@jit
def free_block(memory):
    """Keep a block for reuse, in an empty slot if there is one, or free it."""
    block = memory - LINE
    size, record = words_at(block)[0], words_at(block)[1]
    if add_to(record + WORD * BLOCKS_KEPT, size) + size > read_word(record + WORD * BLOCKS_LIMIT):
        add_to(record + WORD * BLOCKS_KEPT, -size)
        _unmap(block, size)
        return
    slot = record + WORD * SLOTS_AT
    for i in range(SLOTS):
        if not read_word(record + WORD * (SLOTS_AT + i)):
            slot = record + WORD * (SLOTS_AT + i)
            break
    _put(record, slot, block)


@jit
def clear(record):
    """Free all kept blocks."""
    for i in range(SLOTS):
        _put(record, record + WORD * (SLOTS_AT + i), 0)
