"""What a copy is: from a plan and an array to parts.

`array_split` decides and carries out the decision. A `Copy` (copy.py) copies by `slices` of NumPy
until it pays to load kernels. `layout` says where parts lie in a block, `copy_layout` where each
byte goes, `outputs` checks the arrays of ``out``, and `buffers` lends memory to parts. `_api` and
`_njit` call these modules, which see only ndarrays.
"""
