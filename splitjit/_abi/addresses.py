"""Where arrays lie in memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

addressof: Any = ctypes.addressof
from_buffer: Any = ctypes.c_char.from_buffer
"""Fails unless the array is writeable and C-contiguous, and buffers support its dtype."""


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    try:  # faster than `array.ctypes.data`
        address: int = addressof(from_buffer(array))
        return address
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty or foreign dtype
        return array.ctypes.data


def span(array: np.ndarray) -> tuple[int, int]:
    """Return the start and stop of the address range that an array occupies."""
    try:  # as in `address_of`; byte_bounds takes longer
        start: int = addressof(from_buffer(array))
    except (TypeError, ValueError, BufferError):
        if not array.flags.c_contiguous:
            return byte_bounds(array)
        start = array.ctypes.data
    return start, start + array.nbytes
