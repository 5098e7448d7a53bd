"""What can be split: arrays of all libraries, and the kind of their parts.

=============  =================================================================
source         parts
=============  =================================================================
Source         ndarrays, of ndarrays and of all that NumPy makes arrays of
MaskedSource   masked arrays
TensorSource   tensors of torch
ForeignTensor  tensors of torch, made by torch
ArraySource    arrays of JAX
ForeignArray   arrays with the Array API, made by their library
=============  =================================================================

Objects whose labels a split would lose, and lazy objects, are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splitjit._inputs.arrays import Copies, as_array, is_dask_array, refuse_meaning
from splitjit._inputs.foreign import ForeignTensor
from splitjit._inputs.masked import MaskedSource
from splitjit._inputs.owners import ForeignArray, is_array, memory_is_plain
from splitjit._inputs.tensors import TensorSource, is_tensor, tensor_source
from splitjit._plan.arguments import check_views
from splitjit._plan.dtypes import tensor_type
from splitjit._plan.plan import Plan
from splitjit.errors import SplitTypeError, kind_of

_LABELLED = {
    "pandas": "pass its .to_numpy()",
    "polars": "pass its .to_numpy()",
    "xarray": "pass its .data",
}
"""Libraries whose objects have labels, by the first part of their modules' names."""

SYMBOLIC_TRACE = (
    "torch.fx.symbolic_trace knows no shapes; split in a function with the decorator "
    "torch.fx.wrap, or trace by make_fx or torch.export.export"
)


class Source:
    """An array to split; the parts are ndarrays.

    The other sources have the same attributes. `array` is the memory of `x`.
    """

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    @property
    def dtype(self) -> np.dtype:
        """The dtype of `x`."""
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `x`."""
        return self.array.shape

    @property
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        return tensor_type(self.array.dtype)

    def split(self, plan: Plan, out: Any, copy: Any, copies: Copies) -> list[Any]:
        """Split the array, see `splitjit.split`."""
        return copies.run(plan, self.array, out, copy)


class ArraySource(Source):
    """An array of JAX on the CPU; the parts are arrays of JAX.

    Such arrays are immutable, so the arrays of `out` are ndarrays.
    """

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x
        try:
            array = np.from_dlpack(x)
        except (RuntimeError, BufferError, TypeError):  # a dtype that DLPack lacks
            array = as_array(x)
        super().__init__(array)

    def split(self, plan: Plan, out: Any, copy: Any, copies: Copies) -> list[Any]:
        """Split the array, see `splitjit.split`."""
        if copy is not True:
            check_views(out, copy)
            return [self.x[index] for index in plan.slices]
        parts = super().split(plan, out, True, copies)
        if out is not None:
            return parts
        namespace = self.x.__array_namespace__()
        try:
            return list(map(namespace.from_dlpack, parts))
        except (RuntimeError, BufferError, TypeError):
            return list(map(namespace.asarray, parts))


AnySource = Source | MaskedSource | TensorSource | ForeignTensor | ForeignArray


def source_of(x: Any) -> AnySource:
    """Return the source that splits `x`.

    Parameters
    ----------
    x : array_like

    Returns
    -------
    Source or another of the table above

    Raises
    ------
    SplitTypeError
        If `x` is not an array, or carries more than values.
    """
    if is_tensor(x):
        return tensor_source(x)
    kind = type(x)
    if is_dask_array(x):
        return Source(as_array(x))  # the operators compute Dask arrays
    if issubclass(kind, (np.ndarray, np.generic)):
        refuse_meaning(x)
        return MaskedSource(x) if issubclass(kind, np.ma.MaskedArray) else Source(as_array(x))
    _refuse_labelled(x)
    if is_array(x):
        return ArraySource(x) if memory_is_plain(x) else ForeignArray(x)
    refuse_meaning(x)
    array = as_array(x)
    if array.ndim == 0 and array.dtype.kind in "OSUT":  # NumPy wraps what it cannot read
        hint = "pass list(x)" if hasattr(kind, "__next__") else ""
        raise SplitTypeError("split", f"x of type {kind_of(x)}", "must be an array", hint=hint)
    return Source(array)


def _refuse_labelled(x: Any) -> None:
    """Refuse objects with labels, sparse matrices and proxies, by the module of their class."""
    for base in type(x).__mro__:
        module = str(vars(base).get("__module__"))
        fix = _LABELLED.get(module.partition(".")[0])
        if fix:
            rule = f"the parts would lose its labels; {fix}"
        elif module.startswith("scipy.sparse"):
            rule = "must not be sparse; pass its .toarray()"
        elif module == "torch.fx.proxy":
            raise SplitTypeError("split", "x of type Proxy", SYMBOLIC_TRACE)
        else:
            continue
        raise SplitTypeError("split", f"x of type {kind_of(x)}", rule)
