"""Copy with NumPy, slice by slice.

This is for Python objects, for small arrays that are the first of their shape or come before
kernels are loaded, and for arrays of any size if no kernel can be loaded. NumPy assigns strings
and other Python objects, because references must be counted; Numba compiles the loop over the
parts.
"""

import functools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from splitjit._abi.thresholds import THRESHOLDS
from splitjit._plan.arguments import Shape
from splitjit._plan.plan import Index, indices_of
from splitjit._runtime.loading import LOADER, never_compiles


def fresh(x: np.ndarray, axis: int, sizes: Shape) -> list[np.ndarray]:
    """Copy `x` to new parts."""
    dtype = x.dtype
    if not dtype.hasobject:  # else each part would keep the objects of all parts alive
        if dtype.names is not None and dtype.itemsize:
            return [part.view(dtype) for part in fresh(x.view(_bits(dtype)), axis, sizes)]
        if axis == 0 or math.prod(x.shape[:axis]) == 1:  # contiguous in a copy of the whole
            return views(x.copy(), axis, sizes)
    elif x.nbytes >= THRESHOLDS.large:
        parts = [np.empty(view.shape, dtype) for view in views(x, axis, sizes)]
        into(x, indices_of(axis, sizes), parts)
        return parts
    return [view.copy() for view in views(x, axis, sizes)]


def into(
    x: np.ndarray, indices: Sequence[Index], parts: Sequence[np.ndarray], joins: bool = False
) -> None:
    """Copy `x` to given arrays without checking them; ``x[indices[i]]`` is a view of part i.

    If `joins`, copy these arrays to `x`.
    """
    dtype = x.dtype
    if dtype.hasobject:
        if loop := object_loop(x.nbytes):
            pieces = [x[index] for index in indices]
            loop(zip(*((pieces, parts) if joins else (parts, pieces)), strict=True))
            return
    elif dtype.names is not None and dtype.itemsize:
        x, parts = x.view(_bits(dtype)), [part.view(_bits(dtype)) for part in parts]
    for i, index in enumerate(indices):  # `zip` with `strict` takes as long as a small copy
        if joins:
            x[index] = parts[i]
        else:
            parts[i][...] = x[index]


def views(x: np.ndarray, axis: int, sizes: Shape) -> list[np.ndarray]:
    """Return the parts as views."""
    if 0 < axis < x.ndim - 1:
        return [x[index] for index in indices_of(axis, sizes)]
    parts, start = [], 0
    for size in sizes:  # faster than `indices_of`, which makes slices and tuples by calls
        stop = start + size
        parts.append(x[..., start:stop] if axis else x[start:stop])
        start = stop
    return parts


def _bits(dtype: np.dtype) -> np.dtype:
    """Return the dtype to copy records as.

    NumPy would copy them field by field, and lose the bits between fields.
    """
    return np.dtype((np.void, dtype.itemsize))


# ---- the object-mode loop ------------------------------------------------------------------


def object_loop(nbytes: int) -> Callable[[Iterator[Any]], None] | None:
    """Return the loop that assigns so many bytes of objects, or None if NumPy assigns them.

    The loop is for large arrays, in a program that uses Numba. It takes pairs of a target and a
    part, of equal shapes and dtypes.
    """
    uses_numba = hasattr(sys.modules.get("numba"), "prange")
    return assign_loop() if uses_numba and nbytes >= THRESHOLDS.large else None


@functools.cache
def assign_loop() -> Callable[[Iterator[Any]], None] | None:
    """Compile the loop over Python objects; return None, for good, if Numba cannot compile now."""
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
