"""The object-mode loop, for Python objects and StringDType.

NumPy assigns such elements, because references must be counted. Numba compiles
the loop over the parts in object mode.
"""

from __future__ import annotations

from numba import jit, types


def _assign(pairs):
    for target, part in pairs:
        target[...] = part


def assign_loop():
    """Compile the loop that assigns each part to its target.

    Returns
    -------
    callable
        ``loop(pairs)``. `pairs` is an iterator over targets and the parts to
        assign to them; not a list, because Numba would inspect a list's items,
        and it does not know all dtypes.
    """
    return jit((types.pyobject,), forceobj=True, looplift=False)(_assign)
