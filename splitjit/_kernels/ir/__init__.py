"""LLVM code for what Numba does not offer, or would compile slowly.

`llvm` appends loads, stores and constants to the code of a function. `intrinsics` offers them to
compiled functions, and `variants` has one switch over the sizes of words. `records` reads the
records of `_abi` as named tuples. All other kernels import these modules.
"""
