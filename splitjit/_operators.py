"""Helpers that the operators share: integer inputs, and shapes with unknown dims.

An operator turns its attributes and inputs into a `Rule`. A call splits an array by the
rule; shape inference splits a shape by the rule.
"""

import functools
import inspect
import math
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, SupportsIndex, TypeVar

from splitjit._api.split_plan import PLANS
from splitjit._inputs.arrays import as_array
from splitjit._inputs.torch.tensors import is_compiling, is_tensor
from splitjit._plan.arguments import integer, integers, normalize_axis, sequence, unknown_parameter
from splitjit._plan.plan import values_of_rule
from splitjit._plan.rules import CHUNK, MAX_PARTS, NUM_SPLITS, Rule
from splitjit._tensor_types import tensor_type
from splitjit.errors import SplitError, SplitTypeError, pairs

Dim = int | str | tuple[int, int] | None
"""An extent: a known integer, or the name or the interval of an unknown extent, or None.

An interval holds the smallest and the largest extent. -1 stands for no largest extent, as in
OpenVINO.
"""

SymbolicShape = tuple[Dim, ...]

InferredShape = SymbolicShape | Any
"""The shape of a part, None if its rank is unknown, or an Ellipsis for any number of parts.

Type checkers see `Any`, so that callers who pass known dims need not rule out the other two.
"""


Operator = TypeVar("Operator")


def refusing_as(title: str, **names: str) -> Callable[[type[Operator]], type[Operator]]:
    """Make the methods of an operator refuse in its name, and a misspelt parameter with a hint.

    Parameters
    ----------
    title : str
        The name of the operator, unless it has an attribute `_name`.
    **names : str
        The operator's names of parameters of `splitjit.split`; see `SplitError.named`.
    """

    def decorate(operator: type[Operator]) -> type[Operator]:
        for name in {"__init__", "__call__", "infer_shapes"} & vars(operator).keys():
            setattr(operator, name, _refusing_as(title, names, vars(operator)[name]))
        return operator

    return decorate


def _refusing_as(title: str, names: dict[str, str], method: Callable[..., Any]) -> Any:
    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **named: Any) -> Any:
        try:
            return method(self, *args, **named)
        except SplitError as error:
            raise error.named(getattr(self, "_name", title), keeps_hint=False, **names) from None
        except TypeError:
            operator, signature = getattr(self, "_name", title), inspect.signature(method)
            known = [*signature.parameters][1:]
            for name in [name for name in named if name not in known]:
                raise unknown_parameter(operator, name, named[name], known) from None
            try:
                signature.bind(self, *args, **named)
            except TypeError as wrong:
                received = pairs(arguments=args, **named)
                hint = f"pass {', '.join(known)} by name" if known else ""
                raise SplitTypeError(operator, received, str(wrong), hint=hint) from None
            raise

    return call


@refusing_as("Unknown")
@dataclass(frozen=True, slots=True)
class Unknown:
    """An input whose value is known only at run time, for ``infer_shapes``.

    It may stand for the lengths of the parts, for the axis of an OpenVINO operator, or
    for the shape of the tensor.

    Parameters
    ----------
    length : int, optional
        The number of lengths, or the rank of the tensor, if that is known.

    Raises
    ------
    SplitError
        If ``length`` is not an integer, or is out of range.

    See Also
    --------
    splitjit.onnx.Split : An operator whose inputs may be unknown.

    Examples
    --------
    >>> from splitjit.onnx import Split, Unknown
    >>> Split(opset=13, outputs=3).infer_shapes([6, "N"])  # the node has no input `split`
    [(2, 'N'), (2, 'N'), (2, 'N')]
    >>> Split(opset=13, outputs=3).infer_shapes([6, "N"], Unknown())  # it has one
    [(None, 'N'), (None, 'N'), (None, 'N')]
    >>> Split(opset=13).infer_shapes([6, "N"], Unknown(2))
    [(None, 'N'), (None, 'N')]
    >>> Split(opset=13).infer_shapes([6, "N"], Unknown())
    [(None, 'N'), Ellipsis]
    """

    length: int | None = None

    def __post_init__(self) -> None:
        if self.length is not None:
            object.__setattr__(self, "length", count_attribute("length", self.length, 0))


INTEGERS = frozenset({f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)})


def count_attribute(name: str, value: Any, least: int = 1) -> int:
    """Return an attribute that is a number of parts."""
    count = integer(name, value)
    if not least <= count <= MAX_PARTS:
        raise SplitError.of(pairs(**{name: count}), f"must be in [{least}, {MAX_PARTS}]")
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
    int or sequence of int

    Raises
    ------
    SplitTypeError
        If `value` is an array of another type or rank, or holds anything but integers.
    """
    if type(value) is int and 0 in ranks:
        return value
    if 1 in ranks and issubclass(type(value), (list, tuple)):
        return integers(name, value, _rule_of_input(types, ranks))
    return array_input(name, value, types, ranks)


def array_input(name: str, value: Any, types: Set[str], ranks: Collection[int]) -> Any:
    """Return an input that is an array as a number or a list of numbers."""
    try:
        # torch.compile cannot trace the dtype of an array.
        array = value if is_tensor(value) and is_compiling() else as_array(value)
        if tensor_type(array.dtype) in types and array.ndim in ranks:
            return array.tolist()
    except SplitTypeError:
        pass
    raise SplitTypeError.of(pairs(**{name: value}), _rule_of_input(types, ranks))


def _rule_of_input(types: Set[str], ranks: Collection[int]) -> str:
    kinds = "an integer type" if types == INTEGERS else " or ".join(sorted(types))
    return f"must have rank {' or '.join(map(str, ranks))} and be of {kinds}"


def infer_shapes(
    shape: Any, axis: SupportsIndex | Unknown, rule: Rule | tuple[int, Unknown]
) -> list[InferredShape]:
    """Return the shapes of the parts of a tensor that may have unknown dims.

    Parameters
    ----------
    shape : sequence of int, str, tuple or None, or Unknown
        Extents. A name, an interval or None stands for an unknown extent. An
        ``openvino.PartialShape`` is accepted, too.
    axis : int or Unknown
        The axis along which to split.
    rule : Rule
        The rule by which to split. The lengths may be `Unknown`.

    Returns
    -------
    list of tuple
        One shape per part. An unknown dim has the name or interval that it has in
        `shape` if both dims are equal, and is None otherwise. If the axis has an
        interval, a part has the interval of its lengths for all axis lengths that fit
        the rule. If the axis is unknown, all dims are None. If the rank is unknown, the
        shape is None. ``[shape, ...]``, with an Ellipsis, stands for any number of parts.

    Raises
    ------
    SplitError
        If the rule fits no tensor of such a shape.

    Examples
    --------
    >>> from splitjit._plan.rules import LENGTHS, NUM_OUTPUTS
    >>> infer_shapes(["N", 5], 1, (NUM_OUTPUTS, 4))
    [('N', 2), ('N', 2), ('N', 1), ('N', 0)]
    >>> infer_shapes(["N", 5], 0, (LENGTHS, (2, 3)))
    [(2, 5), (3, 5)]
    >>> infer_shapes(["N", 5], 0, (NUM_OUTPUTS, 2))
    [(None, 5), (None, 5)]
    >>> infer_shapes(["N", 5], 0, (CHUNK, 1))
    [(1, 5), Ellipsis]
    >>> infer_shapes([(9, 10), 5], 0, (NUM_OUTPUTS, 3))
    [((3, 4), 5), ((3, 4), 5), ((2, 3), 5)]
    >>> infer_shapes(["N", 5], Unknown(), (NUM_SPLITS, 2))
    [(None, None), (None, None)]
    >>> infer_shapes(Unknown(), 0, (LENGTHS, Unknown(2)))
    [None, None]
    """
    dims = _dims(shape)
    length, part_of = _along(axis, dims)
    try:
        sizes = _sizes(length, rule)
    except SplitError as error:
        raise type(error).of(values_of_rule(dims, axis, rule), error.texts[1]) from None
    return [... if size is ... else part_of(size) for size in sizes]


def _along(
    axis: SupportsIndex | Unknown, dims: SymbolicShape | Unknown
) -> tuple[Dim, Callable[[Dim], SymbolicShape | None]]:
    """Return the extent of the axis, and a function from a part's extent to its shape."""
    if isinstance(dims, Unknown):
        return None, lambda size: None
    if isinstance(axis, Unknown):
        normalize_axis(0, dims)  # refuses rank 0
        return None, lambda size: (None,) * len(dims)
    index = normalize_axis(axis, dims)
    return dims[index], lambda size: (*dims[:index], size, *dims[index + 1 :])


def _sizes(length: Dim, rule: Rule | tuple[int, Unknown]) -> Sequence[Dim | EllipsisType]:
    """Return the length of each part, and an Ellipsis if there may be any number of parts."""
    kind, value = rule
    low, high = _bounds(length)
    if isinstance(value, Unknown):
        if value.length is None:
            return [None, ...]
        if value.length > 0:
            return [length if value.length == 1 or high == 0 else None] * value.length
        value = ()
    known = kind, value
    plans = [PLANS.plan((n,), 0, known).sizes for n in _decisive_lengths(known, low, high)]
    if isinstance(value, int) and kind == CHUNK and high > -(-low // value) * value:
        # The number of parts varies. The last part has any length up to a chunk's.
        is_bounded = isinstance(length, tuple) or value == 1
        return [_interval(1, int(min(value, high))) if is_bounded else None, ...]
    given = value if isinstance(value, tuple) else (-1,) * len(plans[0])
    if sum(given) == -1:  # all other parts are empty
        return [length if n == -1 else n for n in given]
    return [
        n if n >= 0 else _interval(min(each), -1 if high == math.inf else max(each))
        for n, each in zip(given, zip(*plans, strict=True), strict=True)
    ]


def _bounds(dim: Dim) -> tuple[int, float]:
    """Return the smallest and the largest extent that a dim may have."""
    if isinstance(dim, int):
        return dim, dim
    low, high = dim if isinstance(dim, tuple) else (0, -1)
    return low, math.inf if high == -1 else high


def _decisive_lengths(rule: Rule, low: int, high: float) -> Collection[int]:
    """Return axis lengths within bounds that fit a rule, or one that a plan refuses if none fits.

    Among them are those where a part is shortest or longest. Without an upper bound, only those
    where it is shortest.

    With `num_outputs`, the parts grow with the axis up to a multiple of their number. At the next
    length, ceil(length / n) grows by one, and the last parts shrink.
    """
    kind, value = rule
    ends = {low} if high == math.inf else {low, int(high)}
    if isinstance(value, tuple):
        total = sum(value) + (-1 in value)  # without the -1 of the rest
        return {int(min(max(total, low), high)), *[n for n in ends if n > total and -1 in value]}
    if kind == CHUNK:
        return {low, int(min(low + value, high))}  # beyond, the number of parts varies
    near = [n - n % value + above for n in ends for above in (0, 1, value, value + 1)]
    step = value if kind == NUM_SPLITS else 1
    return {n for n in (*ends, *near) if low <= n <= high and n % step == 0} or {low}


def _dims(shape: Any) -> SymbolicShape | Unknown:
    """Return a shape as a tuple of dims, the known dims as plain integers.

    A shape of unknown rank is `Unknown`.
    """
    if _is_of_openvino(shape, "PartialShape"):
        shape = list(shape) if shape.rank.is_static else Unknown()
    if type(shape) is Unknown:
        return shape if shape.length is None else (None,) * shape.length
    given = sequence(shape)
    if given is None:
        raise SplitTypeError.of(pairs(shape=shape), "must be a sequence of dims")
    return tuple([_dim(dim, given) for dim in given])


def _dim(dim: Any, shape: tuple[Any, ...]) -> Dim:
    if dim is None or issubclass(type(dim), str):
        return dim  # type: ignore[no-any-return]
    if _is_of_openvino(dim, "Dimension"):
        dim = dim.get_min_length(), dim.get_max_length()
    rule = "a dim must be an integer, a name, an interval or None"
    bounds = dim if type(dim) is tuple and len(dim) == 2 else (dim, dim)
    low, high = [integer("shape", bound, rule, shape) for bound in bounds]
    if low < 0 or -1 != high < low:
        rule = "extents must be at least 0, and bounds in order; pass None for an unknown dim"
        raise SplitError.of(pairs(shape=shape), rule)
    return _interval(low, high)


def _is_of_openvino(value: Any, name: str) -> bool:
    """Return whether a value has a class of OpenVINO, which need not be installed."""
    kind = type(value)
    return kind.__name__ == name and str(kind.__module__).startswith("openvino")


def _interval(low: int, high: int) -> Dim:
    """Return an interval, or an integer or None if that means the same."""
    if low == high:
        return low
    return None if (low, high) == (0, -1) else (low, high)
