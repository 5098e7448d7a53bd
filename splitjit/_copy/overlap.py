"""Find arrays that share memory: `splitjit._kernels.overlap` searches, or else NumPy's solver."""

from __future__ import annotations

import itertools

import numpy as np

from splitjit._copy.addresses import address_of
from splitjit._kernels import overlap
from splitjit._kernels.overlap import Strided, Terms

_WORK = 10**4  # multiples that a search tries, in 10 ms at most
_MOST_WORK = 10**6


def share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays share an element; True if that is too hard to find out."""
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(array: np.ndarray) -> bool:
    """Return whether two elements share memory; True if that is too hard to find out."""
    end = array.itemsize
    for stride, extent in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if stride < end and extent > 1:
            break
        end += stride * (extent - 1)
    else:  # as in nearly all arrays, each dim is nested in the next
        return False
    found = overlap.overlaps_itself(_strided(array), _terms(array.ndim), _WORK)
    return found != overlap.APART


def find_shared(parts: list[np.ndarray]) -> tuple[int, int] | None:
    """Return two parts that share an element, or None; interleaved memory is fine."""
    full = [i for i, part in enumerate(parts) if part.size]
    arrays, memory = [_strided(parts[i]) for i in full], [[0] * len(full) for _ in range(3)]
    terms = _terms(2 * max([part.ndim for part in parts], default=0))
    answer, a, b = overlap.find_shared(arrays, len(arrays), memory, terms, _WORK)
    if answer != overlap.UNSURE:
        return None if answer == overlap.APART else (min(full[a], full[b]), max(full[a], full[b]))
    pairs = itertools.combinations(range(len(parts)), 2)
    return next(((i, j) for i, j in pairs if share_memory(parts[i], parts[j])), None)


def _strided(array: np.ndarray) -> Strided:
    rank, shape, strides = array.ndim, array.shape, array.strides
    low = overlap.lowest(address_of(array), rank, shape, strides)
    return Strided(low, array.itemsize, rank, shape, strides)


def _terms(most: int) -> Terms:
    return Terms(*[[0] * most for _ in Terms._fields])
