"""Whether arrays share no memory: Python and compiled code call `are_apart`.

Arrays whose address ranges do not meet are apart. The ranges of slices of one array along an axis
do meet, since each slice takes the same bytes of every row, its *column*::

    row 0   |──a───|───b───|─c─|
    row 1   |──a───|───b───|─c─|        the columns of a, b and c are apart

A dim lies within a column if its step is no longer than that of the split axis. All other dims are
rows: their steps are equal in all slices, and each step is longer than all that it steps over. So
slices whose columns are apart share no byte.

In Python, `arrays` is a list of `Strided`. In compiled code, `splitjit._kernels.overload_copy` has
its own functions to read arrays. This module imports nothing of the package.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_MOST = (1 << 63) - 1


class Strided(NamedTuple):
    """An array with at least one item: address of the first, bytes of an item, dims."""

    address: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def address_at(arrays: Any, i: int) -> int:
    """Return the address of the first item of array `i`."""
    address: int = arrays[i].address
    return address


def extent_at(arrays: Any, i: int, d: int) -> int:
    """Return the extent of dim `d`."""
    extent: int = arrays[i].shape[d]
    return extent


def stride_at(arrays: Any, i: int, d: int) -> int:
    """Return the stride of dim `d`."""
    stride: int = arrays[i].strides[d]
    return stride


def sort(order: Any, keys: Any, count: int) -> None:
    """Sort the first `count` numbers by their keys."""
    order[:count] = sorted(order[:count], key=keys.__getitem__)


def lowest_at(arrays: Any, rank: int, i: int) -> int:
    """Return the lowest address of array `i`."""
    address = address_at(arrays, i)
    for d in range(rank):
        address += min((extent_at(arrays, i, d) - 1) * stride_at(arrays, i, d), 0)
    return address


def length_at(arrays: Any, rank: int, itemsize: int, i: int, longest: int) -> int:
    """Return the bytes that array `i` spans in the dims with steps of at most `longest`."""
    length = itemsize
    for d in range(rank):
        step = abs(stride_at(arrays, i, d))
        if step <= longest:
            length += (extent_at(arrays, i, d) - 1) * step
    return length


def have_equal_steps(arrays: Any, rank: int, count: int, order: Any) -> bool:
    """Return whether all arrays have equal strides."""
    for k in range(1, count):
        for d in range(rank):
            if stride_at(arrays, order[k], d) != stride_at(arrays, order[0], d):
                return False
    return True


def are_rows_apart(arrays: Any, rank: int, i: int, column: int, width: int) -> bool:
    """Return whether each row step of array `i` is longer than all that it steps over.

    Parameters
    ----------
    column : int
        The longest step within a column.
    width : int
        The bytes of all columns together.
    """
    for d in range(rank):
        step = abs(stride_at(arrays, i, d))
        if step <= column or extent_at(arrays, i, d) == 1:
            continue
        below = width
        for e in range(rank):
            other = abs(stride_at(arrays, i, e))
            if column < other <= step and e != d:
                below += (extent_at(arrays, i, e) - 1) * other
        if step < below:
            return False
    return True


def find_meeting(arrays: Any, rank: int, itemsize: int, count: int, lows: Any, order: Any) -> int:
    """Sort arrays by their lowest addresses; see `are_apart`.

    Return the place of the first one that begins before the end of the one before it, or 0.
    """
    for k in range(count):
        lows[order[k]] = lowest_at(arrays, rank, order[k])
    sort(order, lows, count)
    for k in range(1, count):
        before = order[k - 1]
        if lows[order[k]] < lows[before] + length_at(arrays, rank, itemsize, before, _MOST):
            return k
    return 0


def are_apart(
    arrays: Any, rank: int, axis: int, itemsize: int, count: int, lows: Any, order: Any
) -> bool:
    """Return whether address ranges are apart, or arrays are slices with columns that are apart.

    Parameters
    ----------
    arrays
        Arrays of equal shapes but for the axis.
    rank, axis, itemsize, count : int
        The rank of all arrays, the axis, the bytes of an item, the number of arrays.
    order : sequence of int
        The numbers of the arrays; they are sorted by their lowest addresses.
    lows : sequence of int
        Gets the lowest address of each array.
    """
    if find_meeting(arrays, rank, itemsize, count, lows, order) == 0:
        return True
    if not have_equal_steps(arrays, rank, count, order):
        return False
    column = abs(stride_at(arrays, order[0], axis))
    first = end = lows[order[0]]
    for k in range(count):
        i = order[k]
        if lows[i] < end:
            return False
        end = lows[i] + length_at(arrays, rank, itemsize, i, column)
    return are_rows_apart(arrays, rank, order[0], column, end - first)
