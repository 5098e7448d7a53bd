"""What a copy is: from a plan and an array to parts.

`decision` says who copies what to where, and carries it out. A `Copy` (copy.py) copies by `slices`
of NumPy until it pays to load kernels. `outputs` checks the arrays of ``out``, and `buffers` lends
memory to parts. `torch_operator` splits small tensors, and those that ask for a gradient. `_api`
and `_njit` call these modules.
"""
