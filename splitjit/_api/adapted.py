"""Split adapted objects, by kernels or by the library that owns them."""

from __future__ import annotations

from typing import Any

from splitjit._copy import recipe
from splitjit._copy.outputs import check_apart, check_out, check_source
from splitjit._inputs.foreign import is_planned
from splitjit._inputs.input import Input, Request
from splitjit._inputs.memory import places_of
from splitjit._inputs.owners import memory
from splitjit._inputs.tensors import Tensor, check_shapes, is_compiling
from splitjit._plan.arguments import check_views
from splitjit._plan.plan import Plan
from splitjit._plan.rules import LENGTHS
from splitjit.errors import SplitError, SplitTypeError, kind_of, reason


class ByPlan(Request):
    """A call to a plan."""

    __slots__ = ("axis", "plan", "rule")

    plan: Plan

    def __init__(self, plan: Plan) -> None:
        self.plan, self.axis, self.rule = plan, plan.axis, (LENGTHS, plan.sizes)

    def plan_of(self, shape: tuple[int, ...]) -> Plan:
        """Return the plan, or refuse a shape other than its own."""
        recipe.check_shape(self.plan, shape)
        return self.plan


def split_input(given: Input, request: Request, out: Any = None, copy: Any = True) -> list[Any]:
    """Split an object that is neither a plain ndarray nor a Dask array."""
    array = given.array
    if array is None:
        return _by_library(given, request, out, copy)
    plan = request.plan_of(array.shape)
    if type(given) is Input:
        return recipe.run(plan, array, out, copy)
    if copy is not True:
        check_views(out, copy)
        return given.views(plan)
    if out is None:
        parts = recipe.run(plan, array, None, True)
        masks = None if given.mask is None else recipe.run(plan, given.mask, None, True)
        return given.wrap(parts, masks)
    targets, copies = given.targets(out)
    if len(copies) == 1:
        recipe.run(plan, *copies[0], True)
    else:
        recipe.run_all(plan, copies)
    given.wrote(targets, copies)
    return targets


def _by_library(given: Input, request: Request, out: Any, copy: Any) -> list[Any]:
    """Let the library make the parts. Its own refusals become ours."""
    if isinstance(given, Tensor) and is_compiling():  # torch.compile cannot trace a `try` here
        return _parts_of_library(given, request, out, copy)
    try:
        return _parts_of_library(given, request, out, copy)
    except Exception as error:
        if isinstance(error, SplitError) or not given.refused(error):
            raise
        library = "torch" if isinstance(given, Tensor) else "its library"
        rule = f"{library} refuses: {reason(error)}"
        raise SplitTypeError("split", f"x of type {kind_of(given.x)}", rule) from error


def _parts_of_library(given: Input, request: Request, out: Any, copy: Any) -> list[Any]:
    if copy is not True:
        check_views(out, copy)
    if out is None:
        return given.made_by_library(request, copy)
    if not isinstance(given, Tensor):  # NumPy reads the values, or refuses
        array = memory(given.x)
        return recipe.run(request.plan_of(array.shape), array, out, True)
    views = given.made_by_library(request, False)
    targets = given.targets_of_torch(out)
    if is_planned(given.shape):
        *places, x = places_of([*targets, given.x])
        parts = check_out(request.plan_of(x.shape), x.dtype, places).parts
        check_apart(parts)
        check_source(x, parts)
    else:
        check_shapes(targets, views)
    for target, view in zip(targets, views, strict=True):
        target.copy_(view)
    return targets
