"""What splitjit keeps for later calls: plans, and what plans keep. Both are limited in bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

PLANS_LIMIT = 1 << 25
"""The bytes that all cached plans may hold together, with their results."""

PLAN_LIMIT = PLANS_LIMIT // 2
"""The bytes that one cached plan may hold, with its results."""

RESULTS_LIMIT = PLAN_LIMIT // 2
"""The bytes that the results of one plan may hold."""

PLAN_BYTES = 1500
"""A cached plan of few parts, its key and its place in the cache."""

OBJECT_BYTES = 1000
"""A small object that a plan keeps, with its key."""

WORD_BYTES = 40
"""An item of a tuple of integers."""


class _Result(Protocol):
    @property
    def kept_bytes(self) -> int: ...


Result = TypeVar("Result", bound=_Result)


class Keeper:
    """The base class of plans that keeps results: its slots are not fields of the dataclass.

    `dataclasses.asdict` would copy the results in a field.

    Attributes
    ----------
    _kept : dict
        Results: recipes, and layouts of blocks.
    _entry : object or None
        The compiled entry of the recipe that copied last. A slot is read faster than a dict.
    _nbytes, _kept_nbytes : int
        Estimates of the bytes of this plan with its results, and of its results alone.
    _key : hashable or None
        The key of this plan in the cache, or None if this plan is not cached.
    """

    __slots__ = ("_entry", "_kept", "_kept_nbytes", "_key", "_nbytes")

    _entry: Any
    _kept: dict[Any, Any]
    _kept_nbytes: int
    _key: Hashable
    _nbytes: int

    def _keep(self, key: object, make: Callable[[], Result]) -> Result:
        """Return the result kept for `key`; if there is none, call `make` and keep its result."""
        result: Result | None = self._kept.get(key)
        if result is None:
            result = make()
            if self._may_keep(result.kept_bytes):
                self._kept[key] = result
        return result

    def _may_keep(self, nbytes: int) -> bool:
        """Count the bytes of a result. Return False if the result is too large to be kept.

        If there is no room for the result, the results kept so far are dropped.
        """
        if nbytes > RESULTS_LIMIT:
            return False
        if self._kept_nbytes + nbytes > RESULTS_LIMIT:
            self._forget()
        self._count_kept(nbytes)
        return True

    def _forget(self) -> None:
        """Drop all results. Recipes refer to their plan, so this frees them at once."""
        self._kept.clear()
        object.__setattr__(self, "_entry", None)
        self._count_kept(-self._kept_nbytes)

    def _count_kept(self, nbytes: int) -> None:
        """Count bytes of results."""
        object.__setattr__(self, "_kept_nbytes", self._kept_nbytes + nbytes)  # plans are frozen
        self._grow(nbytes)

    def _grow(self, nbytes: int) -> None:
        """Count bytes that this plan holds from now on."""
        object.__setattr__(self, "_nbytes", self._nbytes + nbytes)
        if self._key is not None:
            PLANS.grow(self, nbytes)


class PlanCache:
    """Plans by the arguments that made them, the oldest first.

    Threads share the cache without a lock. Each operation on the dict is atomic. The number
    of bytes may be wrong after a race; `_trim` counts again.
    """

    def __init__(self) -> None:
        self.plans: dict[Hashable, Any] = {}
        self.nbytes = 0

    def add(self, key: Hashable, plan: Keeper) -> None:
        """Keep a plan, if it is not too large."""
        if plan._nbytes <= PLAN_LIMIT:
            object.__setattr__(plan, "_key", key)
            self.plans[key] = plan
            self.nbytes += plan._nbytes
            if self.nbytes > PLANS_LIMIT:
                self._trim()

    def grow(self, plan: Keeper, nbytes: int) -> None:
        """Count bytes that a cached plan holds; drop plans if there are too many bytes."""
        self.nbytes += nbytes
        if plan._nbytes > PLAN_LIMIT:
            self._drop(plan._key)
        elif self.nbytes > PLANS_LIMIT:
            self._trim()

    def clear(self) -> None:
        """Drop all plans and their results."""
        for key in list(self.plans):
            self._drop(key)
        self.nbytes = 0

    def _trim(self) -> None:
        """Drop the oldest plans until half of the limit is free, so that trims are rare."""
        self.nbytes = sum([plan._nbytes for plan in list(self.plans.values())])
        for key in list(self.plans):
            if self.nbytes <= PLANS_LIMIT // 2:
                break
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        plan = self.plans.pop(key, None)
        if plan is not None:  # another thread may have dropped it
            self.nbytes -= plan._nbytes
            object.__setattr__(plan, "_key", None)
            if plan._kept:
                plan._forget()


PLANS = PlanCache()
