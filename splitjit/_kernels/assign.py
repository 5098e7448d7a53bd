"""The object-mode loop, for Python objects and StringDType.

NumPy assigns such elements, because references must be counted. Numba compiles
the loop over the parts in object mode.
"""

from __future__ import annotations

from numba import jit, types

from splitjit._kernels.compiling import compile_cached


def _assign(pairs):
    for target, part in pairs:
        target[...] = part


def assign_loop():
    """Compile the loop that assigns each part to an array, or load it from the cache.

    Returns
    -------
    callable
        ``loop(pairs)``. `pairs` is an iterator over targets and the parts to
        assign to them. It is an iterator, because Numba would inspect the items
        of a list, and Numba does not know all dtypes.
    """
    return compile_cached(jit, (types.pyobject,), _assign, forceobj=True, looplift=False)
