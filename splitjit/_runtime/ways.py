"""Which of several ways to make a copy is the fastest: measured where the copy runs.

No threshold can know this. Whether helpers pay, or another library's operator, depends on what
else the process does: thread pools spin on the core that a helper needs, and stop when the program
goes on to its next step.
"""

from __future__ import annotations

_SHARE = 0.02
"""The share of the time that may go to ways that are not the fastest so far. The call after a try
is slower, too: with a share of 0.05, loops of splits took 5 to 9 % longer than without tries."""

_TURNS = 10
"""Every so many calls, another way may be tried."""

_TRY, _FIRST = 2, 4
"""Calls of a try, and of the first try of a way. In the first call, the threads of this way still
sleep, and those of the way before may still spin."""

_MOST = 3.0
"""A slower call counts as this many times the mean, since the scheduler may have stopped the
thread; and a slower mean as this many times the call, since first calls load kernels."""

_NEW, _TRIED = 1 / 8, 1 / 2
"""Weights of a call in the mean: of the fastest way, and of the others, which are rarely called."""

_NEVER = float("inf")
"""The mean of a way that was never measured."""


class Ways:
    """The running mean of the time of each way, and what trying the others has cost.

    A way that is not the fastest so far is tried as soon as a fiftieth of the time since pays for
    it: one twice as slow two times in 100 calls, one 20 times as slow two times in 2000. So a way
    that lost is never given up, and nothing has to forget by a clock. The first call after a change
    of way counts only if it is faster than the mean. The first try of a way is not paid for, and
    its fastest call counts, but not the very first one: each may load kernels, use new memory, or
    meet something else that happens once, and a wrong mean takes hundreds of calls to mend. Threads
    share an object without a lock: a lost update changes a mean by one call.

    Parameters
    ----------
    count : int
        The number of ways. Way 0 is called first.
    known : Ways, optional
        The ways of similar copies, to begin with what they have learned.

    Attributes
    ----------
    means : list of float
        In the units of `took`, such as seconds per byte; infinite before the second call.
    calls : list of int
    best : int
        The way with the smallest mean, when `choose` was last called.
    """

    __slots__ = ("_last", "_left", "_spent", "_tried", "_turn", "_way", "best", "calls", "means")

    def __init__(self, count: int, known: Ways | None = None) -> None:
        self.means: list[float] = [_NEVER] * count if known is None else known.means.copy()
        self.calls: list[int] = [0] * count
        self.best = self._way = self._last = self._left = self._turn = 0
        self._spent = self._tried = 0.0

    def choose(self) -> int:
        """Return the number of the way for the next call."""
        if self._left > 0:
            self._left -= 1
            return self._way
        means = self.means
        least = min(means)
        best = self.best = self._way = means.index(least)
        self._turn += 1
        budget = _SHARE * self._spent - self._tried
        if least == _NEVER:
            self._left = _FIRST - 1
        elif budget >= 0 and (self._turn % _TURNS == 0 or _NEVER in means):
            for i in sorted(range(len(means)), key=self.calls.__getitem__):
                if i != best and (means[i] == _NEVER or _TRY * (means[i] - least) <= budget):
                    self._way, self._left = i, (_TRY if means[i] < _NEVER else _FIRST) - 1
                    break
        return self._way

    def took(self, i: int, time: float) -> None:
        """Note how long a call took that `choose` has chosen."""
        mean, is_other, has_changed = self.means[i], i != self.best, i != self._last
        self._last = i
        self._spent += time
        self.calls[i] += 1
        if self.calls[i] <= _FIRST:
            if self.calls[i] > 1:
                self.means[i] = min(mean, time)
            return
        if is_other or has_changed:
            self._tried += max(time - self.means[self.best], 0.0)
        if time < mean or not has_changed:
            mean = min(mean, _MOST * time)
            self.means[i] = mean + (min(time, _MOST * mean) - mean) * (_TRIED if is_other else _NEW)


_KNOWN: dict[tuple[object, ...], Ways] = {}


def ways_of(count: int, *key: object) -> Ways:
    """Return new ways, which begin with what the newest ones of the same key have learned."""
    ways = _KNOWN[key] = Ways(count, _KNOWN.get(key))
    return ways
