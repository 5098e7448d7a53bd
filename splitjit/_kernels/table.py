"""The facts that the Python side and the compiled side of a copy share.

This module imports nothing, so that layouts are made without Numba. All
numbers are bytes unless a comment names another unit.
"""

from __future__ import annotations

from typing import NamedTuple


class Arguments(NamedTuple):
    """The arguments of a copy loop; each is one machine integer.

    Attributes
    ----------
    stream : int
        1 if stores of full cache lines of the target bypass the cache, else 0.
    target : int
        The address from which the target offsets of the layout record count: the start
        of a block, or 0 if these offsets are addresses.
    source : int
        The address of the first element of the source.
    layout : int
        The address of the layout record.
    """

    stream: int
    target: int
    source: int
    layout: int


# The layout record is an array of 8-byte words:
#
#     word  0              DIMS     number of dims, the same for all parts
#           1              COUNT    number of parts, empty parts left out
#           2              RUNS     runs of each part if this number is the same for all, else 0
#           3 …            the source strides, one for each dim, outermost dim first
#           3 + DIMS …     one row for each part:
#                              SOURCE_OFFSET     where the part starts in the source
#                              TARGET_OFFSET     where the part starts in the target
#                              RUN               bytes of a run
#                              NBYTES            bytes of the part
#                              the extents of the part, one for each dim
#                              the target strides of the part, one for each dim
#
# Every part is a nest of `extents` around runs of bytes that are contiguous on both
# sides. Byte b of a part is byte b % RUN of its run b // RUN:
#
#     for i in range(extents[0]): for j in range(extents[1]): …
#         copy RUN bytes  from  source + SOURCE_OFFSET + i * source_strides[0] + …
#                         to    target + TARGET_OFFSET + i * target_strides[0] + …

WORD = 8
DIMS, COUNT, RUNS = range(3)
HEADER = 3  # words before the source strides
SOURCE_OFFSET, TARGET_OFFSET, RUN, NBYTES = range(4)
FIXED = 4  # words of a row before its extents


def row_words(dims: int) -> int:
    """Return the words of a row of the layout record."""
    return FIXED + 2 * dims


class Expected(NamedTuple):
    """What the entry of a recipe expects of its arrays; each is one machine integer.

    In memory, the shape and the strides of the source and the length of each part follow.

    Attributes
    ----------
    array_type, list_type, dtype : int
        Addresses of `numpy.ndarray`, of `list`, and of the dtype of all arrays.
    flags : int
        The flags that an output must have.
    rank, axis, count : int
        The rank of all arrays, the axis of the split, the number of parts.
    start, stop : int
        The source lies between these offsets from its first element.
    stream : int
        See `Arguments.stream`.
    loop : int
        The address of the loop, or 0 if Python code copies.
    fresh : int
        The address of the layout record of fresh parts. Target offsets count from the start
        of their block.
    into : int
        The address of a layout record to which `into` writes the addresses of outputs. No other
        thread runs while a call uses it.
    nbytes : int
        The length of the memory of fresh parts; of small ones, with room to align the block.
    byte : int
        The address of NumPy's dtype of bytes.
    new_array, set_base : int
        The addresses of NumPy's functions `PyArray_NewFromDescr` and `PyArray_SetBaseObject`.
    """

    array_type: int
    list_type: int
    dtype: int
    flags: int
    rank: int
    axis: int
    count: int
    start: int
    stop: int
    stream: int
    loop: int
    fresh: int
    into: int
    nbytes: int
    byte: int
    new_array: int
    set_base: int


# The words of Python's lists and of NumPy's arrays in CPython on 64-bit machines, as in the C
# structs `PyListObject` and `PyArrayObject_fields`. `splitjit._copy.structs` verifies them.

_OBJECT = object.__basicsize__ // WORD
OBJECT_TYPE = _OBJECT - 1
LIST_LENGTH, LIST_ITEMS = _OBJECT, _OBJECT + 1
ARRAY_DATA, ARRAY_RANK, ARRAY_SHAPE, ARRAY_STRIDES, _, ARRAY_DTYPE, ARRAY_FLAGS = range(
    _OBJECT, _OBJECT + 7
)
INT_MASK = (1 << 32) - 1
"""The rank and the flags are C ints, which fill half a word."""

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # flags of arrays

# NumPy's table of C functions. A function keeps its index as long as the version of the table,
# which the first function returns, is the same.
API_VERSION, NEW_FROM_DESCR, SET_BASE_OBJECT = 0, 94, 282


class Call(NamedTuple):
    """A call of `splitjit.split` in compiled code of users; each field is one machine integer.

    Attributes
    ----------
    x : int
        The address of the source, an array of Numba.
    rank, axis : int
        The rank of all arrays, and the axis of the split.
    rule : int
        The kind of the rule: its place in `splitjit._plan.rules.PARAMETERS`.
    values, number, step : int
        The address of the first integer of the rule's value, how many there are, and the bytes
        from one to the next.
    width : int
        The bytes of such an integer; negative if it has no sign.
    parts : int
        The address of the parts: arrays of Numba, one after the other.
    number_of_parts : int
        The number of given parts.
    new_memory, data_of : int
        The addresses of Numba's functions that allocate memory.
    first, second, third : int
        The answer: values for the text of a fault.
    count : int
        The answer: the number of parts.
    memory : int
        The address of the memory that the functions use, or 0.
    """

    x: int
    rank: int
    axis: int
    rule: int
    values: int
    number: int
    step: int
    width: int
    parts: int
    number_of_parts: int
    new_memory: int
    data_of: int
    first: int
    second: int
    third: int
    count: int
    memory: int


class Functions(NamedTuple):
    """The table through which compiled code of users calls; each field is one machine integer.

    Attributes
    ----------
    version : int
        Identifies the code that the addresses lead to, and the fields of `Call`.
    measure, parts, into : int
        The addresses of the functions of `splitjit._kernels.overload`.
    copy, stream : int
        The addresses of loops.
    stream_short_runs, stream_long_runs : int
        From how many bytes on stores bypass the cache.
    most_parts : int
        The most parts for which there is memory.
    """

    version: int
    measure: int
    parts: int
    into: int
    copy: int
    stream: int
    stream_short_runs: int
    stream_long_runs: int
    most_parts: int


CALL, FUNCTIONS_AT = Call(*range(len(Call._fields))), Functions(*range(len(Functions._fields)))
"""The place of each field."""

# The words of Numba's arrays, as in its C struct `arystruct_t`; the strides follow the shape.
NUMBA_MEMORY, NUMBA_PARENT, NUMBA_ITEMS, NUMBA_ITEMSIZE, NUMBA_DATA, NUMBA_SHAPE = range(6)

RULE_FAULT, OUTS_FAULT = 1, 7
"""The faults of compiled code: 1 of the axis; from 2 on those of the rule, and from 7 on those of
the outputs."""

MAX_RANK = 64
"""The largest number of dims that NumPy allows."""

LINE = 64
"""A cache line, and the widest vector. Shorter runs share their lines with other runs."""

PAGE = 1 << 12
"""A page. A store across a page boundary is about 100 times slower."""

LONG_RUN = 1 << 9
"""Stores of runs of so many bytes pay even if the cache could hold them; see
`splitjit._copy.crossovers.stream_from`."""

TILE = 16
"""Bytes of each step of a tile that the transpose loop turns into cache lines."""

BLOCK = 1 << 17
"""Source bytes that stay in a core's L2 cache while each part takes its runs from them."""

INTERLEAVED = tuple(
    (parts, itemsize)
    for parts in (2, 3, 4, 8)
    for itemsize in (1, 2, 4)
    if (parts, itemsize) != (8, 4)  # the transpose loop is faster
)
"""The numbers of parts and the item sizes for which the deinterleave loop has code."""

COLLECTED = (4, 8, 12, 16, 24)
"""The bytes of short runs for which `splitjit._kernels.rows` has code: 1 or 3 words of a power of
two."""

LOOPS = ("copy", "stream", "deinterleave", "transpose")
"""The names of the loops. Each loop is compiled on its own, when a layout first needs it."""

KERNELS = {
    **{loop: (loop,) for loop in LOOPS},
    "entry": ("into", "place", "fresh", "fresh_checked", "check", "parts"),
    "serial": ("run",),
    "parallel": ("run_parallel", "count_threads"),
    "overload": ("measure", "parts", "into"),
}
"""The object files, and the C functions that each one has."""

PYTHON_FUNCTIONS = (
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyList_New",
    "PyList_SetItem",
    "PyLong_AsSsize_t",
    "PyLong_FromSsize_t",
    "Py_DecRef",
    "Py_IncRef",
)
"""The functions of Python that kernels call."""

NUMBA_FUNCTIONS = (
    "allocate_sched",
    "deallocate_sched",
    "do_scheduling_unsigned",
    "get_num_threads",
    "get_parallel_chunksize",
    "get_sched_size",
    "numba_gil_ensure",
    "numba_gil_release",
    "numba_parallel_for",
    "set_parallel_chunksize",
)
"""The functions of Numba's threading layer that the kernel "parallel" calls."""
