"""Tensors of torch: whether kernels may read them, and how the parts become tensors.

`memory` finds a tensor's bits, whether they are all there is to it, and whether torch's own
operator splits them. `foreign` lets torch split what kernels may not read. `tensors` puts them
together for `_inputs/adapt.py` and `_api`; torch is
imported only if the program has imported it.
"""
