"""Check the arrays that parts are written to, and find arrays that share memory."""

import ctypes
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from splitjit._abi.calls import WORD, LayoutRequest, call
from splitjit._copy.buffers import words_of
from splitjit._inputs.arrays import refuse_meaning
from splitjit._plan.arguments import Shape
from splitjit._plan.plan import Plan
from splitjit._plan.rules import OVERLAP_FAULT
from splitjit._runtime.loading import NATIVE
from splitjit.errors import OUT, SplitError, SplitTypeError, X, kind_of

_MOST_WORK = 10**6


def check_out(plan: Plan, x: np.ndarray, out: list[Any]) -> list[np.ndarray]:
    """Refuse outputs that do not fit, or that share an element with each other or with `x`.

    Return views of their memory, see `views_of`. `x` is such a view, too.
    """
    parts = views_of(out)
    check_fit(plan, x.dtype, parts)
    check_memory(x, parts, plan.axis)
    return parts


def views_of(
    out: list[Any], rule: str = f"{OUT} must be a sequence of ndarrays"
) -> list[np.ndarray]:
    """Return base-class views of outputs; refuse anything but ndarrays.

    Another thread or a finalizer may set the shape of a user's array at any moment. So checks and
    copies use only these views, which nobody else can change.
    """
    for i, part in enumerate(out):
        if not issubclass(type(part), np.ndarray):
            hint = f"pass {OUT}[{i}].numpy()" if hasattr(type(part), "numpy") else ""
            raise SplitTypeError.of(f"{OUT}[{i}] of type {kind_of(part)}", rule, hint)
        if type(part) is not np.ndarray:
            refuse_meaning(part, f"{OUT}[{i}]")
    return [np.ndarray.view(part, np.ndarray) for part in out]


def check_fit(plan: Plan, dtype: np.dtype, parts: list[np.ndarray]) -> None:
    """Refuse outputs that do not fit the plan and the dtype, whatever memory they share.

    Parameters
    ----------
    plan : Plan
        The plan of the split.
    dtype : dtype
        The dtype of the array to split.
    parts : list of ndarray
        Views of the outputs: one writeable array per part, with the part's shape
        and `dtype`, whose elements do not overlap.

    Raises
    ------
    SplitError, SplitTypeError
        If one of these rules is broken.
    """
    if len(parts) != len(plan.sizes):
        rule = f"must have an array for each of {len(plan)} parts"
        raise SplitError.of(f"{OUT} of {len(parts)} arrays", rule)
    for i, (part, shape) in enumerate(zip(parts, plan.output_shapes, strict=True)):
        name, hint = f"{OUT}[{i}]", ""
        before, after = shape[: plan.axis], shape[plan.axis + 1 :]
        if part.shape == (*before, *after) and shape[plan.axis] == 1:
            index = "..., None" if not after else ":, " * plan.axis + "None"
            hint = f"pass {name}[{index}], or call unstack(out=)"
        check_array(name, part, shape, dtype, f"part {i} has shape", hint)


def check_array(
    name: str, array: np.ndarray, shape: Shape, dtype: np.dtype, what_has: str, hint: str = ""
) -> None:
    """Refuse an unfit output; `what_has` begins the rule for its shape: "part 0 has shape"."""
    if array.shape != shape:
        raise SplitError.of(f"{name} of shape {array.shape}", f"{what_has} {shape}", hint)
    if array.dtype != dtype:
        rule = f"the dtype must be the dtype of {X}, {dtype}"
        raise SplitTypeError.of(f"{name} of dtype {array.dtype}", rule)
    if not array.flags.writeable:
        raise SplitError.of(f"{name} is read-only", "must be writeable")
    if not (array.flags.c_contiguous or array.size == 0) and overlaps_itself(array):
        raise SplitError.of(f"{name} of strides {array.strides}", OVERLAP_FAULT)


def check_memory(x: np.ndarray, parts: list[np.ndarray], axis: int) -> None:
    """Refuse parts of a split of `x` that share an element with each other or with `x`."""
    check_apart(parts, axis)
    for i, part in enumerate(parts):
        if share_memory(x, part):
            raise SplitError.of(f"{OUT}[{i}] and {X}", "must not share memory")


def check_apart(parts: list[np.ndarray], axis: int) -> None:
    """Refuse parts of a split along an axis that share an element; interleaved memory is fine."""
    if are_surely_apart(parts, axis):
        return
    spans = sorted([(*byte_bounds(part), i) for i, part in enumerate(parts) if part.size])
    for k, (_, stop, i) in enumerate(spans):
        for n in range(k + 1, len(spans)):
            start, _, j = spans[n]
            if start >= stop:
                break
            if share_memory(parts[i], parts[j]):
                received = f"{OUT}[{min(i, j)}] and {OUT}[{max(i, j)}]"
                raise SplitError.of(received, "must not share memory")


def are_surely_apart(parts: list[np.ndarray], axis: int) -> bool:
    """Return whether `splitjit._kernels.core.apart`, if it is loaded, finds that parts are apart.

    Their items may be of several sizes, such as those of data and masks.
    """
    if not parts or not vars(NATIVE):
        return False
    rank, count, words = parts[0].ndim, len(parts), words_of(parts)
    itemsize, pitch = max([part.itemsize for part in parts]), WORD * (1 + 2 * rank)
    table = (ctypes.c_int64 * (len(words) + count + 2))(*words)
    targets = ctypes.addressof(table)
    record = targets + WORD * len(words)
    request = LayoutRequest(rank, axis, count, itemsize, 0, 0, targets, pitch, 0, 0, record, False)
    return call(NATIVE.find_shared, request) == 0


def share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two arrays share an element; True if that is too hard to find out."""
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(array: np.ndarray) -> bool:
    """Return whether two elements may share memory: unless each stride spans the dims below it."""
    spanned = array.itemsize
    for step, n in sorted([(abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)]):
        if n > 1 and step < spanned:
            return True
        spanned += (n - 1) * step
    return False
