"""How splits scale with threads, against plain copies by as many threads.

Run it from a checkout: ``python benchmarks/scaling.py --help``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import figures, harness
from benchmarks.contenders import CORES, LIMIT, OURS, Case

CASES = {
    "long runs": Case((2048, 22016), 1, (11008,) * 2),
    "short runs": Case((2_000_000, 12), 1, (3,) * 4),
}
"""Splits of arrays that no cache holds."""

Speeds = dict[str, dict[int, dict[str, float]]]  # GB/s by case, threads and contender


def scale(counts: Sequence[int], rounds: int) -> Speeds:
    """Measure each case with each number of threads; return GB/s, read plus written."""
    speeds: Speeds = {name: {} for name in CASES}
    for name, case in CASES.items():
        for threads in counts:
            harness.say(f"{name}, {threads} threads")
            names = (OURS, *LIMIT)
            calls = harness.contenders(case, fresh=False, names=names, threads=threads)
            seconds = harness.measure(calls, rounds)
            speeds[name][threads] = {who: 2e-9 * case.nbytes / s for who, s in seconds.items()}
    return speeds


def table(speeds: Speeds) -> str:
    """Return the speeds as Markdown."""
    head = ["case", "threads", "GB/s", "limit", "share of limit", "times the fewest threads"]
    rows = [
        [f"{name}: {CASES[name]}", threads, ours, limit, ours / limit, ours / least]
        for name, by_threads in speeds.items()
        for least in [by_threads[min(by_threads)][OURS]]
        for threads, found in by_threads.items()
        for ours, limit in [(found[OURS], _limit(found))]
    ]
    return f"### Threads, `out=`\n\n{harness.table(head, rows)}"


def _limit(found: dict[str, float]) -> float:
    return max(found.get(name, float("nan")) for name in LIMIT)


def _figure(speeds: Speeds):
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(4.5, 4), layout="constrained")
    for name, by_threads in speeds.items():
        counts = list(by_threads)
        (line,) = panel.plot(counts, [by_threads[n][OURS] for n in counts], marker="o", label=name)
        limits = [_limit(by_threads[n]) for n in counts]
        panel.plot(counts, limits, "--", color=line.get_color(), label=f"{name}: limit")
    panel.set(xlabel="threads", ylabel="GB/s, read and written", ylim=(0, None), xticks=counts)
    panel.grid(alpha=0.3)
    panel.legend(fontsize="small")
    return figure


def main() -> None:
    """Measure each number of threads, and write the chosen files."""
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="3 rounds instead of 9")
    add("--plot", type=Path, metavar="FILE", help="FILE-light.svg and FILE-dark.svg")
    add("--threads", type=int, nargs="+", metavar="N", default=range(1, CORES + 1))
    options = parser.parse_args()
    counts = sorted(options.threads)
    if not 1 <= counts[0] <= counts[-1] <= CORES:
        parser.error(f"--threads: this machine runs 1 to {CORES} threads at once")
    machine, speeds = harness.describe(counts), scale(counts, 3 if options.quick else 9)
    if options.plot:
        figures.save(lambda: _figure(speeds), options.plot)
    harness.finish(options, machine, table(speeds), {"GB/s": speeds})


if __name__ == "__main__":
    main()
