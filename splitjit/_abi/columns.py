"""Whether arrays share no memory: Python and compiled code call `are_apart`.

Arrays whose address ranges do not meet are apart. The ranges of slices of one array along an axis
do meet, since each slice takes the same bytes of every row, its *column*::

    row 0   |──a───|───b───|─c─|
    row 1   |──a───|───b───|─c─|        the columns of a, b and c are apart

A dim lies within a column if its step is no longer than that of the split axis. All other dims are
rows: their steps are equal in all slices, and each step is longer than all that it steps over. So
slices whose columns are apart share no byte.

An array is a few integers: the address of its first item, its extents, its strides. They lie in
`words`, a list or the memory of Numba's arrays, from the index `at`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from splitjit._abi.layout_record import MOST


def are_ranges_apart(ranges: Iterable[tuple[int, int]]) -> bool:
    """Return whether no address ranges meet."""
    end = 0
    for start, stop in sorted(ranges):
        if start < end:
            return False
        end = stop
    return True


def lowest_at(words: Any, rank: int, at: int) -> int:
    """Return the lowest address of an array."""
    address: int = words[at]
    for d in range(at + 1, at + 1 + rank):
        if words[d + rank] < 0:
            address += (words[d] - 1) * words[d + rank]
    return address


def length_at(words: Any, rank: int, itemsize: int, at: int, longest: int) -> int:
    """Return the bytes that an array spans in the dims with steps of at most `longest`."""
    length = itemsize
    for d in range(at + 1, at + 1 + rank):
        step = abs(words[d + rank])
        if step <= longest:
            length += (words[d] - 1) * step
    return length


def are_rows_apart(words: Any, rank: int, at: int, column: int, width: int) -> bool:
    """Return whether each row step of an array is longer than all that it steps over.

    Then no two rows overlap. If all dims are rows of single items, no two items overlap.

    Parameters
    ----------
    column : int
        The longest step within a column; -1 if all dims are rows.
    width : int
        The bytes of all columns together.
    """
    for d in range(at + 1, at + 1 + rank):
        step = abs(words[d + rank])
        if step <= column or words[d] == 1:
            continue
        below = width
        for e in range(at + 1, at + 1 + rank):
            other = abs(words[e + rank])
            if column < other <= step and e != d:
                below += (words[e] - 1) * other
        if step < below:
            return False
    return True


def find_meeting(words: Any, rank: int, itemsize: int, count: int, lows: Any, places: Any) -> int:
    """Return which array begins before the end of the one before it, or 0; see `are_apart`."""
    for k in range(1, count):
        if lows[k] < lows[k - 1] + length_at(words, rank, itemsize, places[k - 1], MOST):
            return k
    return 0


def are_apart(
    words: Any, rank: int, axis: int, itemsize: int, count: int, lows: Any, places: Any
) -> bool:
    """Return whether address ranges are apart, or arrays are slices with columns that are apart.

    Parameters
    ----------
    words : sequence of int
        Arrays of equal shapes but for the axis.
    rank, axis, itemsize, count : int
        The rank of all arrays, the axis, the bytes of an item, the number of arrays.
    lows : sequence of int
        The lowest address of each array, in ascending order.
    places : sequence of int
        The index in `words` of each array, in the same order.
    """
    if find_meeting(words, rank, itemsize, count, lows, places) == 0:
        return True
    first = places[0]
    for k in range(1, count):
        for d in range(1 + rank, 1 + 2 * rank):
            if words[places[k] + d] != words[first + d]:
                return False
    column, end = abs(words[first + 1 + rank + axis]), lows[0]
    for k in range(count):
        if lows[k] < end:
            return False
        end = lows[k] + length_at(words, rank, itemsize, places[k], column)
    return are_rows_apart(words, rank, first, column, end - lows[0])
