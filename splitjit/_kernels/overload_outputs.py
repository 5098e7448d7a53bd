"""Check the outputs of splits in users' compiled code: their shapes, and shared memory.

The exact check of `splitjit._copy.overlap` would take longer than most copies here. This one finds
arrays that certainly share memory, and never refuses interleaved ones.
"""

from __future__ import annotations

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    greatest,
    least,
    out_of_line,
    words_at,
)
from splitjit._kernels.table import (
    CALL,
    NUMBA_DATA,
    NUMBA_ITEMS,
    NUMBA_ITEMSIZE,
    NUMBA_SHAPE,
    OUTS_FAULT,
    WORD,
)


@jit
def refuse(words, fault, first, second, third):
    """Note the values for a fault's text, and return the fault."""
    words[CALL.first], words[CALL.second], words[CALL.third] = first, second, third
    return fault


@jit
def _span(array, rank):
    """Return an array's start and end in memory, and whether it fills all between them.

    For an array without elements, both are 0.
    """
    words = words_at(array)
    if words[NUMBA_ITEMS] == 0:
        return 0, 0, True
    nbytes = words[NUMBA_ITEMSIZE]
    start, end = words[NUMBA_DATA], words[NUMBA_DATA] + nbytes
    for d in range(rank):
        extent, stride = words[NUMBA_SHAPE + d], words[NUMBA_SHAPE + rank + d]
        last = (extent - 1) * stride
        start += least(last, 0)
        end += greatest(last, 0)
        nbytes *= extent if stride else 1
    return start, end, end - start == nbytes


@jit
def _share(a, b, rank):
    """Return whether two arrays certainly share memory; others may be interleaved.

    The first and last byte of a span always belong to elements.
    """
    start, end, is_full = _span(a, rank)
    low, high, is_other_full = _span(b, rank)
    if start >= high or low >= end:
        return False
    if start == low or end == high:
        return True
    if is_full and (low > start or high < end):
        return True
    return is_other_full and (start > low or end < high)


@jit
def check_parts(words):
    """Check the arrays that the parts are copied to; return 0 or a fault."""
    out_of_line()
    x, rank, axis = words[CALL.x], words[CALL.rank], words[CALL.axis]
    count, given = words[CALL.count], words[CALL.number_of_parts]
    if given != count:
        return refuse(words, OUTS_FAULT, given, count, 0)
    sizes = words_at(words[CALL.memory])
    row = WORD * (NUMBA_SHAPE + 2 * rank)
    array = words[CALL.parts]
    is_apart = True
    highest = 0
    for i in range(count):
        for d in range(rank):
            extent = sizes[i] if d == axis else words_at(x)[NUMBA_SHAPE + d]
            if words_at(array)[NUMBA_SHAPE + d] != extent:
                return refuse(words, OUTS_FAULT + 1, i, 0, 0)
        if _share(array, x, rank):
            return refuse(words, OUTS_FAULT + 2, i, 0, 0)
        start, end, _ = _span(array, rank)
        if end:
            is_apart = is_apart and start >= highest
            highest = greatest(highest, end)
        array += row
    return 0 if is_apart else _check_overlaps(words, row)


@jit
def _check_overlaps(words, row):
    """Compare arrays in address order; return 0 or a fault."""
    rank, count, parts = words[CALL.rank], words[CALL.count], words[CALL.parts]
    order = words_at(words[CALL.memory] + WORD * count)
    _sort_by_address(order, parts, row, count, rank)
    last = full = -1  # the previous array, and the gapless one with the highest end
    for k in range(count):
        i = order[k]
        array = parts + i * row
        _, end, is_full = _span(array, rank)
        if not end:
            continue
        for j in (last, full):
            if j >= 0 and _share(array, parts + j * row, rank):
                return refuse(words, OUTS_FAULT + 3, least(i, j), greatest(i, j), 0)
        last = i
        if is_full and (full < 0 or end > _span(parts + full * row, rank)[1]):
            full = i
    return 0


@jit
def _sort_by_address(order, parts, row, count, rank):
    """Write the numbers of the arrays in address order, by heap sort."""
    for i in range(count):
        order[i] = i
    for step in range(count + count // 2 - 1, 0, -1):
        root, end = greatest(step - count, 0), least(step, count)
        if step < count:  # the heap is complete: move its largest item after it
            order[0], order[step] = order[step], order[0]
        child = 2 * root + 1
        while child < end:
            if child + 1 < end and _is_before(order, child, child + 1, parts, row, rank):
                child += 1
            if not _is_before(order, root, child, parts, row, rank):
                break
            order[root], order[child] = order[child], order[root]
            root, child = child, 2 * child + 1


@jit
def _is_before(order, i, j, parts, row, rank):
    return _span(parts + order[i] * row, rank)[0] < _span(parts + order[j] * row, rank)[0]
