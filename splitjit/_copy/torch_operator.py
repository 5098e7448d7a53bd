"""Torch's own operator, ``split_with_sizes_copy``, for tensors that kernels split no faster.

It is for small tensors, since adapting one for kernels takes longer than copying it, and for long
runs and parts, if stores need not bypass the cache: in a torch program, torch's threads are awake,
and ours are not.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from splitjit._abi.columns import are_ranges_apart
from splitjit._abi.kernels import LARGE, LONG_RUN
from splitjit._copy.buffers import POOL, empty_parts
from splitjit._copy.copy import LOST, functions_of, loading_pays, use_builtins
from splitjit._inputs.torch import memory
from splitjit._inputs.torch.memory import TORCH
from splitjit._inputs.torch.tensors import is_dtype
from splitjit._plan.plan import MOST_PARTS, Plan
from splitjit._runtime.cores import STREAM_FROM
from splitjit._runtime.ways import Ways, ways_of

WAYS = "torch's operator", "torch's operator into memory of splitjit"
"""Where the operator writes large new parts. Its own memory is fast or slow by what the program
has freed before: malloc may give memory back to the system after each split."""

_ONE_WAY = Ways(1)
"""Torch's own memory: for small tensors, or if a gradient is asked."""

_PART_FOR_TORCH = 1 << 17
"""Bytes from which on torch copies a float32 part on several threads."""


def split_at_once(x: Any, out: Any, plan_of: Callable[..., Plan], *of: Any) -> list[Any] | None:
    """Split a tensor by the plan ``plan_of(x.shape, *of)``, if the operator is as fast as kernels.

    Return None, and split nothing, if it is not, or if Python must check more. Adapting the tensor,
    and `Decision`, would take longer than the copy.
    """
    try:
        if TORCH.in_mode():
            return None
        plan = plan_of(x.shape, *of)
        out = list(out) if type(out) in (list, tuple) else out  # nobody else changes this list
        ways = ways_of_operator(x, plan, out)
        if ways is None:
            return None
        if ways is _ONE_WAY or out is not None or x.requires_grad:
            return copy(x, plan, out)
        if ways.skip():
            return copy(x, plan, new_tensors(plan, x.dtype) if ways.way else None)
        began, has_blocks = perf_counter(), POOL.lease is not None or _load_pool()
        way = ways.choose(began) if has_blocks else 0
        parts = copy(x, plan, new_tensors(plan, x.dtype) if way else None)
        if has_blocks:
            ways.took(way, began, perf_counter(), x.nbytes)
        else:
            LOST.seconds += perf_counter() - began
        return parts
    except RuntimeError:  # torch refuses the layout, the storage or an output, or has no memory
        return None


def _load_pool() -> bool:
    """Return whether splitjit has blocks of memory to reuse; load its core first if that pays."""
    return loading_pays(0.0) and functions_of("core") is not None and use_builtins()


def copy(x: Any, plan: Plan, out: list[Any] | None) -> list[Any]:
    """Copy to tensors that fit, or to new ones."""
    parts = TORCH.split_copy(x, plan.sizes, plan.axis, out=out)
    return list(parts) if out is None else out


def ways_of_operator(x: Any, plan: Plan, out: Any) -> Ways | None:
    """Return the ways to split by the operator, or None if kernels are faster.

    None also if the operator may do anything but what `split` promises. Reading one attribute of a
    tensor takes about as long as comparing all tensors with those that were checked before.
    """
    if out is not None and type(out) is not list:
        return None
    tensors = (x,) if out is None else (x, *out)
    key = out is None, len(tensors)
    are_alike, ways = plan._kept.get(key) or (None, None)
    nested = [part for part in tensors[1:] if getattr(part, "is_nested", True)]
    if are_alike is None or nested or not are_alike(*tensors):
        ways = _checked_ways(x, plan, out)
        is_inferred = out is not None and sys.modules["torch"].is_inference_mode_enabled()
        if ways is not None and not (is_inferred or x.requires_grad or len(plan) > MOST_PARTS):
            plan._keep(key, (memory.like(tensors), ways))
    return ways if ways is not None and (out is None or _are_apart(tensors)) else None


def _checked_ways(x: Any, plan: Plan, out: list[Any] | None) -> Ways | None:
    """Return the ways of `ways_of_operator`, whatever memory the outputs have."""
    if not (TORCH.in_reach(x) and x.is_cpu):
        return None
    _, is_contiguous = key = x.dtype, x.is_contiguous()
    ways: Ways | bool | None = plan._kept.get(key)
    if ways is None:
        ways = _ways(x, plan)
        plan._keep(key, ways)
    if ways is False and x.requires_grad and sys.modules["torch"].is_grad_enabled():
        ways = _ONE_WAY  # it joins the gradients of the parts; our own backward takes longer
    if isinstance(ways, bool) or x.is_conj() or x.is_neg():  # torch reads these beyond a storage
        return None
    fits = out is None or (is_contiguous and _surely_fit(x, plan, out))
    return ways if fits else None


def _ways(x: Any, plan: Plan) -> Ways | bool:
    """Return the ways for new parts, or False if kernels are faster."""
    nbytes: int = x.nbytes
    if not _is_known(x.dtype):
        return False
    if nbytes < LARGE:
        return _ONE_WAY
    part = nbytes // len(plan)
    is_long = part >= _PART_FOR_TORCH and part >= LONG_RUN * math.prod(plan.shape[: plan.axis])
    if not (is_long and nbytes < STREAM_FROM[1] and x.is_contiguous()):
        return False
    return ways_of(len(WAYS), len(plan), nbytes.bit_length())


@functools.cache
def _is_known(dtype: Any) -> bool:
    """Return whether the operator knows a dtype."""
    with contextlib.suppress(RuntimeError):
        x = sys.modules["torch"].empty(1, dtype=dtype, device="cpu")
        return bool(TORCH.split_copy(x, [1]))
    return False


def _surely_fit(x: Any, plan: Plan, tensors: Sequence[Any]) -> bool:
    """Return whether torch may write the parts of `x` to tensors: it would resize other ones.

    All are contiguous, as `x` is, and record no gradient.
    """
    if len(tensors) != len(plan.sizes) or x.requires_grad:
        return False
    for part, shape in zip(tensors, plan.output_shapes, strict=True):
        if type(part) not in TORCH.kinds or part.shape != shape or part.dtype is not x.dtype:
            return False
        is_plain = part.is_cpu and part.is_contiguous() and not part.is_inference()
        if part.requires_grad or not is_plain:
            return False
    return True


def _are_apart(tensors: Sequence[Any]) -> bool:
    """Return whether contiguous tensors lie in their storages, and in ranges that are apart."""
    ranges, itemsize = [], tensors[0].dtype.itemsize
    for tensor in tensors:
        start, nbytes = tensor.data_ptr(), tensor.nbytes
        if tensor.untyped_storage().nbytes() < tensor.storage_offset() * itemsize + nbytes:
            return False
        ranges.append((start, start + nbytes))
    return are_ranges_apart(ranges)


# ---- new tensors ---------------------------------------------------------------------------


def empty(plan: Plan, dtype: Any) -> list[Any]:
    """Allocate arrays or tensors for the parts of a plan; see `SplitPlan.empty`."""
    if not is_dtype(dtype):
        return empty_parts(plan, dtype)
    torch = sys.modules["torch"]
    memory.look_up()
    in_reach = TORCH.in_reach(torch.empty(0, dtype=dtype, device="cpu"))
    made = new_tensors(plan, dtype) if in_reach else None
    if made is None:  # FakeTensorMode makes tensors without memory
        return [torch.empty(shape, dtype=dtype) for shape in plan.output_shapes]
    return made


def new_tensors(plan: Plan, dtype: Any) -> list[Any] | None:
    """Return new tensors over memory of splitjit, or None if NumPy has no such items."""
    array = _array_dtype(dtype)
    return None if array is None else memory.tensors_over(empty_parts(plan, array), dtype)


@functools.cache
def _array_dtype(dtype: Any) -> np.dtype | None:
    """Return the dtype of arrays over the memory of tensors of a dtype."""
    array = memory.array_of(sys.modules["torch"].empty(0, dtype=dtype, device="cpu"))
    return None if array is None else array.dtype
