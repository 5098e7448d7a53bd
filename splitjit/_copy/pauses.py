"""What the governor remembers: a cell for each class of copies, and the pauses.

`splitjit._copy.governor` decides when a pause begins and ends. This module has the lengths of
pauses, and the state with which a class of copies begins.
"""

from __future__ import annotations

from splitjit._copy.events import debug

FIRST_PAUSE = 1.0
GROWTH = 4.0
LONGEST = 1.2
LONGEST_IN_LOSSES = 32.0
"""Length of the first pause as a multiple of the loss, and of each next pause as a multiple
of the last one. The longest pause is `LONGEST` seconds, or `LONGEST_IN_LOSSES` times the
loss if that is longer, because a slow copy of 1 GB may lose a second."""

FIRST_SAMPLE = 8
"""Parallel copies of a class between its first measurement of one thread and the second."""

ASSUMED_FROM = 1 << 26
ASSUMED_COST = 0.5e-9
"""From this size on, the first copies are parallel, because one thread would take too long.
Until one thread is measured, this cost in seconds per byte is assumed. Measured costs are
0.03e-9 for arrays in the cache and 0.35e-9 for larger arrays."""


class Pause:
    """A time during which one thread copies; of all classes, or of one class as its `Cell`.

    Attributes
    ----------
    active : bool
        Whether the pause lasts.
    length : float
        Seconds that the last pause was to last, 0 if there was none or it is forgotten.
        The next pause is longer.
    debt : float
        Seconds of this pause that remain. Each copy by one thread reduces it.
    owed : float
        Seconds that parallel copies have to gain until the last loss is forgotten.
    """

    __slots__ = ("active", "debt", "length", "owed")

    def __init__(self) -> None:
        self.active = False
        self.length = 0.0
        self.debt = 0.0
        self.owed = 0.0

    def begin(self, loss: float) -> None:
        """Begin a pause, because parallel copies took `loss` seconds more than one thread would."""
        length = max(FIRST_PAUSE * loss, GROWTH * self.length)
        self.length = self.debt = min(length, max(LONGEST, LONGEST_IN_LOSSES * loss))
        self.owed = loss
        self.active = True
        debug("parallel copies lost %.6f s; one thread copies for %.6f s", loss, self.length)

    def gain(self, seconds: float) -> bool:
        """Count the gain of a parallel copy; return whether the last loss is forgotten."""
        self.owed -= seconds
        if self.owed > 0:
            return False
        self.length = 0.0
        return True


class Cell(Pause):
    """What the governor knows of one class of copies, and how the next copies of it run.

    As a `Pause`, it is the pause of this class alone.

    Attributes
    ----------
    left : int
        If positive, the next `left` copies are parallel. If negative, one thread runs the
        next ``-left`` copies, and nobody times them. If 0, one thread runs the next copy,
        and the governor learns its time.
    limit : float
        The governor learns from a parallel copy only if it took more seconds per byte. It
        is 0 until all losses are forgotten, because until then gains must be counted.
    one : float
        Seconds per byte of one thread, 0 if unknown.
    period : int
        Parallel copies between two measurements of one thread.
    settled : bool
        Whether the data is in the caches of this thread, so that its next timed copy counts.
    skipped : int
        Copies that nobody times before the next timed copy of a pause.
    slow : float
        The sum of relative losses, less the gains; see `SLOW`.
    """

    __slots__ = ("left", "limit", "one", "period", "settled", "skipped", "slow")

    def __init__(self, one: float) -> None:
        super().__init__()
        self.one = one
        self.left = FIRST_SAMPLE if one else 0
        self.limit = 0.0
        self.period = 0
        self.settled = False
        self.skipped = 0
        self.slow = 0.0


class Cells(dict[str, list[Cell]]):
    """The cells of each loop, by its name: a list indexed by the `bit_length` of the size."""

    def __missing__(self, loop: str) -> list[Cell]:
        cells = [Cell(ASSUMED_COST if 1 << bits > ASSUMED_FROM else 0.0) for bits in range(65)]
        return self.setdefault(loop, cells)
