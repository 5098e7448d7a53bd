"""Classes of arrays that may carry more than values: a unit, a mask, a name."""

from __future__ import annotations

_HOOKS = ("__array_finalize__", "__array_ufunc__", "__array_function__")
"""A class defines one of these if its arrays carry something that NumPy must not lose."""


def carries_meaning(kind: type) -> bool:
    """Return whether a class has hooks of its own into NumPy.

    NumPy's own classes, such as `numpy.memmap`, are known to be plain arrays, and subclasses
    without a hook are plain, too. Masked arrays of `numpy.ma` keep their masks.

    Examples
    --------
    >>> import numpy as np
    >>> carries_meaning(np.memmap)
    False
    >>> carries_meaning(type("Quantity", (np.ndarray,), {"__array_finalize__": print}))
    True
    """
    for base in kind.__mro__:
        if str(base.__module__).partition(".")[0] == "numpy":
            continue
        if any(vars(base).get(hook) is not None for hook in _HOOKS):
            return True
    return False
