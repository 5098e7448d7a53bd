"""Estimates of speed: what compiled code gains over NumPy, and when stores bypass the cache."""

from __future__ import annotations

import math

from splitjit._copy.cores import cache_bytes
from splitjit._kernels.table import LONG_RUN
from splitjit._plan.plan import Plan

_RUN = 6e-9  # seconds by which NumPy copies a run of contiguous bytes more slowly
_ITEM = 1e-9  # the same for an item of a strided source
_BYTE = 2e-10  # the same for a byte, if several threads share the copy
_SHARED_FROM = 1 << 19
_PART = 2e-7  # the same for a part, which NumPy makes by a call from Python
_CHECKS = 6e-6  # what the checks of given arrays take in Python
_CHECK = 1e-6  # the same for each part

_OBJECT_LOOP_FROM = 1 << 19

_STREAM_FROM = 15 << 20
_LARGE_CACHE = 1 << 28
_IN_LARGE_CACHE = 2.4
"""If the L3 cache is large, ordinary stores of long runs are faster up to so many times as many
bytes. Of short runs they are not."""


def gains(plan: Plan, itemsize: int, strides: tuple[int, ...]) -> tuple[float, float]:
    """Estimate by how many seconds compiled code copies an array faster than NumPy.

    The first number is for new parts, the second one for given arrays.
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
