"""Measured crossovers: from which size and layout on another way of copying is faster.

=========================================  ==============================================
parts of                                   copied by
=========================================  ==============================================
less than 16 KB                            NumPy
less than 512 KB, with few runs            NumPy: it copies long runs as fast on one thread
Python objects                             NumPy; from 512 KB on, the object-mode loop
all others                                 the compiled loops
15 MB or more (36 MB: see `stream_from`)   the compiled loops, with stores past the cache
=========================================  ==============================================

If the compiled entry of a recipe is loaded, it copies instead of NumPy: it makes the parts
faster. The rows on NumPy say from which size on a split is worth loading Numba.
"""

from __future__ import annotations

import math

from splitjit._copy.cores import cache_bytes
from splitjit._plan.plan import Plan

_NUMPY_BELOW = 1 << 14
_NUMPY_BELOW_IF_FEW_RUNS = 1 << 19
_FEW_RUNS = 1000
_FEW_ITEMS = 1 << 16  # the limit in items if the last axis of the source is strided
_OBJECT_LOOP_FROM = 1 << 19

_STREAM_FROM = 15 << 20
LONG_RUN = 1 << 9
_LARGE_CACHE = 1 << 28
_IN_LARGE_CACHE = 2.4
"""If the L3 cache is large, ordinary stores of long runs are faster up to so many times as many
bytes. Of short runs they are not."""


def suits_numpy(plan: Plan, itemsize: int, strides: tuple[int, ...], nbytes: int) -> bool:
    """Return whether NumPy copies arrays of these strides as fast as compiled loops."""
    if nbytes < _NUMPY_BELOW:
        return True
    if nbytes >= _NUMPY_BELOW_IF_FEW_RUNS:
        return False
    axis = plan.axis
    if not is_contiguous(plan.shape, strides, itemsize):
        if strides[-1] != itemsize and nbytes >= _FEW_ITEMS * itemsize:
            return False
        axis = -1
    return math.prod(plan.shape[:axis]) * plan._count < _FEW_RUNS


def suits_object_loop(nbytes: int) -> bool:
    """Return whether the object-mode loop copies objects faster than NumPy's slices."""
    return nbytes >= _OBJECT_LOOP_FROM


def stream_from(run: int) -> int:
    """Return from how many bytes on stores bypass the cache, if the shortest run has `run` bytes.

    Compiled code of users asks, too; see `splitjit._njit`.
    """
    is_cached = run >= LONG_RUN and cache_bytes() >= _LARGE_CACHE
    return int(_STREAM_FROM * (_IN_LARGE_CACHE if is_cached else 1))


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Return whether an array of this shape and these strides is C-contiguous."""
    step = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
