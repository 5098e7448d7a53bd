"""Arguments: turn user input into plain Python integers, tuples and a `Rule`.

Lengths may be arrays of any library. They are read through the protocols that all array
libraries share (``__index__``, ``tolist``), so no library is imported. Methods of foreign
classes may raise anything; the functions here turn that into a refusal.
"""

import contextlib
import inspect
import operator
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypedDict, TypeVar

from splitjit._plan import rules
from splitjit.errors import (
    OUT,
    SplitError,
    SplitTypeError,
    did_you_mean,
    kind_of,
    pairs,
    param,
    shorten,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices = Sequence[SupportsIndex] | NDArray[np.integer[Any]]
else:  # `typing.get_type_hints` would look up names that the planner does not import
    Indices = Sequence[SupportsIndex]

Shape = tuple[int, ...]

Lengths = SupportsIndex | Sequence[SupportsIndex]
"""The type of `split`. To type checkers, integer arrays of any rank have ``__index__``, too."""


class OtherRules(TypedDict, total=False):
    """The parameters that give a rule, except `split`; see `named_rule`."""

    num_outputs: SupportsIndex | None
    num_splits: SupportsIndex | None
    indices: Indices | None
    num_sections: SupportsIndex | None


class AnyRules(OtherRules, total=False):
    """The parameters of the overload for calls that do not give exactly one rule."""

    axis: SupportsIndex


_KINDS_OF_SPLIT = "must be an integer, a sequence of integers or a 1-D integer array"
_KINDS_OF_INDICES = "must be a sequence of integers or a 1-D integer array"


# ---- how many parts fit in memory -----------------------------------------------------------

_BYTES_PER_PART = 208  # measured size of the tuples, integers and slices of a plan


try:
    _MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
except (AttributeError, OSError, ValueError):  # Windows does not say it in this way
    _MEMORY = 1 << 32

MOST_IN_MEMORY = min(max(10**6, _MEMORY // 2 // _BYTES_PER_PART), rules.MAX_PARTS)
"""The most parts allowed: enough to fill half of memory, but at least a million.

Beyond that, the system could kill the process. Of unknown memory, 4 GB count.
"""


# ---- the rule ----------------------------------------------------------------------------


def rule_of(
    split: Any = None,
    num_outputs: Any = None,
    num_splits: Any = None,
    indices: Any = None,
    num_sections: Any = None,
) -> rules.Rule:
    """Return the rule given by the parameters of `splitjit.split`.

    This runs on every call, before any cache: a cache cannot tell True and 1.0 from 1.

    Raises
    ------
    SplitError
        If not exactly one of the parameters differs from None.
    SplitTypeError
        If a value is not an integer. `split` may also be a sequence of integers, and
        `indices` must be one.
    """
    if num_outputs is num_splits is indices is num_sections is None:  # the fast path
        if type(split) is int:
            return rules.CHUNK, split
        lengths = tuple(split) if type(split) is list else split
        if type(lengths) is tuple:
            for value in lengths:
                if type(value) is not int:
                    break
            else:
                return rules.LENGTHS, lengths
    elif split is num_outputs is indices is num_sections is None and type(num_splits) is int:
        return rules.NUM_SPLITS, num_splits
    elif split is num_splits is indices is num_outputs is None and type(num_sections) is int:
        return rules.NUM_SECTIONS, num_sections
    elif split is num_splits is indices is num_sections is None and type(num_outputs) is int:
        return rules.NUM_OUTPUTS, num_outputs
    values = split, num_outputs, num_splits, indices, num_sections
    named = zip(rules.NAMES, values, strict=True)
    given = {name: value for name, value in named if value is not None}
    if len(given) != 1:
        raise SplitError.of(pairs(**given) or "no rule", rules.ONE_RULE)
    ((name, value),) = given.items()
    try:
        if name == "split" and hasattr(type(value), "__index__") and _has_rank(value, 0):
            return rules.CHUNK, integer(name, value, _KINDS_OF_SPLIT)
        if name == "split":
            return rules.LENGTHS, integers(name, value, _KINDS_OF_SPLIT)
        if name == "indices":
            return rules.INDICES, integers(name, value, _KINDS_OF_INDICES)
        return rules.PARAMETERS.index(name), integer(name, value)
    except SplitTypeError as error:
        hint = _hint(name, value)
        raise SplitTypeError.of(pairs(**{name: value}), error.rule, hint) from None


def named_rule(operator: str, split: Any, others: Mapping[str, Any]) -> rules.Rule:
    """Return the rule of a function that takes all rules but `split` as ``**others``."""
    if unknown := {name: others[name] for name in others if name not in rules.NAMES}:
        refuse_call(operator, NOT_GIVEN, unknown, "out", "copy")
    return rule_of(split, **others)


# ---- calls of a wrong form ---------------------------------------------------------------

NOT_GIVEN: Any = object()
"""The default of `by_position`, the parameter that catches a rule after `axis` without a name."""

Function = TypeVar("Function", bound=Callable[..., Any])


def hide_traps(function: Function) -> Function:
    """Hide the parameters that only catch wrong calls from `inspect.signature`.

    They are `by_position` and ``**unknown``. A value that arrives in `by_position` was meant for a
    rule that is keyword-only. Python's own keyword-only parameters would make a call slower.
    """
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    at = list(signature.parameters).index("by_position")
    by_name = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters[at + 1 : -1]]
    shown = signature.replace(parameters=parameters[:at] + by_name)
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function


def refuse_call(operator: str, by_position: Any, unknown: dict[str, Any], *own: str) -> NoReturn:
    """Refuse what `hide_traps` hides; `own` are the parameters that other functions lack."""
    if by_position is not NOT_GIVEN:
        rule = "rules after axis must be given by name"
        raise SplitTypeError(operator, pairs(argument=by_position), rule)
    name, value = next(iter(unknown.items()))
    raise unknown_parameter(operator, name, value, (*rules.NAMES, "axis", *own))


def unknown_parameter(
    operator: str, name: str, value: Any, known: Collection[str]
) -> SplitTypeError:
    """Return the refusal of a misspelt parameter, which names the nearest one."""
    rule = f"there is no parameter {name}{did_you_mean(name, known)}"
    return SplitTypeError(operator, pairs(**{name: value}), rule)


def _hint(name: str, value: Any) -> str:
    """Return a likely fix for the value of a rule that is of the wrong kind."""
    values = sequence(value, arrays=True)
    floats = [n for n in (values or (value,)) if issubclass(type(n), float)]
    if name == "split" and 1 < len(floats) == len(values or ()) and abs(sum(floats) - 1) < 1e-6:
        lengths = ", ".join([f"int({n} * n)" for n in floats[:-1]])
        return f"for an axis of length n, pass split=[{lengths}, -1]"
    if floats:
        return "convert floats by int(), or divide integers by //"
    if values and name in rules.COUNTS:
        return f"pass lengths as split={shorten(value)}"
    if hasattr(type(value), "__next__"):
        return f"pass list({param(name)})"
    if name == "indices" and values is None:
        with contextlib.suppress(SplitTypeError):
            n = shorten(integer(name, value))
            return f"pass indices=[{n}] to cut there, or num_sections={n} for so many parts"
    return ""


# ---- shapes and axes ---------------------------------------------------------------------


def shape_of(shape: Sequence[SupportsIndex]) -> Shape:
    """Return a shape as a tuple of integers."""
    try:
        extents = integers("shape", shape if _has_rank(shape, 1) else None)
    except SplitTypeError as error:
        kind: type = type(shape)
        received, hint = error.texts[0], ""
        if hasattr(kind, "__index__") and kind is not bool and not hasattr(kind, "__len__"):
            received, hint = pairs(shape=shape), f"pass ({shorten(integer('shape', shape))},)"
        elif hasattr(kind, "shape"):
            received, hint = f"shape of type {kind_of(shape)}", "pass x.shape"
        raise SplitTypeError.of(received, error.rule, hint) from None
    if extents and min(extents) < 0:
        raise SplitError.of(pairs(shape=extents), "extents must be at least 0")
    return extents


def normalize_axis(axis: SupportsIndex, shape: Sequence[object]) -> int:
    """Return the axis counted from the front. Only the rank of the shape matters."""
    rank = len(shape)
    if type(axis) is int and 0 <= axis < rank:
        return axis
    index, fault = rules.wrap_axis(integer("axis", axis), rank)
    if fault:
        rule = rules.AXIS_FAULT.format(axis, rank, rank - 1)
        if rank == 0:
            rule = "rank 0 has no axis to split"
        raise SplitError.of(pairs(axis=axis, shape=shape), rule)
    return index


# ---- out and copy ------------------------------------------------------------------------


def check_copy(out: Any, copy: Any) -> None:
    """Refuse a `copy` that is not a bool, and `out` together with ``copy=False``."""
    if not isinstance(copy, bool):
        raise SplitTypeError.of(pairs(copy=copy), "must be a bool")
    if out is not None:
        raise SplitError.of(f"{pairs(copy=copy)} and {OUT}", f"views are not written to {OUT}")


def listed(out: Any) -> list[Any]:
    """Return the arrays of `out` in a new list; refuse anything but a sequence.

    A sequence is read only once, because it may give other arrays next time.
    """
    given = sequence(out)
    if given is None:
        received = f"{OUT} of type {kind_of(out)}"
        raise SplitTypeError.of(received, "must be a sequence of arrays", _hint_of_list(out))
    return list(given)


def _hint_of_list(value: Any) -> str:
    """Return how to make a list of arrays of a value that is no sequence."""
    kind = type(value)
    if issubclass(kind, Mapping):
        return f"pass list({OUT}.values())"
    # The items of other arrays, such as a dataset of h5py, are copies.
    return f"pass list({OUT})" if {"strides", "stride", "__next__"} & {*dir(kind)} else ""


# ---- integers ----------------------------------------------------------------------------


def _has_rank(value: Any, rank: int) -> bool:
    """Return whether a value is an array of a rank, or no array at all."""
    try:
        return bool(getattr(value, "ndim", rank) == rank)
    except Exception:  # a foreign class may raise anything
        return False


def integer(name: str, value: Any, rule: str = "must be an integer", received: Any = None) -> int:
    """Return an object with ``__index__`` as an int; refuse bool and float.

    The refusal shows `received`, or `value` if `received` is None.
    """
    if type(value) is int:
        return value
    try:
        plain = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(plain, bool) or getattr(value, "ndim", 0) != 0:
            raise TypeError  # a torch tensor has an __index__ even in these cases
        return operator.index(value)
    except Exception:  # a foreign class may raise anything
        received = value if received is None else received
        raise SplitTypeError.of(pairs(**{name: received}), rule) from None


def integers(name: str, values: Any, rule: str = "must be a sequence of integers") -> Shape:
    """Return a sequence of integers or an integer array as a tuple; refuse bool and float."""
    read = sequence(values, arrays=True)
    if read is None:
        raise SplitTypeError.of(pairs(**{name: values}), rule)
    for value in read:
        if type(value) is not int:
            return tuple([integer(name, value, rule, values) for value in read])
    return read


def sequence(values: Any, arrays: bool = False) -> tuple[Any, ...] | None:
    """Return the items as a tuple, or None if `values` is not a readable sequence.

    The sequence is read only once, since its contents may change.

    Parameters
    ----------
    values : object
        A sequence; text and bytes are refused.
    arrays : bool, default False
        Whether an integer array is accepted, too.
    """
    if type(values) is list or type(values) is tuple:
        return tuple(values)
    try:
        if arrays and hasattr(values, "tolist"):
            kind = getattr(getattr(values, "dtype", None), "kind", "i")
            values = values.tolist() if kind in "iu" else None
        if not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray)):
            return None
        if len(values) > MOST_IN_MEMORY:
            raise MemoryError(f"split: {shorten(values)}: not enough memory for a plan")
        return tuple(values)
    except MemoryError:
        raise
    except Exception:  # a foreign class may raise anything
        return None
