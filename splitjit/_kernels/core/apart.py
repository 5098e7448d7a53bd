"""Whether arrays share no memory: one rule for Python and for users' compiled code.

Arrays whose address ranges do not meet are apart. The ranges of slices of one array along an axis
do meet, since each slice takes the same bytes of every row, its *column*::

    row 0   |──a───|───b───|─c─|
    row 1   |──a───|───b───|─c─|        the columns of a, b and c are apart

Dims are compared by their steps in bytes. A dim whose step is at most that of the split axis moves
inside a column. All other dims move from row to row: their steps are equal in all slices, and each
step is longer than everything that it steps over. So slices whose columns are apart share no byte.

An array is a few words at an address: the address of its first item, its extents, its strides. No
item is read.
"""

from splitjit._abi.calls import MOST, WORD, LayoutRequest
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import out_of_line, words_at
from splitjit._kernels.ir.records import read

_WITH_SOURCE, _WITH_ANOTHER, _WITH_ITSELF = 1, 2, 3


@jit
def _start(array, rank):
    """Return the lowest address of an array; 0 if it is empty."""
    out_of_line()
    words = words_at(array)
    start = words[0]
    for d in range(1, 1 + rank):
        if words[d] == 0:
            return 0
        start += min((words[d] - 1) * words[d + rank], 0)
    return start


@jit
def _stop(array, request, longest):
    """Return the address after an array, without the dims with steps longer than `longest`."""
    out_of_line()
    words, stop = words_at(array), _start(array, request.rank) + request.itemsize
    for d in range(1, 1 + request.rank):
        step = abs(words[d + request.rank])
        if step <= longest:
            stop += (words[d] - 1) * step
    return stop


@jit
def _are_rows_apart(array, rank, column, width):
    """Return whether each row step of an array is longer than all that it steps over.

    Then no two rows overlap. If all dims are rows of single items, no two items overlap.

    Parameters
    ----------
    array, rank : int
    column : int
        The longest step within a column; -1 if all dims are rows.
    width : int
        The bytes of all columns together.
    """
    out_of_line()
    words = words_at(array)
    for d in range(1, 1 + rank):
        step, below = abs(words[d + rank]), width
        for e in range(1, 1 + rank):
            other = abs(words[e + rank])
            if column < other <= step and e != d:
                below += (words[e] - 1) * other
        if column < step < below and words[d] > 1:
            return False
    return True


@jit
def _sort(arrays, count, rank):
    """Sort arrays by their lowest addresses, by comb sort."""
    gap, is_sorted = count, False
    while gap > 1 or not is_sorted:
        gap, is_sorted = max(gap * 10 // 13, 1), True
        for k in range(gap, count):
            if _start(arrays[k], rank) < _start(arrays[k - gap], rank):
                arrays[k], arrays[k - gap], is_sorted = arrays[k - gap], arrays[k], False


@jit
def _first_meeting(arrays, count, request, longest):
    """Return which of the sorted arrays starts before the stop of the one before it, or 0."""
    for k in range(1, count):
        if _start(arrays[k], request.rank) < _stop(arrays[k - 1], request, longest):
            return k
    return 0


@jit
def _are_columns_apart(arrays, count, request):
    """Return whether sorted arrays are slices of one array with columns that are apart."""
    out_of_line()
    first, rank = words_at(arrays[0]), request.rank
    for k in range(1, count):
        for d in range(1 + rank, 1 + 2 * rank):
            if words_at(arrays[k])[d] != first[d]:
                return False
    column = abs(first[1 + rank + request.axis])
    if _first_meeting(arrays, count, request, column):
        return False
    width = _stop(arrays[count - 1], request, column) - _start(arrays[0], rank)
    return _are_rows_apart(arrays[0], rank, column, width)


@jit
def find_shared(address):
    """Find out whether the parts of a `LayoutRequest` may share memory that is written.

    Return 0 if they surely do not; 1 if a part and the source may, 2 for two parts, 3 for two items
    of a part. Then the first words of the record are the indices of these parts. If the request has
    no source, its shape is 0. Else the source's address lies before the shape. A join only reads
    the parts.
    """
    out_of_line()
    request, count = read(LayoutRequest, address), 0
    rank, targets, pitch = request.rank, request.targets, request.pitch
    arrays = words_at(request.record)
    for i in range(request.count):
        arrays[count] = targets + i * pitch
        if _start(arrays[count], rank):
            if not request.joins and not _are_rows_apart(arrays[count], rank, -1, request.itemsize):
                arrays[0] = i
                return _WITH_ITSELF
            count += 1
    _sort(arrays, count, rank)
    k = 0 if request.joins else _first_meeting(arrays, count, request, MOST)
    if k and not _are_columns_apart(arrays, count, request):
        low, high = min(arrays[k - 1], arrays[k]), max(arrays[k - 1], arrays[k])
        arrays[0], arrays[1] = (low - targets) // pitch, (high - targets) // pitch
        return _WITH_ANOTHER
    x = request.shape - WORD
    for k in range(count if request.shape else 0):
        part = arrays[k]
        start, stop = _start(part, rank), _stop(part, request, MOST)
        if _start(x, rank) < stop and start < _stop(x, request, MOST):
            arrays[count] = x
            _sort(arrays, count + 1, rank)
            if _are_columns_apart(arrays, count + 1, request):
                return 0
            arrays[0] = (part - targets) // pitch
            return _WITH_SOURCE
    return 0
