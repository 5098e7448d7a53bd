"""Split objects of any kind, by a rule or by a plan."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from splitjit._abi.kernels import LONG_RUN
from splitjit._api.adapted import by_plan, split_input
from splitjit._copy import array_split
from splitjit._copy.buffers import empty_parts
from splitjit._copy.copy_layout import STREAM_FROM
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
    """Split a CPU tensor by the plan ``plan_of(x.shape, *of)`` with torch's own operator.

    Return None, and split nothing, if kernels are faster or Python must check more than `PLAIN`
    does.
    """
    if not (PLAIN and PLAIN[0](x)):
        return None
    try:
        plan = plan_of(x.shape, *of)
        kept = plan._kept.get((x.dtype, x.is_contiguous()))
        pays, ways = kept or torch_pays(x, plan)
    except RuntimeError:  # torch refuses the layout
        return None
    if not pays:
        return None
    if ways is None or out is not None or x.requires_grad:
        return split_by_torch(x, plan, out)
    began = perf_counter()
    way = ways.choose(began)
    parts = split_by_torch(x, plan, new_tensors(plan, x.dtype, empty_parts) if way else None)
    ways.took(way, began, perf_counter(), x.nbytes)
    return parts


WAYS_OF_TENSORS = "torch's operator", "torch's operator into memory of splitjit"
"""Where torch's operator writes large new parts. Its own memory is fast or slow by what the program
has freed before: malloc may give memory back to the system after each split."""

_PART_FOR_TORCH = 1 << 17
"""Bytes from which on torch copies a float32 part on several threads."""


def torch_pays(x: Any, plan: Plan) -> tuple[bool, Ways | None]:
    """Return whether torch's own operator is as fast as kernels, and `WAYS_OF_TENSORS`.

    It is for small tensors, since adapting one for kernels takes longer than copying it, and if
    runs and parts are long, but stores need not bypass the cache: in a torch program, its threads
    are awake, and ours are not. The plan keeps the answer, unless kernels are not loaded yet.
    """
    nbytes: int = x.nbytes
    if nbytes < SHARED_FROM:
        pays, ways = True, None
    else:
        part = nbytes // len(plan)
        is_long = part >= _PART_FOR_TORCH and part >= LONG_RUN * math.prod(plan.shape[: plan.axis])
        pays, ways = is_long and nbytes < STREAM_FROM[1] and bool(x.is_contiguous()), None
        if not LOADER.pays(0.0):
            return pays, None
        if pays:
            ways = ways_of(len(WAYS_OF_TENSORS), len(plan), nbytes.bit_length())
    keep(plan._kept, (x.dtype, x.is_contiguous()), (pays, ways), len(plan))
    return pays, ways


def run_plan(plan: Plan, x: Any, out: Any, copy: Any) -> list[Any]:
    """Split an object by a plan of its shape; see `SplitPlan.__call__`."""
    if type(x) is np.ndarray:
        return array_split.split_array(plan, x, out, copy)
    request = by_plan(plan)
    parts = split_plain_tensor(x, out, request.plan_of) if copy is True and PLAIN else None
    return split_object(x, request, out, copy) if parts is None else parts
