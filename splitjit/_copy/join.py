"""From parts to one array: what `splitjit.join` and `stack` check, and who copies.

A join is a split of the whole, read backwards. Its plan, its layout and the checks of memory are
those of the split; the loops copy the other way, see `splitjit._kernels.loops.join`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from splitjit._copy.buffers import allocate_whole
from splitjit._copy.how import how_of
from splitjit._copy.outputs import check_array, share_memory, views_of
from splitjit._copy.run import adapter_of, or_refuse
from splitjit._inputs.adapt import items_of
from splitjit._inputs.input import Input, Masked, mask_of
from splitjit._inputs.torch.foreign import differ_in_graph
from splitjit._inputs.torch.memory import TORCH, join_at_once, places_of
from splitjit._inputs.torch.tensors import in_reach, is_tensor, refuse_layout
from splitjit._plan.arguments import Shape, normalize_axis
from splitjit._plan.plan import Plan, PlanCache
from splitjit._plan.rules import LENGTHS
from splitjit.errors import OUT, SplitError, SplitTypeError, kind_of, pairs

Plans = PlanCache | Plan
"""Where to look for the plan of the whole, or the plan that the parts must fit."""

_MAKE = "the parts make the shape"


def join_arrays(
    operator: str, parts: Any, axis: SupportsIndex, out: Any, plans: Plans, stacks: bool = False
) -> Any:
    """Join arrays of one kind and dtype; see `splitjit.join` and, if `stacks`, `splitjit.stack`."""
    made = _join_at_once(parts, axis, out, plans, stacks)
    if made is not None:
        return made
    try:
        return _join(parts, axis, out, plans, stacks)
    except SplitError as error:  # the adapter of the first part has compared it with `out`
        named = error.named(operator, keeps_hint=True, x="parts[0]")
        received, rule, hint = [text.replace(f"{OUT}[0]", OUT) for text in named.texts]
        raise type(error)(operator, received, rule, hint=hint) from None


def _join(parts: Any, axis: SupportsIndex, out: Any, plans: Plans, stacks: bool) -> Any:
    inputs = _of_one_kind(items_of(parts, "parts"))
    first, given = inputs[0], [one.x for one in inputs]
    arrays = [_of_part(i, getattr, one, "array") for i, one in enumerate(inputs)]
    # These shapes stay as they are, even if another thread gives a part another shape.
    shapes = [one.shape if x is None else x.shape for one, x in zip(inputs, arrays, strict=True)]
    index = plans.axis if isinstance(plans, Plan) else _axis_of(axis, shapes[0], stacks)
    by_library = functools.partial(first.joined, given, index, out, stacks)
    is_known = not first.is_traced() and all(type(n) is int for shape in shapes for n in shape)
    differ = _surely_differ if is_known or first.library != "torch" else differ_in_graph
    _check_shapes(shapes, index, plans, stacks, differ)
    if not is_known:
        return or_refuse(first, "parts", by_library)
    if stacks:
        shapes = [(*shape[:index], 1, *shape[index:]) for shape in shapes]
    plan = _plan_of(shapes, index, plans)
    if is_tensor(out):
        refuse_layout(out, OUT)
        if tuple(out.shape) != plan.shape:  # torch may resize it, but not after `numpy`
            raise SplitError.of(f"{OUT} of shape {tuple(out.shape)}", f"{_MAKE} {plan.shape}")
    unread = [one for one, x in zip(inputs, arrays, strict=True) if x is None]
    if unread:
        if is_tensor(out) and is_tensor(first.x):
            *places, place = places_of([*given, out])
            check_array(OUT, place, plan.shape, place.dtype, _MAKE)
            _check_apart([place], [places])
        return or_refuse(unread[0], "parts", by_library)
    sources: list[list[Any]] = [arrays]
    if type(first) is Masked and any(np.ma.getmask(x) is not np.ma.nomask for x in (*given, out)):
        sources.append([mask_of(one.array, one.mask) for one in inputs])
        first.mask = sources[1][0]  # for `out`, too
    wholes = _wholes(first, plan, sources, out)
    if stacks:
        sources = [_with_axis(each, index) for each in sources]
    for each, whole in zip(sources, wholes, strict=True):
        how = how_of(plan, whole, joins=True)
        if not how.into(whole, each):
            how.copy(plan, whole, how.layout_for(plan, whole, each), each)
        plan._use(how, "_join")
    if out is None:
        return first.wrap(*[[whole] for whole in wholes])[0]
    first.wrote([out], [[whole] for whole in wholes])
    return out


def _join_at_once(parts: Any, axis: Any, out: Any, plans: Plans, stacks: bool) -> Any:
    """Join arrays if a plan has joined such arrays before, or tensors that torch joins; else None.

    A builtin function checks the arrays; see `splitjit._copy.how`.
    """
    if type(parts) is np.ndarray and parts.ndim > 1:
        parts = [*parts]
    if type(parts) not in (list, tuple) or not parts or type(axis) is not int:
        return None
    kinds = {*map(type, parts)}
    is_plain = kinds == {np.ndarray} and type(out) in (type(None), np.ndarray)
    if not (is_plain or (is_tensor(parts[0]) and in_reach(parts[0]) and kinds <= {*TORCH.kinds})):
        return None
    try:
        index = range(parts[0].ndim + stacks)[axis]
        given = _with_axis(parts, index) if stacks else list(parts)
        plan = _plan_of([part.shape for part in given], index, plans)
    except (IndexError, RuntimeError):  # no such axis, a part of fewer axes, or a nested tensor
        return None
    if not is_plain:
        return join_at_once(given, plan, out)
    how = plan._join  # once, because another thread may set it
    if how is None or (out is not None and out.shape != plan.shape):
        return None
    made = allocate_whole(plan.shape, given[0].dtype) if out is None else out
    if how.into(made, given) or how_of(plan, made, joins=True).into(made, given):
        return made
    return None


def _axis_of(axis: Any, shape: Shape, stacks: bool) -> int:
    """Return the axis counted from the front; refuse one that the whole does not have."""
    try:
        return normalize_axis(axis, (*shape, 1) if stacks else shape)
    except SplitError as error:
        hint = "" if stacks else "stack joins along a new axis"
        if isinstance(error, SplitTypeError):  # the second of two arrays
            hint = "pass all parts in one list" if hasattr(type(axis), "shape") else ""
        received, rule, _ = error.texts
        raise type(error).of(received, rule, hint) from None


def _with_axis(arrays: Sequence[np.ndarray], index: int) -> list[np.ndarray]:
    """Return views that have a new axis of length 1."""
    new_axis = (..., None) if index == arrays[0].ndim else (*[slice(None)] * index, None)
    return [array[new_axis] for array in arrays]


def _plan_of(shapes: list[Shape], axis: int, plans: Plans) -> Plan:
    """Return the given plan or, without one, the plan that splits the whole into parts.

    Along every other axis, the whole is as long as the first part. The shapes are not checked.
    """
    sizes = tuple([shape[axis] for shape in shapes])
    whole = *shapes[0][:axis], sum(sizes), *shapes[0][axis + 1 :]
    return plans if isinstance(plans, Plan) else plans.plan(whole, axis, (LENGTHS, sizes))


def _check_shapes(
    shapes: list[Shape], axis: int, plans: Plans, stacks: bool, differ: Callable[[Any, Any], bool]
) -> None:
    """Refuse shapes that do not fit the given plan or, without one, each other."""
    if isinstance(plans, Plan) and len(shapes) != len(plans):
        received, rule = f"parts of {len(shapes)} arrays", f"the plan has {len(plans)} parts"
        raise SplitError.of(received, rule)
    first = shapes[0]
    rank = len(plans.shape if isinstance(plans, Plan) else first)
    for i, shape in enumerate(shapes):
        if isinstance(plans, Plan):
            expected = plans._shape_of_part(plans.sizes[i])  # a trace cannot read `output_shapes`
        else:
            size = (first if stacks else shape)[axis : axis + 1]
            expected = (*first[:axis], *size, *first[axis + 1 :])
        unlike = [1 for n, m in zip(shape, expected, strict=False) if differ(n, m)]
        if unlike or len(shape) != rank:
            received = f"parts[{i}] of shape {shape}"
            if isinstance(plans, Plan):
                raise SplitError.of(received, f"part {i} has shape {expected}")
            rule = "must be equal" if stacks else f"must be equal in all axes but axis {axis}"
            raise SplitError.of(f"{received}, parts[0] of shape {first}", rule)


def _surely_differ(n: Any, m: Any) -> bool:
    """Return whether extents differ. Unknown ones, NaN in Dask and None elsewhere, may be equal."""
    return bool(None not in (n, m) and n == n and m == m and n != m)


# ---- the parts -------------------------------------------------------------------------------


def _of_part(i: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and name part i if the function refuses it."""
    try:
        return call(*arguments)
    except SplitError as error:
        raise error.named("split", keeps_hint=True, x=f"parts[{i}]") from None


def _of_one_kind(parts: list[Any]) -> list[Any]:
    """Return adapters of one class and dtype; if an array is masked, all are. Refuse mixtures."""
    if not parts:
        raise SplitError.of(pairs(parts=parts), "must have at least one array")
    inputs = [_of_part(i, adapter_of, part, True) for i, part in enumerate(parts)]
    if {*map(type, inputs)} == {Input, Masked}:
        inputs = [one if type(one) is Masked else Masked(np.ma.asarray(one.x)) for one in inputs]
    first = inputs[0]
    for i, one in enumerate(inputs):
        if type(one) is not type(first):
            received = f"parts[{i}] of type {kind_of(one.x)}, parts[0] of type {kind_of(first.x)}"
            raise SplitTypeError.of(received, "must be arrays of one library")
        if one.dtype != first.dtype:
            received = f"parts[{i}] of dtype {one.dtype}, parts[0] of dtype {first.dtype}"
            rule = "the dtypes must be equal, because bits are copied and never converted"
            raise SplitTypeError.of(received, rule, "convert the parts to one dtype")
    return inputs


# ---- the whole -------------------------------------------------------------------------------


def _wholes(
    first: Input, plan: Plan, sources: list[list[np.ndarray]], out: Any
) -> list[np.ndarray]:
    """Return new arrays for the data and the masks, or those of `out` if they fit."""
    if out is None:
        try:
            return [allocate_whole(plan.shape, each[0].dtype) for each in sources]
        except ValueError as error:  # a rank or an extent that NumPy does not allow
            raise SplitError.of(pairs(shape=plan.shape), str(error)) from error
    _, pairs_to_copy = first.targets([out])
    given = views_of([one for _, (one,) in pairs_to_copy], "must be an ndarray, as the parts are")
    for whole, each in zip(given, sources, strict=True):
        check_array(OUT, whole, plan.shape, each[0].dtype, _MAKE)
    _check_apart(given, sources)
    return given


def _check_apart(wholes: list[np.ndarray], sources: list[list[np.ndarray]]) -> None:
    for i, part in enumerate([part for each in sources for part in each]):
        for whole in wholes:
            if share_memory(whole, part):
                received = f"{OUT} and parts[{i % len(sources[0])}]"
                raise SplitError.of(received, "must not share memory")
    if len(wholes) > 1 and share_memory(*wholes):
        raise SplitError.of(OUT, "its mask must not share memory with its data")
