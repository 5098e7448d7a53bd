"""Check that the outputs in a layout record share no memory.

`are_apart` finds most outputs apart, by their address ranges. If it does not, `find_shared`
searches as Python does; see `splitjit._abi.overlap`.
"""

from __future__ import annotations

from splitjit._abi import overlap
from splitjit._abi.layout_record import MAX_RANK, WORD
from splitjit._abi.overlap import Strided, Terms
from splitjit._kernels.compiling import jit, jit_all
from splitjit._kernels.intrinsics import (
    greatest,
    least,
    out_of_line,
    reserve,
    words_at,
)
from splitjit._kernels.records import part_at

_MOST = (1 << 63) - 1
_MOST_COMPARED = 512
"""An output is compared with up to this many outputs before it; later ones must be in order."""
_WORK = 1 << 20  # a search takes a few milliseconds at most
_TERMS = 2 * MAX_RANK * WORD  # bytes of each field of `Terms`
_RESERVED = len(Terms._fields) * _TERMS


@jit
def _output(layout, i):
    out_of_line()
    part = part_at(layout, i)
    extents, strides = part.extents, part.target_strides
    low = lowest(part.target_offset, layout.dims, extents, strides)
    return Strided(low, part.run, layout.dims, extents, strides)


@jit
def _sort(numbers, keys, first, stop):
    """Sort numbers by their keys, by shell sort."""
    out_of_line()
    gap = 1
    while gap < stop - first:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, stop):
            moved, k = numbers[i], i
            while k >= first + gap and keys[numbers[k - gap]] > keys[moved]:
                numbers[k] = numbers[k - gap]
                k -= gap
            numbers[k] = moved
        gap //= 3


_compiled = jit_all(
    overlap, array_at=_output, sort=_sort, out_of_line=out_of_line, max=greatest, min=least
)
lowest, _length_of = _compiled["lowest"], _compiled["length_of"]
_share, _find_shared = _compiled["share"], _compiled["find_shared"]


@jit
def end_of(array):
    """Return where the memory of an array ends."""
    return array.low + _length_of(array, _MOST)


@jit
def are_apart(layout, start, stop, are_contiguous):
    """Return whether no output meets [start, stop) or another output, by their address ranges.

    False means unsure: ranges may meet although no element is shared.
    """
    highest = 0
    for i in range(layout.count):
        low, end = _range_of(layout, i, are_contiguous)
        if low < stop and start < end:
            return False
        if low < highest and _meets_earlier(layout, i, are_contiguous):
            return False
        highest = greatest(highest, end)
    return True


@jit
def _range_of(layout, i, is_contiguous):
    if is_contiguous:
        part = part_at(layout, i)
        return part.target_offset, part.target_offset + part.nbytes
    array = _output(layout, i)
    return array.low, end_of(array)


@jit
def _meets_earlier(layout, i, are_contiguous):
    """Return whether an output may meet one before it. So many are only compared in order."""
    out_of_line()
    low, end = _range_of(layout, i, are_contiguous)
    for j in range(least(i, _MOST_COMPARED)):
        other_low, other_end = _range_of(layout, j, are_contiguous)
        if low < other_end and other_low < end:
            return True
    return i >= _MOST_COMPARED


@jit
def find_shared(layout, source, memory):
    """Return the numbers of two outputs that share memory, or -1 and -1.

    If an output shares memory with the source, return its number and -1. Arrays share memory if it
    takes too long to find out. `memory` is the address of three words for each output.
    """
    out_of_line()
    terms = _new_terms()
    for k in range(layout.count):
        if _share(_output(layout, k), source, terms, _WORK):
            return k, -1
    length = WORD * layout.count
    words = words_at(memory), words_at(memory + length), words_at(memory + 2 * length)
    answer, i, j = _find_shared(layout, layout.count, words, terms, _WORK)
    return (least(i, j), greatest(i, j)) if answer else (-1, -1)


@jit(inline="always")
def _new_terms():
    at = reserve(_RESERVED, WORD)
    return Terms(
        words_at(at), words_at(at + _TERMS), words_at(at + 2 * _TERMS), words_at(at + 3 * _TERMS),
        words_at(at + 4 * _TERMS), words_at(at + 5 * _TERMS), words_at(at + 6 * _TERMS),
        words_at(at + 7 * _TERMS), words_at(at + 8 * _TERMS),
    )  # fmt: skip
