"""Split adapted objects, by kernels or by the library that owns them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from splitjit._copy import array_split
from splitjit._copy.buffers import release_frames
from splitjit._copy.outputs import check_apart, check_memory, check_out
from splitjit._inputs.input import Copies, Input, Request
from splitjit._inputs.owners import memory
from splitjit._inputs.torch.foreign import is_planned
from splitjit._inputs.torch.memory import places_of
from splitjit._inputs.torch.tensors import (
    Tensor,
    check_shapes,
    is_compiling,
    is_tensor,
    out_arrays,
    tensor_input,
)
from splitjit._plan.arguments import check_views
from splitjit._plan.plan import Plan
from splitjit._plan.rules import LENGTHS
from splitjit.errors import SplitError, SplitTypeError, kind_of, reason


def by_plan(plan: Plan) -> Request:
    """Return the request of a call to a plan, which refuses any other shape."""

    def plan_of(shape: tuple[int, ...]) -> Plan:
        array_split.check_shape(plan, shape)
        return plan

    return Request(plan.axis, (LENGTHS, plan.sizes), plan_of, plan)


class Decision(NamedTuple):
    """How an adapted object will be split. All checks have passed, and nothing has been written.

    Attributes
    ----------
    given : Input
    strategy : str
        ``"copies"``, ``"views"``, or ``"library"`` if the object's own library makes the parts.
    plan : Plan or None
        None if the library splits shapes that have symbols.
    copies : list
        The arrays that kernels split, each with the arrays for its parts, or None for new ones.
    targets : list or None
        The objects that the user gave for the parts.
    views : list or None
        The values that the library writes to `targets`.
    """

    given: Input
    strategy: str
    plan: Plan | None = None
    copies: Copies = []  # noqa: RUF012 - never changed
    targets: list[Any] | None = None
    views: list[Any] | None = None


def split_input(given: Input, request: Request, out: Any = None, copy: Any = True) -> list[Any]:
    """Split an object that is neither a plain ndarray nor a Dask array."""
    array = given.array
    if array is not None and type(given) is Input:
        is_mapped = isinstance(array.base, np.memmap)
        return array_split.split_array(request.plan_of(array.shape), array, out, copy, is_mapped)
    # Outside of a `try`, because torch.compile cannot trace it.
    if array is None and not (isinstance(given, Tensor) and is_compiling()):
        with our_refusals(given):
            return _carry_out(decide(given, request, out, copy), request)
    return _carry_out(decide(given, request, out, copy), request)


def decide(given: Input, request: Request, out: Any, copy: Any) -> Decision:
    """Decide how to split an adapted object; refuse arguments that do not fit."""
    array = given.array
    if array is None:
        return _decide_by_library(given, request, out, copy)
    plan = request.plan_of(array.shape)
    if copy is not True:
        check_views(out, copy)
        return Decision(given, "views", plan)
    if out is not None:
        targets, copies = given.targets(out)
        return Decision(given, "copies", plan, copies, targets)
    copies = [(array, None)] if given.mask is None else [(array, None), (given.mask, None)]
    return Decision(given, "copies", plan, copies)


def _carry_out(decision: Decision, request: Request) -> list[Any]:
    given, strategy, plan, copies, targets, views = decision
    if plan is None:
        if targets is None or views is None:
            return given.made_by_library(request, strategy == "library")
        for target, view in zip(targets, views, strict=True):
            target.copy_(view)
        return targets
    if strategy == "views":
        return given.views(plan)
    if targets is None:
        made: list[Any] = []
        try:
            made = [array_split.split_array(plan, x, None, True) for x, _ in copies]
            return given.wrap(made[0], made[1] if len(made) > 1 else None)
        except BaseException as error:
            made = []
            release_frames(error)
            raise
    if len(copies) > 1:
        array_split.decide_all(plan, copies)  # nothing is written before all checks pass
    for x, parts in copies:
        array_split.split_array(plan, x, parts, True)
    given.wrote(targets, copies)
    return targets


def _decide_by_library(given: Input, request: Request, out: Any, copy: Any) -> Decision:
    if copy is not True:
        check_views(out, copy)
        return Decision(given, "views")
    if out is None:
        return Decision(given, "library")
    if not isinstance(given, Tensor):  # NumPy reads the values, or refuses
        return decide(Input(memory(given.x)), request, out, True)
    views = given.made_by_library(request, False)
    targets = given.targets_of_torch(out)
    if is_planned(given.shape):
        *places, x = places_of([*targets, given.x])
        plan = request.plan_of(x.shape)
        check_memory(x, check_out(plan, x.dtype, places), plan.axis)
    else:
        check_shapes(targets, views)
    return Decision(given, "library", None, [], targets, views)


def check_bound(plan: Plan, out: Any) -> None:
    """Refuse outputs to which the parts of no array can be written."""
    first: Any = out[0] if type(out) is list and out else None
    if is_tensor(first):
        if tensor_input(first).array is None:
            return  # torch writes to it, and each call checks it
        out = out_arrays(out, first.dtype)[1]
        first = out[0]
    is_array = issubclass(type(first), np.ndarray)
    dtype = np.asarray(first).dtype if is_array else np.dtype(np.uint8)
    check_apart(check_out(plan, dtype, out).parts, plan.axis)


@contextlib.contextmanager
def our_refusals(given: Input) -> Iterator[None]:
    """Turn refusals of the library of an object into ours."""
    try:
        yield
    except Exception as error:
        if isinstance(error, SplitError) or not given.refused(error):
            raise
        library = "torch" if isinstance(given, Tensor) else "its library"
        rule = f"{library} refuses: {reason(error)}"
        raise SplitTypeError.of([("x", f" of type {kind_of(given.x)}")], rule) from error
