"""Facts that the Python side and the compiled side of a copy share.

This module imports nothing, so layouts can be made without Numba. Numbers are
bytes unless a comment says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple


class Arguments(NamedTuple):
    """The arguments of a copy loop; each is one machine integer.

    Attributes
    ----------
    stream : int
        1 if stores of full cache lines bypass the cache, else 0.
    target : int
        The address that the target offsets of the layout record are relative to: the
        start of a block, or 0 if they are addresses.
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
#           1              COUNT    number of non-empty parts
#           2              RUNS     runs of each part if all have equally many, else 0
#           3 …            the source strides, one for each dim, outermost dim first
#           3 + DIMS …     one row for each part:
#                              SOURCE_OFFSET     where the part starts in the source
#                              TARGET_OFFSET     where the part starts in the target
#                              RUN               bytes of a run
#                              NBYTES            bytes of the part
#                              the extents of the part, one for each dim
#                              the target strides of the part, one for each dim
#
# Each part is a loop nest over `extents` around runs of bytes that are contiguous on both
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
    """Return the number of words in a row of the layout record."""
    return FIXED + 2 * dims


class Expected(NamedTuple):
    """What the builtins of a recipe expect of arrays; each field is one machine integer.

    In memory, the source's shape and strides and the length of each part follow.

    Attributes
    ----------
    array_type, list_type, dtype : int
        Addresses of `numpy.ndarray`, of `list`, and of the dtype of all arrays.
    flags : int
        The array flags that outputs must have.
    rank, axis, count : int
        The rank of all arrays, the axis of the split, the number of parts.
    start, stop : int
        The byte range of the source, relative to its first element.
    stream : int
        See `Arguments.stream`.
    loop : int
        The address of the loop, or 0 if Python code copies.
    fresh : int
        The address of the layout record of fresh parts. Target offsets are relative to the
        start of their block.
    into : int
        The address of a layout record to which `into` writes the outputs' addresses. No other
        thread runs while a call uses it.
    nbytes : int
        The bytes of memory for fresh parts; for small ones, with room to align the block.
    byte : int
        The address of NumPy's uint8 dtype.
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


# Word offsets in Python lists and NumPy arrays on 64-bit CPython, from the C structs
# `PyListObject` and `PyArrayObject_fields`. `splitjit._copy.structs` verifies them.

_OBJECT = object.__basicsize__ // WORD
OBJECT_TYPE = _OBJECT - 1
LIST_LENGTH, LIST_ITEMS = _OBJECT, _OBJECT + 1
ARRAY_DATA, ARRAY_RANK, ARRAY_SHAPE, ARRAY_STRIDES, _, ARRAY_DTYPE, ARRAY_FLAGS = range(
    _OBJECT, _OBJECT + 7
)
INT_MASK = (1 << 32) - 1
"""The rank and the flags are C ints, which fill half a word."""

C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400  # array flags

# NumPy's table of C functions. Functions keep their index while the table's version, which the
# first function returns, stays the same.
API_VERSION, NEW_FROM_DESCR, SET_BASE_OBJECT = 0, 94, 282


class TensorFacts(NamedTuple):
    """How compiled code reads torch tensors; each field is one machine integer.

    `splitjit._inputs.structs` finds and verifies them.

    Attributes
    ----------
    tensor, parameter : int
        The addresses of the classes ``torch.Tensor`` and ``torch.nn.Parameter``.
    implementation : int
        The word of a tensor that points to torch's own struct, ``TensorImpl``.
    keys_at : int
        The word of this struct that holds the dispatch keys: they say which of torch's mechanisms
        take part in a call, such as devices, wrappers, lazy conjugation and quantization.
    keys, inference_keys : int
        The dispatch keys of tensors that are plain CPU memory.
    requires_grad, rank, shape, strides, dtype, data, offset, storage : int
        The addresses of functions of torch.
    new_tensor, wrap, drop : int
        The addresses of functions of torch that make a tensor, make a Python object of it, and
        drop the first reference to it.
    dtypes : int
        The address of a table by torch's number of a dtype: the address of NumPy's dtype, or 0,
        and its bytes.
    """

    tensor: int
    parameter: int
    implementation: int
    keys_at: int
    keys: int
    inference_keys: int
    requires_grad: int
    rank: int
    shape: int
    strides: int
    dtype: int
    data: int
    offset: int
    storage: int
    new_tensor: int
    wrap: int
    drop: int
    dtypes: int


TORCH_DTYPES = 128
"""The rows of the table of dtypes."""


class Call(NamedTuple):
    """A call of `splitjit.split` in users' compiled code; each field is one machine integer.

    Attributes
    ----------
    x : int
        The address of the source, a Numba array.
    rank, axis : int
        The rank of all arrays, and the axis of the split.
    rule : int
        The kind of the rule: its index in `splitjit._plan.rules.PARAMETERS`.
    values, number, step : int
        The address of the first integer of the rule's value, the number of integers, and their
        stride in bytes.
    width : int
        The bytes of each integer; negative if unsigned.
    parts : int
        The address of the parts: Numba arrays, one after another.
    number_of_parts : int
        The number of given parts.
    new_memory, manage_memory, data_of : int
        The addresses of Numba's functions that allocate memory, and that adopt given memory.
    first, second, third : int
        The answer: values for a fault's text.
    count : int
        The answer: the number of parts.
    memory : int
        The address of the functions' working memory, or 0.
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
    manage_memory: int
    data_of: int
    first: int
    second: int
    third: int
    count: int
    memory: int


class Functions(NamedTuple):
    """The table that users' compiled code calls through; each field is one machine integer.

    Attributes
    ----------
    version : int
        Identifies the code behind the addresses, and the fields of `Call`.
    measure, parts, into : int
        The addresses of the functions of `splitjit._kernels.overload`.
    copy, stream : int
        The addresses of loops.
    share, team : int
        The addresses of `splitjit._kernels.team.share` and of the team record.
    shared_from, chunk : int
        The bytes from which on a copy is shared with helpers, and the bytes of a chunk.
    allocate, free_block, clear : int
        The addresses of the functions of `splitjit._kernels.blocks`.
    blocks : int
        The address of the block record; 0 if the system cannot map blocks.
    stream_short_runs, stream_long_runs : int
        The sizes in bytes from which on stores bypass the cache.
    most_parts : int
        The most parts for which there is memory.
    """

    version: int
    measure: int
    parts: int
    into: int
    copy: int
    stream: int
    share: int
    team: int
    shared_from: int
    chunk: int
    allocate: int
    free_block: int
    clear: int
    blocks: int
    stream_short_runs: int
    stream_long_runs: int
    most_parts: int


CALL, FUNCTIONS_AT = Call(*range(len(Call._fields))), Functions(*range(len(Functions._fields)))
"""The index of each field."""

MAPPED_FROM = 1 << 19
"""Blocks of at least this size are memory-mapped, and kept for reuse."""

# The block record, for `splitjit._kernels.blocks`: the most bytes to keep, the bytes that are
# kept, and a slot for each kept block.
BLOCKS_LIMIT, BLOCKS_KEPT, SLOTS_AT = range(3)
SLOTS = 32

# The team record: what the caller of a copy shares with its helpers, one word every `APART` bytes.
#
#     GENERATION  the number of the newest job      OPEN    1 while helpers may join the job
#     TAKEN       chunks taken from the front, and  ACTIVE  helpers that may be in its memory
#                 2**32 times those from the back   BUSY    1 while a caller has the helpers
#     LOOP, CHUNKS, ARGUMENTS  the job              ASKED   how many helpers the job wants
#     CORE        the caller's core                 HELPED  chunks that helpers have copied so far
#     STARTED     helpers that have been started    NUMBERED  helpers that have taken a number
#     SERVE       the address of a helper's code    ALLOWED  helpers for users' compiled code
#     HELPERS …   a line for each helper: 1 while it sleeps, then the address of its lock

(
    GENERATION, OPEN, TAKEN, ACTIVE, BUSY, LOOP, CHUNKS, ARGUMENTS, ASKED, CORE, HELPED,
    STARTED, NUMBERED, SERVE, ALLOWED, HELPERS,
) = range(16)  # fmt: skip
APART = 128
"""Two cache lines, because processors fetch them in pairs."""
CHUNKS_PER_THREAD = 32
"""The most chunks for each thread; each chunk costs a loop over all parts."""
MOST_HELPERS = 31
"""Memory is at its limit with fewer threads on most machines."""


# Word offsets in Numba's arrays, from its C struct `arystruct_t`; the strides follow the shape.
NUMBA_MEMORY, NUMBA_PARENT, NUMBA_ITEMS, NUMBA_ITEMSIZE, NUMBA_DATA, NUMBA_SHAPE = range(6)

RULE_FAULT, OUTS_FAULT = 1, 7
"""Faults in compiled code: 1 is a fault of the axis, 2 and up of the rule, 7 and up of the
outputs."""

MAX_RANK = 64
"""The largest number of dims that NumPy allows."""

LINE = 64
"""A cache line, and the widest vector. Shorter runs share their lines with other runs."""

PAGE = 1 << 12
"""A page. A store across a page boundary is about 100 times slower."""

LONG_RUN = 1 << 9
"""From this length on, ordinary stores of runs pay if a large cache can hold the array; see
`splitjit._copy.crossovers.stream_from`."""

TILE = 16
"""Bytes of each step of a tile, which the transpose loop turns into cache lines."""

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
"""The lengths of short runs that `splitjit._kernels.rows` has code for: 1 or 3 power-of-two
words."""

LOOPS = ("copy", "stream", "deinterleave", "transpose")
"""The names of the loops. Each loop is compiled on its own, when a layout first needs it."""

KERNELS = {
    **{loop: (loop,) for loop in LOOPS},
    "entry": ("into", "place", "fresh", "fresh_checked", "check", "parts"),
    "team": ("run", "share", "serve"),
    "tensors": ("number_of", "into", "fresh"),
    "overload": ("measure", "parts", "into"),
    "blocks": ("allocate", "free_block", "clear"),
}
"""The object files, and the C functions in each."""

PYTHON_FUNCTIONS = (
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyList_New",
    "PyList_SetItem",
    "PyLong_AsSsize_t",
    "PyLong_FromSsize_t",
    "PyThread_acquire_lock",
    "PyThread_allocate_lock",
    "PyThread_release_lock",
    "PyThread_start_new_thread",
    "Py_DecRef",
    "Py_IncRef",
)
"""The CPython functions that kernels call."""
