"""Calls between Python and compiled code: the records that they pass, and how Python makes them.

Each field of a record is one machine integer. Compiled code reads the words in memory, one after
another. Numbers are bytes unless a comment says otherwise.
"""

import ctypes
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from splitjit._plan.rules import FAULTS

# ---- the layout record: what a loop has to do ------------------------------------------------
#
# `splitjit._kernels.core.layouter` writes it, for Python and for users' compiled code.
# `splitjit._kernels.core.entry` writes only the targets of outputs, and
# `splitjit._kernels.ir.records` reads it. It is an array of 8-byte words:
#
#     word  0              dims     number of dims, the same for all parts
#           1              count    number of non-empty parts
#           2              runs     runs of each part if all have equally many, else 0
#           3              loop     the index of the loop in `splitjit._abi.kernels.LOOPS`
#           4              stream   1 if stores of full cache lines bypass the cache, else 0
#           5 …            the source strides, one for each dim, outermost dim first
#           5 + dims …     one row for each part:
#                              source_offset     where the part starts in the source (0: part 0)
#                              target_offset     where the part starts in the target
#                              run               bytes of a run
#                              nbytes            bytes of the part
#                              the extents of the part, one for each dim
#                              the target strides of the part, one for each dim
#
# Each part is a loop nest over `extents` around runs of bytes that are contiguous on both
# sides. Byte b of a part is byte b % run of its run b // run:
#
#     for i in range(extents[0]): for j in range(extents[1]): …
#         copy run bytes  from  source + source_offset + i * source_strides[0] + …
#                         to    target + target_offset + i * target_strides[0] + …

WORD = 8

MOST = (1 << 63) - 1
"""The largest number in a word."""

Header = namedtuple("Header", "dims count runs loop stream")
Row = namedtuple("Row", "source_offset target_offset run nbytes")
HEADER, ROW = Header(*range(5)), Row(*range(4))
"""The index of each word: before the source strides, and in a row before its extents."""


def most_words(rank: int, count: int) -> int:
    """Return the most words of the layout record for arrays of a rank, split into `count` parts."""
    dims = rank + 1  # the transpose loop needs two dims, even for an array of rank 1
    return len(HEADER) + dims + count * (len(ROW) + 2 * dims)


MAX_RANK = 64
"""The largest number of dims that NumPy allows."""

ALIGNMENT = 64
"""Alignment of each part in a block, in bytes: a cache line, and the widest vector."""


def aligned(nbytes: Any) -> Any:
    """Round a length up to a multiple of `ALIGNMENT`: the bytes that a part takes in a block."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


# ---- other records -----------------------------------------------------------------------------

Arguments = namedtuple("Arguments", "stream target source layout")
"""The arguments of a copy loop.

stream
    1 if stores of full cache lines bypass the cache, else 0.
target
    The address that the target offsets of the layout record are relative to: the
    start of a block, or 0 if they are addresses.
source
    The address of the first element of the source.
layout
    The address of the layout record.
"""

LayoutRequest = namedtuple(
    "LayoutRequest",
    "rank axis count itemsize shape sizes targets pitch stream_short_runs stream_long_runs record "
    "joins",
)
"""What the layouter lays out.

rank, axis, count, itemsize
    The rank of all arrays, the axis of the split, the number of parts, the bytes of an item.
shape, sizes
    The addresses of the source's shape, which its strides follow, and of the length of each
    part.
targets
    The address of the first part's address, which its shape and strides follow; 0 for
    C-contiguous parts that lie one after another in a block.
pitch
    The distance in bytes between two parts in this table.
stream_short_runs, stream_long_runs
    The sizes in bytes from which on stores bypass the cache.
record
    The address to which the layout record is written; see `most_words`.
joins
    Whether the source is written, and the parts are read. Then two parts may share memory.
"""

Expected = namedtuple(
    "Expected",
    "array_type list_type dtype rank axis count itemsize start stop joins loops "
    "stream_short_runs stream_long_runs fresh into nbytes blocks byte new_array set_base shape "
    "sizes none error message team releases_gil",
)
"""What the builtin functions of a `How` expect of arrays, and what they need to make them.

array_type, list_type, dtype
    Addresses of `numpy.ndarray`, of `list`, and of the dtype of all arrays.
rank, axis, count, itemsize
    The rank of all arrays, the axis of the split, the number of parts, the bytes of an item.
start, stop
    The byte range of the source, relative to its first element.
joins
    1 for a join, which reads the outputs and writes to the source; else 0.
loops
    The address of the addresses of the loops, in the order of `splitjit._abi.kernels.LOOPS`, or of
    its `JOIN_LOOPS` for joins; 0 for one that is not loaded.
stream_short_runs, stream_long_runs
    The sizes in bytes from which on stores bypass the cache.
fresh
    The address of the layout record of fresh parts. Target offsets are relative to the
    start of their block.
into
    The address of a layout record for C-contiguous outputs, to which `into` writes their addresses.
nbytes
    How many bytes of memory fresh parts need. If the array is small, this includes room to align
    the block.
blocks, byte
    The addresses of the block record, and of NumPy's uint8 dtype.
new_array, set_base
    The addresses of NumPy's functions `PyArray_NewFromDescr` and `PyArray_SetBaseObject`.
shape, sizes
    The addresses of the source's shape, which its strides follow, and of the length of each
    part.
none
    The address of None, the result of a call that copies nothing.
error, message
    The addresses of the type and of the text of the error if memory for large parts runs out.
team
    For large arrays: the address of the team record; else 0.
releases_gil
    Whether other Python threads run during the copy: if the array is large or a memory map, whose
    pages may come from a disk.
"""

Call = namedtuple(
    "Call",
    "x rank axis rule values number step width parts number_of_parts first second third fourth "
    "count memory",
)
"""A call of `splitjit.split` in users' compiled code.

x
    The address of the source, a Numba array.
rank, axis
    The rank of all arrays, and the axis of the split.
rule
    The kind of the rule: its index in `splitjit._plan.rules.PARAMETERS`.
values, number, step
    The address of the first integer of the rule's value, the number of integers, and their
    stride in bytes.
width
    The bytes of each integer; negative if unsigned.
parts
    The address of the parts: Numba arrays, one after another.
number_of_parts
    The number of given parts; -1 for new parts.
first, second, third, fourth
    The answer: values for a fault's text.
count
    The answer: the number of parts.
memory
    The address of the functions' working memory, or 0: the sizes of the parts, and then the layout
    record.
"""

Functions = namedtuple(
    "Functions",
    "measure copy_parts lay_out find_shared loops share team take_block free_block clear blocks "
    "new_mem_info find_symbol numba_limit stream_short_runs stream_long_runs large most_parts",
)
"""The table that users' compiled code calls through.

measure, copy_parts
    The addresses of the functions of `splitjit._kernels.njit_split`.
lay_out, find_shared
    The addresses of these functions of `splitjit._kernels.core`.
loops
    The address of the addresses of the loops, in the order of `splitjit._abi.kernels.LOOPS`.
share, team
    The addresses of `splitjit._kernels.core.team.share` and of the team record.
take_block, free_block, clear
    The addresses of the functions of `splitjit._kernels.core.blocks`.
blocks
    The address of the block record.
new_mem_info
    The address of Numba's function that allocates memory with a `MemInfo` before it, and gets the
    address of the function that frees the data, or 0.
find_symbol, numba_limit
    The addresses of LLVM's function that finds the address of a symbol, and of the symbol of
    Numba's `get_num_threads`, which exists once Numba has started its threads.
stream_short_runs, stream_long_runs
    The sizes in bytes from which on stores bypass the cache.
large
    The bytes from which on helpers may share a copy.
most_parts
    The most parts for which there is memory.
"""

CALL, FUNCTIONS_AT = Call(*range(len(Call._fields))), Functions(*range(len(Functions._fields)))
"""The index of each field."""

RULE_FAULT = 1
OUTS_FAULT = 1 + RULE_FAULT + max(max(texts) for texts in FAULTS)
"""Faults in compiled code: 1 is a fault of the axis, 2 and up of the rule, 7 and up of the
outputs."""

# The block record, for `splitjit._kernels.core.blocks`: the most bytes to keep, the bytes that are
# kept, how many turns slots have had to make room, and a slot for each kept block.
_Blocks = namedtuple("_Blocks", "limit kept evicted slots")
BLOCKS = _Blocks(*range(4))
SLOTS = 32

# The team record, which the caller of a copy shares with its helpers: one word every `SPACING`
# bytes, each at its offset in `AT`.
#
#     generation  the number of the newest job      open    1 while helpers may join the job
#     taken       chunks taken from the front, and  active  helpers that may be in its memory
#                 2**32 times those from the back   busy    1 while a caller has the helpers
#     job         the address of three words: the loop, the number of chunks, and the `Arguments`
#     core        the caller's core                 asked   how many helpers the job wants
#     helped      chunks that helpers have copied so far
#     started     helpers that have been started    numbered  helpers that have taken a number
#     ended       when the last large copy ended    paused  callers ask no helper before this time
#     served      when the last copy ended that asked helpers
#     allowed     helpers that the limits allow which Python reads: the quota, NUMBA_NUM_THREADS
#     numba       the address of Numba's `get_num_threads`, or 0 until Numba has started its threads
#     alone       the address of a Python list; while it has items, callers ask no helper
#     thresholds … a line for each of `Thresholds`; times are in nanoseconds
#     helpers …   a line for each helper: 1 while it sleeps, then the address of its lock

_Team = namedtuple(
    "_Team",
    "generation open taken active busy job asked core helped started numbered "
    "ended served paused allowed numba alone "
    "chunk wake_from awake in_a_row turn stopped pause asleep_share awake_share helpers",
)
SPACING = 128
"""Two cache lines, because processors fetch them in pairs."""
AT = _Team(*range(0, SPACING * len(_Team._fields), SPACING))
FEWEST_CHUNKS = 4
"""A copy of fewer chunks is not shared: waking a helper must pay."""
CHUNKS_PER_THREAD = 16
"""The most chunks for each thread. Each chunk costs a loop over all parts, so more chunks take
longer between steps of torch or BLAS."""
MOST_HELPERS = 31
"""Memory is at its limit with fewer threads on most machines."""


# ---- calls from Python -------------------------------------------------------------------------
#
# A builtin function made from a compiled one costs as little as `len` to call, and much less than a
# `ctypes` wrapper.
#
# Functions of `ctypes` get values of `ctypes`, and do not declare the types of their arguments:
# near the limit of recursion, the conversion of other values raises an `ArgumentError`.


def function_of(name: str, address: int, flags: int) -> Any:
    """Return what Python code uses of a C function.

    Its address, or a function that makes the builtin function for a given record. The record is the
    first argument of every call, and the builtin function keeps it alive.

    Parameters
    ----------
    name : str
    address : int
        The address of the C function. If Python calls it, it returns a new reference, or 0 with an
        error set.
    flags : int
        How Python calls it; see `splitjit._abi.kernels.BUILTINS`. 0 for other functions.
    """
    if not flags:
        return address
    # The C struct `PyMethodDef`: name, address, flags, docstring. Python reads it in every call.
    method = keep_forever((ctypes.c_char_p * 4)(name.encode()))  # which keeps the name alive
    words = (ctypes.c_int64 * 4).from_buffer(method)
    words[1], words[2] = address, flags
    new = ctypes.PYFUNCTYPE(ctypes.py_object)(("PyCFunction_NewEx", ctypes.pythonapi))
    place = ctypes.c_void_p(ctypes.addressof(method))
    return lambda record: new(place, ctypes.py_object(record), None)  # it belongs to no module


WITH_GIL, WITHOUT_GIL = ctypes.PYFUNCTYPE(ctypes.c_int64), ctypes.CFUNCTYPE(ctypes.c_int64)
"""Whether other Python threads wait for the end of a call."""


def call(address: int, record: Sequence[int], *numbers: int, kind: Any = WITH_GIL) -> int:
    """Call a compiled function with some numbers, and then the address of a record's words."""
    words = (ctypes.c_int64 * len(record))(*record)
    return int(kind(address)(*map(ctypes.c_int64, (*numbers, ctypes.addressof(words)))))


def keep_forever(owner: Any) -> Any:
    """Keep an object until the process ends: a finalizer may call `split` very late."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
    return owner
