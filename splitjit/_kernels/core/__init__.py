"""What Python calls before a copy, or to share it: one object file, "core", linked as a whole.

`layouter` with `dims` turns shapes and strides into a layout record. `apart` tells
whether arrays share memory. `entry` checks and makes arrays. `team` shares a copy with helpers, and
`blocks` keeps large blocks for reuse. `c_api` has the functions of Python and of the system that
they call. `_runtime/loading.py` has the functions as `NATIVE`; `njit_split` gets their
addresses.
"""
