"""Split objects of any kind, by a rule or by a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from splitjit._copy.buffers import empty_parts
from splitjit._copy.decision import split_array, split_input
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Request, by_plan
from splitjit._inputs.torch.memory import TORCH
from splitjit._inputs.torch.operator import split_at_once
from splitjit._plan.plan import Plan


def split_object(x: Any, request: Request, out: Any, copy: Any) -> list[Any]:
    """Split an object that is not a plain ndarray."""
    if is_dask_array(x):
        from splitjit._api.lazy import split_lazily  # most programs never need it

        return split_lazily(x, request, out, copy)
    return split_input(adapt(x), request, out, copy)


def split_by_plan(plan: Plan, x: Any, out: Any, copy: Any) -> list[Any]:
    """Split an object by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is np.ndarray:
        return split_array(plan, x, out, copy)
    request = by_plan(plan)
    if copy is True and type(x) in TORCH.kinds:
        parts = split_at_once(x, out, empty_parts, request.plan_of)
        if parts is not None:
            return parts
    return split_object(x, request, out, copy)
