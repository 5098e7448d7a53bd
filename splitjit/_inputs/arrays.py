"""Turn input into ndarrays, unless meaning would be lost, and into dtypes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from splitjit.errors import SplitTypeError, kind_of, pairs, reason


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
        If NumPy cannot convert `x`, or would drop what a list item carries, like a unit.
    """
    if type(x) is np.ndarray:
        return x
    try:
        if isinstance(x, (list, tuple)):
            refuse_items(x, set())
        return np.asarray(x)
    except (MemoryError, SplitTypeError):
        raise
    except Exception as error:  # __array__ of a foreign class may raise anything
        received = [("x", f" of type {type(x).__name__}")]
        raise SplitTypeError.of(received, f"must be an array: {reason(error)}") from error


def is_dask_array(x: object) -> bool:
    """Return whether `x` is a Dask array. If Dask was never imported, `x` cannot be one."""
    return issubclass(type(x), getattr(sys.modules.get("dask.array"), "Array", ()))


def refuse_meaning(x: Any, name: str = "x") -> None:
    """Refuse an array that carries a unit, a mask or the like, which its parts would lose.

    Parameters
    ----------
    x : array_like
    name : str
        The name of the array in the refusal.
    """
    if carries_meaning(type(x)):
        asarray = "np.ma.asarray" if isinstance(x, np.ma.MaskedArray) else "np.asarray"
        fix = f"pass {asarray}({name if name.isidentifier() else 'it'})"
        rule = f"only its values would be split, without what its class adds to them; {fix}"
        raise SplitTypeError.of([(name, f" of type {kind_of(x)}")], rule)


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


def refuse_items(values: Sequence[Any], checked: set[type]) -> None:
    """Refuse nested lists that hold such an array: `numpy.asarray` would keep only its values.

    Parameters
    ----------
    values : list or tuple
    checked : set of type
        The classes already checked.
    """
    kinds = set(map(type, values)) - checked
    for kind in kinds - {list, tuple}:
        refuse_meaning(next(item for item in values if type(item) is kind), "an item of x")
        checked.add(kind)
    if kinds & {list, tuple}:
        for item in values:
            if type(item) is list or type(item) is tuple:
                refuse_items(item, checked)


def as_dtype(dtype: DTypeLike) -> np.dtype:
    """Return a dtype-like object as a dtype of array items.

    Parameters
    ----------
    dtype : dtype-like

    Returns
    -------
    dtype

    Raises
    ------
    SplitTypeError
        If `dtype` is not a dtype, or if its items are arrays.
    """
    try:
        made = np.dtype(dtype)
    except Exception as error:  # TypeError, ValueError, SyntaxError and more
        rule = f"must be a dtype: {reason(error)}"
        raise SplitTypeError.of(pairs(dtype=dtype), rule) from error
    if made.subdtype is not None:
        raise SplitTypeError.of(pairs(dtype=dtype), "items must not be arrays")
    return made
