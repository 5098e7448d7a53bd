"""Crossover points: when compiled code beats NumPy, and which stores a copy begins with."""

from __future__ import annotations

import math

import numpy as np

from splitjit._runtime.threads import SHARED_FROM

_RUN = 6e-9  # extra seconds that NumPy takes per run of contiguous bytes
_ITEM = 1e-9  # the same per item of a strided source
_BYTE = 2e-10  # the same per byte, if several threads share the copy
_OBJECT_LOOP_FROM = 1 << 19

STREAM_FROM = 15 << 20
"""The size from which on stores bypass the cache, if nothing has been measured. Users' compiled
code needs it, too; see `splitjit._njit`."""

BOTH_STORES = range(1 << 22, 1 << 26)
"""The sizes for which both kinds of stores are ways to copy. Smaller copies stay in the cache, and
larger ones do not. In between, it depends on the cache, and on what else uses it."""


def forecast(x: np.ndarray, axis: int, count: int) -> float:
    """Return a lower bound of the seconds that kernels save over NumPy.

    This finds arrays for which compiled code pays at their first split. For all others, see
    `splitjit._copy.recipe`.
    """
    if x.flags.c_contiguous:
        seconds = math.prod(x.shape[:axis]) * count * _RUN
    elif x.strides[-1] == x.itemsize:
        seconds = math.prod(x.shape[:-1]) * count * _RUN
    else:
        seconds = x.size * _ITEM
    return seconds + x.nbytes * _BYTE if x.nbytes >= SHARED_FROM else seconds


def suits_object_loop(nbytes: int) -> bool:
    """Return whether the object-mode loop copies objects faster than NumPy's slices."""
    return nbytes >= _OBJECT_LOOP_FROM
