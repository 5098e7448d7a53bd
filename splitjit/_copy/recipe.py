"""From a plan and an array to parts.

A `Recipe` knows how to copy arrays of one plan, dtype and strides. The plan caches its recipes,
so later calls need a single lookup. A recipe copies in one of two ways:

============  ===================================================================
`Slices`      NumPy copies
`Compiled`    a compiled loop copies; builtin functions check and make the arrays
============  ===================================================================

A recipe starts with NumPy. It adds up the time that compiled copies would have saved
(`crossovers`), and switches to compiled code once that exceeds the cost of switching.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjit._copy.addresses import address_of, offsets_of
from splitjit._copy.compiled import Compiled
from splitjit._copy.crossovers import gains
from splitjit._copy.layout import CopyLayout, strided_layout
from splitjit._copy.loading import LOADER
from splitjit._copy.outputs import (
    Targets,
    addresses_of,
    check_apart,
    check_out,
    check_source,
)
from splitjit._copy.slices import Slices
from splitjit._plan.arguments import check_views
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError

_SECONDS = 5e-5
"""Seconds to lay out a copy and make its builtin functions."""


def run(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    """Split an array by a plan; see `splitjit.split` for `out` and `copy`."""
    compiled: Compiled | None = plan._compiled
    if compiled is not None and copy is True:
        if out is None:
            parts = compiled.fresh(x)
            if parts:
                return parts
        elif type(out) is list or type(out) is tuple:
            given = list(out)
            if compiled.into(x, given):
                return given
            out = given
    if copy is not True:
        return _views(plan, x, out, copy)
    x = x.view()  # a finalizer may change the caller's array at any point, but not this one
    check_shape(plan, x.shape)
    recipe = recipe_of(plan, x.dtype, x.strides)
    parts = recipe.fresh(x) if out is None else recipe.into(x, out)
    if recipe.compiled is not compiled:
        object.__setattr__(plan, "_compiled", recipe.compiled)  # plans are frozen
    return parts


def run_all(plan: Plan, copies: Sequence[tuple[np.ndarray, Sequence[np.ndarray]]]) -> None:
    """Split several arrays into existing arrays. Nothing is written before all checks pass.

    Parameters
    ----------
    plan : Plan
    copies : sequence of (ndarray, sequence of ndarray)
        Sources, and the arrays for their parts, which may share memory with no other array.
    """
    targets = [check_out(plan, x.dtype, out).parts for x, out in copies]
    written = [part for parts in targets for part in parts]
    check_apart(written)
    for x, _ in copies:
        check_source(x, written)
    for (x, _), parts in zip(copies, targets, strict=True):
        run(plan, x, parts, True)


def check_shape(plan: Plan, shape: tuple[int, ...]) -> None:
    """Refuse an array whose shape is not the plan's."""
    if shape != plan.shape:
        raise SplitError("split", f"x of shape {shape}", f"the plan is for shape {plan.shape}")


def _views(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    check_shape(plan, x.shape)
    check_views(out, copy)
    return [x[index] for index in plan._each_slice()]


def recipe_of(plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> Recipe:
    """Return the recipe for arrays of a dtype and strides; cached in the plan."""
    try:
        recipe: Recipe | None = plan._kept.get((dtype, strides))
    except Exception:  # a StringDType is hashable only if its na_object is
        recipe = None
    if recipe is None:
        recipe = Recipe(plan, dtype, strides)
        if dtype.kind != "T":  # a StringDType owns its array's text, which the plan would keep
            keep(plan._kept, (dtype, strides), recipe, plan._count)
    return recipe


class Outputs(NamedTuple):
    """What a recipe remembers of checked outputs: their addresses, and the layout of the copy.

    This refers to no array, so a recipe may keep it after the outputs are freed.

    Attributes
    ----------
    starts, stops : tuple of int
        The address ranges of the outputs; see `check_apart`.
    layout : CopyLayout or None
        None if NumPy copies.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    layout: CopyLayout | None

    def meet(self, start: int, stop: int) -> bool:
        """Return whether an address range overlaps a range of the outputs."""
        i = bisect.bisect_right(self.stops, start)
        return i < len(self.starts) and self.starts[i] < stop


class Recipe:
    """How arrays of one plan, dtype and strides are copied.

    Attributes
    ----------
    slices : Slices
        The copy by NumPy.
    compiled : Compiled or None
        The copy by compiled code, once it pays and its kernels are loaded.
    """

    __slots__ = (
        "_candidate", "_gains", "_itemsize", "_lost", "_outputs", "_plan", "_start", "_stop",
        "_strides", "compiled", "slices",
    )  # fmt: skip

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        # Not the dtype: equal dtypes may differ in metadata, or in the class of their items.
        self._plan, self._strides, self._itemsize = plan, strides, dtype.itemsize
        self._start, self._stop = offsets_of(plan.shape, strides, dtype.itemsize)
        self.slices = Slices(plan, dtype, strides)
        self.compiled: Compiled | None = None
        self._candidate: Compiled | None = None
        self._gains = (0.0, 0.0)
        if math.prod(plan.shape) * dtype.itemsize and not dtype.hasobject:
            self._gains = gains(plan, dtype.itemsize, strides)
        self._lost = 0.0
        self._outputs: dict[tuple[Any, ...], Outputs] = {}

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        if self.compiled is not None or self.pays(x.dtype, given=False):
            parts = self.compiled.fresh_checked(x)  # type: ignore[union-attr]
            if parts:
                return parts
        return self.slices.fresh(x)

    def into(self, x: np.ndarray, out: Any) -> list[np.ndarray]:
        """Copy `x` to the arrays of `out`; refuse an `out` that does not fit."""
        if self.compiled is None:
            self.pays(x.dtype, given=True)
        if type(out) is list:  # in a loop, usually the outputs of an earlier call
            given = out.copy()
            addresses = addresses_of(self._plan, x.dtype, given)
            outputs = self._outputs.get(addresses) if addresses else None
            if outputs is not None:
                self.copy(x, given, outputs)
                return given
            out = given
        targets = check_out(self._plan, x.dtype, out)
        self.copy(x, targets.parts, self.to(targets))
        return targets.given

    def to(self, targets: Targets) -> Outputs:
        """Refuse targets that share memory; they are checked only on first use."""
        key = targets.addresses if targets.strides is None else (targets.addresses, targets.strides)
        outputs = self._outputs.get(key)
        if outputs is None:
            outputs = Outputs(*check_apart(targets.parts), self._layout_to(targets))
            keep(self._outputs, key, outputs, self._plan._count)
        return outputs

    def copy(self, x: np.ndarray, parts: list[np.ndarray], outputs: Outputs) -> None:
        """Copy `x` to parts that `to` has checked; refuse an `x` that shares their memory."""
        source = address_of(x)
        if outputs.meet(source + self._start, source + self._stop):
            check_source(x, parts)
        compiled, layout = self.compiled, outputs.layout
        if compiled is None or layout is None or not compiled.copy(source, 0, layout):
            self.slices.into(x, parts)

    def pays(self, dtype: np.dtype, *, given: bool) -> bool:
        """Count a copy by NumPy; switch to compiled code if that now pays. Return whether it did.

        Parameters
        ----------
        dtype : dtype
            The dtype of all arrays.
        given : bool
            Whether the parts are given arrays.
        """
        gain = self._gains[given]
        self._lost += gain
        if not gain or self._lost < _SECONDS or not LOADER.pays(gain):
            return False
        # Other threads may replace `self._candidate` meanwhile, so this one loads a local.
        candidate = self._candidate or Compiled(self._plan, dtype, self._strides)
        self._candidate = candidate
        if candidate.load(self._plan, dtype, self._strides):
            self.compiled, self._candidate = candidate, None
            self._outputs.clear()  # they have no layout
        return self.compiled is not None

    def compiles(self, given: bool) -> bool:
        """Return whether the next copy will be compiled, if no other thread is loading kernels."""
        gain = self._gains[given]
        would = gain > 0 and self._lost + gain >= _SECONDS and LOADER.would_pay(gain)
        return self.compiled is not None or would

    def _layout_to(self, targets: Targets) -> CopyLayout | None:
        if self.compiled is None:
            return None
        if targets.strides is None:
            return self.compiled.layout.to(self._plan, targets.addresses)
        return strided_layout(self._plan, self._strides, self._itemsize, targets.parts)
