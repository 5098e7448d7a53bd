"""Decide for each copy whether to run it on one thread or on several.

All threads of a parallel copy wait for the last one. If another program is using a core,
the last thread waits out that program's time slice, 4 to 16 ms. On two cores, 2.4 MB take
45 µs on two threads and 75 µs on one. Next to one busy program, the same copy takes
12 000 µs on two threads, but only 90 µs on one. Neither fewer tasks nor a shared task
counter helps: Numba's threads still wait for each other. So the governor times the copies.

**Cells.** Copies are classed by loop, and by the smallest power of two above their number of
bytes. Each class has a `Cell`. Before a copy, `splitjit._copy.threads.copy` only looks at
`Cell.left`:

=========  ==================================================================
left > 0   the copy is parallel; `left` decreases by 1
left = 0   one thread copies, timed, and the governor learns how long it took
left < 0   one thread copies, untimed; `left` increases by 1
=========  ==================================================================

After a copy, `Governor.learn` compares its time with the cost of one thread, and sets the
counter for the next copies. A parallel copy that was fast enough (`Cell.limit`) is not
reported, because calling `learn` takes time, too.

**Cost of one thread.** When the counter of a class reaches 0, one thread makes three copies in a
row: two to bring the data into its caches, and a third that is measured. Arrays that do not
fit in cache need only the measured copy. About 1 copy in 200 runs serially, to keep the cost
current; fewer if more threads would copy. The *gain* of a parallel copy is the time that one
thread would have taken, minus its own. A negative gain is a *loss*.

**Stalls.** A parallel copy that takes far longer than one thread would is a stall. One or two
stalls change nothing, because a thread that wakes after a rest may stall even on an idle
machine. After the third, this process copies on one thread for as long as the loss, and then
tries parallel copies again. If they stall, the next pause is 4 times as long as the last one,
up to 1.2 s, so that stalls cost about 2 %. All stalls and pauses are forgotten once parallel
copies have gained what the last stall cost, or 10 times that if the threads were awake. If
one class keeps losing although nothing stalls, only that class is paused.

A pause counts only time *spent in copies*. Otherwise a program that splits every 100 ms would
stall in every tenth call. The governor adds 0.2 µs to a parallel copy. It has no locks; threads
that race lose measurements.
"""

from __future__ import annotations

import os

from splitjit._copy.events import debug

STALL_RATIO = 1.5
STALL_SLACK = 250e-6
"""A stall takes longer than the ratio times one thread's time, plus this slack in seconds.
Waking a thread takes up to 100 µs, and up to 600 µs on a virtual machine. A time slice is at
least 700 µs."""

STALLS = 3
STALLS_AFTER_PAUSE = 2
"""Stalls that start the first pause, and each further one until pauses are forgotten."""
REST = 5e-3
OWED = 10.0
"""If a copy stalls within `REST` seconds of the last copy, the threads were awake. Parallel
copies must then gain `OWED` times the loss before the stall is forgotten. With a smaller
factor, copies next to a busy program gained, but every hundredth one stalled."""

GROWTH = 4.0
LONGEST = 1.2
LONGEST_IN_LOSSES = 32.0
"""The first pause is as long as the loss, each later one `GROWTH` times as long as the last. The
longest pause is `LONGEST` seconds, or `LONGEST_IN_LOSSES` times the loss if that is longer, because
a slow copy of 1 GB may lose a second."""

FIRST_SAMPLE = 8
SAMPLE_EVERY = 256
"""Parallel copies between the first two measurements of one thread in a class, and the most
between any two, per thread of a parallel copy. Each period is 8 times the last."""
SETTLE = 1
"""Copies on one thread between the first and the measured one. After parallel copies, half of
the data is in another core's cache: 0.6 MB take 35 µs at first, and 15 µs later."""
SKIP = 3
"""Untimed copies after each timed one in a pause."""
LARGE = 1 << 24
"""From this size on, arrays do not fit in cache. One thread is then measured at its first copy,
except in the very first measurement of a class."""
DOUBT = 0.75
"""If a parallel copy of a `LARGE` array takes more than this fraction of one thread's time, one
thread is measured after at most `FIRST_SAMPLE` more copies. Smaller arrays are split so often
that one thread is measured soon anyway."""
ASSUMED_FROM = 1 << 26
ASSUMED_COST = 0.5e-9
"""From this size on, the first copies are parallel, because one thread would take too long.
Until one thread is measured, this cost in seconds per byte is assumed."""

SLOW = 1.0
SLOW_AT_START = 0.6
"""`Cell.slow` sums the losses of a class relative to the expected times, minus the gains. Above
`SLOW`, parallel copies of the class do not pay. After a pause of the class, the sum restarts at
`SLOW_AT_START`, so that one or two slow copies start the next pause."""


class Pause:
    """A time during which one thread copies, for all classes or, as a `Cell`, for one.

    Attributes
    ----------
    debt : float
        Seconds left of this pause. Each copy on one thread reduces it.
    length : float
        Planned seconds of the last pause; 0 if there was none or it is forgotten.
    owed : float
        Seconds that parallel copies must gain before the last loss is forgotten.
    """

    __slots__ = ("debt", "length", "owed")

    def __init__(self) -> None:
        self.debt = self.length = self.owed = 0.0

    def begin(self, loss: float) -> None:
        """Begin a pause after parallel copies took `loss` seconds longer than one thread would."""
        longest = max(LONGEST, LONGEST_IN_LOSSES * loss)
        self.length = self.debt = min(max(loss, GROWTH * self.length), longest)
        self.owed = loss
        debug("parallel copies lost %.6f s; one thread copies for %.6f s", loss, self.length)

    def gain(self, seconds: float) -> bool:
        """Count the gain of a parallel copy; return whether the last loss is forgotten."""
        self.owed -= seconds
        if self.owed <= 0:
            self.length = 0.0
        return self.owed <= 0


class Cell(Pause):
    """What the governor knows about one class of copies, and how to run the next ones.

    Attributes
    ----------
    left : int
        See the table above.
    limit : float
        Seconds per byte up to which parallel copies are not reported. 0 until all losses
        are forgotten, because gains must be counted until then.
    one : float
        Seconds per byte on one thread; 0 if unknown.
    period : int
        Parallel copies between two measurements of one thread.
    settled : bool
        Whether the data is in this thread's caches, so that its next timed copy counts.
    slow : float
        The sum of relative losses, minus the gains; see `SLOW`.
    """

    __slots__ = ("left", "limit", "one", "period", "settled", "slow")

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.one = ASSUMED_COST if 1 << bits > ASSUMED_FROM else 0.0
        self.left = FIRST_SAMPLE if self.one else 0
        self.limit, self.period, self.settled, self.slow = 0.0, 0, False, 0.0


class Cells(dict[str, list[Cell]]):
    """The cells of each loop by name: a list indexed by the size's `bit_length`."""

    def __missing__(self, loop: str) -> list[Cell]:
        return self.setdefault(loop, list(map(Cell, range(65))))


class Governor:
    """Decides how copies run from the times of earlier ones; see the module docstring."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all copies; called in a forked child."""
        self.cells = Cells()
        self.machine = Pause()
        self._stalls = 0  # since the last pause, and not forgotten
        self._stalled_at = self._ended = float("-inf")  # times of the last stall and report

    def learn(
        self, cell: Cell, threads: int, parallel: bool, nbytes: int, began: float, ended: float
    ) -> None:
        """Learn how long a copy took, and decide how the next copies of its class run.

        Parameters
        ----------
        cell : Cell
            The cell of the copy's class.
        threads : int
            The number of threads that a parallel copy would use now.
        parallel : bool
            Whether the copy was parallel.
        nbytes : int
            Bytes of all parts.
        began, ended : float
            When the copy began and ended, in seconds of a monotonic clock.
        """
        if parallel:
            self._learn_many(cell, nbytes, began, ended)
        else:
            self._learn_one(cell, threads, nbytes, max(ended - began, 1e-9))
        self._ended = ended
        cell.limit = cell.one if nbytes < LARGE else DOUBT * cell.one
        if cell.slow or cell.owed > 0 or self.machine.owed > 0:
            cell.limit = 0.0

    def reason_for_one(self, cell: Cell) -> str:
        """Return why the next copy of a class is serial, or an empty string if it is parallel."""
        if cell.left > 0:
            return ""
        if self.machine.debt > 0:
            return (
                "parallel copies stalled, because other programs use the cores; "
                f"a pause for another {self.machine.debt * 1e3:.0f} ms of copies"
            )
        if cell.debt > 0:
            return "several threads did not pay for copies of this loop and size, so they pause"
        return "this copy measures the speed of one thread; others use more threads"

    def _learn_many(self, cell: Cell, nbytes: int, began: float, ended: float) -> None:
        """Learn from a parallel copy: it stalled, or gained or lost a little."""
        expected = cell.one * nbytes
        gain = expected - (ended - began)
        if -gain > (STALL_RATIO - 1) * expected + STALL_SLACK:
            if began >= self._stalled_at:  # else another thread has already counted this stall
                self._stall(-gain, began - self._ended > REST, ended)
            return
        if self.machine.gain(gain):
            self._stalls = 0
        cell.gain(gain)
        if nbytes >= LARGE and gain < (1 - DOUBT) * expected:
            cell.left = min(cell.left, FIRST_SAMPLE)
        cell.slow = max(cell.slow - max(gain / expected, -0.5), 0.0)
        if cell.slow > SLOW:
            cell.begin(cell.slow * expected)
            cell.left, cell.slow = 0, SLOW_AT_START

    def _stall(self, loss: float, rested: bool, now: float) -> None:
        """Count a stall; pause all classes if there are too many."""
        machine = self.machine
        self._stalled_at = now
        self._stalls += 1
        if self._stalls >= (STALLS_AFTER_PAUSE if machine.length else STALLS):
            self._stalls = 0
            machine.begin(loss)
        machine.owed = loss if rested else OWED * loss
        for cells in list(self.cells.values()):
            for cell in cells:
                cell.limit = 0.0
                if machine.debt > 0:
                    cell.left = min(cell.left, 0)

    def _learn_one(self, cell: Cell, threads: int, nbytes: int, seconds: float) -> None:
        """Learn from a copy on one thread: update its cost, and count its time in pauses."""
        paused = [pause for pause in (self.machine, cell) if pause.debt > 0]
        if not cell.settled and not paused and (nbytes < LARGE or not cell.one):
            cell.settled = True
            cell.left = -SETTLE if nbytes < LARGE else 0
            return
        cost, one = seconds / nbytes, cell.one
        if cost < 0.75 * one or not one:
            cell.one = cost
        else:
            cell.one += (min(cost, 2 * one) - one) / 8
        for pause in paused:
            pause.debt -= seconds * (SKIP + 1)
        if any(pause.debt > 0 for pause in paused):
            cell.left = -SKIP
            return
        cell.period = max(FIRST_SAMPLE, min(8 * cell.period, SAMPLE_EVERY * max(threads, 2)))
        cell.left = 1 if paused else cell.period
        cell.settled = False


governor = Governor()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=governor.forget)
