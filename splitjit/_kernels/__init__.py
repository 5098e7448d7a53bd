"""The compiled copy loops.

`_copy` lays the copy out. Then the copy passes through these modules::

    _copy/threads.py     chooses how many tasks copy
            │  Arguments: stream, target, source, layout
            ▼
    launch.py            runs a loop once for each task, on one thread or on several
            │  task, tasks, arguments
            ▼
    copy.py              runs of bytes, one after another
    stream.py            the same in large arrays, with stores that bypass the cache
    deinterleave.py      single small items that the parts take from the source in turn
    transpose.py         runs that are adjacent in a part but far apart in the source
    overload_copy.py     all parts, for compiled code of users
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
    llvm.py              loads and stores of LLVM; intrinsics.py has them for compiled functions

The other modules: `entry.py` has the builtin functions that check arrays and make them, and copy
small ones with the loops above; `objects.py` has Python's C functions for it. `overload.py` and
`overload_outputs.py` compute sizes and check outputs for compiled code of users. `table.py` has
what both sides share, namely the record that describes a copy, the names of the kernels, and
sizes. `records.py` reads the record in compiled code. `build.py` lists the functions of each
kernel, and `compiling.py` makes an object file of them. `assign.py` has the loop over Python
objects.

A loop never raises and never sees a Python object. Python code has checked all
addresses, extents and strides before. Importing this package imports nothing.
"""
