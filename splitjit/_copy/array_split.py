"""From a plan and an array to parts: `decide` how, and `carry_out` the decision.

`explain` prints the decision. The plan keeps a `Copy` for each dtype and strides, so later calls
need a single lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from splitjit._abi.addresses import address_of
from splitjit._copy import slices
from splitjit._copy.buffers import release_frames, retry
from splitjit._copy.copy import NEW_SHAPES, Copy, copy_of
from splitjit._copy.copy_layout import CopyLayout, lay_out
from splitjit._copy.outputs import (
    Targets,
    check_apart,
    check_memory,
    check_out,
    check_source,
)
from splitjit._plan.arguments import check_views, normalize_axis
from splitjit._plan.limits import most_parts
from splitjit._plan.plan import Plan, sizes_of
from splitjit._plan.rules import Rule
from splitjit._runtime.loading import LOADER
from splitjit.errors import SplitError

_put = object.__setattr__  # plans are frozen


def split_array(
    plan: Plan, x: np.ndarray, out: Any, copy: Any, is_mapped: bool = False
) -> list[np.ndarray]:
    """Split an array by a plan; see `splitjit.split` for `out` and `copy`.

    If `is_mapped`, `x` is a memory map. Reading it may wait for a disk, so the copy releases the
    GIL, which the builtin functions for small arrays do not.
    """
    last: Copy | None = plan._copy
    if last is not None and copy is True and not is_mapped:
        if out is None:
            parts: list[np.ndarray] | None = last.fresh(x)
            if parts is not None:
                return parts
        elif type(out) is list or type(out) is tuple:
            given = out = list(out)
            if last.into(x, given):
                return given
    began = perf_counter()
    made: list[np.ndarray] = []  # a collection that is due starts here, not after the checks
    x = x.view()  # a finalizer may change the caller's array at any point, but not this one
    check_shape(plan, x.shape)
    if copy is not True:
        check_views(out, copy)
        return slices.views(x, plan.axis, plan.sizes)
    try:
        decision = decide(plan, x, out)
        made = decision.carry_out(plan, x, is_mapped)
        if not decision.is_compiled:
            decision.copy.count(perf_counter() - began)
        if decision.copy is not last:
            _put(plan, "_copy", decision.copy)
        return made
    except BaseException as error:
        made = []
        release_frames(error)
        raise


def split_new_shape(x: np.ndarray, axis: SupportsIndex, rule: Rule) -> list[np.ndarray]:
    """Split a small array of a new shape without a plan, which may never be used again."""
    began = perf_counter()
    x = x.view()  # as in `split_array`
    index = normalize_axis(axis, x.shape)
    sizes = sizes_of(x.shape, index, rule, most_parts())
    if x.nbytes and not x.dtype.hasobject:
        parts = NEW_SHAPES.fresh(x, index, x.itemsize, *sizes)
        if parts is not None:
            return parts
    try:
        parts = retry(slices.fresh, x, index, sizes)
        LOADER.count(perf_counter() - began)
        return parts
    except BaseException as error:
        release_frames(error)
        raise


def check_shape(plan: Plan, shape: tuple[int, ...]) -> None:
    """Refuse an array whose shape is not the plan's."""
    if shape != plan.shape:
        received = [("x", f" of shape {shape}")]
        raise SplitError.of(received, f"the plan is for shape {plan.shape}")


class Decision(NamedTuple):
    """How an array will be split. All checks have passed, and nothing has been written.

    Attributes
    ----------
    copy : Copy
    is_compiled : bool
        Whether kernels copy, and not NumPy.
    targets : Targets or None
        The arrays to write; None for new parts.
    layout : CopyLayout or None
        The layout of the compiled copy to `targets`.
    """

    copy: Copy
    is_compiled: bool
    targets: Targets | None = None
    layout: CopyLayout | None = None

    def carry_out(self, plan: Plan, x: np.ndarray, is_mapped: bool = False) -> list[np.ndarray]:
        """Split `x`; return new parts, or the arrays that the user gave."""
        copy, is_compiled, targets, layout = self
        if targets is None:
            parts: list[np.ndarray] | None = None
            if is_compiled:
                parts = None if is_mapped else copy.fresh_checked(x)
                parts = copy.fresh_without_gil(plan, x) if parts is None else parts
            return retry(slices.fresh, x, plan.axis, plan.sizes) if parts is None else parts
        if layout is None or not copy.run(address_of(x), 0, layout):
            slices.into(x, plan.axis, plan.sizes, targets.parts)
        return targets.given


def decide(plan: Plan, x: np.ndarray, out: Any) -> Decision:
    """Decide how to copy `x`; refuse an `out` that does not fit or shares memory."""
    copy = copy_of(plan, x)
    if out is None:
        return Decision(copy, copy.switch(plan, x))
    targets = check_out(plan, x.dtype, out)
    check_memory(x, targets, plan.axis)
    layout = None
    if copy.switch(plan, x):
        layout = lay_out(plan, x.strides, x.itemsize, targets.parts)
    return Decision(copy, copy.layout is not None, targets, layout)


def decide_all(
    plan: Plan, copies: Sequence[tuple[np.ndarray, Sequence[np.ndarray] | None]]
) -> list[Decision]:
    """Decide how to split several arrays.

    Parameters
    ----------
    plan : Plan
    copies : sequence of (ndarray, sequence of ndarray or None)
        Sources, and the arrays for their parts, which may share memory with no other array.
    """
    given = [(x, out) for x, out in copies if out is not None]
    if len(given) > 1:
        written = [part for x, out in given for part in check_out(plan, x.dtype, out).parts]
        check_apart(written, plan.axis)
        for x, _ in copies:
            check_source(x, written)
    return [decide(plan, x, out) for x, out in copies]
