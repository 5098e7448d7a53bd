"""Split any object by a plan: arrays at once, all others by what `_inputs` knows of them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any, SupportsIndex

import numpy as np

from splitjit._copy import recipe
from splitjit._inputs.arrays import as_array, is_dask_array
from splitjit._inputs.foreign import ForeignTensor, PlanOf
from splitjit._inputs.owners import ForeignArray
from splitjit._inputs.sources import AnySource, source_of
from splitjit._inputs.tensors import TensorSource, is_tensor, tensor_source
from splitjit._plan.plan import Plan
from splitjit._plan.rules import Rule


def run_plan(plan: Plan, x: Any, out: Sequence[Any] | None, copy: bool) -> list[Any]:
    """Split an object by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is np.ndarray:
        return recipe.run(plan, x, out, copy)
    if is_tensor(x):
        return split_source(
            tensor_source(x), lambda shape: _checked(plan, shape), 0, None, out, copy
        )
    if is_dask_array(x):
        parts: list[Any] = dask().run_plan(plan, x, out, copy)
        return parts
    return split_source(source_of(x), lambda shape: _checked(plan, shape), 0, None, out, copy)


def _checked(plan: Plan, shape: tuple[int, ...]) -> Plan:
    recipe.check_shape(plan, shape)
    return plan


def dask() -> Any:
    """Return `splitjit.dask`. It imports this package, and Dask, which need not be installed."""
    return import_module("splitjit.dask")


def split_source(
    source: AnySource,
    plan_of: PlanOf,
    axis: SupportsIndex,
    rule: Rule | None,
    out: Any = None,
    copy: Any = True,
) -> list[Any]:
    """Split an object that is neither of the class ndarray nor a Dask array.

    Parameters
    ----------
    source : Source or another
        The object, as `source_of` returns it.
    plan_of : callable
        Returns the plan for arrays of a shape, or refuses the shape.
    axis : int
    rule : Rule or None
        None if `plan_of` has one plan, and only checks the shape.
    out, copy
        See `splitjit.split`.
    """
    if isinstance(source, TensorSource):  # first, since the other questions take time
        return source.split(plan_of(source.array.shape), out, copy, recipe)
    if isinstance(source, (ForeignTensor, ForeignArray)):
        return _split_by_owner(source, plan_of, axis, rule, out, copy)
    return source.split(plan_of(source.array.shape), out, copy, recipe)


def _split_by_owner(
    source: ForeignTensor | ForeignArray, plan_of: PlanOf, axis: Any, rule: Any, out: Any, copy: Any
) -> list[Any]:
    if isinstance(source, ForeignTensor):
        return source.split(plan_of, axis, rule, out, copy)
    if out is None:
        return source.split(plan_of, axis, rule, copy)
    array = as_array(source.x)  # NumPy reads the values, or refuses
    return recipe.run(plan_of(array.shape), array, out, copy)
