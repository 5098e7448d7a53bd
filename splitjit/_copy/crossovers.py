"""Crossover points: when compiled code beats NumPy, and when stores bypass the cache."""

from __future__ import annotations

import math

from splitjit._copy.cores import cache_bytes
from splitjit._kernels.table import LONG_RUN
from splitjit._plan.plan import Plan

_RUN = 6e-9  # extra seconds that NumPy takes per run of contiguous bytes
_ITEM = 1e-9  # the same per item of a strided source
_BYTE = 2e-10  # the same per byte, if several threads share the copy
_SHARED_FROM = 1 << 19
_PART = 2e-7  # the same per part, which NumPy makes in a call from Python
_CHECKS = 6e-6  # seconds to check given arrays in Python
_CHECK = 1e-6  # and in addition, per part

_OBJECT_LOOP_FROM = 1 << 19

_STREAM_FROM = 15 << 20
_LARGE_CACHE = 1 << 28
_IN_LARGE_CACHE = 2.4
"""If the L3 cache is large, ordinary stores of long runs stay faster up to this multiple of
`_STREAM_FROM`. Those of short runs do not."""


def gains(plan: Plan, itemsize: int, strides: tuple[int, ...]) -> tuple[float, float]:
    """Estimate how many seconds compiled code saves over NumPy.

    The first number is for new parts, the second for given arrays.
    """
    items, axis = math.prod(plan.shape), plan.axis
    if is_contiguous(plan.shape, strides, itemsize):
        seconds = math.prod(plan.shape[:axis]) * plan._count * _RUN
    elif strides[-1] == itemsize:
        seconds = math.prod(plan.shape[:-1]) * plan._count * _RUN
    else:
        seconds = items * _ITEM
    nbytes = items * itemsize
    if nbytes >= _SHARED_FROM:
        seconds += nbytes * _BYTE
    parts = plan._count * _PART
    return seconds + parts, seconds + parts + _CHECKS + plan._count * _CHECK


def suits_object_loop(nbytes: int) -> bool:
    """Return whether the object-mode loop copies objects faster than NumPy's slices."""
    return nbytes >= _OBJECT_LOOP_FROM


def stream_from(run: int) -> int:
    """Return the size from which on stores bypass the cache; the shortest run has `run` bytes.

    Users' compiled code needs it, too; see `splitjit._njit`.
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
