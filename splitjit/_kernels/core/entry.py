"""Python builtins that check NumPy arrays, make them, and copy.

Python calls these C functions with the global interpreter lock (GIL) held, so no other thread
changes an object while they check it. They read arrays and lists directly in memory;
`splitjit._abi.structs` lists the fields. `record` is the function's ``self``: an array with the
words of `Expected`, which keeps everything that they point to alive.
"""

from splitjit._abi.calls import MAX_RANK, ROW, WORD, Arguments, Expected
from splitjit._abi.kernels import LINE
from splitjit._abi.structs import ARRAY, INT_MASK, LIST_ITEMS, LIST_LENGTH, OBJECT_TYPE, NumpyArray
from splitjit._kernels.compiling import jit
from splitjit._kernels.core import c_api
from splitjit._kernels.core.blocks import leased
from splitjit._kernels.core.team import share
from splitjit._kernels.ir.intrinsics import (
    allocate,
    copy_bytes,
    out_of_line,
    release,
    reserve,
    stored,
    words_at,
)
from splitjit._kernels.ir.intrinsics import call as call_address
from splitjit._kernels.ir.records import layout_at, most_words, part_at, read

_SHAPE = WORD * MAX_RANK  # bytes
_MOST_COMPARED = 512
"""An output is compared with up to this many outputs before it; later ones must be in order."""


@jit
def _is_array(call, array, flags):
    """Return whether an object is an array of the expected dtype and rank, with these flags."""
    if words_at(array)[OBJECT_TYPE] != call.array_type:  # only an ndarray has the other fields
        return False
    x = read(NumpyArray, array)
    return x.dtype == call.dtype and x.rank & INT_MASK == call.rank and x.flags & flags == flags


@jit
def _is_expected(call, source):
    """Return whether an object is an array of the expected shape, dtype and strides."""
    if not _is_array(call, source, call.x_flags):
        return False
    x, shape = read(NumpyArray, source), words_at(call.shape)
    for d in range(call.rank):
        if words_at(x.shape)[d] != shape[d] or words_at(x.strides)[d] != shape[call.rank + d]:
            return False
    return True


@jit
def _fit(call, source, outputs, layout):
    """Return whether the arrays of a list fit, and surely share no memory that is written.

    Write their addresses to the layout record at the address `layout`.
    """
    x = read(NumpyArray, source)
    shape, sizes = words_at(call.shape), words_at(call.sizes)
    given = words_at(outputs)
    if given[LIST_LENGTH] != call.count:
        return False
    items = words_at(given[LIST_ITEMS])
    record = layout_at(layout)
    row = record.rows
    for i in range(call.count):
        if not _is_array(call, items[i], call.out_flags):
            return False
        part = read(NumpyArray, items[i])
        for d in range(call.rank):
            if words_at(part.shape)[d] != (sizes[i] if d == call.axis else shape[d]):
                return False
        if sizes[i] == 0:  # the layout has no row for it
            continue
        words_at(row)[ROW.target_offset] = part.data
        row += record.row
    # A join writes to `x`, and asks for its flag. It only reads the parts, which may be one array.
    return _are_apart(record, x.data + call.start, x.data + call.stop, call.x_flags == 0)


@jit
def _are_apart(layout, start, stop, are_written):
    """Return whether no part of a layout record meets [start, stop) or, if written, another part.

    False means unsure, and Python decides: so many outputs are only compared in order. The rule of
    `apart` would sort a table, which takes longer than to compare a few C-contiguous arrays.
    """
    highest = 0
    for i in range(layout.count):
        part = part_at(layout, i)
        low, end = part.target_offset, part.target_offset + part.nbytes
        if low < stop and start < end:
            return False
        if low < highest and i > _MOST_COMPARED:
            return False
        for j in range(i if low < highest else 0):
            other = part_at(layout, j)
            if low < other.target_offset + other.nbytes and other.target_offset < end:
                return False
        highest = max(highest, end) if are_written else 0
    return True


@jit
def _copy(call, target, source, layout):
    """Copy as a layout record says; the record says whether other Python threads run meanwhile."""
    arguments = stored(Arguments(call.stream, target, source, layout))
    state = c_api.release_gil() if call.releases_gil else 0
    if call.team:
        share(call.team, call.loop, call.nbytes, arguments)
    else:
        call_address(call.loop, (0, 1, arguments))
    if state:
        c_api.take_gil(state)


@jit
def _into(call, source, outputs, layout):
    """Copy an array to the arrays of a list, whose addresses are written to the record `layout`.

    Return 1, or 0 if an array is not as expected or two arrays share memory.
    """
    out_of_line()
    if words_at(outputs)[OBJECT_TYPE] != call.list_type:
        return 0
    if not _is_expected(call, source) or not _fit(call, source, outputs, layout):
        return 0
    _copy(call, 0, words_at(source)[ARRAY.data], layout)
    return 1


@jit
def into(record, arguments, count):
    """``into(x, outputs)``: copy `x` to the arrays of a list; return 1, or 0 if it cannot.

    With a loop of a join, copy the arrays to `x`.
    """
    call, given, done = read(Expected, words_at(record)[ARRAY.data]), words_at(arguments), 0
    if count == 2 and not call.releases_gil:
        done = _into(call, given[0], given[1], call.into)
    elif count == 2:
        nbytes = WORD * most_words(call.rank, call.count)
        layout = allocate(nbytes)  # without the GIL, calls at the same time need one each
        if layout:
            copy_bytes(layout, call.into, nbytes)
            done = _into(call, given[0], given[1], layout)
            release(layout)
    return c_api.integer_object(done)


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
    block = -(-words_at(memory)[ARRAY.data] // LINE) * LINE
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
