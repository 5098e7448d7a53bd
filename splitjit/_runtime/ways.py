"""Which of several ways to make a copy is the fastest: measured where the copy runs.

No threshold can know this. Whether helpers pay, or another library's operator, depends on what
else the process does: thread pools spin on the core that a helper needs, and stop when the program
goes on to its next step.
"""

from __future__ import annotations

from collections.abc import Sequence

_STRETCH, _LONG, _LONG_STRETCH = 5, 1e-3, 3
"""Calls of a stretch: after a change of way, caches and thread pools need about as many. Calls of
`_LONG` seconds need fewer."""

_REST = 8
"""Stretches of the best way that are not measured after each one that is. Keeping time takes long
where the program's other steps empty the caches."""

_NEXT = 10.0
"""The most that the time until the next call counts, as a multiple of the call's own time."""

_NEW = 1 / 4
"""The weight of a stretch in the mean of its way. The first after a change replaces the mean."""

_SHARE = 0.02
"""The share of the time that may go to tries."""

_LENT = 1.0
"""The budget after the first tries, as a share of a stretch. They may have met a pause."""

_CHANGE = 0.6
"""What a change of way costs at least, as a share of a stretch."""


class Ways:
    """The mean time of each way, measured in stretches of calls.

    - All calls of a stretch go the same way, and the first stretch after a change of way is not
      compared (`_STRETCH`).
    - While the best way stays the same, most stretches are not measured (`_REST`).
    - A call's time lasts until the next call begins, because a way may slow the steps in between.
      Long rests count less (`_NEXT`).
    - A stretch takes the median time of its calls, in which a pause of the process, or a rest of
      the program, does not count.
    - Long calls have shorter stretches, and the time after them does not count: it is small beside
      such a call, and so is the cost of a change (`_LONG`).
    - Each stretch moves the mean of its way (`_NEW`), and the next one goes the way with the
      smallest mean.
    - If the best way has become faster since another way's try, the program has changed: the other
      way is expected to be faster by the same factor.
    - Each way is tried once, and again soon if it seems little slower than the best (`_LENT`).
      Later, another way is tried when the budget covers what its two stretches and the one after
      them are expected to lose (`_SHARE`).
    - Each change costs something, so even equal ways are tried rarely (`_CHANGE`).

    Threads share an object without a lock: a lost update changes a mean by one stretch.

    Parameters
    ----------
    names : sequence of str
        What `explain` calls the ways. Way 0 is called first.
    known : Ways, optional
        The ways of similar copies, to begin with what they have learned.

    Attributes
    ----------
    names : sequence of str
    means : list of float
        Expected seconds per byte; 0 before the first stretch, so each way is tried.
    calls : list of int
    best : int
        The way with the smallest mean.
    way : int
        The way of the next call.
    """

    def __init__(self, names: Sequence[str], known: Ways | None = None) -> None:
        self.names, self.calls = names, [0] * len(names)
        self.means: list[float] = known.means.copy() if known else [0.0] * len(names)
        self._tried = self.means.copy()
        self.best = self.way = self.means.index(min(self.means))
        self._last: tuple[tuple[int, float, float, int], ...] = ()
        self._times: list[float] = []
        self._stretches, self._rest, self._budget = 0, 0, 0.0

    def skip(self) -> bool:
        """Return whether the next call goes `way` and is not measured; if so, count it."""
        self._rest -= (skips := self._rest > 0)
        self.calls[self.way] += skips
        return skips

    def choose(self, now: float) -> int:
        """Return the number of the way for the call that begins at the time `now`."""
        last, self._last, times = self._last, (), self._times
        for way, seconds, end, nbytes in last:
            after, stretch = min(now - end, _NEXT * seconds), _STRETCH
            if seconds >= _LONG:
                after, stretch = 0.0, _LONG_STRETCH
            if way == self.way:  # not if another thread's call was chosen before a change
                times.append((seconds + after) / nbytes)
            if len(times) >= stretch:
                self._times = []
                self._end_stretch(way, sorted(times)[stretch // 2])
                self._rest = _REST * stretch if self._stretches > 1 else 0  # the way stays
        return self.way

    def took(self, way: int, begin: float, end: float, nbytes: int) -> None:
        """Note how long a call took that `choose` has chosen."""
        self.calls[way] += 1
        self._last = () if self._rest > 0 else ((way, end - begin, end, nbytes),)

    def _end_stretch(self, way: int, time: float) -> None:
        means = self.means
        is_known = means[way] > 0
        is_best = is_known and way == self.best
        stretch, self._stretches = self._stretches, self._stretches + 1
        if is_best and stretch:
            self._budget += (1 + _REST * (stretch > 1)) * _SHARE * time
        elif is_known:
            self._budget -= max(time - means[self.best], 0.0)
        if not stretch:  # caches and thread pools were settling
            return
        mean = means[way] + _NEW * (time - means[way]) if stretch > 1 else time
        if is_best:
            change = min(mean / self._tried[way], 1.0)
            means[:] = [change * tried for tried in self._tried]
        means[way] = mean
        best, self.best = self.best, min(range(len(means)), key=means.__getitem__)
        if self.best != best or not is_best:
            self._tried = means.copy()
        if not is_known:
            self._budget = _LENT * means[self.best]
        following = self._to_try() if is_best else self.best
        if following != way:
            self.way, self._stretches = following, 0

    def _to_try(self) -> int:
        """Return the least called way that the budget covers, or the best way."""
        means, least = self.means, self.means[self.best]
        for i in sorted(range(len(means)), key=self.calls.__getitem__):
            if i != self.best and _CHANGE * least + 3 * (means[i] - least) <= self._budget:
                self._budget -= _CHANGE * least
                return i
        return self.best


_KNOWN: dict[tuple[object, ...], Ways] = {}


def ways_of(names: tuple[str, ...], *key: object) -> Ways:
    """Return new ways, which begin with what the newest ones of the same key have learned."""
    ways = _KNOWN[names, key] = Ways(names, _KNOWN.get((names, key)))
    return ways
