"""LLVM code for what Numba does not offer, or would compile slowly.

`llvm` appends loads, stores and loops to the code of a function, with one switch over the sizes of
words. `intrinsics` offers them to compiled functions. `records` reads the records of `_abi` as
named tuples. All other kernels import these modules.
"""
