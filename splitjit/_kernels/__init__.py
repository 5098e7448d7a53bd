"""The compiled copy loops, and what else runs as machine code.

`_runtime` loads these modules as object files, and imports only what compiles them (`compiling`)
and the loop on Numba's own threads (in `team`). `_kernels` imports `_abi` and
the rules of `_plan/rules.py`, and nothing else of the package. A loop never raises and never sees a
Python object: Python code, `entry` or `njit_split` has checked all addresses, extents and strides.

Every module uses `jit` of compiling.py, the intrinsics of ir/intrinsics.py, and the tuples that
ir/records.py reads from memory; look at these three first. Then a copy passes from top to bottom::

    core/
    layouter.py          from shapes and strides to a layout record: dims (dims.py), and the loop
            │  layout record
            ▼
    entry.py             checks and makes arrays; njit_split.py does so for users' compiled code
            │  Arguments: stream, target, source, layout
            ▼
    team.py              how many helpers to ask, and how many chunks to make; the caller and its
                         helpers take chunks, and call a loop for each
            │  task, tasks, arguments
            ▼
    loops/
    plain.py             runs of bytes, one after another
    stream.py            the same for large arrays, with stores that bypass the cache
    deinterleave.py      small items of the parts that are interleaved in the source
    transpose.py         runs that are adjacent in a part but far apart in the source, piece by
                         piece
            │  evenly spaced runs, or pieces
            ▼
    runs.py              evenly spaced runs: ordinary stores, or stores that bypass the cache
    tiles.py             pieces of transposed sources: tiles in registers, or run by run
            │
            ▼
    ir/
    llvm.py              LLVM loads, stores and loops, with a variant for each word size;
                         intrinsics.py offers them to compiled functions

Beside them::

    loops/join.py        the loops of joins: from the parts to the whole
    core/apart.py        whether arrays share memory, for Python, too
    core/c_api.py        C functions of Python and of the system
    core/blocks.py       large blocks for new parts, kept for reuse

How all of this becomes object files: the modules of `core` are one, "core". Each loop of a split is
one, all loops of joins are one, and so is `njit_split`::

    compiling.py         compiles the functions that _abi/kernels.py lists for each object file
"""
