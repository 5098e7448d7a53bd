"""The attributes of a plan that have one item for each part, from runs of equal parts.

A plan of ten million equal parts is small until an attribute of its parts is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from splitjit._core.keeping import WORD_BYTES, Keeper
from splitjit._core.rules import Runs
from splitjit.errors import describe

Shape = tuple[int, ...]

BYTES_PER_PART = {
    "sizes": WORD_BYTES,
    "offsets": WORD_BYTES,
    "output_shapes": WORD_BYTES,
    "slices": 4 * WORD_BYTES,
}
"""The attributes with one item for each part. The bytes are estimates for rank 1."""


FEW_PARTS = 32
"""Plans of at most this number of parts have all their attributes from the beginning."""

_SHOWN = 32  # more parts than a text shows


def attributes(shape: Shape, axis: int, sizes: Shape) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the attributes of few parts by name, faster than `Parts` makes them one by one."""
    before, after, whole = shape[:axis], shape[axis + 1 :], (slice(None),) * axis
    ends = list(itertools.accumulate(sizes, initial=0))
    return (
        ("sizes", sizes),
        ("offsets", tuple(ends[:-1])),
        ("output_shapes", tuple([(*before, n, *after) for n in sizes])),
        ("slices", tuple([(*whole, slice(*pair)) for pair in itertools.pairwise(ends)])),
    )


class Parts(Keeper):
    """The base class of `SplitPlan` that makes the attributes of its parts.

    Attributes
    ----------
    _count : int
        The number of parts.
    _runs : tuple or None
        The runs of the sizes; None if there are many. In this case `sizes` is set.
    """

    __slots__ = ("_count", "_runs")

    _count: int
    _runs: Runs | None
    shape: tuple[int, ...]
    axis: int
    sizes: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parts):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Shape, int, tuple[Any, ...]]:
        """Return what equal plans have in common; equal sizes have equal runs."""
        runs = None if self._count <= FEW_PARTS else self._runs
        return self.shape, self.axis, self.sizes if runs is None else runs

    def __len__(self) -> int:
        """Return the number of parts."""
        return self._count

    def __repr__(self) -> str:
        sizes = self._first_sizes()
        shapes = tuple(itertools.islice(self._each_shape(), len(sizes)))
        values = describe(shape=self.shape, axis=self.axis, sizes=sizes, output_shapes=shapes)
        return f"SplitPlan({values})"

    def _derive(self, name: str) -> tuple[Any, ...]:
        """Return the attribute of a name, which has one item for each part."""
        if name == "offsets":
            return tuple(itertools.islice(self._each_offset(), self._count))
        items = {
            "sizes": self._each_size,
            "output_shapes": self._each_shape,
            "slices": self._each_slice,
        }
        return tuple(items[name]())

    def _bytes_of(self, name: str) -> int:
        """Return an estimate of the bytes of the attribute of a name."""
        nbytes = BYTES_PER_PART[name]
        if name == "slices":
            nbytes += 8 * self.axis
        elif name == "output_shapes" and self._runs is None:
            nbytes += 8 * len(self.shape)
        return self._count * nbytes

    def _each_size(self) -> Iterator[int]:
        """Yield the length of each part."""
        if self._runs is None:
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
        before, after = self.shape[: self.axis], self.shape[self.axis + 1 :]
        shapes: dict[int, Shape] = {}
        for n in self._each_size():
            yield shapes.get(n) or shapes.setdefault(n, (*before, n, *after))

    def _each_slice(self) -> Iterator[tuple[slice, ...]]:
        """Yield the index of each part."""
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
