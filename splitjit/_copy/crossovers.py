"""Crossover points: when compiled code beats NumPy, and when stores bypass the cache."""

from __future__ import annotations

import math

import numpy as np

from splitjit._abi.kernels import LONG_RUN
from splitjit._runtime.cores import cache_bytes
from splitjit._runtime.threads import SHARED_FROM

_RUN = 6e-9  # extra seconds that NumPy takes per run of contiguous bytes
_ITEM = 1e-9  # the same per item of a strided source
_BYTE = 2e-10  # the same per byte, if several threads share the copy
_OBJECT_LOOP_FROM = 1 << 19

_STREAM_FROM = 15 << 20
_LARGE_CACHE = 1 << 28
_IN_LARGE_CACHE = 2.4
"""With a large L3 cache, ordinary stores of long runs stay faster up to this multiple of
`_STREAM_FROM`; ordinary stores of short runs do not.

Which stores are faster is not measured where the copy runs: after stores past the cache, ordinary
ones need four calls to fill it again, and a try of `splitjit._runtime.ways` is only two calls long.
"""


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


def stream_from(run: int) -> int:
    """Return the size from which on stores bypass the cache; the shortest run has `run` bytes.

    Users' compiled code needs it, too; see `splitjit._njit`.
    """
    is_cached = run >= LONG_RUN and cache_bytes() >= _LARGE_CACHE
    return int(_STREAM_FROM * (_IN_LARGE_CACHE if is_cached else 1))
