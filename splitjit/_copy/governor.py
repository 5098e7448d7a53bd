"""Decide for each copy whether several threads or one thread run it.

All threads of a parallel copy wait for the last one. If another program uses a core,
the last thread waits for that program's time slice, 4 to 16 ms. On two cores, 2.4 MB
take 45 µs on two threads and 75 µs on one. Beside one busy program the same copy takes
12 000 µs on two threads, and still 90 µs on one. Neither fewer tasks nor tasks dealt out
by a counter help: Numba's threads wait for each other all the same. So the governor times
the copies.

**Cells.** A copy belongs to a class. The class is the loop that runs the copy, and the
smallest power of two above the copy's number of bytes. Each class has a `Cell`
(`splitjit/_copy/pauses.py`), which holds the cost of one thread and a counter, `Cell.left`.
Before a copy, `splitjit._copy.threads.copy` only looks at this counter:

=========  ==================================================================
left > 0   the copy is parallel; `left` decreases by 1
left = 0   one thread copies, and the governor learns how long it took
left < 0   one thread copies, and nobody times it; `left` increases by 1
=========  ==================================================================

After a copy, `Governor.learn` compares its time with the cost of one thread, and sets the
counter for the next copies. A parallel copy that was fast enough (`Cell.limit`) is not
reported to `learn`, since a call of `learn` takes time, too.

**Cost of one thread.** When the counter of a class reaches 0, one thread makes three
copies in a row. The first two bring the data into the caches of this thread, and the
third is measured. Arrays that do not fit in caches need only the measured copy. So one
thread makes about one copy in 200 if others have two threads, fewer if they have more, and its
cost stays known. From this cost follows the *expected* time, which one thread would take for a
parallel copy. The copy *gains* the expected time less its own time. If this is negative, the
difference is a *loss*.

**Stalls.** A parallel copy that takes far longer than one thread would is a stall. One or
two stalls change nothing, because a thread that wakes after a rest may stall on an idle
machine, too. If a third stall follows before the first two are forgotten, the governor
pauses all parallel copies of this process: one thread copies, for as long as the loss.
Then one parallel copy is tried, the probe. If it does not stall, the pause has ended. If
it stalls, and so does a later copy before the probe's stall is forgotten, the next pause
begins. It is 4 times as long as the last one, up to 1.2 s, so that stalls cost about 2 %.
All stalls and pauses are forgotten when parallel copies have gained what the last stall
cost, or 10 times that if the threads were awake.

**Idle cores.** Linux counts for how long each core was idle. During a pause the governor
reads these counts every 0.1 s. If there was an idle core for each thread, the probe is made at
once. Idle cores may end the next pause early only after parallel copies have gained, or half a
second later. Busy cores do not make a pause longer: another program may have used them only
between the copies of this process, for example if two processes take turns. The governor also
reads the counts right after its first measurement of one thread, for copies of less than 64 MB
before the first parallel copy. If cores were busy until then, and threads of other programs
run at that moment, the process begins with a pause.

**Copies that do not pay.** If parallel copies of one class lose again and again, although
nothing stalls, only this class is paused. Such a pause lasts as long as the loss, too, and
the next ones grow in the same way.

A pause ends after a given time *spent in copies*; the time between copies does not count.
Otherwise a program that splits every 100 ms would meet a stall in every tenth call. The
remaining time of a pause is its `debt`.

The governor adds 0.2 µs to a parallel copy. It has no locks; threads that race lose data.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from splitjit._copy.cores import Usage, usage
from splitjit._copy.pauses import FIRST_SAMPLE, Cell, Cells, Pause

STALL_RATIO = 1.5
STALL_SLACK = 250e-6
"""A stall takes longer than one thread's time multiplied by the ratio, plus these seconds.
Waking a thread takes up to 100 µs, and up to 600 µs on a virtual machine. A time slice is at
least 700 µs."""

STALLS = 3
STALLS_AFTER_PAUSE = 2
"""Stalls that begin a pause: the first pause, and the next ones until pauses are forgotten."""
REST = 5e-3
OWED = 10.0
"""If a copy stalls at most `REST` seconds after the last copy, the threads were awake. Then
parallel copies have to gain the loss multiplied by `OWED` until the stall is forgotten. With a
smaller factor, beside a busy program, copies gained, but each hundredth copy stalled."""

START_PAUSE = 0.025
"""Loss in seconds that is assumed if a process begins with a pause. That pause lasts as long."""

LOOK_EVERY = 0.1
"""Seconds between two readings of the idle time, which the system counts in steps of 0.01."""
TRUST_AGAIN = 0.5
"""Seconds after an early end of a pause. Then idle cores may end a pause early once more."""
TOLERANCE = 0.3
"""Share of one core that other programs may use while the cores still count as idle."""

SAMPLE_EVERY = 256
"""Most parallel copies of a class between two measurements of one thread, for each thread of a
parallel copy: a measurement costs more if more threads would copy. `FIRST_SAMPLE` is the
number before the second measurement; it grows eightfold with each one."""
SETTLE = 1
"""Copies that one thread makes between its first copy and the measured copy. After parallel
copies, half of the data is in another core's cache: 0.6 MB take 35 µs, and 15 µs later."""
LARGE = 1 << 24
"""From this size on, arrays do not fit in caches. Then one thread is measured at its first
copy, except at the very first measurement of a class."""
DOUBT = 0.75
"""If a parallel copy of a `LARGE` array takes longer than this ratio of one thread's time, one
thread is measured after at most `FIRST_SAMPLE` more copies. Smaller arrays are split so often
that one thread is measured soon in any case."""
SKIP = 15
SKIP_FOR = 2e-3
"""During a pause, the governor times a copy, and then lets at most `SKIP` copies pass untimed:
fewer if they would take more than `SKIP_FOR` seconds together."""

SLOW = 1.0
SLOW_AT_START = 0.6
"""`Cell.slow` sums the losses of a class relative to the expected times, less the gains. Above
`SLOW`, parallel copies of the class do not pay. After a pause of the class the sum begins at
`SLOW_AT_START`, so that one or two slow copies begin the next pause."""


class Governor:
    """Decides how copies run, from the times of earlier copies; see the module's docstring.

    Parameters
    ----------
    usage : callable, default `splitjit._copy.cores.usage`
        Returns the time that the cores were idle since some moment, or None if unknown.
    own : callable, default `time.process_time`
        Returns the processor time that this process has used, in seconds.
    clock : callable, default `time.perf_counter`
        Returns the time in seconds, by the clock whose times `learn` receives.
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
        """Forget all copies. A forked child calls this method."""
        self.cells = Cells()
        self.machine = Pause()
        self._stalled_at = float("-inf")  # time of the last stall
        self._ended = float("-inf")  # time of the last copy that was reported
        self._probing = False  # whether the next parallel copy may be tried
        self._trust_at = float("-inf")  # from when on idle cores may end a pause early
        self._stalls = 0  # stalls since the last pause that are not forgotten
        self._threads = 1
        self._idle: bool | None = None  # the last answer of `_look`
        # Between this line and the first copies, enough time passes to see if cores are idle.
        self._started = False
        self._seen = (self._clock(), self._own(), self._usage())
        self._look_at = self._seen[0] + LOOK_EVERY

    def learn(
        self, cell: Cell, threads: int, parallel: bool, nbytes: int, began: float, ended: float
    ) -> None:
        """Learn how long a copy took, and decide how the next copies of its class run.

        Parameters
        ----------
        cell : Cell
            The cell of the copy's class.
        threads : int
            The number of threads that a parallel copy would have at this moment.
        parallel : bool
            Whether the copy was parallel.
        nbytes : int
            Bytes of all parts.
        began, ended : float
            When the copy began and ended, in seconds of a monotonic clock.
        """
        self._threads = threads
        if parallel:
            self._learn_many(cell, nbytes, began, ended)
        else:
            self._learn_one(cell, nbytes, max(ended - began, 1e-9), ended)
        self._ended = ended
        machine = self.machine
        if cell.slow or cell.owed > 0 or machine.owed > 0 or machine.active:
            cell.limit = 0.0
        else:
            cell.limit = cell.one if nbytes < LARGE else DOUBT * cell.one

    def reason_for_one(self, cell: Cell) -> str:
        """Return why one thread runs the next copy of a class, or nothing if it is parallel."""
        if cell.left > 0:
            return ""
        if self.machine.active:
            rest = max(self.machine.debt, 0.0)
            return (
                "parallel copies stalled, because other programs use the cores; "
                f"a pause for another {rest * 1e3:.0f} ms of copies"
            )
        if cell.active:
            return "several threads did not pay for copies of this loop and size; a pause"
        return "this copy measures the speed of one thread; others use more"

    def _learn_many(self, cell: Cell, nbytes: int, began: float, ended: float) -> None:
        """Learn the time of a parallel copy: it stalled, or it gained or lost a little."""
        machine, expected = self.machine, cell.one * nbytes
        gain = expected - (ended - began)
        if -gain > (STALL_RATIO - 1) * expected + STALL_SLACK:
            if began >= self._stalled_at:  # else another thread has counted this stall
                self._stall(-gain, began - self._ended > REST, ended)
            return
        if machine.active and began >= self._stalled_at:  # this copy was the probe
            machine.active = False
        if machine.gain(gain):
            self._trust_at = ended
            self._stalls = 0
        cell.gain(gain)
        if nbytes >= LARGE and gain < (1 - DOUBT) * expected:
            cell.left = min(cell.left, FIRST_SAMPLE)
        cell.slow = max(cell.slow - max(gain / expected, -0.5), 0.0)
        if cell.slow > SLOW:
            cell.begin(cell.slow * expected)
            cell.left = 0

    def _learn_one(self, cell: Cell, nbytes: int, seconds: float, ended: float) -> None:
        """Learn the time of a copy by one thread: measure its cost, and count it in pauses."""
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
            most = SAMPLE_EVERY * max(self._threads, 2)
            cell.period = max(FIRST_SAMPLE, min(8 * cell.period, most))
            cell.left = cell.period
        cell.settled = False

    def _start(self, now: float) -> None:
        """Begin with a pause of all classes if other programs used cores and use them now."""
        self._started = True
        if now >= self._look_at and self._look(now) is False and self._is_crowded():
            self.machine.begin(START_PAUSE)
            self._look_at = now + LOOK_EVERY

    def _is_crowded(self) -> bool:
        """Return whether other threads want more cores now than a parallel copy leaves free."""
        usage = self._seen[2]
        if usage is None or not usage.running:
            return True
        return usage.running - 1 > usage.cores - min(self._threads, usage.cores)

    def _stall(self, loss: float, rested: bool, now: float) -> None:
        """Count a stall; begin a pause of all classes if too many stalls are not forgotten."""
        machine = self.machine
        self._stalled_at = now
        self._stalls += 1
        if self._stalls < (STALLS_AFTER_PAUSE if machine.length else STALLS):
            machine.active = False
        else:
            self._stalls = 0
            machine.begin(loss)
        machine.owed = loss if rested else OWED * loss
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
        """Count a copy of one thread in the pause; allow the probe if the pause is over."""
        machine = self.machine
        machine.debt -= seconds
        if now >= self._look_at:
            self._idle = self._look(now)
            self._look_at = now + LOOK_EVERY
        if self._idle and now >= self._trust_at:
            self._trust_at = now + TRUST_AGAIN
            machine.debt = 0.0
        if machine.debt <= 0:
            self._probing = True

    def _look(self, now: float) -> bool | None:
        """Return whether there was an idle core for each thread since the last look, or None."""
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
            return None  # some sandboxes imitate /proc/stat, but do not count
        # At most one core is counted as used by this thread. Other threads of this process
        # count as other programs, because they go on during a parallel copy.
        mine = min(own - own_before, passed)
        others = cores - (usage.idle - seen.idle + mine) / passed
        return others <= cores - min(self._threads, cores) + TOLERANCE


governor = Governor()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=governor.forget)
