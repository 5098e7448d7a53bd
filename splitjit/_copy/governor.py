"""Decide for each copy whether several threads or one thread run it.

All threads of a parallel copy wait for the last one. If another program uses a core,
the last thread waits for that program's time slice, 4 to 16 ms. On two cores, 2.4 MB
take 45 µs on two threads and 75 µs on one. Beside one busy program the same copy takes
12 000 µs on two threads, and still 90 µs on one. Neither fewer tasks nor tasks dealt out
by a counter help: Numba's threads wait for each other all the same. So the governor times
the copies.

**Cells.** A copy belongs to a class: its loop, and the smallest power of two above its number of
bytes. Each class has a `Cell`. Before a copy, `splitjit._copy.threads.copy` only looks at
`Cell.left`:

=========  ==================================================================
left > 0   the copy is parallel; `left` decreases by 1
left = 0   one thread copies, and the governor learns how long it took
left < 0   one thread copies, and nobody times it; `left` increases by 1
=========  ==================================================================

After a copy, `Governor.learn` compares its time with the cost of one thread, and sets the
counter for the next copies. A parallel copy that was fast enough (`Cell.limit`) is not
reported, since a call of `learn` takes time, too.

**Cost of one thread.** When the counter of a class reaches 0, one thread makes three copies in a
row. The first two bring the data into its caches, and the third is measured. Arrays that do not
fit in caches need only the measured copy. About 1 copy in 200 runs serially, to keep the cost
current; fewer if more threads would copy. A parallel copy *gains* what one thread would have taken
less its own time. If this is negative, the difference is a *loss*.

**Stalls.** A parallel copy that takes far longer than one thread would is a stall. One or two
stalls change nothing, because a thread that wakes after a rest may stall on an idle machine, too.
After a third one, one thread makes all copies of this process, for as long as the loss. Then
parallel copies are tried again. If they stall, the next pause is 4 times as long as the last one,
up to 1.2 s, so that stalls cost about 2 %. All stalls and pauses are forgotten when parallel copies
have gained what the last stall cost, or 10 times that if the threads were awake. If parallel copies
of one class lose again and again, although nothing stalls, only this class is paused.

A pause counts the time *spent in copies*. Otherwise a program that splits every 100 ms would meet
a stall in every tenth call. The governor adds 0.2 µs to a parallel copy. It has no locks; threads
that race lose data.
"""

from __future__ import annotations

import os

from splitjit._copy.events import debug

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

GROWTH = 4.0
LONGEST = 1.2
LONGEST_IN_LOSSES = 32.0
"""The first pause is as long as the loss, and each next one `GROWTH` times as long as the last. The
longest pause is `LONGEST` seconds, or `LONGEST_IN_LOSSES` times the loss if that is longer, because
a slow copy of 1 GB may lose a second."""

FIRST_SAMPLE = 8
SAMPLE_EVERY = 256
"""Parallel copies of a class between its first measurement of one thread and the second, and the
most between two of them, for each thread of a parallel copy. Each period is 8 times the last."""
SETTLE = 1
"""Copies that one thread makes between its first copy and the measured copy. After parallel
copies, half of the data is in another core's cache: 0.6 MB take 35 µs, and 15 µs later."""
SKIP = 3
"""Copies in a pause that nobody times, after one that the governor has timed."""
LARGE = 1 << 24
"""From this size on, arrays do not fit in caches. Then one thread is measured at its first
copy, except at the very first measurement of a class."""
DOUBT = 0.75
"""If a parallel copy of a `LARGE` array takes longer than this ratio of one thread's time, one
thread is measured after at most `FIRST_SAMPLE` more copies. Smaller arrays are split so often
that one thread is measured soon in any case."""
ASSUMED_FROM = 1 << 26
ASSUMED_COST = 0.5e-9
"""From this size on, the first copies are parallel, because one thread would take too long.
Until one thread is measured, this cost in seconds per byte is assumed."""

SLOW = 1.0
SLOW_AT_START = 0.6
"""`Cell.slow` sums the losses of a class relative to the expected times, less the gains. Above
`SLOW`, parallel copies of the class do not pay. After a pause of the class the sum begins at
`SLOW_AT_START`, so that one or two slow copies begin the next pause."""


class Pause:
    """A time during which one thread copies; of all classes, or of one class as its `Cell`.

    Attributes
    ----------
    debt : float
        Seconds of this pause that remain. Each copy by one thread reduces it.
    length : float
        Seconds that the last pause was to last, 0 if there was none or it is forgotten.
    owed : float
        Seconds that parallel copies have to gain until the last loss is forgotten.
    """

    __slots__ = ("debt", "length", "owed")

    def __init__(self) -> None:
        self.debt = self.length = self.owed = 0.0

    def begin(self, loss: float) -> None:
        """Begin a pause, because parallel copies took `loss` seconds more than one thread would."""
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
    """What the governor knows of one class of copies, and how the next copies of it run.

    Attributes
    ----------
    left : int
        See the table above.
    limit : float
        The governor learns from a parallel copy only if it took more seconds per byte. It
        is 0 until all losses are forgotten, because until then gains must be counted.
    one : float
        Seconds per byte of one thread, 0 if unknown.
    period : int
        Parallel copies between two measurements of one thread.
    settled : bool
        Whether the data is in the caches of this thread, so that its next timed copy counts.
    slow : float
        The sum of relative losses, less the gains; see `SLOW`.
    """

    __slots__ = ("left", "limit", "one", "period", "settled", "slow")

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.one = ASSUMED_COST if 1 << bits > ASSUMED_FROM else 0.0
        self.left = FIRST_SAMPLE if self.one else 0
        self.limit, self.period, self.settled, self.slow = 0.0, 0, False, 0.0


class Cells(dict[str, list[Cell]]):
    """The cells of each loop, by its name: a list indexed by the `bit_length` of the size."""

    def __missing__(self, loop: str) -> list[Cell]:
        return self.setdefault(loop, list(map(Cell, range(65))))


class Governor:
    """Decides how copies run, from the times of earlier copies; see the module's docstring."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all copies. A forked child calls this method."""
        self.cells = Cells()
        self.machine = Pause()
        self._stalls = 0  # since the last pause that are not forgotten
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
            The number of threads that a parallel copy would have at this moment.
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
        """Return why one thread runs the next copy of a class, or nothing if it is parallel."""
        if cell.left > 0:
            return ""
        if self.machine.debt > 0:
            return (
                "parallel copies stalled, because other programs use the cores; "
                f"a pause for another {self.machine.debt * 1e3:.0f} ms of copies"
            )
        if cell.debt > 0:
            return "several threads did not pay for copies of this loop and size; a pause"
        return "this copy measures the speed of one thread; others use more"

    def _learn_many(self, cell: Cell, nbytes: int, began: float, ended: float) -> None:
        """Learn the time of a parallel copy: it stalled, or it gained or lost a little."""
        expected = cell.one * nbytes
        gain = expected - (ended - began)
        if -gain > (STALL_RATIO - 1) * expected + STALL_SLACK:
            if began >= self._stalled_at:  # else another thread has counted this stall
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
        """Count a stall; begin a pause of all classes if too many stalls are not forgotten."""
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
        """Learn the time of a copy by one thread: measure its cost, and count it in pauses."""
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
