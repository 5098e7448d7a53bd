"""Splits on a busy machine, beside one thread, NumPy and other peers; for Linux."""

import argparse
import sys
from contextlib import ExitStack
from itertools import chain, product
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import BEFORE, CORES, OURS, PEERS, Case
from benchmarks.harness import (
    RANKED,
    busy_programs,
    in_turns,
    ranked,
    say,
    table,
    time_text,
    together,
)

RIVALS = ("splitjit, one thread", "NumPy, slices", "NumPy, split")
"""The goals compare with the best of these."""
CONTENDERS = (OURS, *RIVALS, "splitjit, Numba's threads", "torch", "onnxruntime", "opencv")
SIZES = {
    f"{case.nbytes / 1e6:.2g} MB": case
    for case in (Case((rows, 2304), 1, (768,) * 3) for rows in (256, 1200, 5400))
} | {"4K frame": Case((2160, 3840, 3), 2, (1,) * 3, "uint8")}
OUTPUTS = ("fresh", "out")


class Situation(NamedTuple):
    """The load on the machine while a contender splits."""

    programs: int = 0  # programs that each keep one core busy
    processes: int = 1  # workers of the contender that split at the same time
    narrow: str = ""  # threads whose affinity is narrowed after parallel splits


SITUATIONS = {
    "quiet": Situation(),
    "one busy program": Situation(programs=1),
    "as many busy programs as cores": Situation(programs=CORES),
    "twice as many splitting processes as cores": Situation(processes=2 * CORES),
    "one core left to the main thread": Situation(narrow="main thread"),
    "one core left to all threads": Situation(narrow="all threads"),
}


# ---- measuring ------------------------------------------------------------------------


def measure(name: str, options: argparse.Namespace) -> list[dict]:
    """Measure a situation: new processes, all cases, contenders in turns of random order."""
    situation, results = SITUATIONS[name], []
    with ExitStack() as stack:
        every = [
            harness.team_of(stack, options.contender, options.before)
            for _ in range(situation.processes)
        ]
        teams = {name: [workers[name] for workers in every] for name in options.contender}
        for team in teams.values():
            if situation.narrow and not any(together(team, "prepare", SIZES["4K frame"], "out")):
                together(team, "calls", 0.1)  # pools of threads start with the wider affinity
                together(team, "narrow", situation.narrow == "all threads")
        stack.enter_context(busy_programs(situation.programs))
        rest = harness.rest_among(teams)
        for size, outputs in product(options.size, options.outputs):
            say(f"{name}: {size}, {outputs}")

            def turn(contender, size=size, outputs=outputs):
                team = teams[contender]
                if any(together(team, "prepare", SIZES[size], outputs)):
                    return None  # this contender is not installed
                times = together(team, "calls", options.seconds, rest)
                together(team, "release")
                return times

            for contender, turns in in_turns(teams, options.rounds, turn).items():
                if all(turns):  # join the turns of each worker
                    times = [[*chain(*worker)] for worker in zip(*turns, strict=True)]
                    key = {"situation": name, "size": size, "outputs": outputs}
                    results.append({**key, "contender": contender, **summary(times)})
    return results


def summary(times: list[list[int]]) -> dict[str, float]:
    """Summarize the nanoseconds of each worker's calls, in seconds.

    ``rate`` counts the splits per second of all workers, ``mean`` is the time
    that a worker spends per split, and the percentiles are over the calls of all workers.
    """
    rate = sum(len(worker) / (sum(worker) * 1e-9) for worker in times)
    p50, p90, p99 = (np.percentile(np.concatenate(times), (50, 90, 99)) * 1e-9).tolist()
    found = {"calls": sum(map(len, times)), "rate": rate, "mean": len(times) / rate}
    return found | {"p50": p50, "p90": p90, "p99": p99}


# ---- comparing ------------------------------------------------------------------------


def compare(results: list[dict], contender: str = OURS) -> list[dict]:
    """Compare a contender in each case with the rival that has the highest rate.

    Above 1, ``throughput`` is better; ``p99``, the ratio of 99th percentiles, is worse.
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


def tables(results: list[dict]) -> str:
    """Return the times, and the comparison with the rivals, as Markdown."""
    situations = [name for name in SITUATIONS if any(r["situation"] == name for r in results)]
    sections = []
    for situation in situations:
        cases: dict[str, list[dict]] = {}
        for r in results:
            if r["situation"] == situation:
                cases.setdefault(f"{r['size']}, {r['outputs']}", []).append(r)
        rows = [[case, *_ranked(found)] for case, found in cases.items()]
        sections += [f"### {situation.capitalize()}", table(["split", *RANKED], rows)]

    comparisons = []
    for name, situation in product((OURS, BEFORE), situations):
        if found := [c for c in compare(results, name) if c["situation"] == situation]:
            worst = min(found, key=lambda c: c["throughput"])
            case = f"{worst['size']}, {worst['outputs']}, {worst['rival']}"
            mean = geometric_mean(c["throughput"] for c in found)
            least, p99 = f"{worst['throughput']:.2f} ({case})", max(c["p99"] for c in found)
            comparisons.append([name, situation, mean, least, p99])
    head = ["contender", "situation", "throughput, mean", "throughput, least", "p99, most"]
    text = "Mean time of a split, and in parentheses its 99th percentile:"
    rivals = "Relative to the best of one thread and NumPy in each case:"
    return "\n\n".join([text, *sections, "### All situations", rivals, table(head, comparisons)])


def _ranked(found: list[dict]) -> list[str]:
    """Return the cells of a case."""
    seconds = {r["contender"]: r["mean"] for r in found}
    texts = {r["contender"]: f"{time_text(r['mean'])} ({time_text(r['p99'])})" for r in found}
    return ranked(seconds, [*PEERS, "NumPy, split"], **texts)


def main() -> None:
    """Measure the situations of the command line, save the results and print the tables."""
    lists = {"--situation": SITUATIONS, "--size": SIZES, "--outputs": OUTPUTS}
    parser = harness.parser(__doc__, *lists.items(), ("--contender", CONTENDERS), before=True)
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="turns of each contender in a case")
    add("--seconds", type=float, default=0.8, help="length of a turn")
    options = parser.parse_args()
    options.contender += [BEFORE] * bool(options.before)

    machine = harness.describe()
    results = [result for name in options.situation for result in measure(name, options)]
    harness.finish(options, machine, tables(results), {"results": results})


if __name__ == "__main__":
    main()
