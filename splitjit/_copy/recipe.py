"""From a plan and an array to parts.

A `Recipe` decides how arrays of one plan, dtype and strides are copied. `run` carries out the
decision, and `explain` prints it. The plan keeps its recipes, so later calls need a single lookup.

============  ===================================================================
`slices`      NumPy copies
`KernelCopy`  a compiled loop copies; builtin functions check and make the arrays
============  ===================================================================

A process starts with NumPy, and adds up the time that this takes. Once NumPy has taken as long as
loading kernels takes, recipes switch to them. So whether or not a program goes on splitting, it
loses little more than the time of the switch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from splitjit._abi.addresses import address_of
from splitjit._copy import slices
from splitjit._copy.buffers import release_frames, retry
from splitjit._copy.copy_layout import CopyLayout, lay_out
from splitjit._copy.kernel_copy import NEW_SHAPES, KernelCopy
from splitjit._copy.outputs import (
    Targets,
    are_plain_and_apart,
    check_apart,
    check_memory,
    check_out,
    check_source,
)
from splitjit._plan.arguments import check_views, most_parts, normalize_axis
from splitjit._plan.cache import keep
from splitjit._plan.plan import Plan, sizes_of
from splitjit._plan.rules import Rule
from splitjit._runtime.loading import LOADER, never_compiles
from splitjit._runtime.threads import SHARED_FROM
from splitjit.errors import SplitError

_put = object.__setattr__  # plans are frozen

_RUN = 6e-9  # extra seconds that NumPy takes per run of contiguous bytes
_ITEM = 1e-9  # the same per item of a strided source
_BYTE = 2e-10  # the same per byte, if several threads share the copy


def run(
    plan: Plan, x: np.ndarray, out: Any, copy: Any, is_mapped: bool = False
) -> list[np.ndarray]:
    """Split an array by a plan; see `splitjit.split` for `out` and `copy`.

    If `is_mapped`, `x` is a memory map. Reading it may wait for a disk, so the copy releases the
    GIL, which the builtin functions for small arrays do not.
    """
    kernel_copy: KernelCopy | None = plan._kernel_copy
    if copy is True and not is_mapped:
        if out is None:
            parts = [] if kernel_copy is None else kernel_copy.fresh(x)
            if parts:
                return parts
        elif type(out) is list or type(out) is tuple:
            given = list(out)
            if (
                _into_by_numpy(plan, x, given)
                if kernel_copy is None
                else kernel_copy.into(x, given)
            ):
                return given
            out = given
    began = perf_counter()
    x = x.view()  # a finalizer may change the caller's array at any point, but not this one
    check_shape(plan, x.shape)
    if copy is not True:
        check_views(out, copy)
        return slices.views(x, plan.axis, plan.sizes)
    try:
        recipe = recipe_of(plan, x.dtype, x.strides)
        parts = recipe.decide(plan, x, out).carry_out(plan, x, is_mapped)
        if recipe.kernel_copy is None:
            recipe.count(perf_counter() - began)
        if recipe.kernel_copy is not kernel_copy:
            _put(plan, "_kernel_copy", recipe.kernel_copy)
        return parts
    except BaseException as error:
        parts = []
        release_frames(error)
        raise


def _into_by_numpy(plan: Plan, x: np.ndarray, given: list[Any]) -> bool:
    """Copy to plain outputs by NumPy while kernels do not pay; return whether this was possible.

    Small splits that NumPy copies take a third of the time of all checks of `run`.
    """
    began = perf_counter()
    x = x.view()
    try:
        recipe: Recipe | None = plan._kept.get((x.dtype, x.strides))
    except Exception:  # as in `recipe_of`
        return False
    if recipe is None or x.shape != plan.shape or recipe.gain is None or LOADER.pays(recipe.gain):
        return False
    if not are_plain_and_apart(plan, x, given):
        return False
    slices.into(x, plan.axis, plan.sizes, given)
    LOADER.count(perf_counter() - began)
    return True


def run_once(x: np.ndarray, axis: SupportsIndex, rule: Rule) -> list[np.ndarray]:
    """Split a small array of a new shape without a plan, which may never be used again."""
    began = perf_counter()
    x = x.view()  # as in `run`
    index = normalize_axis(axis, x.shape)
    sizes = sizes_of(x.shape, index, rule, most_parts())
    if x.nbytes and not x.dtype.hasobject:
        parts = NEW_SHAPES.fresh(x, index, x.itemsize, *sizes)
        if parts:
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
        raise SplitError("split", f"x of shape {shape}", f"the plan is for shape {plan.shape}")


def recipe_of(plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> Recipe:
    """Return the recipe for arrays of a dtype and strides; cached in the plan."""
    key = dtype, strides
    try:
        recipe: Recipe | None = plan._kept.get(key)
    except Exception:  # a StringDType is hashable only if its na_object is
        recipe = None
    if recipe is None:
        recipe = Recipe(plan, dtype, strides)
        if dtype.kind != "T":  # a StringDType owns its array's text, which the plan would keep
            keep(plan._kept, key, recipe, plan._count)
    return recipe


class Decision(NamedTuple):
    """How an array will be split. All checks have passed, and nothing has been written.

    Attributes
    ----------
    kernel_copy : KernelCopy or None
        The copy by compiled code; None if NumPy copies.
    targets : Targets or None
        The arrays to write; None for new parts.
    layout : CopyLayout or None
        The layout of the compiled copy to `targets`.
    """

    kernel_copy: KernelCopy | None
    targets: Targets | None = None
    layout: CopyLayout | None = None

    def carry_out(self, plan: Plan, x: np.ndarray, is_mapped: bool = False) -> list[np.ndarray]:
        """Split `x`; return new parts, or the arrays that the user gave."""
        kernel_copy, targets, layout = self
        if targets is None:
            parts: list[np.ndarray] = []
            if kernel_copy is not None:
                parts = [] if is_mapped else kernel_copy.fresh_checked(x)
                parts = parts or kernel_copy.fresh_without_gil(plan, x)
            return parts or retry(slices.fresh, x, plan.axis, plan.sizes)
        if kernel_copy is None or layout is None or not kernel_copy.run(address_of(x), 0, layout):
            slices.into(x, plan.axis, plan.sizes, targets.parts)
        return targets.given


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
    return [recipe_of(plan, x.dtype, x.strides).decide(plan, x, out) for x, out in copies]


def forecast(x: np.ndarray, axis: int, count: int) -> float:
    """Return a lower bound of the seconds that kernels save over NumPy.

    This finds arrays for which compiled code pays at their first split.
    """
    if x.flags.c_contiguous:
        seconds = math.prod(x.shape[:axis]) * count * _RUN
    elif x.strides[-1] == x.itemsize:
        seconds = math.prod(x.shape[:-1]) * count * _RUN
    else:
        seconds = x.size * _ITEM
    return seconds + x.nbytes * _BYTE if x.nbytes >= SHARED_FROM else seconds


class Recipe:
    """How arrays of one plan, dtype and strides are copied.

    A recipe does not refer to its plan, which would keep both alive until Python collects cycles.

    Attributes
    ----------
    kernel_copy : KernelCopy or None
        The copy by compiled code, once it pays and its kernels are loaded.
    gain : float or None
        Seconds that this copy would save, see `forecast`; None if kernels cannot make it, or
        before its first split.
    """

    __slots__ = (
        "_can_compile", "_has_tried", "gain", "kernel_copy",
    )  # fmt: skip

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        # Not the dtype: equal dtypes may differ in metadata, or in the class of their items.
        self._can_compile = math.prod(plan.shape) * dtype.itemsize > 0 and not dtype.hasobject
        self.gain: float | None = None
        self.kernel_copy: KernelCopy | None = None
        self._has_tried = False  # to load kernels

    def decide(self, plan: Plan, x: np.ndarray, out: Any) -> Decision:
        """Decide how to copy `x`; refuse an `out` that does not fit or shares memory."""
        if out is None:
            return Decision(self.choose(plan, x))
        targets = check_out(plan, x.dtype, out)
        check_memory(x, targets, plan.axis)
        kernel_copy, layout = self.choose(plan, x), None
        if kernel_copy is not None:
            layout = lay_out(plan, x.strides, x.itemsize, targets.parts)
        return Decision(kernel_copy, targets, layout)

    def choose(self, plan: Plan, x: np.ndarray) -> KernelCopy | None:
        """Return the compiled copy, or None if NumPy copies; switch if that now pays."""
        if self.kernel_copy is not None or not self._can_compile:
            return self.kernel_copy
        if self.gain is None:
            self.gain = forecast(x, plan.axis, plan._count)
        if not LOADER.pays(self.gain):
            return None
        self._has_tried = True
        self.kernel_copy = KernelCopy.load(plan, x.dtype, x.strides)
        return self.kernel_copy

    def count(self, seconds: float) -> None:
        """Count a copy by NumPy."""
        if self._can_compile:
            LOADER.count(seconds)

    def why_numpy(self, x: np.ndarray) -> str:
        """Return why NumPy copies, as a key of the reasons that `explain` gives."""
        if not self._can_compile:
            return "object loop" if x.nbytes and slices.suits_object_loop(x.nbytes) else "slices"
        if never_compiles():
            return "no compiler"
        return "not loaded" if self._has_tried else "slices"
