"""The speed of copies by the number of helpers, and what waking them costs, on many cores.

Paste the table into an issue. Each number of helpers has processes of its own.
"""

import sys
from pathlib import Path
from statistics import median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import CORES, OURS, cases
from benchmarks.harness import Result, Worker

SIZES = cases("threads")
HELPERS = [count for count in (0, 1, 3, 7, 15, 31) if count < CORES]
WOKEN, PAUSE = next(iter(SIZES)), 0.005
"""The copy that wakes helpers, and the seconds of sleep before it: helpers sleep by then, too."""
AFTER = f"{WOKEN} after {1e3 * PAUSE:.0f} ms"


def measure(helpers: int, seconds: float) -> list[float]:
    """Return the time of each copy in a new process that may use so many helpers."""
    with Worker(OURS, NUMBA_NUM_THREADS=f"{helpers + 1}") as worker:
        times = []
        for case in (harness.WARM, *SIZES.values()):
            worker.ask("prepare", case, "out")
            worker.ask("calls", seconds)  # not counted
            times.append(median(worker.ask("burst") for _ in range(9)))
        worker.ask("prepare", SIZES[WOKEN], "out")
        pauses = worker.ask("calls", seconds, 0, PAUSE)
        return [*times[1:], median(pauses["times"]) * 1e-9]


def table(results: list[Result]) -> str:
    """Return the speeds and times by the number of helpers, as Markdown."""
    rows = []
    for helpers in dict.fromkeys(result.place for result in results):
        found = {r.case: r for r in results if r.place == helpers}
        awake, asleep = (found[of].seconds[OURS] for of in (WOKEN, AFTER))
        speeds = [found[size].speed(OURS) for size in SIZES]
        times = map(harness.time_text, (awake, asleep, asleep - awake))
        rows.append([helpers, *speeds, *times])
    head = ["helpers", *(f"{size}, GB/s" for size in SIZES), WOKEN, AFTER, "a wake"]
    return harness.table(head, rows)


def main() -> None:
    """Measure each number of helpers in turns, and print the table."""
    parser = harness.parser(
        __doc__, processes=(3, "of each number of helpers"), seconds=(1.0, "of each copy, untimed")
    )
    parser.add_argument("--helpers", type=int, nargs="+", default=HELPERS, metavar="N")
    options = parser.parse_args()
    machine = harness.describe(CORES)
    turns = harness.in_turns(
        options.helpers, options.processes, lambda count: measure(count, options.seconds)
    )
    results = [
        Result(f"{count}", name, {OURS: median(seconds)}, SIZES.get(name, SIZES[WOKEN]).nbytes)
        for count, times in turns.items()
        for name, seconds in zip([*SIZES, AFTER], zip(*times, strict=True), strict=True)
    ]
    harness.finish(options, machine, table(results), results)


if __name__ == "__main__":
    main()
