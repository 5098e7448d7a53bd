"""The compiled copy loops.

`_copy` lays out a copy, which then passes through these modules::

    _copy/threads.py     chooses how many helpers to ask, and how many chunks to make
            │  Arguments: stream, target, source, layout
            ▼
    team.py              the caller and its helpers take chunks, and call a loop for each
            │  task, tasks, arguments
            ▼
    copy.py              runs of bytes, one after another
    stream.py            the same for large arrays, with stores that bypass the cache
    deinterleave.py      small items of the parts that are interleaved in the source
    transpose.py         runs that are adjacent in a part but far apart in the source
    overload_copy.py     all parts, for users' compiled code
            │  target, source, run, count, steps
            ▼
    rows.py              contiguous rows, with stores that bypass the cache
    tiles.py             pieces of transposed sources: tiles in registers, or item by item
    runs.py              evenly spaced runs: ordinary stores, or stores that bypass the cache
            │
            ▼
    variants.py          the innermost loops, with a variant for each word size
            │
            ▼
    llvm.py              LLVM loads and stores; intrinsics.py offers them to compiled functions

The other modules: `entry.py` has the builtin functions that check and make arrays, and copy
small ones with the loops above; `objects.py` gives it Python's C functions. `overload.py` computes
sizes for users' compiled code, and makes parts. `outputs.py` finds outputs in a layout record that
share memory, by the functions of `overlap.py`, which Python calls, too. `table.py` has
what both sides share: the record that describes a copy, the names of the kernels, and sizes.
`records.py` reads the record in compiled code. `build.py` lists the functions of each kernel,
and `compiling.py` compiles them to an object file, for the processor that `target.py` names, if
Numba is as `fit.py` expects. `blocks.py` keeps large blocks for users' compiled code. `tensors.py`
checks torch tensors. `numba_threads.py` runs the loops on Numba's threads, if the user chooses
them. `assign.py` has the loop over Python objects.

A loop never raises and never sees a Python object: Python code has already checked all
addresses, extents and strides. Importing this package imports nothing.
"""
