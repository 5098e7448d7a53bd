"""Results that a plan keeps: routes and layouts, which are freed with the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

FEW_PARTS = 1000
"""A plan with more parts is large, and so are its results; therefore fewer of them are kept."""

_RESULTS_KEPT = 64


class Keeper:
    """The base class of `SplitPlan`: it has a slot for results.

    The slot is in a base class so that it is not a field of the dataclass, because
    `dataclasses.asdict` would copy the results in a field.
    """

    __slots__ = ("_kept",)

    sizes: tuple[int, ...]
    _kept: dict[Any, Any]

    def _keep(self, key: object, make: Callable[[], T]) -> T:
        """Return the result kept for `key`; if there is none, call `make` and keep its result."""
        result: T | None = self._kept.get(key)
        if result is None:
            if len(self._kept) >= self._most(_RESULTS_KEPT):
                self._kept.clear()
            result = self._kept[key] = make()
        return result

    def _most(self, kept: int) -> int:
        """Return how many results to keep: `kept`, or fewer if there are many parts."""
        return kept if len(self.sizes) <= FEW_PARTS else kept // 16
