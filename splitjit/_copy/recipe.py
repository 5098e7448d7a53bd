"""From a plan and an array to parts.

A `Recipe` is how arrays of one plan, dtype and strides are copied. The plan keeps its recipes,
so later calls need a single lookup. A recipe copies in one of three ways:

=============  ==============================================================================
`Entry`        one compiled call checks the array, makes the parts, and copies if it is small
`Loops`        Python checks and allocates, and a compiled loop copies
`Slices`       NumPy copies
=============  ==============================================================================

The first copy of a recipe, and each 64th after it, asks for the compiled entry, and takes it if
its code is loaded; from the 64th copy on the code is loaded if Numba is, and from the
10 000th copy on in any case. `crossovers` chooses between the other two ways.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splitjit._copy import loading
from splitjit._copy.addresses import address_of
from splitjit._copy.buffers import allocate_parts
from splitjit._copy.crossovers import suits_numpy
from splitjit._copy.entry import Entry, entry_of
from splitjit._copy.layout import CopyLayout, strided_layout
from splitjit._copy.loops import Loops
from splitjit._copy.outputs import Targets, check_apart, check_out, check_source
from splitjit._copy.slices import Slices
from splitjit._plan.arguments import check_views
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError

_ASK_EVERY = 64
_IMPORT_FROM = 10_000
"""An entry saves 0.5 µs a copy of fresh parts, and 5 µs if arrays are given. To import Numba takes
0.4 s."""


def run(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    """Split an array by a plan; see `splitjit.split` for `out` and `copy`."""
    entry: Entry | None = plan._entry
    if entry is not None and copy is True:
        if out is None:
            parts = entry.fresh(x)
            if parts:
                return parts
        elif type(out) is list or type(out) is tuple:
            given = list(out)
            if entry.into(x, given):
                return given
            out = given
    check_shape(plan, x.shape)
    if copy is not True:
        return _views(plan, x, out, copy)
    recipe = recipe_of(plan, x.dtype, x.strides)
    parts = recipe.fresh(x) if out is None else recipe.into(x, out)
    if recipe.entry is not None:
        object.__setattr__(plan, "_entry", recipe.entry)  # plans are frozen
    return parts


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


def check_shape(plan: Plan, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape than the plan's."""
    if shape != plan.shape:
        raise SplitError("split", f"x of shape {shape}", f"the plan is for shape {plan.shape}")


def _views(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    check_views(out, copy)
    return [x[index] for index in plan._each_slice()]


def recipe_of(plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> Recipe:
    """Return the recipe for arrays of a dtype and strides; the plan keeps it."""
    try:
        recipe: Recipe | None = plan._kept.get((dtype, strides))
    except Exception:  # a StringDType has a hash only if its na_object has one
        recipe = None
    if recipe is None:
        recipe = Recipe(plan, dtype, strides)
        if dtype.kind != "T":  # such a dtype owns the text of its array, which the plan would keep
            keep(plan._kept, (dtype, strides), recipe, plan._count)
    return recipe


def strategy(plan: Plan, x: np.ndarray, given: bool, contiguous: bool) -> str:
    """Return how `run` would copy an array now.

    Parameters
    ----------
    plan : Plan
    x : ndarray
        An array of the shape of the plan.
    given : bool
        Whether the parts are given arrays.
    contiguous : bool
        Whether all parts are C-contiguous.

    Returns
    -------
    str
        ``"entry"``, ``"loops"``, ``"slices"`` or ``"object loop"``.
    """
    recipe = recipe_of(plan, x.dtype, x.strides)
    enters = plan._entry is recipe.entry is not None if given else recipe.enters(x.dtype)
    if enters and contiguous:
        return "entry"
    return "loops" if recipe.loops is not None else recipe.slices.strategy


class Outputs(NamedTuple):
    """What a recipe knows of checked outputs: their addresses, and the layout of the copy.

    It refers to no array, so a recipe may keep it after the outputs are freed.

    Attributes
    ----------
    starts, stops : tuple of int
        The outputs lie in these ranges of addresses; see `check_apart`.
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


class Recipe:
    """How arrays of one plan, dtype and strides are copied.

    Attributes
    ----------
    slices : Slices
        The copy by NumPy.
    loops : Loops or None
        The copy by a compiled loop, if it copies faster than NumPy.
    entry : Entry or None
        The copy by one compiled call, if its code is loaded.
    """

    __slots__ = (
        "_calls", "_has_loops", "_itemsize", "_outputs", "_plan", "_start", "_stop", "_strides",
        "entry", "loops", "slices",
    )  # fmt: skip

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        # Not the dtype: equal dtypes may differ in metadata, or in the class of their items.
        self._plan, self._strides, self._itemsize = plan, strides, dtype.itemsize
        # All elements lie between these byte offsets from the first element.
        steps = [(n - 1) * stride for n, stride in zip(plan.shape, strides, strict=True)]
        self._start = sum([step for step in steps if step < 0])
        self._stop = sum([step for step in steps if step > 0]) + dtype.itemsize
        nbytes = math.prod(plan.shape) * dtype.itemsize
        self._has_loops = nbytes > 0 and not dtype.hasobject
        self.slices = Slices(plan, dtype, strides)
        self.loops: Loops | None = None
        if self._has_loops and not suits_numpy(plan, dtype.itemsize, strides, nbytes):
            self.loops = Loops(plan, dtype.itemsize, strides)
        self.entry: Entry | None = None
        self._outputs: dict[tuple[int, ...], Outputs] = {}
        self._calls = 0

    def fresh(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts."""
        entry = self.entry or self._ask(x.dtype)
        if entry is not None:
            parts = entry.fresh_checked(x)
            if parts:
                return parts
        if self.loops is None:
            return self.slices.fresh(x)
        parts, address = allocate_parts(self.loops.block, x.dtype)
        if not self.loops.copy(address_of(x), address, self.loops.layout):
            self.slices.into(x, parts)
        return parts

    def into(self, x: np.ndarray, out: Any) -> list[np.ndarray]:
        """Copy `x` to the arrays of `out`; refuse an `out` that does not fit."""
        targets = check_out(self._plan, x.dtype, out)
        self.copy(x, targets, self.to(targets))
        if self.entry is None:
            self._ask(x.dtype)
        return targets.given

    def to(self, targets: Targets) -> Outputs:
        """Refuse targets that share memory; contiguous ones are checked only at their first use."""
        if targets.addresses is None:
            return self._checked(targets)
        outputs = self._outputs.get(targets.addresses)
        if outputs is None:
            outputs = self._checked(targets)
            keep(self._outputs, targets.addresses, outputs, self._plan._count)
        return outputs

    def copy(self, x: np.ndarray, targets: Targets, outputs: Outputs) -> None:
        """Copy `x` to targets that `to` has checked; refuse an `x` that shares their memory."""
        source = address_of(x)
        if outputs.meet(source + self._start, source + self._stop):
            check_source(x, targets.parts)
        loops, layout = self.loops, outputs.layout
        if loops is None or layout is None or not loops.copy(source, 0, layout):
            self.slices.into(x, targets.parts)

    def compile(self, dtype: np.dtype) -> Entry | None:
        """Copy arrays of any size by compiled code from now on; return the entry."""
        if self.loops is None and self._has_loops:
            self._outputs.clear()  # they have no layout
            self.loops = Loops(self._plan, self._itemsize, self._strides)
        if self.entry is None:
            self._set_entry(dtype, if_loaded=False)
        return self.entry

    def enters(self, dtype: np.dtype) -> bool:
        """Return whether the next copy to fresh parts takes the entry. Nothing is loaded here."""
        if self.entry is None and self._calls % _ASK_EVERY == 0:
            self._set_entry(dtype, if_loaded=True)
        return self.entry is not None

    def _ask(self, dtype: np.dtype) -> Entry | None:
        """Return the entry if its code is loaded, or if it pays to load the code now."""
        if self._calls % _ASK_EVERY == 0:
            pays = self._calls >= _IMPORT_FROM or (self._calls > 0 and loading.has_loaded())
            self._set_entry(dtype, if_loaded=not pays)
        self._calls += 1
        return self.entry

    def _set_entry(self, dtype: np.dtype, if_loaded: bool) -> None:
        if self._has_loops:
            bounds = self._start, self._stop
            self.entry = entry_of(
                self._plan, dtype, self._strides, bounds, self.loops, if_loaded=if_loaded
            )

    def _checked(self, targets: Targets) -> Outputs:
        return Outputs(*check_apart(targets.parts), self._layout_to(targets))

    def _layout_to(self, targets: Targets) -> CopyLayout | None:
        if self.loops is None:
            return None
        if targets.addresses is not None:
            return self.loops.layout.to(self._plan, targets.addresses)
        return strided_layout(self._plan, self._strides, self._itemsize, targets.parts)
