"""The object-mode loop, for strings and other Python objects.

NumPy assigns such elements, because references must be counted. Numba compiles the loop over the
parts.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from splitjit._runtime.loading import LOADER, never_compiles


def assign(targets: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> bool:
    """Assign each part to its target with the compiled loop, if the program uses Numba.

    Parameters
    ----------
    targets, parts : sequence of ndarray
        Equally many, with equal shapes and dtypes.

    Returns
    -------
    bool
        False, and nothing is assigned, if the loop is not compiled.
    """
    if not assign_loop.cache_info().currsize and not hasattr(sys.modules.get("numba"), "prange"):
        return False
    loop = assign_loop()
    if loop is None:
        return False
    loop(zip(targets, parts, strict=True))
    return True


@functools.cache
def assign_loop() -> Callable[[Iterator[Any]], None] | None:
    """Compile the loop over Python objects; return None if Numba cannot compile now."""
    if never_compiles() or LOADER.is_forked_child:
        return None
    import numba

    loop: Callable[[Iterator[Any]], None]
    loop = numba.jit((numba.types.pyobject,), forceobj=True, looplift=False)(_assign)
    return loop


def _assign(pairs: Iterator[Any]) -> None:
    # From an iterator: Numba would inspect the items of a list, and it does not know all dtypes.
    for target, part in pairs:
        target[...] = part
