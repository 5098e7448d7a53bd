"""Whether C-contiguous outputs share no memory with each other and the source."""

from __future__ import annotations

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import greatest, least, out_of_line
from splitjit._kernels.records import part_at

_MOST_COMPARED = 512
"""An output is compared with up to this many outputs before it; later ones must be in order."""


@jit
def are_apart(layout, start, stop):
    """Return whether no output of a layout record meets [start, stop) or another output.

    False means unsure: so many outputs are only compared in order.
    """
    highest = 0
    for i in range(layout.count):
        part = part_at(layout, i)
        low, end = part.target_offset, part.target_offset + part.nbytes
        if low < stop and start < end:
            return False
        if low < highest and _meets_earlier(layout, i):
            return False
        highest = greatest(highest, end)
    return True


@jit
def _meets_earlier(layout, i):
    out_of_line()
    part = part_at(layout, i)
    low, end = part.target_offset, part.target_offset + part.nbytes
    for j in range(least(i, _MOST_COMPARED)):
        other = part_at(layout, j)
        if low < other.target_offset + other.nbytes and other.target_offset < end:
            return True
    return i >= _MOST_COMPARED
