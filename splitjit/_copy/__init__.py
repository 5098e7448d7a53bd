"""What a copy is: from an object and a request to parts.

`run` decides which of four ways makes the parts, and has them made; `explanation` puts the
decision into words, and `join` is the way back. A `How` (how.py) copies by `slices` of NumPy until
kernels are loaded. `outputs` checks the arrays of ``out``, `buffers` lends memory to parts, and
`lazy` has the tasks of Dask arrays. `_api`, operators, drop-ins and `_njit` call these modules.
"""
