"""Which objects are arrays, and their memory as ndarrays."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from splitjit._plan.plan import Plan
from splitjit.errors import SplitTypeError, reason


class Copies(Protocol):
    """How sources have their memory copied; the module `splitjit._copy.recipe` has this form."""

    def run(self, plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
        """Split an array by a plan; see `splitjit.split` for `out` and `copy`."""
        ...

    def run_all(
        self, plan: Plan, copies: Sequence[tuple[np.ndarray, Sequence[np.ndarray]]]
    ) -> None:
        """Split several arrays into existing arrays, after checks of all these arrays."""
        ...


def as_array(x: Any) -> np.ndarray:
    """Return `x` as an ndarray, as `numpy.asarray` does: without a copy if possible.

    Parameters
    ----------
    x : array_like
        An array, a CPU tensor of another library, or nested lists.

    Returns
    -------
    ndarray
        `x` itself; a view of its memory if `x` is of a subclass or a tensor; a
        new array if `x` is a list.

    Raises
    ------
    SplitTypeError
        If NumPy cannot make an array of `x`.
    """
    if type(x) is np.ndarray:
        return x
    try:
        return np.asarray(x)
    except MemoryError:
        raise
    except Exception as error:  # __array__ of a foreign class may raise anything
        raise SplitTypeError(
            "split", f"x of type {type(x).__name__}", f"must be an array: {reason(error)}"
        ) from error


def is_dask_array(x: object) -> bool:
    """Return whether `x` is a Dask array. If Dask was never imported, `x` cannot be one."""
    return issubclass(type(x), getattr(sys.modules.get("dask.array"), "Array", ()))
