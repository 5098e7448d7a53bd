"""Plans as data: a shape, an axis, and where each part starts and how long it is.

A plan holds Python integers only. `splitjit.SplitPlan` adds the public methods.
"""

import functools
import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

from splitjit._plan import rules
from splitjit._plan.arguments import (
    MOST_IN_MEMORY,
    Shape,
    integer,
    integers,
    normalize_axis,
    shape_of,
)
from splitjit.errors import SplitError, X, describe, pairs, param, shorten

_SHOWN = 32  # more parts than a text shows

_COLUMNS = 40
"""The width of a drawing, without borders, if no cell is widened for its label."""

MOST_PARTS = 1 << 12
"""Plans of more parts are not cached, and keep nothing for later calls."""

_ROOM = 1 << 15
"""The most parts of all plans in a cache together."""

Index = tuple[slice, ...]

_MOST_HOWS = 16

_LEAST_PARTS = 32
"""Plans of fewer parts count as this many, because they take as much memory."""


def indices_of(axis: int, sizes: Shape) -> list[Index]:
    """Return the index of each part: ``x[index]`` is a view of the part."""
    whole, start = (slice(None),) * axis, 0
    return [(*whole, slice(start, start := start + size)) for size in sizes]


# The attributes that a plan derives when they are first read.
_OFFSETS: Any = functools.cached_property(
    lambda plan: tuple(itertools.accumulate(plan.sizes[:-1], initial=0))[: len(plan)]
)
_OUTPUT_SHAPES: Any = functools.cached_property(
    lambda plan: tuple([plan._shape_of_part(size) for size in plan.sizes])
)
_SLICES: Any = functools.cached_property(lambda plan: tuple(indices_of(plan.axis, plan.sizes)))


@dataclass(frozen=True, repr=False)
class Plan:
    """Where the parts of an axis start and how long they are; see `splitjit.SplitPlan`.

    Attributes
    ----------
    _hows : dict
        How arrays of some dtypes and strides are copied; see `splitjit._copy.how`.
    _how, _join : object or None
        The one of them that was used last to split, and to join.
    """

    # `__dict__` holds the derived attributes. What later calls need is no field, because
    # `dataclasses.asdict` would copy it.
    __slots__ = ("__dict__", "_how", "_hows", "_join", "axis", "shape", "sizes")

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    offsets: tuple[int, ...] = field(init=False, compare=False, default=_OFFSETS)
    output_shapes: tuple[tuple[int, ...], ...] = field(
        init=False, compare=False, default=_OUTPUT_SHAPES
    )
    slices: tuple[Index, ...] = field(init=False, compare=False, default=_SLICES)

    def __post_init__(self) -> None:
        shape = shape_of(self.shape)
        axis = normalize_axis(self.axis, shape)
        lengths = integers("sizes", self.sizes)
        self._set(shape, axis, sizes_of(shape, axis, (rules.LENGTHS, lengths), len(lengths)))

    def _set(self, shape: Shape, axis: int, sizes: Shape) -> None:
        """Set the attributes. The caller has checked the values."""
        self._hows: dict[Any, Any]
        self._how: Any
        self._join: Any
        put = object.__setattr__  # the dataclass is frozen
        put(self, "shape", shape)
        put(self, "axis", axis)
        put(self, "sizes", sizes)
        put(self, "_hows", {})
        put(self, "_how", None)
        put(self, "_join", None)

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.sizes)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield where each part starts, and its length."""
        return zip(self.offsets, self.sizes, strict=True)

    def __repr__(self) -> str:
        shapes = tuple([self._shape_of_part(size) for size in self.sizes[:_SHOWN]])
        values = describe(shape=self.shape, axis=self.axis, sizes=self.sizes, output_shapes=shapes)
        return f"SplitPlan({values})"

    def __str__(self) -> str:
        """Draw the parts in ASCII, nearly to scale: their sizes, and below where they start."""
        count, length = len(self.sizes), self.shape[self.axis]
        title = describe(shape=self.shape, axis=self.axis, parts=count)
        if not count:
            return title
        cuts = [*range(count + 1)] if count <= 8 else [*range(5), *range(count - 3, count + 1)]
        starts = [length if part == count else self.offsets[part] for part in cuts]
        border, sizes, below = "+", "|", ""
        for i, (at, stop) in enumerate(itertools.pairwise(starts)):
            size, start = stop - at, shorten(at)
            label = f" {shorten(size)} " if cuts[i + 1] == cuts[i] + 1 else " ... "
            width = max(_COLUMNS * size // max(length, 1), len(label), len(start))
            border += "-" * width + "+"
            sizes += label.center(width) + "|"
            below += start.ljust(width + 1)
        return "\n".join([title, border, sizes, border, below + shorten(length)])

    def _shape_of_part(self, size: int) -> Shape:
        """Return the shape of a part, given its length."""
        return (*self.shape[: self.axis], size, *self.shape[self.axis + 1 :])

    def _keep(self, key: Hashable, how: object) -> None:
        """Keep how arrays are copied for later calls: of a few dtypes and strides.

        Threads share this without a lock: a race may drop it, and it is then made again.
        """
        if len(self.sizes) <= MOST_PARTS:
            if len(self._hows) >= _MOST_HOWS:
                self._hows.clear()
            self._hows[key] = how

    def _use(self, how: object, slot: str = "_how") -> None:
        """Remember how the last array was copied, which a slot gives faster than a dict."""
        if len(self.sizes) <= MOST_PARTS:
            object.__setattr__(self, slot, how)  # the dataclass is frozen


def check_shape(plan: Plan, shape: tuple[Any, ...]) -> None:
    """Refuse an array whose shape is not the plan's. Extents that Dask does not know are NaN."""
    if shape != plan.shape:
        unlike = [1 for n, m in zip(shape, plan.shape, strict=False) if n == n and n != m]
        if unlike or len(shape) != len(plan.shape):
            received = f"{X} of shape {tuple(shape)}"
            raise SplitError.of(received, f"the plan is for shape {plan.shape}")


# ---- sizes -------------------------------------------------------------------------------


def sizes_of(shape: Shape, axis: int, rule: rules.Rule, most: int) -> Shape:
    """Return the part sizes that a rule gives for an axis.

    Raises
    ------
    SplitError
        If the rule refuses the axis length.
    MemoryError
        If there are more than `most` parts.
    """
    kind, value = rule
    length = shape[axis]
    if isinstance(value, tuple):
        count = len(value) + (kind == rules.INDICES)
        if kind == rules.INDICES:
            lengths = [0] * count
            number, fault = rules.lengths_between(value, len(value), length, lengths)
        elif value and sum(value) == length and min(value) >= 0 and count <= most:
            return value  # found by functions in C, faster than by `check_lengths`
        else:
            lengths = list(value)
            number, fault = rules.check_lengths(lengths, count, length, sum(value) + count)
        value = tuple(lengths)
    else:
        number = value
        count, fault = rules.count_parts(kind, value, length)
    if fault:
        numbers = [shorten(n) for n in (number, length, count)]
        texts = rules.FAULTS[kind][fault], _hint(shape, axis, rule, fault, number)
        filled = [text.format(*numbers) for text in texts]
        raise SplitError.of(values_of_rule(shape, axis, rule), *filled)
    if count > most:
        received, lack = values_of_rule(shape, axis, rule), "not enough memory for the plan"
        raise MemoryError(str(SplitError.of(received, lack)))
    return value if isinstance(value, tuple) else rules.sizes_of_parts(kind, value, count, length)


def _hint(shape: Shape, axis: int, rule: rules.Rule, fault: int, number: int) -> str:
    """Return a likely fix; see `HINTS`."""
    kind = rule[0]
    if kind == rules.LENGTHS and fault == rules.WRONG_LENGTH and shape.count(number) == 1:
        other = shape.index(number)
        return f"the lengths sum to the length of axis {other}: pass {param(f'axis={other}')}"
    if kind == rules.NUM_SPLITS and fault == rules.WRONG_LENGTH and number > 1:
        length = shape[axis]
        if length < number:
            return ""
        if -(-length // number) * (number - 1) >= length:  # the last part would be empty
            return "\0num_sections={0}\0 makes parts whose lengths differ by one"
    return rules.HINTS.get((kind, fault, number)) or rules.HINTS.get((kind, fault), "")


def values_of_rule(shape: Any, axis: Any, rule: tuple[int, Any]) -> str:
    """Return the values that a refusal names, as `pairs` does."""
    kind, value = rule
    return pairs(**{rules.PARAMETERS[kind]: value, "axis": axis, "shape": shape})


# ---- recently used plans --------------------------------------------------------------------


class PlanCache:
    """Recently used plans by shape, axis and rule, in a dict that is bounded by all their parts.

    A lookup moves nothing. When the dict is full, all plans are dropped, and those still in use are
    soon made again. Threads share it without a lock, as they share what a plan keeps.

    Parameters
    ----------
    kind : type of Plan
        The class of the plans.

    Attributes
    ----------
    get : callable
        Returns the plan for a key, or None.
    """

    def __init__(self, kind: type[Plan]) -> None:
        self._kind, self._parts = kind, 0
        self._plans: dict[Hashable, Any] = {}
        self.get = self._plans.get

    def plan(self, shape: Shape, axis: SupportsIndex, rule: rules.Rule) -> Any:
        """Plan the split of a shape of plain integers; equal calls share a plan."""
        axis = integer("axis", axis)
        plan = self.get((shape, axis, rule))
        return self.add((tuple(shape), axis, rule)) if plan is None else plan

    def add(self, key: tuple[Shape, int, rules.Rule]) -> Any:
        """Make the plan for a key, and keep it unless it has too many parts."""
        shape, axis, rule = key
        index = normalize_axis(axis, shape)
        sizes = sizes_of(shape, index, rule, MOST_IN_MEMORY)
        plan = object.__new__(self._kind)  # no second check of the values
        plan._set(shape, index, sizes)
        count = len(sizes)
        if count <= MOST_PARTS:
            parts = max(count, _LEAST_PARTS)
            if self._parts + parts > _ROOM:
                self.clear()
            self._parts += parts
            self._plans[key] = plan
        return plan

    def clear(self) -> None:
        """Drop all plans."""
        self._plans.clear()
        self._parts = 0
