"""Plans as data: a shape, an axis, and where each part starts and how long it is.

A plan holds Python integers only. `splitjit.SplitPlan` adds the public methods. Per-part
attributes are made from runs of equal parts, so a plan of ten million equal parts stays
small until one of them is read.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self, SupportsIndex

from splitjit._plan.arguments import Shape, integers, most_parts, normalize_axis, shape_of
from splitjit._plan.rules import LENGTHS, Rule, Runs, runs_of_lengths
from splitjit._plan.sizes import describe_rule, sizes_of
from splitjit.errors import describe

PER_PART = ("sizes", "offsets", "output_shapes", "slices")
"""The attributes with one item per part."""

FEW_PARTS = 32
"""Plans of at most this many parts have all their attributes from the start."""

_SHOWN = 32  # more parts than a text shows


def attributes(shape: Shape, axis: int, sizes: Shape) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the attributes of a few parts by name, faster than `Parts` makes them singly."""
    before, after, whole = shape[:axis], shape[axis + 1 :], (slice(None),) * axis
    ends = list(itertools.accumulate(sizes, initial=0))
    return (
        ("sizes", sizes),
        ("offsets", tuple(ends[:-1])),
        ("output_shapes", tuple([(*before, n, *after) for n in sizes])),
        ("slices", tuple([(*whole, slice(*pair)) for pair in itertools.pairwise(ends)])),
    )


class Parts:
    """The base class of `Plan`, which makes the attributes of its parts.

    Its slots are not dataclass fields, because `dataclasses.asdict` would copy them.

    Attributes
    ----------
    _kept : dict
        Results for later calls: recipes, and layouts of blocks; see `keep`.
    _compiled : object or None
        The compiled copy that was used last. A slot is read faster than a dict.
    _count : int
        The number of parts.
    _runs : tuple or None
        The runs of equal sizes; None if there are many, in which case `sizes` is set.
    """

    __slots__ = ("_compiled", "_count", "_kept", "_runs")

    _kept: dict[Any, Any]
    _compiled: Any
    _count: int
    _runs: Runs | None
    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    output_shapes: tuple[tuple[int, ...], ...]
    slices: tuple[tuple[slice, ...], ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parts):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Shape, int, tuple[Any, ...]]:
        """Return the values that make plans equal; equal sizes have equal runs."""
        runs = None if self._count <= FEW_PARTS else self._runs
        return self.shape, self.axis, self.sizes if runs is None else runs

    def __len__(self) -> int:
        """Return the number of parts."""
        return self._count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield where each part starts, and its length."""
        return zip(self._each_offset(), self._each_size(), strict=False)

    def __repr__(self) -> str:
        sizes = self._first_sizes()
        shapes = tuple(itertools.islice(self._each_shape(), len(sizes)))
        values = describe(shape=self.shape, axis=self.axis, sizes=sizes, output_shapes=shapes)
        return f"SplitPlan({values})"

    def _forget(self) -> None:
        """Drop all results."""
        self._kept.clear()
        object.__setattr__(self, "_compiled", None)  # the dataclass is frozen

    def _derive(self, name: str) -> tuple[Any, ...]:
        """Return a per-part attribute by name."""
        items = {
            "sizes": self._each_size,
            "offsets": self._each_offset,  # has one more item
            "output_shapes": self._make_shapes,
            "slices": self._make_slices,
        }
        return tuple(itertools.islice(items[name](), self._count))

    def _each_size(self) -> Iterator[int]:
        """Yield the length of each part."""
        if self._runs is None or self._count <= FEW_PARTS:
            return iter(self.sizes)
        return itertools.chain.from_iterable(itertools.starmap(itertools.repeat, self._runs))

    def _first_sizes(self) -> Shape:
        """Return the sizes of the first parts, more than a text shows."""
        return tuple(itertools.islice(self._each_size(), _SHOWN))

    def _each_offset(self) -> Iterator[int]:
        """Yield where each part starts, and then where the last part ends."""
        return itertools.accumulate(self._each_size(), initial=0)

    def _each_shape(self) -> Iterator[Shape]:
        """Yield the shape of each part; parts of equal size share one tuple."""
        if self._count <= FEW_PARTS:
            return iter(self.output_shapes)
        return self._make_shapes()

    def _make_shapes(self) -> Iterator[Shape]:
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        shapes: dict[int, Shape] = {}
        for n in self._each_size():
            yield shapes.get(n) or shapes.setdefault(n, (*before, n, *after))

    def _each_slice(self) -> Iterator[tuple[slice, ...]]:
        """Yield the index of each part."""
        if self._count <= FEW_PARTS:
            return iter(self.slices)
        return self._make_slices()

    def _make_slices(self) -> Iterator[tuple[slice, ...]]:
        whole = (slice(None),) * self.axis
        for start, stop in itertools.pairwise(self._each_offset()):
            yield (*whole, slice(start, stop))

    def _part(self, i: int) -> tuple[int, int]:
        """Return where part i starts, and its length."""
        if self._runs is None:
            return next(itertools.islice(self._each_offset(), i, None)), self.sizes[i]
        start = 0
        for size, n in self._runs:
            if i < n:
                break
            i -= n
            start += size * n
        return start + size * i, size


@dataclass(frozen=True, slots=True, repr=False, eq=False)  # as `Parts` has them
class Plan(Parts):
    """Where the parts of an axis start and how long they are; see `splitjit.SplitPlan`."""

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]
    offsets: tuple[int, ...] = field(init=False, compare=False)
    output_shapes: tuple[tuple[int, ...], ...] = field(init=False, compare=False)
    slices: tuple[tuple[slice, ...], ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        shape = shape_of(self.shape)
        axis = normalize_axis(self.axis, shape)
        lengths = integers("sizes", self.sizes)
        self._set(shape, axis, *sizes_of(shape, axis, (LENGTHS, lengths)))

    def _set(self, shape: Shape, axis: int, lengths: Shape | None, runs: Runs) -> None:
        """Set the attributes. The caller has checked the values.

        `runs` gives the sizes if `lengths` is None.
        """
        count = sum([n for _, n in runs]) if lengths is None else len(lengths)
        put = functools.partial(object.__setattr__, self)  # the dataclass is frozen
        put("_kept", {})
        put("_compiled", None)
        put("_count", count)
        put("_runs", runs if lengths is None else None)
        put("shape", shape)
        put("axis", axis)
        if count <= FEW_PARTS:
            sizes = tuple([n for n, times in runs for _ in range(times)]) if runs else lengths
            for name, value in attributes(shape, axis, sizes or ()):
                put(name, value)
        else:
            put("__class__", type(self)._of_many_parts())
            if lengths is not None:
                put("_runs", runs_of_lengths(lengths))
                put("sizes", lengths)

    @classmethod
    def _of_many_parts(cls) -> type[Self]:
        """Return the class of plans that make their attributes when first read."""
        return cls

    @classmethod
    def _of_rule(cls, shape: Shape, axis: SupportsIndex, rule: Rule) -> Self:
        """Plan the split of a shape of plain integers by a rule."""
        index = normalize_axis(axis, shape)
        plan = object.__new__(cls)  # no second check of the values
        plan._set(shape, index, *sizes_of(shape, index, rule))
        if plan._count > most_parts():
            received = describe_rule(shape, index, rule)
            raise MemoryError(f"split: {received}: not enough memory for the plan")
        return plan
