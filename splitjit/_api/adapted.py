"""Split adapted objects: kernels copy them, or the library that owns them does."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from splitjit._copy import recipe
from splitjit._copy.outputs import check_apart, check_out, check_source
from splitjit._inputs.input import Input, PlanOf
from splitjit._inputs.owners import memory
from splitjit._inputs.tensors import Tensor, is_compiling
from splitjit._plan.arguments import check_views
from splitjit._plan.plan import Plan
from splitjit._plan.rules import Rule
from splitjit.errors import SplitError, SplitTypeError, kind_of, reason


def split_input(
    given: Input,
    plan_of: PlanOf,
    axis: SupportsIndex,
    rule: Rule | None,
    out: Any = None,
    copy: Any = True,
) -> list[Any]:
    """Split an object that is neither of the class ndarray nor a Dask array.

    Parameters
    ----------
    given : Input
        The object, as `adapt` returns it.
    plan_of : callable
        Returns the plan for arrays of a shape, or refuses the shape.
    axis : int
    rule : Rule or None
        None if `plan_of` has one plan, and only checks the shape.
    out, copy
        See `splitjit.split`.
    """
    array = given.array
    if array is None:
        return _by_library(given, plan_of, axis, rule, out, copy)
    if type(given) is Input:
        return recipe.run(plan_of(array.shape), array, out, copy)
    if copy is not True:
        return _views(given, plan_of, axis, rule, out, copy)
    plan = plan_of(array.shape)
    if out is not None:
        return _into(given, array, plan, out)
    parts = recipe.run(plan, array, None, True)
    masks = None if given.mask is None else recipe.run(plan, given.mask, None, True)
    return given.wrap(parts, masks)


def _views(given: Input, plan_of: PlanOf, axis: Any, rule: Any, out: Any, copy: Any) -> list[Any]:
    views = given.views(plan_of, axis, rule)
    check_views(out, copy)
    return views


def _into(given: Input, array: np.ndarray, plan: Plan, out: Any) -> list[Any]:
    targets, arrays = given.targets(out)
    masks = given.masks(targets)
    if masks is None:
        written: list[Any] = recipe.run(plan, array, arrays, True)
    else:
        recipe.run_all(plan, [(array, arrays), masks])
    given.wrote(targets, masks[1] if masks else [])
    return written if targets is arrays else targets


def _by_library(
    given: Input, plan_of: PlanOf, axis: Any, rule: Any, out: Any, copy: Any
) -> list[Any]:
    """Let the library make the parts. Its own refusals become ours."""
    if isinstance(given, Tensor) and is_compiling():  # torch.compile follows no `try` here
        return _parts_of_library(given, plan_of, axis, rule, out, copy)
    try:
        return _parts_of_library(given, plan_of, axis, rule, out, copy)
    except Exception as error:
        if isinstance(error, SplitError) or not given.refused(error):
            raise
        library = "torch" if isinstance(given, Tensor) else "its library"
        rule_text = f"{library} refuses: {reason(error)}"
        raise SplitTypeError("split", f"x of type {kind_of(given.x)}", rule_text) from error


def _parts_of_library(
    given: Input, plan_of: PlanOf, axis: Any, rule: Any, out: Any, copy: Any
) -> list[Any]:
    if copy is not True:
        return _views(given, plan_of, axis, rule, out, copy)
    if out is None:
        return given.copies(plan_of, axis, rule)
    if not isinstance(given, Tensor):  # NumPy reads the values, or refuses
        array = memory(given.x)
        return recipe.run(plan_of(array.shape), array, out, True)
    views = given.views(plan_of, axis, rule)
    targets, places = given.targets_of_torch(views, out)
    if places is not None:
        x = places.pop()
        parts = check_out(plan_of(x.shape), x.dtype, places).parts
        check_apart(parts)
        check_source(x, parts)
    for target, view in zip(targets, views, strict=True):
        target.copy_(view)
    return targets
