"""What splitjit keeps for later calls: plans by their arguments, and the results of each plan.

Threads share all of it without a lock, because each step is one operation on a dict. A race
may drop a plan or a result too early. It is then made again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

MOST_PARTS = 1 << 12
"""A plan of more parts is neither cached nor keeps results."""

_ROOM = 1 << 14
"""The number of parts that the recent plans have together, and the results of a plan."""

_MOST_RESULTS = 16

_LEAST_PARTS = 32
"""A plan of fewer parts takes as much memory as a plan of so many parts."""


def keep(results: dict[Any, Any], key: Hashable, result: object, parts: int) -> None:
    """Keep a result of a plan: at most 16 of them, and fewer if the plan has many parts.

    The oldest result makes room.
    """
    if parts <= MOST_PARTS:
        results[key] = result
        for oldest in list(results)[: -min(_MOST_RESULTS, _ROOM // max(parts, 1))]:
            results.pop(oldest, None)


class PlanCache:
    """The plans that were used last, in two generations.

    Once the recent plans are many, they become the older ones. The plans that were older until
    then have not been used for long, and are dropped. So a lookup of a recent plan moves
    nothing, and takes one access to a dict.
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
    """Free the results of plans at once. They refer to their plan, so they form cycles."""
    for plan in list(plans.values()):
        plan._forget()


PLANS = PlanCache()
