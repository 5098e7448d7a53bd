"""Splits on a busy machine, beside one thread, NumPy and other peers.

Run it from a checkout on Linux: ``python benchmarks/busy.py --help``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.compare import OURS, Case
from benchmarks.machine import CORES, ROOT, provenance
from benchmarks.workers import BEFORE, Worker, busy_programs, together

RIVALS = ("splitjit, one thread", "NumPy, slices", "NumPy, split")
"""The goals compare with the best of these."""
CONTENDERS = (OURS, *RIVALS, "torch", "onnxruntime")
SIZES = {
    f"{case.nbytes / 1e6:.2g} MB": case
    for case in (Case((rows, 2304), 1, (768,) * 3) for rows in (256, 1200, 5400))
}
OUTPUTS = ("fresh", "out")


@dataclass(frozen=True)
class Situation:
    """The load on the machine while a contender splits."""

    programs: int = 0  # programs that each keep one core busy
    processes: int = 1  # workers of the contender that split at the same time
    narrow: str | None = None  # threads whose affinity is narrowed after parallel splits


QUIET = "quiet"
SITUATIONS = {
    QUIET: Situation(),
    "one busy program": Situation(programs=1),
    "as many busy programs as cores": Situation(programs=CORES),
    "twice as many splitting processes as cores": Situation(processes=2 * CORES),
    "one core left to the main thread": Situation(narrow="main thread"),
    "one core left to all threads": Situation(narrow="all threads"),
}
LOADS = [name for name, situation in SITUATIONS.items() if situation.programs]

WINDOW = 0.1
"""Seconds of calls. If their median is near the quiet one, splitjit is back to full speed."""


# ---- measuring ------------------------------------------------------------------------


def measure(name: str, options: argparse.Namespace) -> list[dict]:
    """Measure a situation: new processes, all cases, contenders in turns of random order."""
    situation, results = SITUATIONS[name], []
    with ExitStack() as stack:
        teams = {}
        for contender in options.contender:
            checkout = options.before if contender == BEFORE else ROOT
            workers = [Worker(contender, checkout) for _ in range(situation.processes)]
            teams[contender] = [stack.enter_context(worker) for worker in workers]
        for team in teams.values():
            if situation.narrow and not any(together(team, "prepare", SIZES["11 MB"], "out")):
                together(team, "calls", 0.1)  # pools of threads start with the wider affinity
                together(team, "narrow", situation.narrow == "all threads")
        stack.enter_context(busy_programs(situation.programs))
        for size in options.size:
            for outputs in options.outputs:
                print(f"{name}: {size}, {outputs}", file=sys.stderr, flush=True)
                times = {contender: [[] for _ in teams[contender]] for contender in teams}
                for _ in range(options.rounds):
                    for contender in random.sample(list(teams), len(teams)):
                        turn = take_turn(teams[contender], SIZES[size], outputs, options.seconds)
                        for total, new in zip(times[contender], turn, strict=False):
                            total += new
                key = {"situation": name, "size": size, "outputs": outputs}
                results += [
                    {**key, "contender": contender, **summary(found)}
                    for contender, found in times.items()
                    if all(found)
                ]
    return results


def take_turn(team: list[Worker], case: Case, outputs: str, seconds: float) -> list[list[int]]:
    """Have a team split for some seconds; return the nanoseconds of each worker's calls."""
    if any(together(team, "prepare", case, outputs)):
        return []  # this contender is not installed
    times = together(team, "calls", seconds)
    together(team, "release")
    return times


def summary(times: list[list[int]]) -> dict[str, float]:
    """Summarize the nanoseconds of each worker's calls, in seconds.

    ``rate`` counts the splits per second of all workers, ``mean`` is the time
    that a worker spends per split, and the percentiles are over the calls of all workers.
    """
    rate = sum(len(worker) / (sum(worker) * 1e-9) for worker in times)
    p50, p90, p99 = np.percentile(np.concatenate(times), (50, 90, 99)) * 1e-9
    percentiles = {"p50": float(p50), "p90": float(p90), "p99": float(p99)}
    calls = sum(map(len, times))
    return {"calls": calls, "rate": rate, "mean": len(times) / rate, **percentiles}


def recover(load: str, contender: str, size: str, outputs: str, options) -> dict:
    """Measure how long splits stay slow after a load has ended."""
    print(f"recovery from {load}: {size}, {outputs}", file=sys.stderr, flush=True)
    with Worker(contender, options.before if contender == BEFORE else ROOT) as worker:
        worker.ask("prepare", SIZES[size], outputs)
        quiet = median(worker.ask("calls", options.seconds))
        with busy_programs(SITUATIONS[load].programs):
            worker.ask("calls", options.seconds)
        after = worker.ask("calls", 4)
    return {
        "load": load,
        "contender": contender,
        "size": size,
        "outputs": outputs,
        "seconds": recovery_time(after, 1.1 * quiet),
    }


def recovery_time(times: list[int], target: float) -> float | None:
    """Return the seconds until the median of a window of calls is at most a target.

    Parameters
    ----------
    times : list of int
        Nanoseconds of calls in a row.
    target : float
        Nanoseconds.

    Returns
    -------
    float or None
        When the first such window starts; None if there is none.
    """
    ends = np.cumsum(times) * 1e-9
    windows = (ends // WINDOW).astype(int)
    for window in np.unique(windows):
        if np.median(np.asarray(times)[windows == window]) <= target:
            return float(window * WINDOW)
    return None


# ---- comparing ------------------------------------------------------------------------


def compare(results: list[dict], contender: str = OURS) -> list[dict]:
    """Compare a contender in each case with the rival that has the highest rate.

    ``throughput`` is the contender's rate divided by the rival's, and ``p99`` is
    the contender's 99th percentile divided by the rival's.
    """
    comparisons = []
    for ours in (result for result in results if result["contender"] == contender):
        key = {name: ours[name] for name in ("situation", "size", "outputs")}
        rivals = [r for r in results if r["contender"] in RIVALS and key.items() <= r.items()]
        if rivals:
            best = max(rivals, key=lambda rival: rival["rate"])
            ratios = {"throughput": ours["rate"] / best["rate"], "p99": ours["p99"] / best["p99"]}
            comparisons.append({**key, "rival": best["contender"], **ratios})
    return comparisons


def tables(results: list[dict], recoveries: list[dict]) -> str:
    """Return the times, the comparison with the rivals, and the recoveries as Markdown."""
    situations = [name for name in SITUATIONS if any(r["situation"] == name for r in results)]
    cells = {
        (r["size"], r["outputs"], r["contender"], r["situation"]): (
            f"{1e6 * r['mean']:,.0f} ({1e6 * r['p99']:,.0f})"
        )
        for r in results
    }
    rows = [
        [size, outputs, name, *(cells.get((size, outputs, name, s), "-") for s in situations)]
        for size, outputs, name in dict.fromkeys(key[:3] for key in cells)
    ]
    lines = ["Mean time of a split, and in parentheses its 99th percentile, in µs:", ""]
    lines += markdown(["size", "outputs", "contender", *situations], rows)

    rows = []
    for name in (OURS, BEFORE):
        for situation in situations:
            found = [c for c in compare(results, name) if c["situation"] == situation]
            if found:
                worst = min(found, key=lambda c: c["throughput"])
                case = f"{worst['size']}, {worst['outputs']}, {worst['rival']}"
                mean = geometric_mean(c["throughput"] for c in found)
                slowest = max(c["p99"] for c in found)
                numbers = [f"{mean:.2f}", f"{worst['throughput']:.2f} ({case})", f"{slowest:.1f}"]
                rows.append([name, situation, *numbers])
    head = ["contender", "situation", "throughput, mean", "throughput, least", "p99, most"]
    lines += ["", "Relative to the best of one thread and NumPy in each case:", ""]
    lines += markdown(head, rows)

    if recoveries:
        rows = [
            [r["contender"], r["load"], r["size"], r["outputs"], _seconds(r["seconds"])]
            for r in recoveries
        ]
        lines += ["", "After the load ends, until within 10 % of the quiet median:", ""]
        lines += markdown(["contender", "load", "size", "outputs", "recovery"], rows)
    return "\n".join(lines)


def _seconds(value: float | None) -> str:
    return "more than 4 s" if value is None else f"{value:.1f} s"


def markdown(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


# ---- command --------------------------------------------------------------------------


def main() -> None:
    """Measure the situations of the command line, save the results and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--situation", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    add("--size", nargs="+", choices=SIZES, default=list(SIZES))
    add("--outputs", nargs="+", choices=OUTPUTS, default=list(OUTPUTS))
    add("--contender", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    add("--before", type=Path, metavar="DIR", help="a checkout of splitjit to measure as well")
    add("--rounds", type=int, default=3, help="turns of each contender in a case")
    add("--seconds", type=float, default=1.0, help="length of a turn")
    add("--no-recovery", action="store_true", help="do not measure the recovery after a load")
    add("--json", type=Path, metavar="FILE", help="write all results")
    add("--markdown", type=Path, metavar="FILE", help="write the tables")
    options = parser.parse_args()
    if options.before:
        options.contender.append(BEFORE)

    data = {**provenance(), "results": [], "recoveries": []}
    for name in options.situation:
        data["results"] += measure(name, options)
    if not options.no_recovery:
        data["recoveries"] = [
            recover(load, contender, size, outputs, options)
            for load in LOADS
            if load in options.situation
            for contender in options.contender
            if contender in (OURS, BEFORE)
            for size in options.size
            for outputs in options.outputs
        ]
    if options.json:
        options.json.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    report = f"{data['machine']}\n\n{tables(data['results'], data['recoveries'])}\n"
    print(report)
    if options.markdown:
        options.markdown.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
