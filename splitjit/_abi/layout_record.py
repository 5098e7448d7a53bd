"""The layout record: what a loop has to do, in words.

`splitjit._kernels.core.layouter` writes it, for Python and for users' compiled code.
`splitjit._kernels.core.entry` writes only the targets of outputs, and
`splitjit._kernels.ir.records` reads it. Numbers are bytes unless a comment says otherwise.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

# The layout record is an array of 8-byte words:
#
#     word  0              dims     number of dims, the same for all parts
#           1              count    number of non-empty parts
#           2              runs     runs of each part if all have equally many, else 0
#           3              loop     the index of the loop in `splitjit._abi.kernels.LOOPS`
#           4              stream   1 if stores of full cache lines bypass the cache, else 0
#           5 …            the source strides, one for each dim, outermost dim first
#           5 + dims …     one row for each part:
#                              source_offset     where the part starts in the source
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
