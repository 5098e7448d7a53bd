"""Records that threads share: the team of helpers, and the blocks that compiled code keeps."""

from __future__ import annotations

from collections import namedtuple

LARGE = 1 << 19
"""Bytes from which a copy is large: helpers share it, the block of its parts is kept for reuse, and
objects are assigned by a compiled loop."""

# The block record, for `splitjit._kernels.blocks`: the most bytes to keep, the bytes that are
# kept, how many turns slots have had to make room, and a slot for each kept block.
BLOCKS_LIMIT, BLOCKS_KEPT, BLOCKS_EVICTED, SLOTS_AT = range(4)
SLOTS = 32

# The team record, which the caller of a copy shares with its helpers: one word every `SPACING`
# bytes, each at its index in `AT`.
#
#     generation  the number of the newest job      open    1 while helpers may join the job
#     taken       chunks taken from the front, and  active  helpers that may be in its memory
#                 2**32 times those from the back   busy    1 while a caller has the helpers
#     loop, chunks, arguments  the job              asked   how many helpers the job wants
#     core        the caller's core                 helped  chunks that helpers have copied so far
#     started     helpers that have been started    numbered  helpers that have taken a number
#     allowed     helpers that may run now          chunk    the bytes of a chunk
#     helpers …   a line for each helper: 1 while it sleeps, then the address of its lock

_Team = namedtuple(
    "_Team",
    "generation open taken active busy loop chunks arguments asked core helped started numbered"
    " allowed chunk helpers",
)
AT = _Team(*range(len(_Team._fields)))
SPACING = 128
"""Two cache lines, because processors fetch them in pairs."""
FEWEST_CHUNKS = 4
"""A copy of fewer chunks is not shared: waking a helper must pay."""
CHUNKS_PER_THREAD = 16
"""The most chunks for each thread. Each chunk costs a loop over all parts, so more chunks take
longer between steps of torch or BLAS."""
MOST_HELPERS = 31
"""Memory is at its limit with fewer threads on most machines."""
