"""Python builtins that check NumPy arrays, make them, and copy.

Python calls these C functions with the global interpreter lock (GIL) held, so no other thread
changes an object while they check it. They read arrays and lists directly in memory;
`splitjit._abi.structs` lists the fields. `record` is the function's ``self``: an array with the
words of `Expected`, which keeps everything that they point to alive.
"""

from splitjit._abi.calls import MAX_RANK, ROW, WORD, Arguments, Expected, Header, LayoutRequest
from splitjit._abi.structs import ARRAY, C_CONTIGUOUS, INT_MASK, LIST, WRITEABLE, NumpyArray
from splitjit._kernels.compiling import jit
from splitjit._kernels.core import c_api
from splitjit._kernels.core.apart import find_shared
from splitjit._kernels.core.blocks import leased
from splitjit._kernels.core.layouter import lay_out
from splitjit._kernels.core.team import share
from splitjit._kernels.ir.intrinsics import (
    allocate,
    call_address,
    copy_bytes,
    out_of_line,
    release,
    reserve,
    stored,
    words_at,
)
from splitjit._kernels.ir.records import aligned, layout_at, most_words, part_at, read

_SHAPE = WORD * MAX_RANK  # bytes
_NO, _WITH_GAPS, _CONTIGUOUS = range(3)


@jit
def _is_array(call, array, flags):
    """Return whether an object is an array of the expected dtype and rank, with these flags."""
    if words_at(array)[ARRAY.type] != call.array_type:  # only an ndarray has the other fields
        return False
    x = read(NumpyArray, array)
    return x.dtype == call.dtype and x.rank & INT_MASK == call.rank and x.flags & flags == flags


@jit
def _is_expected(call, source):
    """Return whether an object is an array of the expected shape, dtype and strides."""
    if not _is_array(call, source, WRITEABLE * call.joins):
        return False
    x, shape = read(NumpyArray, source), words_at(call.shape)
    for d in range(call.rank):
        if words_at(x.shape)[d] != shape[d] or words_at(x.strides)[d] != shape[call.rank + d]:
            return False
    return True


@jit
def _fit(call, items):
    """Return whether the arrays of the parts fit: `_NO`, `_WITH_GAPS`, or `_CONTIGUOUS`.

    Write the addresses of C-contiguous arrays to the layout record.
    """
    shape, sizes = words_at(call.shape), words_at(call.sizes)
    record, fit = layout_at(call.into), _CONTIGUOUS
    row = record.rows
    for i in range(call.count):
        if not _is_array(call, items[i], WRITEABLE * (1 - call.joins)):
            return _NO
        part = read(NumpyArray, items[i])
        for d in range(call.rank):
            if words_at(part.shape)[d] != (sizes[i] if d == call.axis else shape[d]):
                return _NO
        if part.flags & C_CONTIGUOUS == 0:
            fit = _WITH_GAPS
        if sizes[i]:  # the layout has no row for an empty part
            words_at(row)[ROW.target_offset] = part.data
            row += record.row
    return fit


@jit
def _are_apart(call, data):
    """Return whether C-contiguous outputs share no memory with the source, nor with each other.

    If this is not clear, the rule of `apart` decides. It sorts a table, which takes longer than to
    compare a few arrays.
    """
    layout, start, stop = layout_at(call.into), data + call.start, data + call.stop
    highest = 0
    for i in range(layout.count):
        part = part_at(layout, i)
        low, end = part.target_offset, part.target_offset + part.nbytes
        if low < stop and start < end:
            return False
        for j in range(i if low < highest else 0):
            other = part_at(layout, j)
            if low < other.target_offset + other.nbytes and other.target_offset < end:
                return False
        highest = 0 if call.joins else max(highest, end)  # a join only reads the parts
    return True


@jit
def _write_words(call, array, words):
    """Write the address, the shape and the strides of an array; return the address after them."""
    x, nbytes = read(NumpyArray, array), WORD * call.rank
    words_at(words)[0] = x.data
    copy_bytes(words + WORD, x.shape, nbytes)
    copy_bytes(words + WORD + nbytes, x.strides, nbytes)
    return words + WORD + 2 * nbytes


@jit
def _lay_out(call, source, items, memory):
    """Lay out the copy between arrays of any strides; return the address of the layout record.

    Return 0 if memory that is written may belong to two arrays, or if the loop is not loaded.
    """
    parts = place = _write_words(call, source, memory)
    for i in range(call.count):
        place = _write_words(call, items[i], place)
    request = stored(
        LayoutRequest(
            call.rank, call.axis, call.count, call.itemsize, memory + WORD, call.sizes, parts,
            parts - memory, call.stream_short_runs, call.stream_long_runs, place, call.joins,
        )
    )  # fmt: skip
    if find_shared(request):
        return 0
    lay_out(request)
    return place if words_at(call.loops)[read(Header, place).loop] else 0


@jit
def _copy(call, target, source, layout):
    """Copy as a layout record says; the record says whether other Python threads run meanwhile."""
    header = read(Header, layout)
    loop = words_at(call.loops)[header.loop]
    arguments = stored(Arguments(header.stream, target, source, layout))
    state = c_api.release_gil() if call.releases_gil else 0
    if call.team:
        share(call.team, loop, call.nbytes, arguments)
    else:
        call_address(loop, (0, 1, arguments))
    if state:
        c_api.take_gil(state)


@jit
def _into(call, source, outputs):
    out_of_line()
    given = words_at(outputs)
    if given[LIST.type] != call.list_type or given[LIST.length] != call.count:
        return 0
    items = words_at(given[LIST.items])
    fit = _fit(call, items) if _is_expected(call, source) else _NO
    if fit == _NO:
        return 0
    data, layout, memory = words_at(source)[ARRAY.data], call.into, 0
    # Without the GIL, calls at the same time need a layout each.
    if fit == _WITH_GAPS or call.releases_gil or not _are_apart(call, data):
        words = (1 + call.count) * (1 + 2 * call.rank) + most_words(call.rank, call.count)
        memory = allocate(WORD * words)
        layout = _lay_out(call, source, items, memory) if memory else 0
    if layout:
        _copy(call, 0, data, layout)
    release(memory)
    return layout != 0


@jit
def into(record, arguments, count):
    """``into(x, outputs)``: copy `x` to the arrays of a list; return 1, or 0 if it cannot.

    A join copies the arrays to `x`.
    """
    call, given = read(Expected, words_at(record)[ARRAY.data]), words_at(arguments)
    return c_api.integer_object(_into(call, given[0], given[1]) if count == 2 else 0)


@jit
def _nothing(call):
    """Return None, for a copy that was not made."""
    c_api.increment(call.none)
    return call.none


@jit
def fresh(record, source):
    """``fresh(x)``: copy `x` to new parts in one block of memory, and return them in a list.

    Copy nothing and return None if the array is not as expected, or if there is not enough memory.
    Return 0 if Python has set an error. Make all objects before reading the data's address: making
    them may start the garbage collector, and a finalizer may change the array.
    """
    call = read(Expected, words_at(record)[ARRAY.data])
    if not _is_expected(call, source):
        return _nothing(call)
    if call.team:
        memory = leased(call, call.nbytes)
    else:
        memory = c_api.new_array(call, call.byte, 1, stored((call.nbytes,)), 0, 0)
    if not memory:
        c_api.clear_error()
        return _nothing(call)
    block = aligned(words_at(memory)[ARRAY.data])
    parts = _parts_of(call, memory, block, c_api.new_list(call.count))
    c_api.decrement(memory)  # each part has its own reference
    if parts and _is_expected(call, source):
        _copy(call, block, words_at(source)[ARRAY.data], call.fresh)
    elif parts:
        c_api.decrement(parts)
        parts = _nothing(call)
    return parts


@jit
def _parts_of(call, memory, block, parts):
    """Fill a list with arrays over a block; return the list, or 0 if NumPy has set an error."""
    if not parts:
        return 0
    shape = reserve(_SHAPE, WORD)
    copy_bytes(shape, call.shape, WORD * call.rank)
    extents, sizes = words_at(shape), words_at(call.sizes)
    layout = layout_at(call.fresh)
    row = layout.rows
    for i in range(call.count):
        extents[call.axis] = sizes[i]
        data = block
        if sizes[i]:  # the layout has no row for an empty part
            data += words_at(row)[ROW.target_offset]
            row += layout.row
        part = c_api.new_array(call, call.dtype, call.rank, shape, data, memory)
        c_api.set_item(parts, i, part)
        if not part:
            c_api.decrement(parts)
            return 0
    return parts
