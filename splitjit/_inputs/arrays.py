"""Turn input into ndarrays, unless meaning would be lost, and into dtypes."""

import sys
from array import array as numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from splitjit.errors import SplitTypeError, X, kind_of, pairs, reason


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
        if _holds_objects(type(x)):
            refuse_items(x, set())
        return np.asarray(x)
    except (MemoryError, SplitTypeError):
        raise
    except Exception as error:  # __array__ of a foreign class may raise anything
        received = f"{X} of type {type(x).__name__}"
        raise SplitTypeError.of(received, f"must be an array: {reason(error)}") from error


def is_dask_array(x: object) -> bool:
    """Return whether `x` is a Dask array. If Dask was never imported, `x` cannot be one."""
    return issubclass(type(x), getattr(sys.modules.get("dask.array"), "Array", ()))


def refuse_meaning(x: Any, name: str = X) -> None:
    """Refuse an array that carries a unit, a mask or the like, which its parts would lose.

    Parameters
    ----------
    x : array_like
    name : str
        The name of the array in the refusal.
    """
    if carries_meaning(type(x)):
        asarray = "np.ma.asarray" if isinstance(x, np.ma.MaskedArray) else "np.asarray"
        fix = f"pass {asarray}({name if name.startswith(X[0]) else 'it'})"
        rule = f"only its values would be copied, without what its class adds to them; {fix}"
        raise SplitTypeError.of(f"{name} of type {kind_of(x)}", rule)


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
    foreign = [base for base in kind.__mro__ if str(base.__module__).partition(".")[0] != "numpy"]
    return any(vars(base).get(hook) is not None for base in foreign for hook in _HOOKS)


def _holds_objects(kind: type) -> bool:
    """Return whether a class is a sequence whose items may be arrays."""
    only_numbers = str, bytes, bytearray, memoryview, range, numbers
    return issubclass(kind, Sequence) and not issubclass(kind, only_numbers)


def refuse_items(values: Sequence[Any], checked: set[type]) -> None:
    """Refuse nested sequences that hold such an array: NumPy would keep only its values.

    Parameters
    ----------
    values : sequence
    checked : set of type
        The classes already checked.
    """
    kinds = set(map(type, values)) - checked
    nested = set(filter(_holds_objects, kinds))
    for kind in kinds - nested:
        item, name = next(item for item in values if type(item) is kind), f"an item of {X}"
        refuse_meaning(item, name)
        if issubclass(kind, np.ma.MaskedArray):
            rule = f"its mask would be lost; if {X} is a flat list, pass np.ma.array({X})"
            raise SplitTypeError.of(f"{name} of type {kind_of(item)}", rule)
        if hasattr(kind, "__array__"):
            refuse_foreign(item, name)
        checked.add(kind)
    for item in values if nested else ():
        if type(item) in nested:
            refuse_items(item, checked)


_LABELS = "the parts would lose its labels; pass its "

_FOREIGN = {
    "pandas": f"{_LABELS}.to_numpy()",
    "polars": f"{_LABELS}.to_numpy()",
    "xarray": f"{_LABELS}.data",
    "scipy.sparse": "must not be sparse; pass its .toarray()",
    "torch.fx.proxy": "torch.fx.symbolic_trace knows no shapes; split in a function with the "
    "decorator torch.fx.wrap, or trace by make_fx or torch.export.export",
}
"""Packages whose objects are refused, and the rule."""

_COLUMNS = "__dataframe__", "column_names", "columns", "colnames"
"""A table of any library has one of these, such as that of pyarrow, ibis or astropy."""

_INTEGERS = "int", "uint", "dictionary<values=int", "dictionary<values=uint"


def refuse_foreign(x: Any, name: str = X) -> None:
    """Refuse labelled, sparse and traced objects, tables, and integers of Arrow with gaps."""
    kind = type(x)
    modules = [f"{base.__module__}." for base in kind.__mro__]
    found = [
        rule for package, rule in _FOREIGN.items() for module in modules
        if module.startswith(f"{package}.")
    ]  # fmt: skip
    if not found and any(hasattr(kind, word) for word in _COLUMNS):
        found = [f"{_LABELS}columns one by one"]
    elif modules[0].startswith("pyarrow.") and getattr(x, "null_count", False):
        gaps = "NumPy would turn integers with missing values into floats; pass .fill_null(0)"
        found = [gaps] if str(x.type).startswith(_INTEGERS) else []
    if found:
        received = "Proxy" if "torch.fx.proxy." in modules else kind_of(x)  # it has any dtype
        raise SplitTypeError.of(f"{name} of type {received}", found[0])


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
