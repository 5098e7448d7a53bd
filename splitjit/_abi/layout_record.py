"""The layout record: what a loop has to do, in words.

`splitjit._copy.layout` writes it for Python, and `splitjit._kernels.overload_copy` for users'
compiled code. `splitjit._kernels.entry` writes only the targets of outputs, and
`splitjit._kernels.records` reads it. Numbers are bytes unless a comment says otherwise.
"""

from __future__ import annotations

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


MAX_RANK = 64
"""The largest number of dims that NumPy allows."""
