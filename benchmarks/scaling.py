"""How splits scale with threads, against plain copies by as many threads."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import figures
from benchmarks.compare import LIMIT, OURS, Case, contenders, measure

CASES = {
    "long runs": Case((2048, 22016), 1, (11008,) * 2),
    "short runs": Case((2_000_000, 12), 1, (3,) * 4),
}
"""Splits of arrays that no cache holds."""

Speeds = dict[str, dict[int, dict[str, float]]]  # GB/s by case, threads and contender


def scale(counts: Sequence[int], rounds: int) -> Speeds:
    """Measure each case with each number of threads; return GB/s, read plus written."""
    speeds: Speeds = {}
    for name, case in CASES.items():
        speeds[name] = {}
        for threads in counts:
            print(f"{name}, {threads} threads", file=sys.stderr, flush=True)
            calls = contenders(case, fresh=False, names=(OURS, *LIMIT), threads=threads)
            seconds = measure(calls, rounds)
            speeds[name][threads] = {who: 2e-9 * case.nbytes / s for who, s in seconds.items()}
    return speeds


def table(speeds: Speeds) -> str:
    """Return the speeds as Markdown."""
    lines = ["### Threads, `out=`", ""]
    lines += ["| case | threads | GB/s | limit | share of limit | times the fewest threads |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for name, by_threads in speeds.items():
        least = by_threads[min(by_threads)][OURS]
        for threads, found in by_threads.items():
            ours, limit = found[OURS], _limit(found)
            cells = f"{ours:.1f} | {limit:.1f} | {ours / limit:.2f} | {ours / least:.2f}"
            lines.append(f"| {name}: {CASES[name]} | {threads} | {cells} |")
    return "\n".join(lines)


def _limit(found: dict[str, float]) -> float:
    return max(found.get(name, float("nan")) for name in LIMIT)


def plot(speeds: Speeds, file: Path) -> None:
    """Draw GB/s over threads for each case, and the limit; see `figures.save`."""
    figures.save(lambda: _figure(speeds), file)


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
