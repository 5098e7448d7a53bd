"""Splits between protected pages: an access outside of a buffer ends the process.

``python -m tests.guarded ROUTE FIRST LAST LOG`` runs the cases from number FIRST to LAST - 1. After
a crash, LOG has the number of the case. At the end, it prints how many chunks helpers have copied.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import random
import sys
from collections.abc import Sequence

import numba
import numpy as np
from numba import types

import splitjit
from splitjit._abi import structs
from splitjit._abi.calls import AT, FUNCTIONS_AT
from splitjit._abi.kernels import LINE
from splitjit._abi.structs import NEW_FROM_DESCR
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy import buffers, how
from splitjit._njit import functions
from splitjit._runtime import threads
from tests.conftest import ASKED, take

PAGE = mmap.PAGESIZE
FIELDS = how.shared_fields.__wrapped__
CANARY = 0xA5

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(nbytes: int, flush_with_end: bool) -> np.ndarray:
    """Return bytes that begin right after a protected page, or end right before one."""
    room = -(-max(nbytes, 1) // PAGE) * PAGE
    memory = np.frombuffer(mmap.mmap(-1, room + 2 * PAGE), np.uint8)
    for page in (0, PAGE + room):
        if libc.mprotect(memory.ctypes.data + page, PAGE, 0):  # PROT_NONE
            raise OSError(ctypes.get_errno(), "mprotect")
    start = PAGE + (room - nbytes if flush_with_end else 0)
    return memory[start : start + nbytes]


_NEW_ARRAY = ctypes.PYFUNCTYPE(
    ctypes.c_void_p,
    *[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_ssize_t)],
    *[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p],
)


@functools.cache
def guarded_new_array(rng: random.Random):
    """Return `PyArray_NewFromDescr` with protected pages around the memory of small copies."""
    make = _NEW_ARRAY(structs.API[NEW_FROM_DESCR])

    @_NEW_ARRAY
    def new_array(kind, dtype, rank, shape, strides, data, flags, of):
        if data:
            return make(kind, dtype, rank, shape, strides, data, flags, of)
        memory = guarded(shape[0] - LINE, rng.random() < 0.5)  # needs no room to be aligned
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        return id(memory)

    return new_array


def strided(rng: random.Random, shape, item: int, *, order, steps):
    """Return an array that spans all bytes of new guarded memory, and return this memory."""
    strides = [0] * len(shape)
    step = item
    for d in order:
        strides[d] = step * steps[d]
        step *= max(abs(steps[d]) * shape[d], 1)
        step += item * rng.choice([0, 0, 0, 1, 3])
    spans = [stride * (n - 1) for stride, n in zip(strides, shape, strict=True)]
    low = sum(span for span in spans if span < 0)
    nbytes = item + sum(abs(span) for span in spans) if all(shape) else 0
    memory = guarded(nbytes, rng.random() < 0.5)
    return np.ndarray(shape, f"V{item}", memory, -low if nbytes else 0, strides), memory


def sizes_of(rng: random.Random, parts: int, longest: int) -> list[int]:
    equal = rng.random() < 0.4
    size = rng.randint(1, longest)
    return [size if equal else rng.randint(0, longest) for _ in range(parts)]


def draw(rng: random.Random):
    """Draw a shape, its axis and sizes, an item size, and the order and steps of strides."""
    kinds = ["rows", "long rows", "deinterleave", "single", "lines", "heads", "any", "one"]
    kind = rng.choice(kinds)
    item = rng.choice([1, 1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 12, 16, 16, 20, 24])
    steps = [1, 1, 1, 1]
    budget = rng.choice([500, 5_000, 50_000, 400_000])  # approximate bytes of the array
    if kind == "rows":  # runs of 1 to 300 bytes
        sizes = sizes_of(rng, rng.randint(1, 70), max(1, rng.choice([8, 40, 300]) // item))
        shape = [max(1, budget // (sum(sizes) * item or 1)), sum(sizes)]
        axis, order = 1, [1, 0]
    elif kind == "long rows":  # runs of 64 to 4000 bytes
        most = rng.choice([700, 4000])
        sizes = [rng.randint(-(-64 // item), most // item) for _ in range(rng.randint(1, 12))]
        shape, axis, order = [max(1, budget // (sum(sizes) * item)), sum(sizes)], 1, [1, 0]
    elif kind == "deinterleave":
        n, item = rng.choice([2, 3, 4, 8]), rng.choice([1, 2, 4])
        shape, sizes, axis, order = [rng.randint(1, budget // (n * item)), n], [1] * n, 1, [1, 0]
    elif kind == "single":
        n, item = rng.randint(3, 70), rng.choice([1, 2, 4, 8, 16])
        shape, sizes, axis, order = [rng.randint(1, budget // n), n], [1] * n, 1, [1, 0]
        shape[0] = max(1, shape[0] // item)
    elif kind in ("lines", "heads"):  # axes 1 and 2 swapped in memory, and sometimes an outer axis
        run = rng.choice([1, 1, 1, 3] if kind == "lines" else [16, 32, 128])
        lines = rng.choice([1, 3, 16, 17, 40, 130, 400])
        count = max(1, budget // (lines * run * item))
        outer = rng.choice([1, 1, 2, 3])
        shape, order = [outer, lines, max(1, count // outer), run], [3, 1, 2, 0]
        axis = rng.choice([0, 1, 1, 2, 3])
        sizes = cut(rng, shape[axis])
        steps[1] = rng.choice([1, 1, 1, -1, 2])
        steps[2] = rng.choice([1, 1, 1, -1])
    elif kind == "one":
        shape, axis, order = [rng.randint(0, budget // item)], 0, [0]
        sizes = cut(rng, shape[0])
        steps = [rng.choice([1, 1, -1, 2])]
    else:
        rank = rng.randint(1, 4)
        most = int((budget / item) ** (1 / rank)) + 1
        shape = [rng.randint(rng.choice([0, 1, 1, 1]), most) for _ in range(rank)]
        axis = rng.randrange(rank)
        order = rng.sample(range(rank), rank)
        sizes = cut(rng, shape[axis])
        steps = [rng.choice([1, 1, 1, -1, 2, -3, 0]) for _ in range(rank)]
    if rng.random() < 0.3:
        shape, order, steps = [*shape, 1], [len(shape), *order], [*steps[: len(shape)], 1]
    return shape, axis, sizes, item, order, steps


def cut(rng: random.Random, length: int, counts: Sequence[int] = (0, 1, 2, 6, 69)) -> list[int]:
    cuts = sorted(rng.randint(0, length) for _ in range(rng.choice(counts)))
    return np.diff([0, *cuts, length]).tolist()


def run(number: int) -> None:
    rng = random.Random(number)
    shape, axis, sizes, item, order, steps = draw(rng)
    if COMPILED:
        item, sizes = rng.choice(list(KINDS)), cut(rng, shape[axis], [2])
    x, memory = strided(rng, shape, item, order=order, steps=steps)
    memory[...] = np.frombuffer(rng.randbytes(memory.size), np.uint8)
    memory.flags.writeable = False
    before = memory.tobytes()
    plan = splitjit.plan_split(shape, sizes, axis=axis)
    expected = [x[index].tobytes() for index in plan.slices]
    calls = rng.choice([1, 2]) if CALLS is None else CALLS
    if COMPILED:
        threads.TEAM.word(AT.chunk).value = rng.choice([1, 1 << 62])
    if not COMPILED and rng.random() < 0.5:
        buffers.POOL.lease = lambda nbytes: guarded(nbytes, rng.random() < 0.5)
        is_small = x.nbytes < THRESHOLDS.large  # builtins lease larger blocks without the pool
        how.shared_fields = lambda: FIELDS() if is_small else None
        for _ in range(calls):  # the first call loads the code of small copies
            parts = plan(x)
    else:
        how.shared_fields = FIELDS
        contiguous = rng.random() < 0.5
        parts, memories = [], []
        for part in plan.output_shapes:
            rank = len(part)
            order = range(rank)[::-1] if contiguous else rng.sample(range(rank), rank)
            steps = [1 if contiguous else rng.choice([1, 1, -1, 2]) for _ in part]
            output, memory_of_it = strided(rng, part, item, order=order, steps=steps)
            memory_of_it[...] = CANARY
            parts.append(output)
            memories.append(memory_of_it)
        for _ in range(calls):
            (split_compiled if COMPILED else splitjit.SplitPlan.__call__)(plan, x, parts)
        check_between_items(parts, memories)
        if not COMPILED:
            order = rng.sample(range(len(shape)), len(shape))
            steps = [rng.choice([1, 1, 1, -1, 2]) for _ in shape]
            whole, around = strided(rng, shape, item, order=order, steps=steps)
            around[...] = CANARY
            for _ in range(calls):
                plan.join(parts, whole)
            check_between_items([whole], [around])
            assert whole.tobytes() == x.tobytes(), "wrong whole"
    assert [part.tobytes() for part in parts] == expected, "wrong part"
    assert memory.tobytes() == before, "wrote to x"


def check_between_items(arrays, memories) -> None:
    for array, around in zip(arrays, memories, strict=True):
        mask = np.ones(around.size, np.uint8)
        offset = array.ctypes.data - around.ctypes.data if array.size else 0
        zeros = bytes(array.itemsize)
        np.ndarray(array.shape, array.dtype, mask, offset, array.strides)[...] = zeros
        assert (around[mask == 1] == CANARY).all(), "wrote between the items"


COMPILED = False
CALLS = None
"""How often each case is copied; None: once or twice. A helper that was woken comes in time for a
later call."""
RANK = 5
KINDS = {1: "u1", 4: "u4", 16: "c16"}


@functools.cache
def compiled(dtype: str):
    """Compile a split of any layout into three parts."""
    kind = numba.from_dtype(np.dtype(dtype))
    source = types.Array(kind, RANK, "A")
    outs = types.UniTuple(types.Array(kind, RANK, "A"), 3)
    sizes = types.UniTuple(types.intp, 3)

    @numba.njit(types.void(source, outs, sizes, types.intp))
    def split_into(x, outs, sizes, axis):
        splitjit.split_into(x, outs, sizes, axis)

    return split_into


def split_compiled(plan: splitjit.SplitPlan, x: np.ndarray, parts: list[np.ndarray]) -> None:
    dtype, more = KINDS[x.itemsize], RANK - x.ndim
    whole = (None,) * more
    outs = tuple(part.view(dtype)[whole] for part in parts)
    compiled(dtype)(x.view(dtype)[whole], outs, plan.sizes, plan.axis + more)


def main(route: str, first: int, last: int, log: str) -> None:
    global COMPILED, CALLS
    COMPILED = route.startswith("compiled")
    CALLS = 4 if COMPILED or route.startswith("parallel") else None
    if COMPILED:
        from_bytes = 0 if route == "compiled-streamed" else 1 << 62
        functions.fill_table()
        for field in ("stream_short_runs", "stream_long_runs"):
            functions.TABLE[getattr(FUNCTIONS_AT, field)] = from_bytes
        functions.TABLE[FUNCTIONS_AT.large] = 1
        for name, value in {**ASKED, "allowed": 1}.items():
            threads.TEAM.word(getattr(AT, name)).value = value
    else:
        take(route, setattr)
        new_array = guarded_new_array(random.Random(first))
        structs.API[NEW_FROM_DESCR] = ctypes.cast(new_array, ctypes.c_void_p).value
    with open(log, "wb", buffering=0) as file:
        for number in range(first, last):
            os.pwrite(file.fileno(), b"%20d" % number, 0)
            run(number)
    print(threads.TEAM.word(AT.helped).value)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
