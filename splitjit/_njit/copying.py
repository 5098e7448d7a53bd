"""The copy in compiled code: each part in turn, a block of rows at a time, on one thread."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
from numba import njit
from numba.extending import register_jitable

from splitjit._copy.crossovers import LONG_RUN, stream_from
from splitjit._njit.rules import size as size_of

_LONG = 1 << 12  # from this mean run length on, parts share too few cache lines for blocking to pay

_STREAM_FROM = stream_from(0), stream_from(LONG_RUN)
"""From how many bytes on stores bypass the cache, for short runs and for long runs."""


@register_jitable
def is_streamed(nbytes, run):
    """Return whether stores bypass the cache, for so many bytes in runs of this mean length."""
    return nbytes >= _STREAM_FROM[1 if run >= LONG_RUN else 0]


@functools.cache
def copy_parts_function():
    """Make the function that copies the parts, and load the compiled loop that it calls."""
    from splitjit._copy.loading import LOADER
    from splitjit._kernels.part import lay_out_part, scratch
    from splitjit._kernels.table import BLOCK

    loaded = LOADER.load("part", wait=True)
    loop = ctypes.CFUNCTYPE(None, *[ctypes.c_ssize_t] * 6)(loaded["copy_part"])

    # Numba inlines this into our implementations only, which are never inlined themselves. A call
    # would count references to x and to all outputs, which takes about 20 ns.
    @njit(inline="always")
    def copy_parts(x, parts, sizes, count, axis, are_fresh):
        nbytes = x.size * x.itemsize
        if nbytes == 0:
            return
        rows = 1
        for d in range(axis):
            rows *= x.shape[d]
        length = x.shape[axis]
        bytes_of_row = nbytes // rows
        # Fresh parts: the system has just zeroed their pages, so they are in the cache.
        stream = not are_fresh and is_streamed(nbytes, bytes_of_row // count)
        # Copy blocks of rows, so that cache lines and pages that parts share are fetched once.
        block = max(1, BLOCK // bytes_of_row) if bytes_of_row < _LONG * count else rows
        record = scratch()
        for row in range(0, rows, block):
            end = min(row + block, rows)
            source = x.ctypes.data
            for i in range(count):
                size = size_of(sizes, i, length)
                if size:
                    part = parts[i]
                    lay_out_part(record, x.shape, x.strides, part.strides, axis, size, x.itemsize)
                    run = bytes_of_row // length * size
                    loop(
                        np.intp(stream), part.ctypes.data, source, record,
                        row * run, end * run,
                    )  # fmt: skip
                source += size * x.strides[axis]

    return copy_parts
