"""Functions that the operators share: integer inputs, and shapes with unknown dims.

An operator makes a `Rule` of its attributes and inputs. A call splits an array by the
rule; shape inference splits a shape by the rule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from types import EllipsisType
from typing import Any, SupportsIndex

from splitjit._core.arguments import integer, integers, normalize_axis, sequence
from splitjit._core.arrays import as_array
from splitjit._core.dtypes import tensor_type
from splitjit._core.plan import cached_plan
from splitjit._core.rules import CHUNK, LENGTHS, MAX_PARTS, PARAMETERS, Rule
from splitjit.errors import SplitError, SplitTypeError, describe

Dim = int | str | None
"""An extent: a known integer, the name of an unknown extent, or None."""

SymbolicShape = tuple[Dim, ...]

INTEGERS = frozenset({f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)})


def count_attribute(name: str, value: Any) -> int:
    """Return an attribute that is a number of parts."""
    count = integer(name, value)
    if not 1 <= count <= MAX_PARTS:
        raise SplitError("split", describe(**{name: value}), f"must be in [1, {MAX_PARTS}]")
    return count


def integer_input(name: str, value: Any, types: Set[str], ranks: Collection[int]) -> Any:
    """Return an input that is an integer or a list of integers.

    Parameters
    ----------
    name : str
        The name of the input.
    value : array_like of int
        A Python int has rank 0, a list or tuple of ints has rank 1.
    types : set of str
        The integer types that an array may have.
    ranks : collection of int
        The ranks that the input may have: 0, 1 or both.

    Returns
    -------
    int or sequence
        Lists and tuples are returned unchanged, because `rule_of` checks their items.

    Raises
    ------
    SplitTypeError
        If `value` is an array of another type or rank.
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
    """Return the items of an input that is an array, as a number or a list of numbers."""
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
    rule: Rule,
) -> list[SymbolicShape | EllipsisType]:
    """Return the shapes of the parts of a tensor that may have unknown dims.

    Parameters
    ----------
    shape : sequence of int, str or None
        Extents. A name or None stands for an unknown extent.
    axis : int
        The axis along which to split.
    rule : Rule
        The rule by which to split.

    Returns
    -------
    list of tuple
        One shape per part. An unknown dim has the name that it has in `shape`
        if both dims are equal, and is None otherwise. ``[shape, ...]``, with an
        Ellipsis, stands for any number of parts: chunks of an axis of unknown
        length.

    Raises
    ------
    SplitError
        If the rule fits no tensor of such a shape.

    Examples
    --------
    >>> infer_shapes(["N", 5], 1, ("num_outputs", 4))
    [('N', 2), ('N', 2), ('N', 1), ('N', 0)]
    >>> infer_shapes(["N", 5], 0, ("lengths", (2, 3)))
    [(2, 5), (3, 5)]
    >>> infer_shapes(["N", 5], 0, ("num_outputs", 2))
    [(None, 5), (None, 5)]
    >>> infer_shapes(["N", 5], 0, ("chunk", 1))
    [(1, 5), Ellipsis]
    """
    dims = as_dims(shape)
    index = normalize_axis(axis, dims)
    length = dims[index]

    def part(size: Dim) -> SymbolicShape:
        return (*dims[:index], size, *dims[index + 1 :])

    kind, value = rule
    extent = length if isinstance(length, int) else _fitting_length(rule)
    try:
        plan = cached_plan((extent,), 0, rule)
    except SplitError as error:
        received = describe(**{PARAMETERS[kind]: value, "axis": axis, "shape": dims})
        raise type(error)(error.operator, received, error.rule, hint=error.hint) from None

    if isinstance(length, int) or kind == LENGTHS:
        return [part(size) for size in plan.sizes]
    if kind == CHUNK:  # the last chunk may be shorter, unless chunks have length 1
        return [part(1 if value == 1 else None), ...]
    return [part(length if len(plan) == 1 else None) for _ in plan.sizes]


def _fitting_length(rule: Rule) -> int:
    """Return an axis length that a rule fits, so that the rest of the rule can be checked."""
    _, value = rule
    return max(sum(value), 0) if isinstance(value, tuple) else 0


def _is_name(dim: Any) -> bool:
    return issubclass(type(dim), str)


def as_dims(shape: Sequence[Dim]) -> SymbolicShape:
    """Return a shape as a tuple of dims, the known dims as plain integers."""
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
