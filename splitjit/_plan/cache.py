"""Caches for later calls: plans by their arguments, and the results of each plan.

Threads share them without a lock, because each step is one dict operation. A race may drop a
plan or a result too early; it is then made again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

MOST_PARTS = 1 << 12
"""Plans of more parts are not cached, and keep no results."""

_ROOM = 1 << 14
"""The most parts of all recent plans together, and of all results of a plan."""

_MOST_RESULTS = 16

_LEAST_PARTS = 32
"""Plans of fewer parts count as this many, because they take as much memory."""


def keep(results: dict[Any, Any], key: Hashable, result: object, parts: int) -> None:
    """Cache a result of a plan: at most 16 per plan, fewer if it has many parts.

    The oldest results make room.
    """
    if parts <= MOST_PARTS:
        results[key] = result
        for oldest in list(results)[: -min(_MOST_RESULTS, _ROOM // max(parts, 1))]:
            results.pop(oldest, None)


class PlanCache:
    """Recently used plans, in two generations.

    When the recent generation is full, it becomes the older one, and the previous older one,
    whose plans have long been unused, is dropped. So looking up a recent plan moves nothing,
    and takes one dict access.
    """

    def __init__(self) -> None:
        self.recent: dict[Hashable, Any] = {}
        self.older: dict[Hashable, Any] = {}
        self._parts = 0

    def find_older(self, key: Hashable) -> Any:
        """Return an older plan and make it a recent one, or return None."""
        plan = self.older.pop(key, None)
        if plan is not None:
            self.add(key, plan)
        return plan

    def add(self, key: Hashable, plan: Any) -> None:
        """Keep a plan as a recent one, unless it has too many parts."""
        if plan._count > MOST_PARTS:
            return
        self.recent[key] = plan
        self._parts += max(plan._count, _LEAST_PARTS)
        if self._parts > _ROOM:
            dropped, self.older, self._parts = self.older, self.recent.copy(), 0
            self.recent.clear()
            _forget(dropped)

    def clear(self) -> None:
        """Drop all plans and their results."""
        for plans in (self.recent, self.older):
            _forget(plans)
            plans.clear()
        self._parts = 0


def _forget(plans: dict[Hashable, Any]) -> None:
    """Free the results of plans now: they refer to their plan, so they form cycles."""
    for plan in list(plans.values()):
        plan._forget()


PLANS = PlanCache()
