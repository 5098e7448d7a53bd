"""Which of several ways to make a copy is the fastest: measured where the copy runs.

No threshold can know this. Whether helpers pay, or another library's operator, depends on what
else the process does: thread pools spin on the core that a helper needs, and stop when the program
goes on to its next step.
"""

from __future__ import annotations

_SHARE = 0.05
"""The share of the time that may go to ways that are not the fastest so far."""

_TURNS = 8
"""Every so many calls, another way may be tried."""

_MOST = 3.0
"""A slower call counts as this many times the mean: the scheduler may have stopped the thread."""

_NEW, _TRIED = 1 / 8, 1 / 2
"""Weights of a call in the mean: of the fastest way, and of the others, which are rarely called."""


_NEVER = float("inf")
"""The mean of a way that was never called."""


class Ways:
    """The running mean of the time of each way, and what trying the others has cost.

    A way that is not the fastest so far is tried as soon as a twentieth of the time since pays for
    it: one twice as slow about every 20 calls, one 20 times as slow every 400. So a way that lost
    is never given up, and nothing has to forget by a clock. Threads share an object without a lock:
    a lost update changes a mean by one call.

    Parameters
    ----------
    count : int
        The number of ways. Way 0 is called first.
    known : Ways, optional
        The ways of similar copies, to begin with what they have learned.

    Attributes
    ----------
    means : list of float
        In the units of `took`, such as seconds per byte; infinite before the first call.
    calls : list of int
    """

    __slots__ = ("_best", "_spent", "_tried", "_turn", "calls", "means")

    def __init__(self, count: int, known: Ways | None = None) -> None:
        self.means: list[float] = [_NEVER] * count if known is None else known.means.copy()
        self.calls: list[int] = [0] * count if known is None else [min(n, 1) for n in known.calls]
        self._best, self._turn, self._spent, self._tried = 0, 0, 0.0, 0.0

    def choose(self) -> int:
        """Return the number of the way for the next call."""
        means = self.means
        least = min(means)
        best = self._best = means.index(least)
        self._turn += 1
        budget = _SHARE * self._spent - self._tried
        if _NEVER in means and least < _NEVER:
            return means.index(_NEVER) if budget >= 0 else best
        if self._turn % _TURNS == 0:
            for i, mean in enumerate(means):
                if i != best and mean - least <= budget:
                    return i
        return best

    def took(self, i: int, time: float) -> None:
        """Note how long a call took that `choose` has chosen."""
        best, mean = self._best, self.means[i]
        if i != best:
            self._tried += max(time - self.means[best], 0.0)
        self._spent += time
        self.calls[i] += 1
        if self.calls[i] <= 2:  # the first calls of a process are slow
            self.means[i] = time
        else:
            weight = _NEW if i == best else _TRIED
            self.means[i] = mean + (min(time, _MOST * mean) - mean) * weight
