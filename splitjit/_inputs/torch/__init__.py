"""Tensors of torch: whether kernels may read them, and how the parts become tensors.

Each module is about one question: `memory` finds a tensor's bits and whether they are all there is
to it, `operator` says which tensors torch's own operator splits, and `foreign` lets torch split
what kernels may not read. `tensors` puts them together for `_inputs/adapt.py` and `_api`; torch is
imported only if the program has imported it.
"""
