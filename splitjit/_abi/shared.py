"""Records that threads share: the team of helpers, and the blocks that compiled code keeps."""

from __future__ import annotations

MAPPED_FROM = 1 << 19
"""Blocks of at least this size are kept for reuse."""

# The block record, for `splitjit._kernels.blocks`: the most bytes to keep, the bytes that are
# kept, how many turns slots have had to make room, and a slot for each kept block.
BLOCKS_LIMIT, BLOCKS_KEPT, BLOCKS_EVICTED, SLOTS_AT = range(4)
SLOTS = 32

# The team record, which the caller of a copy shares with its helpers: one word every `SPACING`
# bytes.
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
SPACING = 128
"""Two cache lines, because processors fetch them in pairs."""
CHUNKS_PER_THREAD = 16
"""The most chunks for each thread. Each chunk costs a loop over all parts: between steps of torch
or BLAS, 22 MB take 12 % longer in 64 chunks than in 32, and 50 MB 3 to 9 % longer in 20."""
MOST_HELPERS = 31
"""Memory is at its limit with fewer threads on most machines."""
