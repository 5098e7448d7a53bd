"""Which arrays of users' compiled code share memory, by the rule of `splitjit._abi.columns`."""

from __future__ import annotations

from splitjit._abi import columns
from splitjit._kernels.compiling import jit, jit_all
from splitjit._kernels.intrinsics import out_of_line

_MOST = (1 << 63) - 1

_columns = jit_all(columns)
are_apart, find_meeting = _columns["are_apart"], _columns["find_meeting"]
are_rows_apart = _columns["are_rows_apart"]
lowest_at, _length_at = _columns["lowest_at"], _columns["length_at"]


@jit
def sort(lows, places, count):
    """Sort arrays by their lowest addresses, by shell sort."""
    out_of_line()
    gap = 1
    while gap < count:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            low, place, k = lows[i], places[i], i
            while k >= gap and lows[k - gap] > low:
                lows[k], places[k] = lows[k - gap], places[k - gap]
                k -= gap
            lows[k], places[k] = low, place
        gap //= 3


@jit
def part_at(arrays, rank, itemsize, x, count, lows, places):
    """Return the index of a part whose addresses overlap those of the source, or -1."""
    low = lowest_at(arrays, rank, x)
    end = low + _length_at(arrays, rank, itemsize, x, _MOST)
    for k in range(count):
        if low < lows[k] + _length_at(arrays, rank, itemsize, places[k], _MOST) and lows[k] < end:
            return places[k]
    return -1
