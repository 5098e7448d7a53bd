"""Split objects of any kind, by a rule or by a plan."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from splitjit._api.adapted import by_plan, split_input
from splitjit._copy import recipe
from splitjit._copy.buffers import empty_parts
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Request
from splitjit._inputs.torch.tensors import (
    PLAIN,
    is_tensor,
    new_tensors,
    split_by_torch,
    tensor_input,
)
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan
from splitjit._runtime.loading import LOADER
from splitjit._runtime.threads import SHARED_FROM
from splitjit._runtime.ways import Ways, ways_of


def split_object(x: Any, request: Request, out: Any, copy: Any) -> list[Any]:
    """Split an object that is not a plain ndarray."""
    if is_tensor(x):
        return split_input(tensor_input(x), request, out, copy)
    if is_dask_array(x):
        from splitjit._api.lazy import split_lazily  # most programs never need it

        return split_lazily(x, request, out, copy)
    return split_input(adapt(x), request, out, copy)


def split_plain_tensor(
    x: Any, out: Any, plan_of: Callable[..., Plan], *of: Any
) -> list[Any] | None:
    """Split a CPU tensor by the plan ``plan_of(x.shape, *of)`` in the fastest way.

    torch's own operator splits small tensors: adapting one for kernels takes longer than copying
    it. Return None, and split nothing, if Python must check more than `PLAIN` does.
    """
    if not (PLAIN and PLAIN[0](x)):
        return None
    try:
        plan, nbytes = plan_of(x.shape, *of), x.nbytes
    except RuntimeError:  # torch refuses the layout
        return None
    if nbytes < SHARED_FROM:
        return split_by_torch(x, plan, out)
    if x.requires_grad or x.layout is not sys.modules["torch"].strided:
        return None
    return _split_large(x, plan, nbytes, out)


def _split_large(x: Any, plan: Plan, nbytes: int, out: Any) -> list[Any]:
    """Split by kernels, by torch's own operator, or by this into a block of ours."""
    began = perf_counter()
    if not LOADER.pays(0.0):
        parts = split_by_torch(x, plan, out)
        if parts is not None:
            LOADER.count(perf_counter() - began)
            return parts
    ways = tensor_ways(x, plan, nbytes, out is None)
    way, parts = ways.choose(), None
    if way == 1:
        parts = split_by_torch(x, plan, out)
    elif way == 2:  # torch's own memory is slow from some size on, which depends on its allocator
        parts = split_by_torch(x, plan, new_tensors(plan, x.dtype, empty_parts))
    if parts is None:
        parts = split_input(tensor_input(x), by_plan(plan), out)
    ways.took(way, (perf_counter() - began) / nbytes)
    return parts


WAYS_OF_TENSORS = "kernels", "torch's operator", "torch's operator into memory of splitjit"
"""The ways to split a large tensor; the last one only for new parts."""


def tensor_ways(x: Any, plan: Plan, nbytes: int, is_fresh: bool) -> Ways:
    """Return what the splits of large tensors by a plan have shown."""
    key = "torch", x.dtype, x.stride(), is_fresh
    ways: Ways | None = plan._kept.get(key)
    if ways is None:
        run = math.prod(plan.shape[plan.axis :]) // plan._count
        alike = is_fresh, x.is_contiguous(), run.bit_length(), nbytes.bit_length()
        ways = ways_of(3 if is_fresh else 2, *alike)
        keep(plan._kept, key, ways, plan._count)
    return ways


def run_plan(plan: Plan, x: Any, out: Any, copy: Any) -> list[Any]:
    """Split an object by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is np.ndarray:
        return recipe.run(plan, x, out, copy)
    request = by_plan(plan)
    parts = split_plain_tensor(x, out, request.plan_of) if copy is True and PLAIN else None
    return split_object(x, request, out, copy) if parts is None else parts
