"""The object-mode path: strings and other Python objects.

Their references must be counted, so NumPy assigns them; Numba compiles the
loop over the parts in object mode.
"""

from __future__ import annotations

from typing import Any


def _assign(pairs):  # type: ignore[no-untyped-def]
    for target, part in pairs:
        target[...] = part


def assign_kernel() -> Any:
    """Compile the loop that assigns each part to an array, or load it from the cache.

    Returns
    -------
    callable
        ``kernel(pairs)``, of an iterator over targets and the parts to assign
        to them. An iterator, because Numba would look into a list, and does
        not know all dtypes.
    """
    from numba import jit, types

    from splitjit._kernels.copy import compile_cached

    return compile_cached(jit, (types.pyobject,), _assign, forceobj=True, looplift=False)  # type: ignore[no-untyped-call]
