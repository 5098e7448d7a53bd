"""Python builtins that read torch tensors and copy small ones.

A call of one attribute of a tensor takes Python 0.1 µs, and `Tensor.numpy` takes 1 µs. Here, C
functions of torch's stable interface for compiled models read what a tensor is, in a few ns each.
The builtins describe tensors as ndarrays, so the checks of `splitjit._kernels.entry` serve both.
No Python code runs between a check and the copy.
"""

from __future__ import annotations

from numba import types

from splitjit._abi.calls import TORCH_DTYPES, Arguments
from splitjit._abi.layout_record import MAX_RANK, WORD
from splitjit._abi.structs import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    C_CONTIGUOUS,
    INT_MASK,
    LIST_ITEMS,
    LIST_LENGTH,
    OBJECT_TYPE,
    WRITEABLE,
)
from splitjit._kernels.c_api import decrement, integer_object, new_list, set_item
from splitjit._kernels.compiling import jit
from splitjit._kernels.entry import _SHAPE, _data_of, _extents_at, _is_expected, _place
from splitjit._kernels.intrinsics import call, greatest, out_of_line, reserve, words_at
from splitjit._kernels.launch import call_loop, stored
from splitjit._kernels.records import expected_at, facts_at

_HEADER = ARRAY_FLAGS + 1  # words of an ndarray; its strides follow here
_LARGEST = WORD * (_HEADER + MAX_RANK)


@jit
def _ask(function, handle):
    """Return the answer of a function of torch, or -1 if it refuses."""
    answer = reserve(WORD, WORD)
    words_at(answer)[0] = 0
    if call(function, (handle, answer)) & INT_MASK:
        return -1
    return words_at(answer)[0]


@jit
def _describe(facts, tensor, at, rank, is_written):
    """Describe a plain tensor as an ndarray at an address.

    Return the number of its dtype, or -1 if there is more to the tensor than CPU memory, or if it
    does not have the given rank (-1 stands for any).
    """
    out_of_line()
    kind = words_at(tensor)[OBJECT_TYPE]
    if kind != facts.tensor and kind != facts.parameter:  # only these have the other fields
        return -1
    implementation = words_at(tensor)[facts.implementation]
    keys = words_at(implementation)[facts.keys_at]
    if keys != facts.keys and (is_written or keys != facts.inference_keys):
        return -1
    if call(facts.requires_grad, (implementation,)) & 1:
        return -1
    handle = reserve(WORD, WORD)
    words_at(handle)[0] = implementation
    found = _ask(facts.rank, handle)
    number = _ask(facts.dtype, handle)
    if found > MAX_RANK or (rank >= 0 and found != rank) or not 0 <= number < TORCH_DTYPES:
        return -1
    dtype = words_at(facts.dtypes)[2 * number]
    itemsize = words_at(facts.dtypes)[2 * number + 1]
    if not dtype:
        return -1
    array = words_at(at)
    strides = at + WORD * _HEADER
    array[ARRAY_RANK] = found
    array[ARRAY_SHAPE] = _ask(facts.shape, handle)
    array[ARRAY_STRIDES] = strides
    array[ARRAY_DTYPE] = dtype
    is_contiguous, items, nbytes = True, 1, itemsize
    for i in range(found):
        d = found - 1 - i
        extent = words_at(array[ARRAY_SHAPE])[d]
        step = words_at(_ask(facts.strides, handle))[d]
        words_at(strides)[d] = step * itemsize
        if extent != 1:
            is_contiguous = is_contiguous and step == items
            nbytes += (extent - 1) * step * itemsize
        items *= extent
    array[ARRAY_FLAGS] = WRITEABLE | (C_CONTIGUOUS if is_contiguous or not items else 0)
    array[ARRAY_DATA] = 0
    if items:
        array[ARRAY_DATA] = _ask(facts.data, handle)
        end = _ask(facts.offset, handle) * itemsize + nbytes
        if array[ARRAY_DATA] <= 0 or end > _ask(facts.storage, handle):  # freed or shrunk
            return -1
    return number


def number_of(record, tensor):
    """``number_of(x)``: return the number of the dtype of a plain tensor, and -1 for others.

    `record` is an array with the words of `TensorFacts`.
    """
    array = reserve(_LARGEST, WORD)
    return integer_object(_describe(facts_at(_data_of(record)), tensor, array, -1, False))


@jit
def _copy(own, source, outputs, is_written):
    """Copy a tensor to the tensors of a list of the right length; return whether it could.

    `own` points to the words of a record, see `into`.
    """
    expected, facts, memory = own[0], facts_at(own[1]), own[2]
    fields = expected_at(expected)
    given = words_at(outputs)
    number = _describe(facts, source, memory, fields.rank, False)
    if number < 0:
        return False
    words_at(memory)[OBJECT_TYPE] = fields.array_type
    room = WORD * (_HEADER + fields.rank)
    arrays = memory + room * (fields.count + 1)  # a list of the descriptions, and its items
    items = arrays + WORD * (LIST_ITEMS + 1)
    for i in range(fields.count):
        at = memory + room * (i + 1)
        tensor = words_at(given[LIST_ITEMS])[i]
        if _describe(facts, tensor, at, fields.rank, is_written) != number:
            return False
        words_at(at)[OBJECT_TYPE] = fields.array_type
        words_at(items)[i] = at
    listed = words_at(arrays)
    listed[OBJECT_TYPE] = fields.list_type
    listed[LIST_LENGTH] = fields.count
    listed[LIST_ITEMS] = items
    data = _place(expected, fields.into, memory, arrays)
    if data:
        call_loop(fields.loop, 0, 1, stored(Arguments(fields.stream, 0, data, fields.into)))
    return data != 0


def into(record, arguments, count):
    """``into(x, outputs)``: copy `x` to the tensors of a list; return 1, or 0 if it cannot.

    `record` is an array of three addresses: of the words of `Expected`, of the words of
    `TensorFacts`, and of memory for the descriptions.
    """
    own = words_at(_data_of(record))
    fields = expected_at(own[0])
    if count != 2:
        return integer_object(0)
    outputs = words_at(words_at(arguments)[1])
    if outputs[OBJECT_TYPE] != fields.list_type or outputs[LIST_LENGTH] != fields.count:
        return integer_object(0)
    return integer_object(_copy(own, words_at(arguments)[0], words_at(arguments)[1], True))


def fresh(record, source):
    """``fresh(x)``: copy `x` to new tensors; return no tensors if `x` is not as expected.

    Making objects may start the garbage collector, and a finalizer may change `x` or call this
    function. So all objects are made before the copy looks at `x` and uses the record's memory.
    """
    own = words_at(_data_of(record))
    facts, fields = facts_at(own[1]), expected_at(own[0])
    memory = own[2]
    number = _describe(facts, source, memory, fields.rank, False)
    words_at(memory)[OBJECT_TYPE] = fields.array_type
    if number < 0 or not _is_expected(fields, own[0], memory):
        return new_list(0)
    parts = new_list(fields.count)
    if not parts:
        return 0
    shape, strides = reserve(_SHAPE, WORD), reserve(_SHAPE, WORD)
    whole, _, sizes = _extents_at(own[0], fields.rank)
    for i in range(fields.count):
        step = 1
        for j in range(fields.rank):
            d = fields.rank - 1 - j
            extent = sizes[i] if d == fields.axis else whole[d]
            words_at(shape)[d], words_at(strides)[d] = extent, step
            step *= greatest(extent, 1)
        part = _new_tensor(facts, fields.rank, shape, strides, number)
        if not part:
            decrement(parts)
            return new_list(0)
        set_item(parts, i, part)
    if _copy(own, source, parts, False):
        return parts
    decrement(parts)
    return new_list(0)


@jit
def _new_tensor(facts, rank, shape, strides, dtype):
    """Make an uninitialized tensor; return a new reference, or 0 if torch has no memory."""
    handle = reserve(WORD, WORD)
    dtype, cpu = types.int32(dtype), types.int32(0)
    arguments = rank, shape, strides, dtype, cpu, cpu, handle
    if call(facts.new_tensor, arguments) & INT_MASK:
        return 0
    tensor = call(facts.wrap, (words_at(handle)[0],))
    call(facts.drop, (words_at(handle)[0],))
    return tensor


FUNCTIONS = {
    "number_of": (types.intp(types.intp, types.intp), jit(number_of)),
    "into": (types.intp(types.intp, types.intp, types.intp), jit(into)),
    "fresh": (types.intp(types.intp, types.intp), jit(fresh)),
}
