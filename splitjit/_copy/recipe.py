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
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from splitjit._copy import objects, threads
from splitjit._copy.addresses import address_of
from splitjit._copy.buffers import allocate_parts, empty_parts
from splitjit._copy.cores import cache_bytes
from splitjit._copy.entry import LargeCopy, SmallCopy, known_copy
from splitjit._copy.layout import CopyLayout, block_layout, fresh_layout, out_layout
from splitjit._copy.outputs import Targets, check_apart, check_out, check_source
from splitjit._kernels.table import MAX_RANK, RUN
from splitjit._plan.arguments import check_views
from splitjit._plan.cache import OBJECT_BYTES, WORD_BYTES
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError

# Measured crossovers between the routes, in bytes of all parts. Below the first, NumPy
# slices copy all arrays; below the second, arrays with fewer than `_FEW_RUNS` runs. NumPy
# copies long runs at the speed of memory, too, so kernels are faster only with several threads.
_SLICES_BELOW = 1 << 14
_SLICES_BELOW_IF_FEW_RUNS = 1 << 19
_FEW_RUNS = 1000
_FEW_ITEMS = 1 << 16  # the limit in items if the last axis of the source is strided
_OBJECTS_FROM = 1 << 19
STREAM_FROM = 15 << 20
_LONG_RUN = 1 << 9
_LARGE_CACHE = 1 << 28
_IN_LARGE_CACHE = 2.4
"""From `STREAM_FROM` bytes on, stores bypass the cache. If the L3 cache is large, ordinary stores
of long runs are faster up to so many times as many bytes. Of short runs they are not."""

_MANY_PARTS = 1 << 15
"""A plan of more parts does not keep the indices of its parts for the route by slices."""

_LAST = "last"
"""The key of the last known copy among the results that a plan keeps."""

_copy = np.ndarray.copy
_LISTS = (list, tuple)
CALLS = 10_000
"""Slices copy so many times before the code of known copies is loaded for the route. Each call
then takes 0.5 µs less, and to import Numba takes 0.4 s."""
_CALLS_OF_A_CHECK = 10
"""A call that checks given arrays counts as so many calls, because it then takes 5 µs less."""
_CALLS_OF_A_KERNEL = 50
"""A call of a kernel counts as so many calls: Numba is imported, so the code loads in 15 ms."""
_ASK_EVERY = 64
"""So many calls of a route pass before it asks again whether this code is loaded."""

_OUTPUTS_KEPT = 16
"""Sets of checked outputs that a route keeps. An inner loop uses one set, or a few in turn."""


def run(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    """Split an array by a plan; see `splitjit.split` for `out` and `copy`."""
    known: SmallCopy | LargeCopy | None = plan._kept.get(_LAST)
    if known is not None and copy is True:
        if out is None:
            if parts := known.fresh(x):
                return parts
        elif type(out) in _LISTS:
            given = list(out)
            if known.into(x, given):
                return given
            out = given
    return _run(plan, x, out, copy)


def run_all(plan: Plan, copies: Sequence[tuple[np.ndarray, Sequence[np.ndarray]]]) -> None:
    """Split several arrays into existing arrays. All checks come before anything is written.

    Parameters
    ----------
    plan : Plan
    copies : sequence of (ndarray, sequence of ndarray)
        Sources, and the arrays for their parts. No two of all these arrays share memory.
    """
    targets = [check_out(plan, x.dtype, out).parts for x, out in copies]
    written = [part for parts in targets for part in parts]
    check_apart(written)
    for x, _ in copies:
        check_source(x, written)
    for (x, _), parts in zip(copies, targets, strict=True):
        run(plan, x, parts, True)


def _run(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    check_shape(plan, x.shape)
    if copy is not True:
        return _views(plan, x, out, copy)
    try:
        route: Slices | None = plan._kept.get((x.dtype, x.strides))
    except Exception:  # a StringDType has a hash only if its na_object has one
        route = None
    route = route or route_of(plan, x.dtype, x.strides)
    if out is None:
        parts, known = route.fresh(x), route.known
    else:
        targets = check_out(plan, x.dtype, out)
        outputs = route.outputs_of(targets)
        route.into(x, targets.parts, outputs)
        parts, known = targets.given, route.known_to(outputs, x.dtype)
    if known is not None:
        plan._kept[_LAST] = known
    return parts


def route_of(plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> Slices:
    """Return the route of arrays of a dtype and strides; the plan keeps it."""
    if dtype.kind == "T":  # such a dtype owns the text of its array, which the plan would keep
        return _choose_route(plan, dtype, strides)
    return plan._keep((dtype, strides), lambda: _choose_route(plan, dtype, strides))


def _choose_route(plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> Slices:
    nbytes = math.prod(plan.shape) * dtype.itemsize
    if nbytes < _SLICES_BELOW:
        return Slices(plan, dtype, strides)
    if dtype.hasobject:
        return (Slices if nbytes < _OBJECTS_FROM else Objects)(plan, dtype, strides)
    if _suits_slices(plan, dtype.itemsize, strides, nbytes):
        return Slices(plan, dtype, strides)
    return kernels(plan, dtype, strides)


def kernels(plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> Kernels:
    """Return the route by compiled loops, for arrays of any size that hold no objects."""
    nbytes = math.prod(plan.shape) * dtype.itemsize
    return (Small if threads.is_small(nbytes) else Kernels)(plan, dtype, strides)


def _stream_from(layout: CopyLayout) -> float:
    """Return from how many bytes on the stores of a copy bypass the cache."""
    is_long = layout.rows[:, RUN].min(initial=_LONG_RUN) >= _LONG_RUN
    return STREAM_FROM * (_IN_LARGE_CACHE if is_long and cache_bytes() >= _LARGE_CACHE else 1)


def _suits_slices(plan: Plan, itemsize: int, strides: tuple[int, ...], nbytes: int) -> bool:
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


def check_shape(plan: Plan, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape than the plan's."""
    if shape != plan.shape:
        raise SplitError("split", f"x of shape {shape}", f"the plan is for shape {plan.shape}")


def _views(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    check_views(out, copy)
    slices = plan.slices if plan._count <= _MANY_PARTS else plan._each_slice()
    return [x[index] for index in slices]


def _cut(plan: Plan) -> Callable[[np.ndarray], Sequence[np.ndarray]]:
    """Return the function that makes the parts of an array as views."""
    if len(plan) > _MANY_PARTS:
        return lambda x: [x[index] for index in plan._each_slice()]
    slices: Sequence[Any] = plan.slices
    if len(slices) > 1:  # `itemgetter` indexes in C; it returns no tuple for a single index
        return operator.itemgetter(*slices)
    return lambda x: [x[index] for index in slices]


def _stack(plan: Plan, strides: tuple[int, ...], itemsize: int) -> _Stack | None:
    """Return how to copy equal parts of a contiguous array at once, or None for other parts."""
    count, axis, shape = len(plan), plan.axis, plan.shape
    if not 1 < count <= _MANY_PARTS or len(shape) == MAX_RANK or len(set(plan.sizes)) > 1:
        return None
    if not _is_contiguous(shape, strides, itemsize):
        return None
    shape = (*shape[:axis], count, plan.sizes[0], *shape[axis + 1 :])
    order = (axis, *range(axis), *range(axis + 1, len(shape)))
    return _Stack(shape, order, operator.itemgetter(*range(count)))


class _Stack(NamedTuple):
    """One array whose items are the parts.

    Attributes
    ----------
    shape : tuple of int
        The shape of the source with the axis in two: parts, and the length of a part.
    order : tuple of int
        The order of the dims in the stack.
    items : callable
        Returns the items of the stack.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    items: Callable[[np.ndarray], Sequence[np.ndarray]]


@dataclass(slots=True, eq=False)
class Outputs:
    """What a route knows of checked outputs: their addresses, and the layout of the copy.

    It refers to no array, so a route may keep it after the outputs are freed.

    Attributes
    ----------
    starts, stops : tuple of int
        The outputs lie in these ranges of addresses; see `Targets.spans`.
    contiguous : bool
        Whether all outputs are C-contiguous ndarrays.
    layout : CopyLayout or None
        None if NumPy copies.
    known : SmallCopy, LargeCopy or None
        The known copy to these outputs, made when it is first needed.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    contiguous: bool
    layout: CopyLayout | None
    known: SmallCopy | LargeCopy | None = None

    @property
    def kept_bytes(self) -> int:
        """An estimate of the bytes of these outputs and of their addresses."""
        record = self.layout.record.nbytes if self.layout else 0
        return 2 * OBJECT_BYTES + 3 * WORD_BYTES * len(self.starts) + record  # with a known copy

    def meet(self, start: int, stop: int) -> bool:
        """Return whether a range of addresses meets a range of the outputs."""
        i = bisect.bisect_right(self.stops, start)
        return i < len(self.starts) and self.starts[i] < stop


class Slices:
    """The route by NumPy's slices. The other routes use it, too, if no kernel is loaded."""

    __slots__ = (
        "bits", "calls", "cut", "known", "nbytes", "outputs", "plan", "stack", "start", "stop",
        "stream", "strides", "whole",
    )  # fmt: skip

    calls_of_a_check = _CALLS_OF_A_CHECK

    bits: np.dtype | None
    known: SmallCopy | LargeCopy | None

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        # Not the dtype: equal dtypes may differ in metadata, or in the class of their items.
        self.plan = plan
        self.strides = strides
        self.nbytes = math.prod(plan.shape) * dtype.itemsize
        # All elements lie between these byte offsets from the first element.
        steps = [(n - 1) * stride for n, stride in zip(plan.shape, strides, strict=True)]
        self.start = sum([step for step in steps if step < 0])
        self.stop = sum([step for step in steps if step > 0]) + dtype.itemsize
        has_fields = dtype.names is not None and dtype.itemsize and not dtype.hasobject
        # NumPy would copy records field by field, and lose the bits between fields.
        self.bits = np.dtype((np.void, dtype.itemsize)) if has_fields else None
        # If only dims of length 1 come before the axis, parts are contiguous in a
        # copy of the whole. Objects are copied part by part: one part would keep all alive.
        one_run = math.prod(plan.shape[: plan.axis]) == 1
        self.whole = one_run and self.bits is None and not dtype.hasobject
        self.outputs: dict[tuple[int, ...], Outputs] = {}
        self.cut = _cut(plan)
        self.stack = self._stack_of(dtype)
        self.known = None
        self.calls = 0
        self.stream = 0

    def _stack_of(self, dtype: np.dtype) -> _Stack | None:
        """Return how to copy equal parts at once, or None if parts are copied one by one."""
        if self.bits is not None or dtype.hasobject:
            return None
        return _stack(self.plan, self.strides, dtype.itemsize)

    @property
    def kept_bytes(self) -> int:
        """An estimate of the bytes of this route, without its outputs."""
        return 4 * OBJECT_BYTES + 8 * len(self.strides)  # with a known copy

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        if self.calls % _ASK_EVERY == 0:
            self.learn(x.dtype)
        self.calls += 1
        if self.known is not None:
            return self.known.fresh_checked(x)
        if self.whole:
            return list(self.cut(x.copy()))
        if self.stack is not None:
            shape, order, items = self.stack
            return list(items(x.reshape(shape).transpose(order).copy()))
        if self.bits is None:
            return list(map(_copy, self.cut(x)))
        return [part.copy().view(x.dtype) for part in self.cut(x.view(self.bits))]

    def outputs_of(self, targets: Targets) -> Outputs:
        """Refuse targets that share memory; contiguous ones are checked only at their first use."""
        if targets.addresses is None:
            return self._outputs(targets)
        outputs = self.outputs.get(targets.addresses)
        if outputs is None:
            outputs = self._outputs(targets)
            if len(self.outputs) >= _OUTPUTS_KEPT:
                self.plan._count_kept(-sum([kept.kept_bytes for kept in self.outputs.values()]))
                self.outputs.clear()
            if self.plan._may_keep(outputs.kept_bytes):
                self.outputs[targets.addresses] = outputs
        return outputs

    def into(self, x: np.ndarray, parts: list[np.ndarray], outputs: Outputs) -> None:
        """Copy `x` to given arrays; `outputs_of` has checked them."""
        source = address_of(x)
        if outputs.meet(source + self.start, source + self.stop):
            check_source(x, parts)
        self.copy(x, source, parts, 0, outputs.layout)

    def learn(self, dtype: np.dtype) -> None:
        """Prepare the known copy if its code is loaded, or pays."""
        if self.nbytes and not dtype.hasobject:
            bounds, if_loaded = (self.start, self.stop), self.calls < CALLS
            self.known = known_copy(self.plan, dtype, self.strides, bounds, self.stream, if_loaded)

    def known_to(self, outputs: Outputs, dtype: np.dtype) -> SmallCopy | LargeCopy | None:
        """Return the known copy to outputs, or None."""
        if self.known is None:
            self.calls += self.calls_of_a_check
            self.learn(dtype)
        if outputs.known is None and outputs.contiguous and self.known is not None:
            outputs.known = self.known.to(outputs.layout)
        return outputs.known

    def _outputs(self, targets: Targets) -> Outputs:
        check_apart(targets.parts)
        starts, stops = targets.spans()
        return Outputs(starts, stops, targets.addresses is not None, self._layout_to(targets))

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
        for view, part in zip(self.cut(x), parts, strict=True):
            part[...] = view


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
        if not objects.assign(parts, list(self.cut(x))):
            super().copy(x, source, parts, target, layout)


class Kernels(Slices):
    """The route by compiled loops."""

    __slots__ = ("block", "itemsize", "layout")

    calls_of_a_check = _CALLS_OF_A_KERNEL

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        super().__init__(plan, dtype, strides)
        self.itemsize = dtype.itemsize
        self.block = block_layout(plan, dtype.itemsize)
        self.layout = fresh_layout(plan, strides, dtype.itemsize)
        self.stream = int(self.nbytes >= _stream_from(self.layout))

    @property
    def kept_bytes(self) -> int:
        """An estimate of the bytes of this route, without its outputs."""
        return 2 * OBJECT_BYTES + self.layout.record.nbytes

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        if self.known is None:
            self.calls += self.calls_of_a_check
            self.learn(x.dtype)
        parts, address = allocate_parts(self.block, x.dtype)
        self.copy(x, address_of(x), parts, address, self.layout)
        return parts

    def _stack_of(self, dtype: np.dtype) -> None:
        """Return None, because a block has a layout of its own."""

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
        arguments = self.stream, target, source, layout.address
        if not threads.copy(layout.loop, self.nbytes, arguments):
            super().copy(x, source, parts, target, layout)


class Small(Kernels):
    """The route by compiled loops for arrays that one thread copies in one compiled call."""

    __slots__ = ()

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        super().__init__(plan, dtype, strides)
        self.calls = CALLS

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        if self.known is None:
            self.learn(x.dtype)
        return super().fresh(x) if self.known is None else self.known.fresh_checked(x)
