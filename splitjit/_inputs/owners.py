"""Arrays of other libraries that kernels do not read: their library makes the parts.

JAX splits its tracers, and its arrays on several devices. Other libraries with the Array API
make the parts by slices and copies, so that the parts stay on the device of the array and keep
what its class adds to the values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np

from splitjit._plan.arguments import check_views, normalize_axis
from splitjit._plan.dtypes import tensor_type
from splitjit._plan.plan import Plan
from splitjit._plan.rules import Rule
from splitjit.errors import SplitError, SplitTypeError, kind_of, reason


def is_array(x: object) -> bool:
    """Return whether the class of `x` has the Array API."""
    return hasattr(type(x), "__array_namespace__")


def memory_is_plain(x: Any) -> bool:
    """Return whether kernels may read an array with the Array API.

    That is so for arrays of JAX on the first CPU device, to which DLPack brings the parts. The
    arrays of other libraries may lie on a device, or carry more than values.
    """
    if not is_of_jax(x) or not hasattr(type(x), "__dlpack_device__"):  # a tracer has no memory
        return False
    try:
        return bool(x.devices() == {sys.modules["jax"].devices("cpu")[0]})
    except RuntimeError:  # a deleted array, or no CPU device
        return False


def is_of_jax(x: object) -> bool:
    """Return whether `x` is an array or a tracer of JAX."""
    return isinstance(x, getattr(sys.modules.get("jax"), "Array", ()))


class ForeignArray:
    """An array whose library makes the parts.

    Parameters
    ----------
    x : array
        An array with the Array API.
    """

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.x.dtype

    @property
    def tensor_type(self) -> str | None:
        """The ONNX name of the type, or None if ONNX Split has no such type."""
        try:
            return tensor_type(np.dtype(str(self.x.dtype).rpartition(".")[2]))
        except TypeError:
            return "tensor(bfloat16)" if str(self.x.dtype).endswith("bfloat16") else None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. `jax.export` has symbols for dims that are unknown."""
        return tuple(self.x.shape)

    def split(
        self,
        plan_of: Callable[[tuple[int, ...]], Plan],
        axis: SupportsIndex,
        rule: Rule | None,
        copy: Any,
    ) -> list[Any]:
        """Split the array by its library; see `splitjit._inputs.foreign.ForeignTensor.split`."""
        shape = self.shape
        if rule is not None:  # the rule concerns one dim; a plan checks all
            index = normalize_axis(axis, shape)
            known = [n if i == index or type(n) is int else 1 for i, n in enumerate(shape)]
            if type(known[index]) is not int:
                rule_text = "the length of the axis must be known"
                raise SplitTypeError("split", f"x of shape {shape}", rule_text)
            shape = tuple(known)
        plan = plan_of(shape)
        if copy is not True:
            check_views(None, copy)
        try:
            return self._parts(plan, copy)
        except SplitError:
            raise
        except Exception as error:  # any error of a foreign class
            rule_text = f"its library refuses: {reason(error)}"
            raise SplitTypeError("split", f"x of type {kind_of(self.x)}", rule_text) from error

    def _parts(self, plan: Plan, copy: bool) -> list[Any]:
        if is_of_jax(self.x):  # arrays of JAX are immutable, so a copy would show no difference
            split = getattr(sys.modules["jax"].lax, "split", None)
            if split is not None and len(plan):
                return list(split(self.x, plan.sizes, plan.axis))
            return [self.x[index] for index in plan.slices]
        parts = [self.x[index] for index in plan.slices]
        if copy:
            asarray = self.x.__array_namespace__().asarray
            parts = [asarray(part, copy=True) for part in parts]
        return parts
