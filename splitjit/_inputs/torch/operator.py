"""Torch's own operator, ``split_with_sizes_copy``, for tensors that kernels may split no faster.

It is for small tensors, since adapting one for kernels takes longer than copying it, and for long
runs: in a torch program, torch's threads are awake, and ours are not. Kernels are for tensors with
short runs, strided and transposed ones.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from typing import Any

from splitjit._abi.thresholds import LONG_RUN, THRESHOLDS
from splitjit._inputs.arrays import do_ranges_meet
from splitjit._inputs.torch.memory import TORCH
from splitjit._plan.plan import Plan


def suits_operator(x: Any, plan: Plan) -> bool:
    """Return whether the operator splits a tensor that kernels could reach.

    False if kernels are faster, or if the operator may do anything but what `split` promises.
    """
    if not x.is_cpu or x.is_conj() or x.is_neg() or not _is_known(x.dtype):
        return False  # torch reads lazy values beyond a storage
    if x.requires_grad and sys.modules["torch"].is_grad_enabled():
        return True  # it joins the gradients of the parts; our own backward takes longer
    nbytes: int = x.nbytes
    if nbytes < THRESHOLDS.large:
        return True
    runs = len(plan) * math.prod(plan.shape[: plan.axis])
    return nbytes >= LONG_RUN * runs and bool(x.is_contiguous())


def suits_join(tensors: list[Any], plan: Plan) -> bool:
    """Return whether ``torch.cat`` joins tensors, by the rule of `suits_operator`."""
    nbytes = sum([int(x.nbytes) for x in tensors])
    if nbytes < THRESHOLDS.large:
        return True
    runs = len(plan) * math.prod(plan.shape[: plan.axis])
    return nbytes >= LONG_RUN * runs and all(x.is_contiguous() for x in tensors)


def surely_fit(x: Any, plan: Plan, tensors: list[Any]) -> bool:
    """Return whether torch may write the parts of `x` to tensors.

    Torch itself would resize those of other shapes, write to those that record a gradient, and look
    neither at shared memory nor at the bounds of a storage. All are contiguous, as `x` is.
    """
    if x.requires_grad or not x.is_contiguous() or len(tensors) != len(plan.sizes):
        return False
    kinds, dtype, itemsize, start = TORCH.kinds, x.dtype, x.itemsize, x.data_ptr()
    ranges, is_complex = [(start, start + x.nbytes)], dtype.is_complex
    try:  # in the order in which most tensors fail; each attribute takes about 0.1 us
        for t, shape in zip(tensors, plan.output_shapes, strict=True):
            if type(t) not in kinds or t.shape != shape or t.dtype is not dtype or not t.is_cpu:
                return False
            if t.requires_grad or not t.is_contiguous() or t.is_neg():
                return False
            if is_complex and t.is_conj():
                return False
            t._version  # noqa: B018 - tensors of inference mode have none
            nbytes, start = t.nbytes, t.data_ptr()
            if t.storage_offset() * itemsize + nbytes > t.untyped_storage().nbytes():
                return False
            ranges.append((start, start + nbytes))
    except RuntimeError:  # nested and sparse tensors lack a shape or a storage
        return False
    return not do_ranges_meet(ranges)


@functools.cache
def _is_known(dtype: Any) -> bool:
    """Return whether the operator knows a dtype."""
    with contextlib.suppress(RuntimeError):
        x = sys.modules["torch"].empty(1, dtype=dtype, device="cpu")
        return bool(TORCH.split_copy(x, [1]))
    return False
