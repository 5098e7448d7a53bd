"""One adapter per kind of input: its memory as an ndarray, and what only its library can do.

=============  =======================================  ==========================================
class          adapts                                   parts
=============  =======================================  ==========================================
`Input`        ndarrays, and what NumPy can convert     ndarrays
`Masked`       masked arrays                            masked arrays
`Tensor`       torch tensors                            tensors, see `tensors.py`
`Array`        JAX and other Array API arrays           arrays of the library, see `owners.py`
=============  =======================================  ==========================================

Labelled and lazy objects are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splitjit._inputs.arrays import as_array, is_dask_array, refuse_meaning
from splitjit._inputs.input import Input, Masked
from splitjit._inputs.owners import Array, is_array
from splitjit._inputs.torch.tensors import is_tensor, tensor_input
from splitjit.errors import SplitTypeError, kind_of

_LABELLED = {
    "pandas": "pass its .to_numpy()",
    "polars": "pass its .to_numpy()",
    "xarray": "pass its .data",
}
"""Libraries whose objects have labels, by top-level package, and what to pass."""

_SYMBOLIC_TRACE = (
    "torch.fx.symbolic_trace knows no shapes; split in a function with the decorator "
    "torch.fx.wrap, or trace by make_fx or torch.export.export"
)


def adapt(x: Any) -> Input:
    """Return `x`'s adapter.

    Raises
    ------
    SplitTypeError
        If `x` is not an array, or carries more than values.
    """
    if is_tensor(x):
        return tensor_input(x)
    kind = type(x)
    if is_dask_array(x):
        return Input(as_array(x))  # the operators compute Dask arrays
    if issubclass(kind, (np.ndarray, np.generic)):
        refuse_meaning(x)
        return Masked(x) if issubclass(kind, np.ma.MaskedArray) else Input(as_array(x))
    _refuse_labelled(x)
    if is_array(x):
        return Array(x)
    refuse_meaning(x)
    array = as_array(x)
    if array.ndim == 0 and array.dtype.kind in "OSUT":  # NumPy wraps what it cannot read
        hint = "pass list(x)" if hasattr(kind, "__next__") else ""
        raise SplitTypeError.of([("x", f" of type {kind_of(x)}")], "must be an array", hint)
    return Input(array)


def _refuse_labelled(x: Any) -> None:
    """Refuse labelled objects, sparse matrices and proxies, by the module of their class."""
    for base in type(x).__mro__:
        module = str(vars(base).get("__module__"))
        fix = _LABELLED.get(module.partition(".")[0])
        if fix:
            rule = f"the parts would lose its labels; {fix}"
        elif module.startswith("scipy.sparse"):
            rule = "must not be sparse; pass its .toarray()"
        elif module == "torch.fx.proxy":
            raise SplitTypeError.of([("x", " of type Proxy")], _SYMBOLIC_TRACE)
        else:
            continue
        raise SplitTypeError.of([("x", f" of type {kind_of(x)}")], rule)
