"""What the operators share: integer inputs, and shapes with unknown dims.

An operator turns its attributes and inputs into a rule, the arguments of
`split`; a call splits an array by it, shape inference splits a shape by it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from types import EllipsisType
from typing import Any, SupportsIndex

from splitjit._core.arrays import as_array
from splitjit._core.dtypes import tensor_type
from splitjit._core.plan import (
    MAX_PARTS,
    Lengths,
    cached_plan,
    integer,
    integers,
    normalize_axis,
    sequence,
)
from splitjit.errors import SplitError, SplitTypeError, describe

Dim = int | str | None
"""An extent: known, known by a name alone, or unknown."""

SymbolicShape = tuple[Dim, ...]

Rule = tuple[int | Sequence[int] | None, int | None, int | None]
"""`split`, `num_outputs` and `num_splits` of `splitjit.split`, one of them given."""

INTEGERS = frozenset({f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)})


def count_attribute(name: str, value: Any) -> int:
    """Read an attribute that is a number of parts."""
    count = integer(name, value)
    if not 1 <= count <= MAX_PARTS:
        raise SplitError("split", describe(**{name: value}), f"must be in [1, {MAX_PARTS}]")
    return count


def integer_input(name: str, value: Any, types: Set[str], ranks: Collection[int]) -> Any:
    """Read an input that holds an integer or a list of them.

    Parameters
    ----------
    name : str
        What the operator calls it.
    value : array_like of int
        A Python int is taken as rank 0, a list or tuple of them as rank 1.
    types : set of str
        The integer types that an array may have.
    ranks : collection of int
        The ranks that it may have, of 0 and 1.

    Returns
    -------
    int or sequence
        Lists and tuples are returned as they are: the planner looks at what is in them.

    Raises
    ------
    SplitTypeError
        If it is an array of another type or rank.
    """
    if type(value) is int and 0 in ranks:
        return value
    if 1 in ranks:
        if type(value) is list or type(value) is tuple:
            return value
        if issubclass(type(value), (list, tuple)):
            return integers(name, value, _rule_of_input(types, ranks))
    return array_input(name, value, types, ranks)


def array_input(name: str, value: Any, types: Set[str], ranks: Collection[int]) -> Any:
    """Read an input that is an array: a Python number, or a list of them."""
    try:
        array = as_array(value)
    except SplitTypeError:
        pass
    else:
        if tensor_type(array.dtype) in types and array.ndim in ranks:
            return array.tolist()
    raise SplitTypeError("split", describe(**{name: value}), _rule_of_input(types, ranks))


def _rule_of_input(types: Set[str], ranks: Collection[int]) -> str:
    kinds = "an integer type" if types == INTEGERS else " or ".join(sorted(types))
    return f"must have rank {' or '.join(map(str, ranks))} and be of {kinds}"


def infer_shapes(
    shape: Sequence[Dim],
    axis: SupportsIndex,
    split: Lengths | None = None,
    num_outputs: int | None = None,
    num_splits: int | None = None,
) -> list[SymbolicShape | EllipsisType]:
    """Tell the shapes of the parts of a tensor some of whose dims are unknown.

    Parameters
    ----------
    shape : sequence of int, str or None
        Extents; a name or None stands for one that is unknown.
    axis : int
        The axis along which to split.
    split, num_outputs, num_splits
        The rule, as `splitjit.split` takes it.

    Returns
    -------
    list of tuple
        One shape a part, unknown dims None or, where they are those of the
        input, named as there. ``[shape, ...]``, with an Ellipsis, stands for
        any number of parts: an axis of unknown length cut into chunks.

    Raises
    ------
    SplitError
        If no tensor of such a shape can be split so.

    Examples
    --------
    >>> infer_shapes(["N", 5], 1, num_outputs=4)
    [('N', 2), ('N', 2), ('N', 1), ('N', 0)]
    >>> infer_shapes(["N", 5], 0, [2, 3])
    [(2, 5), (3, 5)]
    >>> infer_shapes(["N", 5], 0, num_outputs=2)
    [(None, 5), (None, 5)]
    >>> infer_shapes(["N", 5], 0, 1)
    [(1, 5), Ellipsis]
    """
    dims = as_dims(shape)
    index = normalize_axis(axis, dims)
    length = dims[index]

    def part(size: Dim) -> SymbolicShape:
        return (*dims[:index], size, *dims[index + 1 :])

    # Where the length is unknown, plan one that fits, to have the rule checked.
    if split is not None and not isinstance(split, int):
        split = integers("split", split)
    fitting = max(sum(split), 0) if isinstance(split, tuple) else 0
    extent = length if isinstance(length, int) else fitting
    try:
        plan = cached_plan((extent,), split, 0, num_outputs, num_splits)
    except SplitError as error:
        rule = {"split": split, "num_outputs": num_outputs, "num_splits": num_splits}
        given = {name: value for name, value in rule.items() if value is not None}
        received = describe(**given, axis=axis, shape=dims)
        raise type(error)(error.operator, received, error.rule) from None

    if isinstance(length, int) or isinstance(split, tuple):
        return [part(size) for size in plan.sizes]
    if split is not None:  # all chunks are full only where they are single elements
        return [part(1 if split == 1 else None), ...]
    return [part(length if len(plan) == 1 else None) for _ in plan.sizes]


def _is_name(dim: Any) -> bool:
    return issubclass(type(dim), str)


def as_dims(shape: Sequence[Dim]) -> SymbolicShape:
    """Check that a shape is made of dims, and make plain integers of those that are known."""
    given = sequence(shape)
    if given is None:
        raise SplitTypeError("split", describe(shape=shape), "must be a sequence of dims")
    rule = "a dim must be an integer, a name or None"
    dims = tuple(
        [d if d is None or _is_name(d) else integer("shape", d, rule, shape) for d in given]
    )
    if any(isinstance(dim, int) and dim < 0 for dim in dims):
        raise SplitError("split", describe(shape=dims), "extents must be at least 0")
    return dims
