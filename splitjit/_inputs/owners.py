"""Arrays of JAX, and of other libraries with the Array API.

Kernels copy arrays of JAX on the first CPU device. JAX itself splits its tracers, its arrays on
several devices, and arrays whose dtype is weak, because DLPack would make it a strong one. Other
libraries make the parts by slices and copies, so that the parts stay on the device of the array
and keep what its class adds to the values.
"""

from __future__ import annotations

import sys
from typing import Any, SupportsIndex

import numpy as np

from splitjit._inputs.arrays import as_array
from splitjit._inputs.input import Input, PlanOf
from splitjit._plan.arguments import normalize_axis
from splitjit._plan.dtypes import tensor_type
from splitjit._plan.rules import Rule
from splitjit.errors import SplitTypeError


def is_array(x: object) -> bool:
    """Return whether the class of `x` has the Array API."""
    return hasattr(type(x), "__array_namespace__")


def array_input(x: Any) -> Array:
    """Return how an array with the Array API is split."""
    return Array(x, memory(x) if _memory_is_plain(x) else None)


def memory(x: Any) -> np.ndarray:
    """Return an array as an ndarray: its memory if the library gives it away, or its values."""
    try:
        return np.from_dlpack(x)
    except Exception:  # a dtype or a device that DLPack lacks, or any error of a foreign class
        return as_array(x)


def _memory_is_plain(x: Any) -> bool:
    """Return whether kernels may read an array, and DLPack may bring parts to its device.

    The arrays of other libraries than JAX may lie on a device, or carry more than values.
    """
    if not _is_of_jax(x) or not hasattr(type(x), "__dlpack_device__"):  # a tracer has no memory
        return False
    try:
        return bool(x.devices() == {sys.modules["jax"].devices("cpu")[0]}) and not x.weak_type
    except RuntimeError:  # a deleted array, or no CPU device
        return False


def _is_of_jax(x: object) -> bool:
    return isinstance(x, getattr(sys.modules.get("jax"), "Array", ()))


class Array(Input):
    """An array with the Array API. Those of JAX are immutable, so `out` has ndarrays."""

    __slots__ = ()

    def __init__(self, x: Any, array: np.ndarray | None) -> None:
        self.x, self.array, self.mask = x, array, None

    @property
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        try:
            return tensor_type(np.dtype(str(self.x.dtype).rpartition(".")[2]))
        except TypeError:
            return "tensor(bfloat16)" if str(self.x.dtype).endswith("bfloat16") else None

    def views(self, plan_of: PlanOf, axis: SupportsIndex, rule: Rule | None) -> list[Any]:
        """Return slices. `jax.export` has symbols for dims that are unknown."""
        shape = self.shape
        if rule is not None:  # the rule concerns one dim; a plan checks all
            index = normalize_axis(axis, shape)
            shape = tuple([n if i == index or type(n) is int else 1 for i, n in enumerate(shape)])
            if type(shape[index]) is not int:
                rule_text = "the length of the axis must be known"
                raise SplitTypeError("split", f"x of shape {self.shape}", rule_text)
        plan = plan_of(shape)
        split = getattr(sys.modules["jax"].lax, "split", None) if _is_of_jax(self.x) else None
        if split is not None and len(plan):
            return list(split(self.x, plan.sizes, plan.axis))
        return [self.x[index] for index in plan.slices]

    def copies(self, plan_of: PlanOf, axis: SupportsIndex, rule: Rule | None) -> list[Any]:
        """Return copies of slices. A copy of an immutable array of JAX would show no difference."""
        parts = self.views(plan_of, axis, rule)
        if _is_of_jax(self.x):
            return parts
        asarray = self.x.__array_namespace__().asarray
        return [asarray(part, copy=True) for part in parts]

    def wrap(self, parts: list[np.ndarray], masks: list[np.ndarray] | None) -> list[Any]:
        """Return arrays of the library over the memory of the parts."""
        namespace = self.x.__array_namespace__()
        try:
            return list(map(namespace.from_dlpack, parts))
        except (RuntimeError, BufferError, TypeError):
            return list(map(namespace.asarray, parts))

    def targets(self, out: Any) -> tuple[list[Any], list[np.ndarray]]:
        """Return ndarrays, which `splitjit._copy` checks."""
        return out, out

    def refused(self, error: Exception) -> bool:
        """Return whether the library refuses the array: by any error of a foreign class."""
        return True
