"""What a copy is: from a plan and an array to parts.

A `recipe` decides between `slices` of NumPy and a `kernel_copy`; `layout` says where parts lie in a
block, `copy_layout` where each byte goes, `outputs` checks the arrays of ``out``, and `buffers`
lends memory to parts. `_api` and `_njit` call these modules, which see only ndarrays.
"""
