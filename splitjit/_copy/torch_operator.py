"""Torch's own operator, ``split_with_sizes_copy``, for tensors that kernels may split no faster.

It is for small tensors, since adapting one for kernels takes longer than copying it, and for long
runs and parts: in a torch program, torch's threads are awake, and ours are not.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable
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

ONE_WAY = Ways(WAYS[:1])
"""Torch's own memory: for small tensors, or if a gradient is asked."""

_PART_FOR_TORCH = 1 << 17
"""Bytes from which on torch copies a float32 part on several threads."""

_MOST_FOR_TORCH = 4
"""Up to how many times the bytes from which on stores bypass the cache: a longer copy outlasts the
time for which torch's threads stay awake and keep our helpers from their cores."""


def split_at_once(x: Any, out: Any, plan_of: Callable[..., Plan], *of: Any) -> list[Any] | None:
    """Split a tensor by the plan ``plan_of(x.shape, *of)``, if torch's operator may be the fastest.

    Return None, and split nothing, if it is not, or if Python must check more. Adapting the tensor,
    and `Decision`, would take longer than the copy.
    """
    try:
        if TORCH.in_mode():
            return None
        plan = plan_of(x.shape, *of)
        if out is not None:
            if (targets := targets_of_operator(x, plan, out)) is not None:
                return copy(x, plan, targets)
            return None
        ways = ways_of_operator(x, plan)
        if ways is None:
            return None
        if ways is ONE_WAY or x.requires_grad:
            return copy(x, plan, None)
        if ways.skip():
            return copy(x, plan, new_tensors(plan, x.dtype) if ways.way else None)
        began, is_loaded = perf_counter(), POOL.lease is not None or _load_pool()
        way = ways.choose(began) if is_loaded else 0
        parts = copy(x, plan, new_tensors(plan, x.dtype) if way else None)
        if is_loaded:
            ways.took(way, began, perf_counter(), x.nbytes)
        else:
            LOST.seconds += perf_counter() - began
        return parts
    except RuntimeError:  # torch refuses the layout, the storage or an output, or has no memory
        return None


def _load_pool() -> bool:
    """Return whether splitjit has blocks of memory to reuse; load its core first if that pays."""
    return loading_pays(0.0) and functions_of("core") is not None and use_builtins()


def copy(x: Any, plan: Plan, targets: list[Any] | None) -> list[Any]:
    """Copy to tensors that fit, or to new ones."""
    parts = TORCH.split_copy(x, plan.sizes, plan.axis, out=targets)
    return list(parts) if targets is None else targets


# ---- what the operator splits --------------------------------------------------------------
# Comparing all tensors with those that were checked last takes as long as reading one attribute.


def ways_of_operator(x: Any, plan: Plan) -> Ways | None:
    """Return the ways to split a tensor into new ones by the operator.

    None if kernels are faster, or if the operator may do anything but what `split` promises.
    """
    ways: Ways | None
    are_alike, ways = plan._kept.get(x.dtype, (memory.unlike, None))
    if not are_alike(x):
        ways = _checked_ways(x, plan)
        if ways and not x.requires_grad and len(plan) <= MOST_PARTS:
            plan._keep(x.dtype, (memory.like((x,)), ways))
    return ways


def targets_of_operator(x: Any, plan: Plan, out: Any) -> list[Any] | None:
    """Return the tensors of `out`, if the operator may write the parts to them.

    None as for `ways_of_operator`, or if they may not fit, or share memory.
    """
    if type(out) not in (list, tuple):
        return None
    targets: list[Any] = list(out)  # nobody else changes this list
    if [1 for part in targets if getattr(part, "is_nested", True)]:
        return None
    tensors, key = (x, *targets), (len(targets), x.dtype)
    are_alike, last = plan._kept.get(key, (memory.unlike, []))
    if not are_alike(*tensors):
        if _checked_ways(x, plan) is None or not _surely_fit(x, plan, targets):
            return None
        last = [()]
        if not (len(plan) > MOST_PARTS or sys.modules["torch"].is_inference_mode_enabled()):
            plan._keep(key, (memory.like(tensors), last))
    places = [(t.data_ptr(), t.storage_offset(), t.untyped_storage().nbytes()) for t in tensors]
    if places != last[0]:
        if not _are_apart(places, [t.nbytes for t in tensors], x.dtype.itemsize):
            return None
        last[0] = places
    return targets


def _checked_ways(x: Any, plan: Plan) -> Ways | None:
    """Return the ways to split a tensor, without comparing it."""
    if not (TORCH.in_reach(x) and x.is_cpu):
        return None
    key = x.dtype, x.is_contiguous()
    ways: Ways | bool | None = plan._kept.get(key)
    if ways is None:
        ways = _ways(x, plan)
        plan._keep(key, ways)
    if ways is False and x.requires_grad and sys.modules["torch"].is_grad_enabled():
        ways = ONE_WAY  # it joins the gradients of the parts; our own backward takes longer
    if isinstance(ways, bool) or x.is_conj() or x.is_neg():  # torch reads these beyond a storage
        return None
    return ways


def _ways(x: Any, plan: Plan) -> Ways | bool:
    """Return the ways for new parts, or False if kernels are faster."""
    nbytes: int = x.nbytes
    if not _is_known(x.dtype):
        return False
    if nbytes < LARGE:
        return ONE_WAY
    part = nbytes // len(plan)
    is_long = part >= _PART_FOR_TORCH and part >= LONG_RUN * math.prod(plan.shape[: plan.axis])
    if not (is_long and nbytes < _MOST_FOR_TORCH * STREAM_FROM[1] and x.is_contiguous()):
        return False
    return ways_of(WAYS, len(plan), nbytes.bit_length())


@functools.cache
def _is_known(dtype: Any) -> bool:
    """Return whether the operator knows a dtype."""
    with contextlib.suppress(RuntimeError):
        x = sys.modules["torch"].empty(1, dtype=dtype, device="cpu")
        return bool(TORCH.split_copy(x, [1]))
    return False


def _surely_fit(x: Any, plan: Plan, tensors: list[Any]) -> bool:
    """Return whether torch may write the parts of `x` to tensors: it would resize other ones.

    All are contiguous, as `x` is, and record no gradient.
    """
    if len(tensors) != len(plan.sizes) or x.requires_grad or not x.is_contiguous():
        return False
    for part, shape in zip(tensors, plan.output_shapes, strict=True):
        if type(part) not in TORCH.kinds or part.shape != shape or part.dtype is not x.dtype:
            return False
        is_plain = part.is_cpu and part.is_contiguous() and not part.is_inference()
        if part.requires_grad or not is_plain:
            return False
    return True


def _are_apart(places: list[tuple[int, int, int]], lengths: list[int], itemsize: int) -> bool:
    """Return whether contiguous tensors lie in their storages, and in ranges that are apart.

    A place is an address, an offset in a storage, and the bytes of the storage.
    """
    pairs = list(zip(places, lengths, strict=True))
    if [1 for (_, offset, room), nbytes in pairs if room < offset * itemsize + nbytes]:
        return False
    return are_ranges_apart([(start, start + nbytes) for (start, _, _), nbytes in pairs])


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
