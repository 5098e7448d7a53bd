"""Decide for each copy whether several threads or one thread run it.

All threads of a parallel copy wait for the last one. If another program uses a core,
the last thread waits for that program's time slice, 4 to 16 ms. On two cores, 2.4 MB
take 45 µs on two threads and 75 µs on one. Beside one busy program they take 12 000 µs
on two threads, and still 90 on one. Fewer tasks, or tasks dealt out by a counter, do not
help: Numba's threads wait for each other all the same. So the governor times the copies.

**Stalls.** A parallel copy that takes far longer than one thread would is a stall. A lone
stall changes nothing. If a second stall follows before parallel copies have gained what
the first one cost, the governor pauses all parallel copies of this process: one thread
copies, for 4 times the loss and at least 0.1 s. Then one parallel copy is tried again. The
next pause is 8 times as long as the last one, up to 1.2 s, so that stalls cost about 1 %.
When parallel copies have gained what a stall cost, the stall and the pauses are forgotten.

**Idle cores.** Linux tells how long each core was idle. During a pause the governor looks
every 0.1 s. If there was an idle core for each thread, the pause ends at once. The governor
also looks when it has measured one thread for the first time, which is before the first
parallel copy. So a process that starts on a busy machine begins with a pause. Busy cores do
not make a pause longer: another program may have used them between our copies only, as
processes do that take turns.

**Copies that do not pay.** The governor compares the parallel copies of each loop and size
class with the cost per byte of one thread. If they lose again and again, although nothing
stalls, only this class is paused, by the same rules. One thread makes about one copy in
200, so that its cost stays known.

A pause counts the time of copies, not the time between them. Otherwise a program that
splits every 100 ms would meet a stall in every tenth call.

The governor adds 0.13 to 0.2 µs to a parallel copy. It has no locks: if threads race, an
observation is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from splitjit._core.cores import Usage, usage

STALL_RATIO = 1.5
STALL_SLACK = 250e-6
"""A stall takes longer than this ratio of one thread's time plus this many seconds. To
wake a sleeping thread takes up to 100 µs; a time slice is at least 700 µs."""

FIRST_PAUSE = 4.0
GROWTH = 8.0
LONGEST = 1.2
LONGEST_IN_LOSSES = 32.0
"""The first pause in losses, the growth of the next ones, and the longest pause: in seconds,
or in losses if that is longer, because a slow copy of 1 GB may lose a second."""

LOOK_EVERY = 0.1
"""Seconds between looks at idle time, which the system counts in steps of 0.01. A stall
pauses parallel copies for at least this time, so that the first pause ends with a look."""
TOLERANCE = 0.3
"""Cores that other programs may use while the machine still counts as idle."""

FIRST_SAMPLE = 8
SAMPLE_EVERY = 512
"""Parallel copies of a class between two measurements of one thread, at first and later."""
SETTLE = 1
"""Copies of one thread, after the first one, before a measurement. After parallel copies,
half of the data is in the cache of another core: 0.6 MB take 35 µs, and later 15."""
LARGE = 1 << 24
"""From this size on, copies do not fit in caches, and one thread needs no such copies."""
DOUBT = 0.75
"""If a large parallel copy takes longer than this ratio of one thread's time, one thread is
measured soon. Smaller copies are so many that it is measured soon in any case."""
ASSUMED_FROM = 1 << 26
ASSUMED_COST = 0.5e-9
"""From this size on, the first copies are parallel, because one thread would take too long.
Until one thread is measured, it is assumed to take this many seconds per byte. Measured:
0.03e-9 in the cache, 0.35e-9 outside."""

SKIP = 15
SKIP_FOR = 2e-3
"""During a pause, the governor does not time so many copies after a timed one, or so many
seconds of copies if those are fewer copies."""

SLOW = 1.0
SLOW_AT_START = 0.6
"""The sum of relative losses, less the gains, at which parallel copies of a class do not
pay; and the sum with which a trial begins, so that one or two slow copies end it."""


class Pause:
    """The time during which one thread copies."""

    __slots__ = ("active", "debt", "length", "owed")

    def __init__(self) -> None:
        self.active = False
        self.length = 0.0  # of the last pause; 0 if it is forgotten
        self.debt = 0.0  # seconds that one thread is still to copy
        self.owed = 0.0  # seconds to gain until the last loss is forgotten

    def begin(self, loss: float) -> None:
        """Pause because parallel copies took `loss` seconds more than one thread would."""
        length = max(FIRST_PAUSE * loss, GROWTH * self.length)
        self.length = self.debt = min(length, max(LONGEST, LONGEST_IN_LOSSES * loss))
        self.owed = loss
        self.active = True

    def gain(self, seconds: float) -> bool:
        """Count the gain of a parallel copy; return whether the last loss is forgotten."""
        self.owed -= seconds
        if self.owed > 0:
            return False
        self.length = 0.0
        return True


class Cell(Pause):
    """Costs of one loop in one size class, and how its next copies run.

    Attributes
    ----------
    left : int
        If positive, so many copies are parallel. If negative, one thread runs so many
        copies, and nobody times them. If 0, one thread runs the next copy, timed.
    limit : float
        The governor need not learn from a parallel copy that took fewer seconds per byte.
    one : float
        Seconds per byte of one thread, 0 if unknown.
    """

    __slots__ = ("left", "limit", "one", "period", "settled", "skipped", "slow")

    def __init__(self, one: float) -> None:
        super().__init__()
        self.one = one
        self.left = FIRST_SAMPLE if one else 0
        self.limit = 0.0
        self.period = 0  # parallel copies from one measurement of one thread to the next
        self.settled = False  # whether the caches of this thread hold what it copies
        self.skipped = 0  # copies during a pause that nobody timed
        self.slow = 0.0


class _Cells(dict[str, list[Cell]]):
    """Cells by the loop's name and the number of bits of the number of bytes."""

    def __missing__(self, loop: str) -> list[Cell]:
        cells = [Cell(ASSUMED_COST if 1 << bits > ASSUMED_FROM else 0.0) for bits in range(65)]
        return self.setdefault(loop, cells)


class Governor:
    """What this process has seen of its copies; see the description of the module.

    Parameters
    ----------
    usage : callable, default `splitjit._core.cores.usage`
        Returns the time that the cores were idle so far, or None.
    own : callable, default `time.process_time`
        Returns the processor time that this process used so far, in seconds.
    clock : callable, default `time.perf_counter`
        Returns the seconds of the clock that `learn` is given.
    """

    def __init__(
        self,
        usage: Callable[[], Usage | None] = usage,
        own: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._usage, self._own, self._clock = usage, own, clock
        self.forget()

    def forget(self) -> None:
        """Start afresh, as in a forked child."""
        self.cells = _Cells()
        self.machine = Pause()
        self._stalled_at = float("-inf")
        self._probing = False
        self._trusting = True  # whether idle cores may end a pause early
        self._warned = False  # whether the last stall, not yet forgotten, began no pause
        self._threads = 1
        self._idle: bool | None = None
        # From here to the first copies there is time enough to see whether cores are idle.
        self._started = False
        self._seen = (self._clock(), self._own(), self._usage())
        self._look_at = self._seen[0] + LOOK_EVERY

    def learn(
        self, cell: Cell, threads: int, parallel: bool, nbytes: int, began: float, ended: float
    ) -> None:
        """Learn how long a copy took.

        Parameters
        ----------
        cell : Cell
            Its class.
        threads : int
            The number of threads that a parallel copy has.
        parallel : bool
            Whether the copy was parallel.
        nbytes : int
            Bytes of all parts.
        began, ended : float
            Seconds of a monotonic clock.
        """
        self._threads = threads
        if parallel:
            self._learn_many(cell, nbytes, began, ended)
        else:
            self._learn_one(cell, nbytes, max(ended - began, 1e-9), ended)
        machine = self.machine
        if cell.slow or cell.owed > 0 or machine.owed > 0 or machine.active:
            cell.limit = 0.0
        else:
            cell.limit = cell.one if nbytes < LARGE else DOUBT * cell.one

    def _learn_many(self, cell: Cell, nbytes: int, began: float, ended: float) -> None:
        machine, expected = self.machine, cell.one * nbytes
        gain = expected - (ended - began)
        if -gain > (STALL_RATIO - 1) * expected + STALL_SLACK:
            if began >= self._stalled_at:  # else another thread has already begun this pause
                self._stall(-gain, ended)
            return
        if machine.active and began >= self._stalled_at:
            machine.active = False
        if machine.gain(gain):
            self._trusting = True
            self._warned = False
        cell.gain(gain)
        if nbytes >= LARGE and gain < (1 - DOUBT) * expected:
            cell.left = min(cell.left, FIRST_SAMPLE)
        cell.slow = max(cell.slow - max(gain / expected, -0.5), 0.0)
        if cell.slow > SLOW:
            cell.begin(cell.slow * expected)
            cell.left = 0

    def _learn_one(self, cell: Cell, nbytes: int, seconds: float, ended: float) -> None:
        if not cell.settled and (nbytes < LARGE or not cell.one):
            cell.settled = True
            cell.left = -SETTLE if nbytes < LARGE else 0
            return
        cost, one = seconds / nbytes, cell.one
        if cost < 0.75 * one or not one:
            cell.one = cost
        else:
            cell.one += (min(cost, 2 * one) - one) / 8
        seconds *= 1 + cell.skipped
        cell.skipped = 0
        if cell.active:
            cell.debt -= seconds
            if cell.debt <= 0:
                cell.active = False
                cell.slow = SLOW_AT_START
        if not self._started:
            self._start(ended)
        if self.machine.active:
            self._wait(seconds, ended)
        if cell.active or (self.machine.active and not self._probing):
            cell.skipped = min(int(SKIP_FOR / seconds), SKIP)
            cell.left = -cell.skipped
            return
        if self.machine.active:
            self._probing = False
            cell.left = 1
        else:
            cell.period = max(FIRST_SAMPLE, min(8 * cell.period, SAMPLE_EVERY))
            cell.left = cell.period
        cell.settled = False

    # ---- pauses of all classes -----------------------------------------------------------

    def _start(self, now: float) -> None:
        """Begin with a pause if other programs used cores lately, and use them now."""
        self._started = True
        if now >= self._look_at and self._look(now) is False and self._is_crowded():
            self.machine.begin(LOOK_EVERY / FIRST_PAUSE)
            self._look_at = now + LOOK_EVERY

    def _is_crowded(self) -> bool:
        """Return whether more threads want to run now than this thread's copies leave room for."""
        usage = self._seen[2]
        if usage is None or not usage.running:
            return True
        return usage.running - 1 > usage.cores - min(self._threads, usage.cores)

    def _stall(self, loss: float, now: float) -> None:
        """Pause parallel copies of all classes, if this is the second stall in a row."""
        machine = self.machine
        self._stalled_at = now
        self._warned = not self._warned
        if self._warned:
            machine.active = False
            machine.owed = loss
        else:
            machine.begin(max(loss, LOOK_EVERY / FIRST_PAUSE))
        self._probing = False
        for cells in list(self.cells.values()):
            for cell in cells:
                cell.limit = 0.0
                if machine.active:
                    cell.left = min(cell.left, 0)
        self._idle = None
        self._seen = (now, self._own(), self._usage())
        self._look_at = now + LOOK_EVERY

    def _wait(self, seconds: float, now: float) -> None:
        """Count a copy during the pause; allow a probe if the pause is over."""
        machine = self.machine
        machine.debt -= seconds
        if now >= self._look_at:
            self._idle = self._look(now)
            self._look_at = now + LOOK_EVERY
        if self._idle and self._trusting:
            # Idle cores end one pause early. They may do so again after copies have gained.
            self._trusting = False
            machine.debt = 0.0
        if machine.debt <= 0:
            self._probing = True

    def _look(self, now: float) -> bool | None:
        """Return whether there was an idle core for each thread lately; None if unknown."""
        before, own_before, seen = self._seen
        if now - before < LOOK_EVERY / 2:  # another thread has just looked
            return self._idle
        own, usage = self._own(), self._usage()
        self._seen = (now, own, usage)
        if seen is None or usage is None or seen.cores != usage.cores:
            return None
        passed, cores = now - before, usage.cores
        counted = usage.counted - seen.counted
        if abs(counted - cores * passed) > 0.25 * cores * passed + 0.02 * cores:
            return None  # some sandboxes imitate the file, with counters that stand still
        # At most one core is counted as used by this thread. Other threads of this process
        # count as other programs, because they go on during a parallel copy.
        mine = min(own - own_before, passed)
        others = cores - (usage.idle - seen.idle + mine) / passed
        return others <= cores - min(self._threads, cores) + TOLERANCE


governor = Governor()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=governor.forget)
