"""`split`, `split_into` and `plan_split`: from arguments to a rule, to a plan, to parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike

from splitjit._api.protocols import GiveExactlyOneRule, Part, Source, SupportsSlices
from splitjit._api.split_plan import PLANS, SplitPlan, by_rule
from splitjit._copy.how import FIRST
from splitjit._copy.run import run
from splitjit._inputs.input import by_plan
from splitjit._inputs.torch.memory import TORCH
from splitjit._plan.arguments import (
    NOT_GIVEN,
    AnyRules,
    Indices,
    Lengths,
    OtherRules,
    hide_traps,
    refuse_call,
    rule_of,
    shape_of,
)
from splitjit.errors import SplitError, SplitTypeError, kind_of

recent_plan = PLANS.get

Splittable = ArrayLike | SupportsSlices[Any]
Outs = Sequence[SupportsSlices[Any]]
Int = SupportsIndex
Extents = Sequence[Int]

# One overload per rule, so that type checkers report a missing rule, or several: then only the last
# overload is left, and they print the name of its type. Parts have the type of a slice of `x`, or
# are ndarrays if `x` is nested lists. Dask does not declare its slices; see `splitjit.dask.split`.


@overload
def split(x: Source[Part], split: Lengths, axis: Int = 0, *, copy: bool = True) -> list[Part]: ...
@overload
def split(x: Source[Part], *, num_outputs: Int, axis: Int = 0, copy: bool = True) -> list[Part]: ...
@overload
def split(x: Source[Part], *, num_splits: Int, axis: Int = 0, copy: bool = True) -> list[Part]: ...
@overload
def split(x: Source[Part], *, indices: Indices, axis: Int = 0, copy: bool = True) -> list[Part]: ...
@overload
def split(
    x: Source[Part], *, num_sections: Int, axis: Int = 0, copy: bool = True
) -> list[Part]: ...
@overload
def split(
    x: Splittable,
    split: Lengths | None = None,
    axis: SupportsIndex = 0,
    *,
    out: Sequence[SupportsSlices[Part]],
    copy: Literal[True] = True,
    **by: Unpack[OtherRules],
) -> list[Part]: ...
@overload
def split(x: GiveExactlyOneRule, *, copy: bool = True, **by: Unpack[AnyRules]) -> list[Any]: ...
@hide_traps
def split(
    x: Any,
    split: Lengths | None = None,
    axis: SupportsIndex = 0,
    by_position: Any = NOT_GIVEN,
    num_outputs: SupportsIndex | None = None,
    num_splits: SupportsIndex | None = None,
    indices: Indices | None = None,
    num_sections: SupportsIndex | None = None,
    out: Sequence[Any] | None = None,
    copy: bool = True,
    **unknown: Any,
) -> list[Any]:
    """Split an array into contiguous parts along an axis.

    Exactly one of ``split``, ``num_outputs``, ``num_splits``, ``indices`` and
    ``num_sections`` is given.

    Parameters
    ----------
    x : array_like
        The array to split, of rank 1 or more: an array of any dtype, strides
        and byte order, a memmap, a masked array, a CPU tensor of torch, an
        array of another library with the Array API, such as JAX, or nested
        lists of numbers. A Dask array is split lazily. Objects with labels,
        such as those of pandas and xarray, are refused.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        A sequence gives the length of each part. Each length is >= 0, and
        they sum to the axis length (ONNX Split, OpenVINO VariadicSplit,
        ``torch.split``). One length may be -1, which stands for the rest. An
        integer k >= 1 gives parts of length k, the last one smaller (ONNX
        SplitToSequence; also ``torch.split``, except that it gives one empty part
        if the axis length is 0, and this rule gives no part).
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    num_outputs : int, optional
        n >= 1 parts of ceil(length / n). The last parts are clamped to the
        rest of the axis: 5 into 4 is 2, 2, 1, 0 (ONNX Split-18).
    num_splits : int, optional
        n >= 1 equal parts; the axis length must be a multiple of n (OpenVINO
        Split-1).
    indices : sequence of int or 1-D integer array, optional
        Cut before each of these indices: n indices give n + 1 parts
        (``np.split``, ``torch.tensor_split``). Negative indices count from
        the end of the axis. Indices beyond an end of the axis are clamped to
        it. The indices must not descend.
    num_sections : int, optional
        n >= 1 parts whose lengths differ by at most one, longer ones first:
        6 into 4 is 2, 2, 1, 1 (``np.array_split``, ``torch.tensor_split``).
    out : sequence of array, optional
        The arrays to write the parts to, one per part. Each has the exact
        shape of its part and the dtype of `x`, is writeable, has any strides,
        and shares no element with `x` or with another array of `out`. They are
        tensors if `x` is a tensor of torch, masked arrays if `x` is a masked
        array, and ndarrays otherwise.
    copy : bool, default True
        False returns views of `x` and copies no data.

    Returns
    -------
    list of array
        With ``copy=True``, new C-contiguous arrays that share no memory with
        `x`. They may share one allocation with each other, which is freed
        when no part is referenced any more. With `out`, the arrays of `out`.
        With ``copy=False``, views of `x`. Bits are copied, never converted.
        The parts of a tensor of torch are tensors, the parts of a masked array
        are masked arrays, and the parts of an array with the Array API are
        arrays of its library, which may keep the order of its memory; all
        others are ndarrays. The parts of a Dask array are Dask arrays, see
        `splitjit.dask.split`.

    Raises
    ------
    SplitError
        If a value is out of range, the lengths do not sum to the axis length,
        the indices descend, not exactly one rule is given, or `out` does not
        fit. In these cases nothing has been written.
    SplitTypeError
        If a value is of the wrong kind.

    See Also
    --------
    plan_split : Where the parts start and how long they are, without data.
    split_into : Write the parts into existing arrays.
    numpy.split : Returns views of the array.
    numpy.array_split : The rule of `num_sections`, as views.
    torch.split : Returns views of a tensor.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> x = np.arange(12).reshape(2, 6)
    >>> first, second = splitjit.split(x, [2, 4], axis=1)
    >>> first
    array([[0, 1],
           [6, 7]])
    >>> [part.shape for part in splitjit.split(x, [1, -1, 2], axis=1)]
    [(2, 1), (2, 3), (2, 2)]
    >>> [part.shape for part in splitjit.split(x, 4, axis=1)]
    [(2, 4), (2, 2)]
    >>> [part.shape for part in splitjit.split(x, num_splits=3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    >>> [part.shape for part in splitjit.split(x, indices=[1, 4], axis=1)]
    [(2, 1), (2, 3), (2, 2)]
    >>> [part.shape for part in splitjit.split(x, num_sections=4, axis=1)]
    [(2, 2), (2, 2), (2, 1), (2, 1)]
    """
    if by_position is not NOT_GIVEN or unknown:
        refuse_call("split", by_position, unknown, "out", "copy")
    rule = rule_of(split, num_outputs, num_splits, indices, num_sections)
    if type(axis) is int and copy is True:
        is_array = type(x) is np.ndarray
        if is_array or (type(x) in TORCH.kinds and not TORCH.is_traced() and not x.is_nested):
            key = x.shape, axis, rule
            plan = recent_plan(key)
            if plan is None and is_array:
                plan = PLANS.add(key)
            if plan is not None:
                parts: list[Any] | None = (plan._how or FIRST).at_once(plan, x, out)
                if parts is not None:
                    return parts
                if is_array:
                    return run(x, by_plan(plan), out)
    return run(x, by_rule(axis, rule), out, copy)


_split: Any = split  # `split_into` has a parameter of this name


@overload
def split_into(x: Splittable, outs: Outs, split: Lengths, axis: Int = 0) -> None: ...
@overload
def split_into(x: Splittable, outs: Outs, *, num_outputs: Int, axis: Int = 0) -> None: ...
@overload
def split_into(x: Splittable, outs: Outs, *, num_splits: Int, axis: Int = 0) -> None: ...
@overload
def split_into(x: Splittable, outs: Outs, *, indices: Indices, axis: Int = 0) -> None: ...
@overload
def split_into(x: Splittable, outs: Outs, *, num_sections: Int, axis: Int = 0) -> None: ...
@overload
def split_into(x: GiveExactlyOneRule, outs: Outs, **by: Unpack[AnyRules]) -> None: ...
@hide_traps
def split_into(
    x: Any,
    outs: Outs,
    split: Lengths | None = None,
    axis: SupportsIndex = 0,
    by_position: Any = NOT_GIVEN,
    num_outputs: SupportsIndex | None = None,
    num_splits: SupportsIndex | None = None,
    indices: Indices | None = None,
    num_sections: SupportsIndex | None = None,
    **unknown: Any,
) -> None:
    """Split an array into existing arrays, and allocate no array.

    The same as ``split(x, split, axis=axis, out=outs)``, with any rule. Code
    that ``numba.njit`` compiles can call this function, too.

    Parameters
    ----------
    x : array_like
        The array to split, see `split`.
    outs : sequence of ndarray
        The arrays to write the parts to, as `out` of `split`. In compiled
        code: a tuple of arrays, whose layouts may differ, or a list of arrays
        of one type.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        The length of each part, or one length for all parts; see `split`.
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    num_outputs, num_splits, indices, num_sections : optional
        The other rules, see `split`. Exactly one rule is given.

    Raises
    ------
    SplitError, SplitTypeError
        In the same cases as `split`. In these cases nothing has been written.

    See Also
    --------
    split : Make new parts.
    SplitPlan.bind : Check output arrays early, and split into them many times.
    numba.jit : Compiles functions that call `split_into`.

    Notes
    -----
    If a call in compiled code is refused, Numba leaks the arrays of the compiled
    functions that made the call, as after any error in compiled code. To avoid
    this, check the lengths with `plan_split` in Python first, or catch the error
    in the function that makes the call.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> head, tail = np.empty(2), np.empty(3)
    >>> splitjit.split_into(np.arange(5.0), [head, tail], [2, 3])
    >>> tail
    array([2., 3., 4.])
    """
    if by_position is not NOT_GIVEN or unknown:
        refuse_call("split_into", by_position, unknown, "outs")
    if outs is None:
        raise SplitTypeError("split_into", "outs=None", "must be a sequence of arrays")
    try:
        _split(x, split, axis, NOT_GIVEN, num_outputs, num_splits, indices, num_sections, outs)
    except SplitError as error:
        if isinstance(outs, np.ndarray) and isinstance(x, (list, tuple)):
            received = f"x of type {kind_of(x)} and outs of type {kind_of(outs)}"
            rule = "x is the array to split, and outs are the arrays for its parts"
            raise SplitTypeError("split_into", received, rule) from None
        raise error.named("split_into", keeps_hint=True, out="outs") from None


@overload
def plan_split(shape: Extents, split: Lengths, axis: Int = 0) -> SplitPlan: ...
@overload
def plan_split(shape: Extents, *, num_outputs: Int, axis: Int = 0) -> SplitPlan: ...
@overload
def plan_split(shape: Extents, *, num_splits: Int, axis: Int = 0) -> SplitPlan: ...
@overload
def plan_split(shape: Extents, *, indices: Indices, axis: Int = 0) -> SplitPlan: ...
@overload
def plan_split(shape: Extents, *, num_sections: Int, axis: Int = 0) -> SplitPlan: ...
@overload
def plan_split(shape: GiveExactlyOneRule, **by: Unpack[AnyRules]) -> SplitPlan: ...
@hide_traps
def plan_split(
    shape: Any,
    split: Lengths | None = None,
    axis: SupportsIndex = 0,
    by_position: Any = NOT_GIVEN,
    num_outputs: SupportsIndex | None = None,
    num_splits: SupportsIndex | None = None,
    indices: Indices | None = None,
    num_sections: SupportsIndex | None = None,
    **unknown: Any,
) -> SplitPlan:
    """Plan the split of an axis by exactly one rule.

    Parameters
    ----------
    shape : sequence of int
        Shape of the arrays to split, rank 1 or more.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        The length of each part, or one length for all parts; see `split`.
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    num_outputs, num_splits, indices, num_sections : optional
        The other rules, see `split`. Exactly one rule is given.

    Returns
    -------
    SplitPlan
        Frozen and hashable. Plans are cached: equal calls share one plan of up to 4096 parts.

    Raises
    ------
    SplitError
        If a value is out of range, the lengths do not sum to the axis length,
        the indices descend, or not exactly one rule is given.
    SplitTypeError
        If a value is not an integer. bool and float are not integers here.
    MemoryError
        If the plan would not fit into half of the memory.

    See Also
    --------
    split : Plan and split in one call.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.plan_split((16, 2304), [768, 768, 768], axis=-1).offsets
    (0, 768, 1536)
    >>> splitjit.plan_split((7,), 3).sizes
    (3, 3, 1)
    >>> splitjit.plan_split((5,), num_outputs=4).sizes
    (2, 2, 1, 0)
    >>> splitjit.plan_split((6,), num_sections=4).sizes
    (2, 2, 1, 1)
    >>> splitjit.plan_split((6,), indices=[1, -2]).sizes
    (1, 3, 2)
    """
    if by_position is not NOT_GIVEN or unknown:
        refuse_call("plan_split", by_position, unknown, "shape")
    rule = rule_of(split, num_outputs, num_splits, indices, num_sections)
    plan: SplitPlan = PLANS.plan(shape_of(shape), axis, rule)
    return plan
