"""Lay out and copy one part, for compiled code of users; see `splitjit._njit`."""

from __future__ import annotations

from numba import types
from numba.extending import register_jitable

from splitjit._kernels.compiling import jit
from splitjit._kernels.copy import copy_range, cut_at_line
from splitjit._kernels.intrinsics import fence, greatest, reserve, words_at
from splitjit._kernels.records import Arguments, layout_at, part_at
from splitjit._kernels.runs import staging_buffer
from splitjit._kernels.stream import has_no_gaps, stream_range
from splitjit._kernels.table import (
    COUNT,
    DIMS,
    FIXED,
    HEADER,
    LINE,
    MAX_RANK,
    NBYTES,
    RUN,
    RUNS,
    SOURCE_OFFSET,
    TARGET_OFFSET,
    WORD,
    row_words,
)

_RECORD = WORD * (HEADER + MAX_RANK + row_words(MAX_RANK))
_SCRATCH = _RECORD + WORD * 3 * MAX_RANK


@register_jitable(inline="always")
def scratch():
    """Reserve memory for `lay_out_part`, and return its address."""
    return reserve(_SCRATCH, LINE)


@register_jitable
def lay_out_part(record, shape, strides, target_strides, axis, size, itemsize):
    """Write the layout record of a single part, as `splitjit._copy.layout` does.

    Parameters
    ----------
    record : int
        Address of memory from `scratch`.
    shape, strides, target_strides : tuple of int
        The shape and strides of the source, and the strides of the part; dims
        keep their order.
    axis, size : int
        The axis that is split, and the length of the part along it.
    itemsize : int
    """
    found = words_at(record + _RECORD)  # extent, stride, target stride; innermost dim first
    dims = 0
    run = nbytes = itemsize
    for d in range(len(shape) - 1, -1, -1):
        extent = size if d == axis else shape[d]
        nbytes *= extent
        inner = 3 * (dims - 1)
        if extent == 1:
            continue
        if dims == 0 and strides[d] == run and target_strides[d] == run:
            run *= extent
        elif (
            dims
            and strides[d] == found[inner] * found[inner + 1]
            and target_strides[d] == found[inner] * found[inner + 2]
        ):
            found[inner] *= extent
        else:
            found[3 * dims] = extent
            found[3 * dims + 1] = strides[d]
            found[3 * dims + 2] = target_strides[d]
            dims += 1
    if dims == 0:
        found[0], found[1], found[2] = 1, 0, 0
        dims = 1
    header = words_at(record)
    header[DIMS], header[COUNT], header[RUNS] = dims, 1, nbytes // greatest(run, 1)
    source_strides = words_at(record + WORD * HEADER)
    row = words_at(record + WORD * (HEADER + dims))
    row[SOURCE_OFFSET], row[TARGET_OFFSET], row[RUN], row[NBYTES] = 0, 0, run, nbytes
    for d in range(dims):
        dim = 3 * (dims - 1 - d)
        row[FIXED + d] = found[dim]
        source_strides[d] = found[dim + 1]
        row[FIXED + dims + d] = found[dim + 2]


def _copy_part(stream, target, source, record, first, last):
    """Copy the bytes [first, last) of a part whose record `lay_out_part` has written.

    If full cache lines are streamed, both ends move back to a line, so calls that follow each
    other share no line.
    """
    call = Arguments(stream, target, source, record)
    layout = layout_at(record)
    part = part_at(layout, 0)
    if not stream:
        copy_range(call, layout, part, first, last)
        return
    in_lines = has_no_gaps(layout.dims, part)
    if in_lines:
        first, last = cut_at_line(first, part, target), cut_at_line(last, part, target)
    stream_range(call, layout, part, in_lines, staging_buffer(), 0, first, last)
    fence()


FUNCTIONS = {"copy_part": (types.void(*[types.intp] * 6), jit(_copy_part))}
