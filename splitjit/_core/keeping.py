"""Results that a plan keeps: routes and layouts, which are freed with the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

FEW_PARTS = 1000
"""If a plan has more parts, the plan is large, and so are the results that it keeps."""

_RESULTS_KEPT = 64


class Keeper:
    """The base class of `SplitPlan`: it has a slot for results.

    The slot is in a base class, because it is no field of the dataclass. As a field,
    `dataclasses.asdict` would copy the results.
    """

    __slots__ = ("_kept",)

    sizes: tuple[int, ...]
    _kept: dict[Any, Any]

    def _keep(self, key: object, make: Callable[[], T]) -> T:
        """Return the result of `make`, which the plan keeps: it is freed with the plan."""
        result: T | None = self._kept.get(key)
        if result is None:
            if len(self._kept) >= self._most(_RESULTS_KEPT):
                self._kept.clear()
            result = self._kept[key] = make()
        return result

    def _most(self, kept: int) -> int:
        """Return how many results to keep: `kept`, or fewer if there are many parts."""
        return kept if len(self.sizes) <= FEW_PARTS else kept // 16
