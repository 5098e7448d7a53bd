"""From a plan and an array to parts: choose a route, and copy.

========  =================================================================
views     ``copy=False``: NumPy slices, no data moved
slices    small arrays: NumPy copies each slice, or the whole array at once
objects   Python objects and StringDType: the object-mode path
kernels   all others: the compiled copy loops
========  =================================================================

`route_of` chooses a route for a plan, a dtype and strides. The plan keeps the
route. The route holds everything that these three determine: the layout of the
block, the record of the copy, the loop. So later calls need a single lookup.
"""

from __future__ import annotations

import bisect
import math
from typing import Any, NamedTuple

import numpy as np

from splitjit._core import objects, threads
from splitjit._core.arrays import Targets, address_of, check_apart, check_out, check_source
from splitjit._core.buffers import allocate_parts, empty_parts
from splitjit._core.layout import CopyLayout, block_layout, fresh_layout, out_layout
from splitjit._core.plan import SplitPlan
from splitjit._kernels.table import STREAM_STAGED, Arguments
from splitjit.errors import SplitError, SplitTypeError, describe

# Measured crossovers between the routes, in bytes of all parts. Below the first, NumPy
# slices copy all arrays; below the second, arrays with fewer than `_FEW_RUNS` runs. NumPy
# copies long runs at the speed of memory, too, so kernels are faster only with several threads.
_SLICES_BELOW = 1 << 14
_SLICES_BELOW_IF_FEW_RUNS = 1 << 19
_FEW_RUNS = 1000
_FEW_ITEMS = 1 << 16  # the limit in items if the last axis of the source is strided
_OBJECTS_FROM = 1 << 19
STREAM_FROM = 15 << 20
STREAM_STAGED_FROM = 32 << 20
"""From this size on, interleaved items are streamed even to parts whose cache lines begin at
different items. Smaller arrays are partly in a cache, and staging costs more than it gains."""

_OUTPUTS_KEPT = 16
"""Sets of checked outputs that a route keeps. An inner loop uses one set, or a few in turn."""


def run(plan: SplitPlan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    """Split an array of the plan's shape; see `splitjit.split` for `out` and `copy`."""
    if copy is not True:
        return _views(plan, x, out, copy)
    try:
        route: Slices | None = plan._kept.get((x.dtype, x.strides))
    except Exception:  # a StringDType has a hash only if its na_object has one
        route = None
    route = route or route_of(plan, x.dtype, x.strides)
    if out is None:
        return route.fresh(x)
    targets = check_out(plan, x.dtype, out)
    route.into(x, targets.parts, route.outputs_of(targets))
    return targets.given


def route_of(plan: SplitPlan, dtype: np.dtype, strides: tuple[int, ...]) -> Slices:
    """Return the route of arrays of a dtype and strides; the plan keeps it."""
    if dtype.kind == "T":  # such a dtype owns the text of its array, which the plan would keep
        return _choose_route(plan, dtype, strides)
    return plan._keep((dtype, strides), lambda: _choose_route(plan, dtype, strides))


def _choose_route(plan: SplitPlan, dtype: np.dtype, strides: tuple[int, ...]) -> Slices:
    nbytes = math.prod(plan.shape) * dtype.itemsize
    if nbytes < _SLICES_BELOW:
        return Slices(plan, dtype, strides)
    if dtype.hasobject:
        return (Slices if nbytes < _OBJECTS_FROM else Objects)(plan, dtype, strides)
    if _suits_slices(plan, dtype.itemsize, strides, nbytes):
        return Slices(plan, dtype, strides)
    return Kernels(plan, dtype, strides)


def _suits_slices(plan: SplitPlan, itemsize: int, strides: tuple[int, ...], nbytes: int) -> bool:
    if nbytes >= _SLICES_BELOW_IF_FEW_RUNS:
        return False
    axis = plan.axis
    if not _is_contiguous(plan.shape, strides, itemsize):
        if strides[-1] != itemsize and nbytes >= _FEW_ITEMS * itemsize:
            return False
        axis = -1
    return math.prod(plan.shape[:axis]) * len(plan) < _FEW_RUNS


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    step = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True


def check_views(out: Any, copy: Any) -> None:
    """Refuse a `copy` that is not a bool, and `out` together with ``copy=False``."""
    if not isinstance(copy, bool):
        raise SplitTypeError("split", describe(copy=copy), "must be a bool")
    if out is not None:
        raise SplitError("split", "copy=False and out", "views are not written to out")


def _views(plan: SplitPlan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    check_views(out, copy)
    return [x[index] for index in plan.slices]


class Outputs(NamedTuple):
    """What a route knows of checked outputs: their addresses, and the layout of the copy.

    It refers to no array, so a route may keep it after the outputs are freed.

    Attributes
    ----------
    starts, stops : tuple of int
        The outputs lie in these ranges of addresses; see `Targets.spans`.
    layout : CopyLayout or None
        None if NumPy copies.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    layout: CopyLayout | None

    def meet(self, start: int, stop: int) -> bool:
        """Return whether a range of addresses meets a range of the outputs."""
        i = bisect.bisect_right(self.stops, start)
        return i < len(self.starts) and self.starts[i] < stop


class Slices:
    """The route by NumPy's slices. The other routes use it, too, if no kernel is loaded."""

    __slots__ = ("bits", "outputs", "plan", "start", "stop", "strides", "whole")

    bits: np.dtype | None

    def __init__(self, plan: SplitPlan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        # Not the dtype: equal dtypes may differ in metadata, or in the class of their items.
        self.plan = plan
        self.strides = strides
        # All elements lie between these byte offsets from the first element.
        steps = [(n - 1) * stride for n, stride in zip(plan.shape, strides, strict=True)]
        self.start = sum([step for step in steps if step < 0])
        self.stop = sum([step for step in steps if step > 0]) + dtype.itemsize
        has_fields = dtype.names is not None and dtype.itemsize and not dtype.hasobject
        # NumPy would copy records field by field, and lose the bits between fields.
        self.bits = np.dtype((np.void, dtype.itemsize)) if has_fields else None
        # If only dims of length 1 come before the axis, parts are contiguous in a
        # copy of the whole. Objects are copied part by part: one part would keep all alive.
        self.whole = math.prod(plan.shape[: plan.axis]) == 1 and not dtype.hasobject
        self.outputs: dict[tuple[int, ...], Outputs] = {}

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        if self.bits is not None:
            return [part.view(x.dtype) for part in self._fresh(x.view(self.bits))]
        return self._fresh(x)

    def _fresh(self, x: np.ndarray) -> list[np.ndarray]:
        if self.whole:
            block = x.copy()
            return [block[index] for index in self.plan.slices]
        return [x[index].copy() for index in self.plan.slices]

    def outputs_of(self, targets: Targets) -> Outputs:
        """Refuse targets that share memory; contiguous ones are checked only at their first use."""
        if targets.addresses is None:
            return self._outputs(targets)
        outputs = self.outputs.get(targets.addresses)
        if outputs is None:
            if len(self.outputs) >= self.plan._most(_OUTPUTS_KEPT):
                self.outputs.clear()
            outputs = self.outputs[targets.addresses] = self._outputs(targets)
        return outputs

    def into(self, x: np.ndarray, parts: list[np.ndarray], outputs: Outputs) -> None:
        """Copy `x` to given arrays; `outputs_of` has checked them."""
        source = address_of(x)
        if outputs.meet(source + self.start, source + self.stop):
            check_source(x, parts)
        self.copy(x, source, parts, 0, outputs.layout)

    def _outputs(self, targets: Targets) -> Outputs:
        check_apart(targets.parts)
        return Outputs(*targets.spans(), self._layout_to(targets))

    def _layout_to(self, targets: Targets) -> CopyLayout | None:
        """Lay out the copy to the targets; NumPy needs no layout."""
        return None

    def copy(
        self,
        x: np.ndarray,
        source: int,
        parts: list[np.ndarray],
        target: int,
        layout: CopyLayout | None,
    ) -> None:
        """Copy `x`, whose address is `source`, to the parts.

        The target offsets of the layout count from the address `target`.
        """
        if self.bits is not None:
            x, parts = x.view(self.bits), [part.view(self.bits) for part in parts]
        for index, part in zip(self.plan.slices, parts, strict=True):
            part[...] = x[index]


class Objects(Slices):
    """The route of Python objects and StringDType, whose references must be counted."""

    __slots__ = ()

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        parts = empty_parts(self.plan, x.dtype)
        self.copy(x, 0, parts, 0, None)
        return parts

    def copy(
        self,
        x: np.ndarray,
        source: int,
        parts: list[np.ndarray],
        target: int,
        layout: CopyLayout | None,
    ) -> None:
        """Copy `x` by the object-mode loop."""
        if not objects.assign(parts, [x[index] for index in self.plan.slices]):
            super().copy(x, source, parts, target, layout)


class Kernels(Slices):
    """The route by compiled loops."""

    __slots__ = ("block", "itemsize", "layout", "nbytes", "stream")

    def __init__(self, plan: SplitPlan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        super().__init__(plan, dtype, strides)
        self.itemsize = dtype.itemsize
        self.nbytes = math.prod(plan.shape) * dtype.itemsize
        self.stream = int(self.nbytes >= STREAM_FROM)
        if self.nbytes >= max(STREAM_FROM, STREAM_STAGED_FROM):
            self.stream = STREAM_STAGED
        self.block = block_layout(plan, dtype.itemsize)
        self.layout = fresh_layout(plan, strides, dtype.itemsize)

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        parts, address = allocate_parts(self.block, x.dtype)
        self.copy(x, address_of(x), parts, address, self.layout)
        return parts

    def _layout_to(self, targets: Targets) -> CopyLayout:
        return out_layout(self.plan, self.strides, self.itemsize, targets)

    def copy(
        self,
        x: np.ndarray,
        source: int,
        parts: list[np.ndarray],
        target: int,
        layout: CopyLayout | None,
    ) -> None:
        """Copy `x` by the loop of the layout."""
        assert layout is not None
        arguments = Arguments(self.stream, target, source, layout.address)
        if not threads.copy(layout.loop, self.nbytes, arguments):
            super().copy(x, source, parts, target, layout)
