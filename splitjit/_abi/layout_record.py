"""The layout record: what a loop has to do, in words.

`splitjit._kernels.core.layouter` writes it, for Python and for users' compiled code.
`splitjit._kernels.core.entry` writes only the targets of outputs, and
`splitjit._kernels.ir.records` reads it. Numbers are bytes unless a comment says otherwise.
"""

from __future__ import annotations

from typing import Any

# The layout record is an array of 8-byte words:
#
#     word  0              DIMS     number of dims, the same for all parts
#           1              COUNT    number of non-empty parts
#           2              RUNS     runs of each part if all have equally many, else 0
#           3              LOOP     the index of the loop in `splitjit._abi.kernels.LOOPS`
#           4              STREAM   1 if stores of full cache lines bypass the cache, else 0
#           5 …            the source strides, one for each dim, outermost dim first
#           5 + DIMS …     one row for each part:
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
DIMS, COUNT, RUNS, LOOP, STREAM = range(5)
HEADER = 5  # words before the source strides
SOURCE_OFFSET, TARGET_OFFSET, RUN, NBYTES = range(4)
FIXED = 4  # words of a row before its extents


def most_words(rank: int, count: int) -> int:
    """Return the most words of the layout record for arrays of a rank, split into `count` parts."""
    dims = rank + 1  # the transpose loop needs two dims, even for an array of rank 1
    return HEADER + dims + count * (FIXED + 2 * dims)


MAX_RANK = 64
"""The largest number of dims that NumPy allows."""

ALIGNMENT = 64
"""Alignment of each part in a block, in bytes: a cache line, and the widest vector."""


def aligned(nbytes: Any) -> Any:
    """Round a length up to a multiple of `ALIGNMENT`: the bytes that a part takes in a block."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
