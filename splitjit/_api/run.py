"""Split any object by a plan: arrays at once, all others by what `_inputs` knows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from splitjit._copy import recipe
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.sources import AnySource, source_of
from splitjit._inputs.tensors import is_compiling, is_tensor, uncompiled
from splitjit._plan.plan import Plan

PlanOf = Callable[[tuple[int, ...]], Plan]
"""Returns the plan for arrays of a shape, or refuses the shape."""


def run_plan(plan: Plan, x: Any, out: Sequence[Any] | None, copy: bool) -> list[Any]:
    """Split an object by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is np.ndarray:
        return recipe.run(plan, x, out, copy)
    if is_dask_array(x):
        parts: list[Any] = dask().run_plan(plan, x, out, copy)
        return parts
    return split_other(x, lambda shape: _checked(plan, shape), out, copy)


def _checked(plan: Plan, shape: tuple[int, ...]) -> Plan:
    recipe.check_shape(plan, shape)
    return plan


def dask() -> Any:
    """Return `splitjit.dask`. It imports this package, and Dask, which need not be installed."""
    return import_module("splitjit.dask")


def split_other(x: Any, plan_of: PlanOf, out: Any, copy: Any) -> list[Any]:
    """Split an object that is neither of the class ndarray nor a Dask array."""
    if is_tensor(x) and is_compiling():
        return uncompiled(split_other)(x, plan_of, out, copy)
    return split_source(source_of(x), plan_of, out, copy)


def split_source(source: AnySource, plan_of: PlanOf, out: Any, copy: Any) -> list[Any]:
    """Split a source; the operators call this."""
    return source.split(plan_of(source.array.shape), out, copy, recipe)
