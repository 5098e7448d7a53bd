"""What Numba calls when it compiles a call of `split` or `split_into`.

An overload checks the types, chooses the functions for the rule, and returns the implementation.
Only the implementations raise; a function that they call returns a fault instead. One raise
statement serves all faults of a rule, which is faster to compile. Each variable of a raise
statement is assigned only once: Numba before 0.67 raises with the first value of a variable.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.core.errors import TypingError
from numba.cpython.unsafe.tuple import tuple_setitem
from numba.extending import overload

import splitjit
from splitjit._njit.copying import copy_parts_function
from splitjit._njit.outputs import (
    OUT_FAULTS,
    as_one_type,
    check_outs,
    has_several_types,
    unchanged,
)
from splitjit._njit.rules import (
    AXIS_FAULTS,
    intp,
    is_given,
    is_integer,
    is_passed,
    item_of,
    refuse,
    rule,
    size,
    wrap_axis,
)
from splitjit._plan.arguments import most_parts
from splitjit.errors import SplitError

_MOST_PARTS = most_parts()


# ---- split, and split_into -------------------------------------------------------------


@overload(splitjit.split)
def _split(
    x,
    split=None,
    by_position=None,
    axis=0,
    num_outputs=None,
    num_splits=None,
    indices=None,
    num_sections=None,
    out=None,
    copy=True,
    dim=None,
):
    _check_array("split", x)
    _check_axis("split", axis, by_position, dim)
    if is_given(out):
        refuse("split", out=out, rule="compiled code takes no out=; call splitjit.split_into")
    said = (copy, getattr(copy, "value", None), getattr(copy, "literal_value", None))
    if not any(value is True for value in said):
        if copy == types.boolean:  # Numba tries types of literals next, if any
            raise TypingError("splitjit.split: copy= must be the literal True")
        refuse("split", copy=copy, rule="compiled code takes no copy=; slice x for views")
    value_of, sizes_of, faults = rule(
        "split", split, num_outputs, num_splits, indices, num_sections
    )
    copy_parts = copy_parts_function()

    def implementation(
        x, split=None, by_position=None, axis=0, num_outputs=None, num_splits=None, indices=None,
        num_sections=None, out=None, copy=True, dim=None,
    ):  # fmt: skip
        d, axis_fault = wrap_axis(intp(axis), x.ndim)
        if axis_fault != 0:
            raise SplitError("split", "", AXIS_FAULTS, axis_fault, intp(axis), x.ndim, x.ndim - 1)
        value = value_of((split, num_outputs, num_splits, indices, num_sections))
        sizes, count, fault, number = sizes_of(value, x.shape[d])
        if fault != 0:
            raise SplitError("split", "", faults, fault, number, x.shape[d], count)
        if count > _MOST_PARTS:
            raise MemoryError("splitjit.split: not enough memory for so many parts")
        parts = [
            np.empty(tuple_setitem(x.shape, d, size(sizes, i, x.shape[d])), x.dtype)
            for i in range(count)
        ]
        copy_parts(x, parts, sizes, count, d, True)
        return parts

    return implementation


@overload(splitjit.split_into)
def _split_into(
    x,
    outs,
    split=None,
    axis=0,
    by_position=None,
    num_outputs=None,
    num_splits=None,
    indices=None,
    num_sections=None,
    dim=None,
):
    _check_array("split_into", x)
    _check_axis("split_into", axis, None, dim)
    if is_passed(by_position):
        refuse("split_into", argument=by_position, rule="rules after axis must be given by name")
    _check_types_of_outs(x, outs)
    with_one_type = as_one_type if has_several_types(outs) else unchanged
    value_of, sizes_of, faults = rule(
        "split_into", split, num_outputs, num_splits, indices, num_sections
    )
    copy_parts = copy_parts_function()

    def implementation(
        x, outs, split=None, axis=0, by_position=None, num_outputs=None, num_splits=None,
        indices=None, num_sections=None, dim=None,
    ):  # fmt: skip
        d, axis_fault = wrap_axis(intp(axis), x.ndim)
        if axis_fault != 0:
            raise SplitError(
                "split_into", "", AXIS_FAULTS, axis_fault, intp(axis), x.ndim, x.ndim - 1
            )
        value = value_of((split, num_outputs, num_splits, indices, num_sections))
        sizes, count, fault, number = sizes_of(value, x.shape[d])
        if fault != 0:
            raise SplitError("split_into", "", faults, fault, number, x.shape[d], count)
        parts = with_one_type(outs)
        outs_fault, i, j = check_outs(x, parts, sizes, count, d)
        if outs_fault != 0:
            raise SplitError("split_into", "", OUT_FAULTS, outs_fault, i, j)
        copy_parts(x, parts, sizes, count, d, False)

    return implementation


# ---- checks of types -----------------------------------------------------------------------


def _check_array(operator, x) -> None:
    if not isinstance(x, types.Array) or x.ndim == 0:
        refuse(operator, x=x, rule="x must be an array of rank 1 or more")


def _check_axis(operator, axis, by_position, dim) -> None:
    for name, kind in {"axis": by_position, "dim": dim}.items():
        if is_passed(kind):
            refuse(operator, **{name: kind}, rule="the axis must be given by its name; pass axis=")
    if not is_integer(axis):
        refuse(operator, axis=axis, rule="axis must be an integer")


def _check_types_of_outs(x, outs) -> None:
    parts = {*outs} if isinstance(outs, types.BaseTuple) else {item_of(outs)}
    if not parts or not all(isinstance(part, types.Array) for part in parts):
        refuse("split_into", outs=outs, rule="outs must be a tuple or a list of arrays")
    if not all(part.mutable for part in parts):
        refuse("split_into", outs=outs, rule="outs must be writeable")
    if {(part.dtype, part.ndim) for part in parts} != {(x.dtype, x.ndim)}:
        refuse("split_into", outs=outs, x=x, rule="outs must have the dtype and rank of x")
