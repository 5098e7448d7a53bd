"""Split any object by a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjit._api.adapted import split_input
from splitjit._api.lazy import split_by_plan
from splitjit._copy import recipe
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.tensors import is_tensor
from splitjit._plan.plan import Plan


def run_plan(plan: Plan, x: Any, out: Sequence[Any] | None, copy: bool) -> list[Any]:
    """Split an object by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is np.ndarray:
        return recipe.run(plan, x, out, copy)
    if not is_tensor(x) and is_dask_array(x):
        return split_by_plan(plan, x, out, copy)

    def plan_of(shape: tuple[int, ...]) -> Plan:
        recipe.check_shape(plan, shape)
        return plan

    return split_input(adapt(x), plan_of, 0, None, out, copy)
