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


_SEEN = 1 << 12
"""How many hashes of keys are noted to tell new keys from those that return."""


class PlanCache:
    """Recently used plans, in two generations.

    When the recent generation is full, it becomes the older one. So looking up a recent plan
    moves nothing, and takes one dict access. The plans of the previous older generation have long
    been unused. They are freed one by one, because freeing hundreds at once takes milliseconds.

    A stream of shapes that are split once must neither pay for plans nor push out other plans. So
    `split` makes a plan when it sees a key for the second time.
    """

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
