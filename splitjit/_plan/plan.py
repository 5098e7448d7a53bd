"""Plans as data: a shape, an axis, and where each part starts and how long it is.

A plan holds Python integers only. `splitjit.SplitPlan` adds the public methods.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, SupportsIndex

from splitjit._plan.arguments import Shape, integer, integers, normalize_axis, shape_of
from splitjit._plan.limits import MOST_IN_MEMORY
from splitjit._plan.rules import (
    FAULTS,
    HINTS,
    INDICES,
    LENGTHS,
    MAX_PARTS,
    NUM_SPLITS,
    PARAMETERS,
    TOO_MANY,
    WRONG_LENGTH,
    Rule,
    check_lengths,
    count_parts,
    lengths_between,
    sizes_of_parts,
)
from splitjit.errors import SplitError, describe, pairs, shorten

_SHOWN = 32  # more parts than a text shows

_COLUMNS = 40
"""The width of a drawing, without borders, if no cell is widened for its label."""

MOST_PARTS = 1 << 12
"""Plans of more parts are not cached, and keep no results."""

_ROOM = 1 << 14
"""The most parts of all recent plans together, and of all results of a plan."""

Index = tuple[slice, ...]

_MOST_RESULTS = 16

_LEAST_PARTS = 32
"""Plans of fewer parts count as this many, because they take as much memory."""


def indices_of(axis: int, sizes: Shape) -> list[Index]:
    """Return the index of each part: ``x[index]`` is a view of the part."""
    whole, start = (slice(None),) * axis, 0
    return [(*whole, slice(start, start := start + size)) for size in sizes]


def shape_of_part(plan: Plan, size: int) -> Shape:
    """Return the shape of a part of a plan, given its length."""
    return (*plan.shape[: plan.axis], size, *plan.shape[plan.axis + 1 :])


# The attributes that a plan derives when they are first read.
_OFFSETS: Any = functools.cached_property(
    lambda plan: tuple(itertools.accumulate(plan.sizes[:-1], initial=0))[: len(plan)]
)
_OUTPUT_SHAPES: Any = functools.cached_property(
    lambda plan: tuple([shape_of_part(plan, size) for size in plan.sizes])
)
_SLICES: Any = functools.cached_property(lambda plan: tuple(indices_of(plan.axis, plan.sizes)))


@dataclass(frozen=True, repr=False)
class Plan:
    """Where the parts of an axis start and how long they are; see `splitjit.SplitPlan`.

    Attributes
    ----------
    _kept : dict
        Results for later calls: each `Copy`, layouts of blocks, what torch copies; see `_keep`.
    _copy : object or None
        The `Copy` that was used last. A slot is read faster than a dict.
    """

    # `__dict__` holds the derived attributes. What later calls need is no field, because
    # `dataclasses.asdict` would copy it.
    __slots__ = ("__dict__", "_copy", "_kept", "axis", "shape", "sizes")

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
        self._set(shape, axis, sizes_of(shape, axis, (LENGTHS, lengths), len(lengths)))

    def _set(self, shape: Shape, axis: int, sizes: Shape) -> None:
        """Set the attributes. The caller has checked the values."""
        self._kept: dict[Any, Any]
        self._copy: Any
        put = object.__setattr__  # the dataclass is frozen
        put(self, "shape", shape)
        put(self, "axis", axis)
        put(self, "sizes", sizes)
        put(self, "_kept", {})
        put(self, "_copy", None)

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self.sizes)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield where each part starts, and its length."""
        return zip(self.offsets, self.sizes, strict=True)

    def __repr__(self) -> str:
        shapes = tuple([shape_of_part(self, size) for size in self.sizes[:_SHOWN]])
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

    def _keep(self, key: Hashable, result: object) -> None:
        """Keep a result for later calls: at most 16, fewer if there are many parts.

        The oldest results make room. Threads share them without a lock, because each step is one
        dict operation. A race may drop a result too early; it is then made again.
        """
        count = len(self.sizes)
        if count <= MOST_PARTS:
            self._kept[key] = result
            for oldest in list(self._kept)[: -min(_MOST_RESULTS, _ROOM // max(count, 1))]:
                self._kept.pop(oldest, None)

    def _forget(self) -> None:
        """Drop all results."""
        self._kept.clear()
        object.__setattr__(self, "_copy", None)  # the dataclass is frozen


def check_shape(plan: Plan, shape: tuple[Any, ...]) -> None:
    """Refuse an array whose shape is not the plan's."""
    if shape != plan.shape:
        received = [("x", f" of shape {shape}")]
        raise SplitError.of(received, f"the plan is for shape {plan.shape}")


# ---- sizes -------------------------------------------------------------------------------


def sizes_of(shape: Shape, axis: int, rule: Rule, most: int) -> Shape:
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
        count = len(value) + (kind == INDICES)
        if kind == INDICES:
            lengths = [0] * count
            number, fault = lengths_between(value, length, lengths)
        elif value and sum(value) == length and min(value) >= 0 and count <= most:
            return value  # found by functions in C, faster than by `check_lengths`
        else:
            lengths = list(value)
            number, fault = check_lengths(lengths, length, sum(value) + len(value))
        value = tuple(lengths)
        if not fault and count > MAX_PARTS:
            fault = TOO_MANY
    else:
        number = value
        count, fault = count_parts(kind, value, length)
    if fault:
        numbers = [shorten(n) for n in (number, length, count)]
        text, hint = FAULTS[kind][fault], _hint(shape, axis, rule, fault, number)
        received = pairs(**values_of_rule(shape, axis, rule))
        raise SplitError.of(received, text.format(*numbers), hint.format(*numbers))
    if count > most:
        described = describe(**values_of_rule(shape, axis, rule))
        raise MemoryError(f"split: {described}: not enough memory for the plan")
    return value if isinstance(value, tuple) else sizes_of_parts(kind, value, count, length)


def _hint(shape: Shape, axis: int, rule: Rule, fault: int, number: int) -> str:
    """Return a likely fix; see `HINTS`."""
    kind = rule[0]
    if kind == LENGTHS and fault == WRONG_LENGTH and shape.count(number) == 1:
        other = shape.index(number)
        return f"the lengths sum to the length of axis {other}: pass axis={other}"
    if kind == NUM_SPLITS and fault == WRONG_LENGTH and number > 1:
        length = shape[axis]
        if length < number:
            return ""
        if -(-length // number) * (number - 1) >= length:  # the last part would be empty
            return "num_sections={0} makes parts whose lengths differ by one"
    return HINTS.get((kind, fault, number)) or HINTS.get((kind, fault), "")


def values_of_rule(shape: Any, axis: Any, rule: tuple[int, Any]) -> dict[str, Any]:
    """Return the values that a refusal names."""
    kind, value = rule
    return {PARAMETERS[kind]: value, "axis": axis, "shape": shape}


# ---- recently used plans --------------------------------------------------------------------

_SEEN = 1 << 12
"""How many hashes of keys are noted to tell new keys from those that return."""


class PlanCache:
    """Recently used plans, in two generations.

    When the recent generation is full, it becomes the older one. So looking up a recent plan
    moves nothing, and takes one dict access. The plans of the previous older generation have long
    been unused. They are freed one by one, because freeing hundreds at once takes milliseconds.
    Threads share a cache as they share the results of a plan, see `Plan._keep`.

    A stream of shapes that are split once must neither pay for plans nor push out other plans. So
    `split` makes a plan when it sees a key for the second time.
    """

    kind: type[Plan] = Plan
    """The class of the plans that `cached_plan` makes; `splitjit._api.split_plan` sets it."""

    def __init__(self) -> None:
        self.recent: dict[Hashable, Any] = {}
        self.older: dict[Hashable, Any] = {}
        self.unused: list[Any] = []
        self._parts = 0
        self._seen = [0] * _SEEN

    def find_older(self, key: Hashable) -> Any:
        """Return an older plan and make it a recent one, or return None."""
        plan = self.older.pop(key, None)
        if plan is not None:
            self.add(key, plan)
        return plan

    def is_first(self, key: Hashable) -> bool:
        """Return whether a key has not been seen lately, and note that it has now."""
        number = hash(key)
        slot = number % _SEEN
        is_first = self._seen[slot] != number
        self._seen[slot] = number
        return is_first

    def add(self, key: Hashable, plan: Any) -> None:
        """Keep a plan as a recent one, unless it has too many parts."""
        if len(plan.sizes) > MOST_PARTS:
            return
        self.recent[key] = plan
        self._parts += max(len(plan.sizes), _LEAST_PARTS)
        if self._parts > _ROOM:
            self._parts = 0
            self.unused += list(self.older.values())
            self.older = self.recent.copy()
            self.recent.clear()
        self._forget(2)  # faster than plans are added

    def clear(self) -> None:
        """Drop all plans and their results."""
        self._parts = 0
        for plans in (self.recent, self.older):
            self.unused += list(plans.values())
            plans.clear()
        self._forget(len(self.unused))
        self._seen[:] = [0] * _SEEN

    def _forget(self, most: int) -> None:
        """Free the results of unused plans, and drop the plans."""
        for _ in range(most):
            try:
                self.unused.pop()._forget()
            except IndexError:  # all are dropped
                return


PLANS = PlanCache()

recent_plan, is_first = PLANS.recent.get, PLANS.is_first


def cached_plan(shape: Shape, axis: SupportsIndex, rule: Rule) -> Any:
    """Plan the split of a shape of plain integers; equal calls share a plan."""
    if type(axis) is not int:
        axis = integer("axis", axis)
    key = shape, axis, rule
    plan = recent_plan(key)
    if plan is None and (plan := PLANS.find_older(key)) is None:
        shape = tuple(shape)  # of a tensor it is a `torch.Size`
        index = normalize_axis(axis, shape)
        plan = object.__new__(PLANS.kind)  # no second check of the values
        plan._set(shape, index, sizes_of(shape, index, rule, MOST_IN_MEMORY))
        PLANS.add(key, plan)
    return plan
