"""Split objects of any kind, by a rule or by a plan."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from splitjit._api.adapted import ByPlan, split_input
from splitjit._copy import recipe
from splitjit._copy.buffers import empty_parts
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Request
from splitjit._inputs.torch.tensors import (
    SPLIT_SMALL,
    empty,
    is_large_and_plain,
    is_tensor,
    split_by_torch,
    tensor_input,
)
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan
from splitjit._runtime.ways import Ways


def split_object(x: Any, request: Request, out: Any, copy: Any) -> list[Any]:
    """Split an object that is not a plain ndarray."""
    if is_tensor(x):
        if copy is True and is_large_and_plain(x):
            return _split_large(x, request, out)  # before Dask, because every check costs time
        return split_input(tensor_input(x), request, out, copy)
    if is_dask_array(x):
        from splitjit._api.lazy import split_lazily  # most programs never need it

        return split_lazily(x, request, out, copy)
    return split_input(adapt(x), request, out, copy)


def _split_large(x: Any, request: Request, out: Any) -> list[Any]:
    """Split a large tensor by kernels, or by torch's own operator: into its memory or ours."""
    plan = request.plan_of(tuple(x.shape))
    key = "torch", x.dtype, x.stride(), out is None
    ways: Ways | None = plan._kept.get(key)
    if ways is None:
        ways = Ways(2 if out is not None else 3)
        keep(plan._kept, key, ways, plan._count)
    way, began, parts = ways.choose(), perf_counter(), None
    if way:  # torch's new memory is slow from some size on, which depends on its allocator
        new = empty(plan, x.dtype, empty_parts) if way == 2 else out
        parts = split_by_torch(x, plan, new)
    if parts is None:
        parts = split_input(tensor_input(x), request, out, True)
    ways.took(way, perf_counter() - began)
    return parts


def run_plan(plan: Plan, x: Any, out: Any, copy: Any) -> list[Any]:
    """Split an object by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is np.ndarray:
        return recipe.run(plan, x, out, copy)
    request = ByPlan(plan)
    if copy is True and SPLIT_SMALL:
        parts = SPLIT_SMALL[0](x, out, request.plan_of)
        if parts is not None:
            return parts
    return split_object(x, request, out, copy)
