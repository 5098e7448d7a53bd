"""Split objects of any kind, by a rule or by a plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from splitjit._api.adapted import ByPlan, split_input
from splitjit._copy import recipe
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Request
from splitjit._inputs.torch.tensors import SPLIT_SMALL, is_tensor, tensor_input
from splitjit._plan.plan import Plan


def split_object(x: Any, request: Request, out: Any, copy: Any) -> list[Any]:
    """Split an object that is not a plain ndarray."""
    if is_tensor(x):  # before Dask, because every check costs time
        return split_input(tensor_input(x), request, out, copy)
    if is_dask_array(x):
        from splitjit._api.lazy import split_lazily  # most programs never need it

        return split_lazily(x, request, out, copy)
    return split_input(adapt(x), request, out, copy)


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
