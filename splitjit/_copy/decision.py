"""From an object and a plan to parts: `decide` who copies what to where, and `carry_out` that.

`explain` prints the decision. The plan keeps a `Copy` for each dtype and strides, so later calls
for plain arrays need a single lookup, and no decision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from time import perf_counter
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from splitjit._copy import slices
from splitjit._copy.buffers import address_of, release_frames, retry
from splitjit._copy.copy import LOST, NEW_SHAPES, Copy, CopyLayout, copy_of, lay_out
from splitjit._copy.outputs import check_memory, check_out
from splitjit._copy.torch_operator import split_at_once
from splitjit._inputs.adapt import memory
from splitjit._inputs.input import Input, Request
from splitjit._inputs.torch.memory import TORCH
from splitjit._plan.arguments import check_views, listed, normalize_axis
from splitjit._plan.limits import MOST_IN_MEMORY
from splitjit._plan.plan import Plan, check_shape, sizes_of
from splitjit._plan.rules import Rule
from splitjit.errors import SplitError, SplitTypeError, kind_of, reason

ArrayCopy = tuple[np.ndarray, Copy, CopyLayout | None, list[np.ndarray] | None]
"""An array to copy, and how arrays like it are copied; the compiled copy, or None if NumPy copies;
the checked arrays for the parts, or None for new ones."""


class Decision(NamedTuple):
    """How an object will be split. All checks have passed, and nothing has been written.

    Attributes
    ----------
    who : str
        ``"splitjit"`` copies `copies`; the ``"library"`` of the object slices it; or ``"nobody"``
        copies, because the parts are views.
    plan : Plan or None
        None if the library makes the parts of a shape that has symbols.
    copies : list of ArrayCopy
        The memory of the object, and the mask of a masked array.
    out : list or None
        The objects that the user gave for the parts.
    views : list or None
        The values that the library writes to `out`.
    """

    who: str
    plan: Plan | None = None
    copies: list[ArrayCopy] = []  # noqa: RUF012 - never changed
    out: Any = None
    views: list[Any] | None = None


def decide(given: Input, request: Request, out: Any, copy: Any) -> Decision:
    """Decide how to split an object; refuse arguments that do not fit."""
    array = given.array
    if copy is not True:
        check_views(out, copy)
        return Decision("nobody", None if array is None else request.plan_of(array.shape))
    if array is None:
        return _decide_for_library(given, request, out)
    plan = request.plan_of(array.shape)
    if out is None:
        sources = [array] if given.mask is None else [array, given.mask]
        return Decision("splitjit", plan, [decide_array(plan, x, None) for x in sources])
    out, pairs = given.targets(out)
    checked = [(x, check_out(plan, x, parts)) for x, parts in pairs]
    if len(checked) > 1:  # data and masks must not share memory with each other, either
        written = [part for _, parts in checked for part in parts]
        for x, _ in checked:
            check_memory(x, written, plan.axis)
    return Decision("splitjit", plan, [decide_array(plan, *each) for each in checked], out)


def _decide_for_library(given: Input, request: Request, out: Any) -> Decision:
    if out is None:
        return Decision("library")
    found = given.targets_of_library(request, out)
    if found is None:  # NumPy reads the values, or refuses
        return decide(Input(memory(given.x)), request, out, True)
    targets, views, places = found
    if places:
        *parts, x = places
        plan = request.plan_of(x.shape)
        check_out(plan, x, parts)
    return Decision("library", out=targets, views=views)


def decide_array(plan: Plan, x: np.ndarray, parts: list[np.ndarray] | None) -> ArrayCopy:
    """Decide how to copy an array to new parts, or to arrays that have passed all checks."""
    copy, layout = copy_of(plan, x), None
    if copy.switch(plan, x):
        layout = copy.layout if parts is None else lay_out(plan, x.strides, x.itemsize, parts)
    return x, copy, layout, parts


def carry_out(decision: Decision, given: Input, request: Request) -> list[Any]:
    """Split an object; return its parts, or what the user gave for them."""
    who, plan, copies, out, views = decision
    if plan is None:
        if views is None:
            return given.made_by_library(request, who == "library")
        for target, view in zip(out, views, strict=True):
            target.copy_(view)
        return list(out)
    if who == "nobody":
        return given.views(plan)
    began = perf_counter()
    made: list[list[np.ndarray]] = []
    try:
        made = [copy_array(plan, each, began) for each in copies]
        if out is None:
            return given.wrap(*made)
    except BaseException as error:
        made = []
        release_frames(error)
        raise
    given.wrote(out, made)
    return list(out)


def copy_array(plan: Plan, decided: ArrayCopy, began: float) -> list[np.ndarray]:
    """Copy an array; return new parts, or the memory of the arrays that the user gave.

    `began` is when the call began: loading kernels pays once copies by NumPy have taken so long.
    """
    x, copy, layout, parts = decided
    if parts is None:
        if layout is not None:
            # Reading a memory map may wait for a disk; the builtin function for small arrays keeps
            # the GIL.
            parts = None if isinstance(x.base, np.memmap) else copy.fresh(x)
            parts = copy.fresh_without_gil(plan, x) if parts is None else parts
        if parts is None:
            parts = retry(slices.fresh, x, plan.axis, plan.sizes)
    elif layout is None or not copy.copy_as(address_of(x), 0, layout):
        slices.into(x, plan.slices, parts)
        copy.expect_outputs(plan, x)
    if layout is None:
        copy.count(perf_counter() - began)
    return parts


def split_input(given: Input, request: Request, out: Any = None, copy: Any = True) -> list[Any]:
    """Split an adapted object."""
    array = given.array
    if array is not None and type(given) is Input and not isinstance(array.base, np.memmap):
        return split_array(request.plan_of(array.shape), array, out, copy)
    if copy is True and type(given.x) in TORCH.kinds:
        parts = split_at_once(given.x, out, request.plan_of)
        if parts is not None:
            return parts
    if array is None and not given.is_traced():  # a compiler that traces knows no `with`
        with our_refusals(given):
            return carry_out(decide(given, request, out, copy), given, request)
    return carry_out(decide(given, request, out, copy), given, request)


@contextlib.contextmanager
def our_refusals(given: Input) -> Iterator[None]:
    """Turn refusals of the library that makes the parts of an object into ours."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SplitError) or not given.refused(error):
            raise
        rule = f"{given.library} refuses: {reason(error)}"
        raise SplitTypeError.of([("x", f" of type {kind_of(given.x)}")], rule) from error


# ---- ndarrays ------------------------------------------------------------------------------


def split_array(plan: Plan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    """Split an array by a plan; see `splitjit.split` for `out` and `copy`."""
    last: Copy | None = plan._copy
    parts: list[np.ndarray] | None = None
    given: list[Any] | None = None
    try:
        if out is not None:
            given = list(out) if type(out) is list or type(out) is tuple else listed(out)
        if last is not None and copy is True:
            if given is None:
                parts = last.fresh(x)
                if parts is not None:
                    return parts
            elif last.into(x, given):
                return given
        parts = []  # a due collection runs here or, since Python 3.12, after the next call
        began = perf_counter()
        x = x.view()  # a finalizer may change the caller's array at any point, but not this one
        check_shape(plan, x.shape)
        if copy is not True:
            check_views(out, copy)
            return slices.views(x, plan.axis, plan.sizes)
        targets = None if given is None else check_out(plan, x, given)
        decided = decide_array(plan, x, targets)
        parts = copy_array(plan, decided, began)
        if decided[1] is not last:
            object.__setattr__(plan, "_copy", decided[1])  # plans are frozen
        return parts if given is None else given
    except BaseException as error:
        parts = None
        release_frames(error)
        raise


def split_new_shape(x: np.ndarray, axis: SupportsIndex, rule: Rule) -> list[np.ndarray]:
    """Split a small array of a new shape without a plan, which may never be used again."""
    began = perf_counter()
    x = x.view()  # as in `split_array`
    index = normalize_axis(axis, x.shape)
    sizes = sizes_of(x.shape, index, rule, MOST_IN_MEMORY)
    if x.nbytes and not x.dtype.hasobject:
        parts: list[np.ndarray] | None = NEW_SHAPES.fresh(x, index, x.itemsize, *sizes)
        if parts is not None:
            return parts
    parts = retry(slices.fresh, x, index, sizes)
    LOST.seconds += perf_counter() - began
    return parts
