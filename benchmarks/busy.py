"""Splits on a busy machine, beside one thread, NumPy and other peers; for Linux."""

import argparse
import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import BEFORE, CORES, OURS, PEERS, cases
from benchmarks.harness import Result, together

ALONE = "splitjit, one thread"
RIVALS = (ALONE, "NumPy, slices", "NumPy, split")
"""The last table compares with the best of these."""
CONTENDERS = (OURS, *RIVALS, "splitjit, Numba's threads", "torch", "onnxruntime", "opencv")
SIZES, OUTPUTS = cases("busy"), ("fresh", "out")


class Situation(NamedTuple):
    """The load on the machine while a contender splits."""

    programs: int = 0  # programs that each keep one core busy
    processes: int = 1  # workers of the contender that split at the same time
    narrow: str = ""  # threads whose affinity is narrowed after parallel splits
    pause: float = 0  # seconds of sleep before each split


SITUATIONS = {
    "quiet": Situation(),
    "a split every 5 ms": Situation(pause=0.005),
    "one busy program": Situation(programs=1),
    "as many busy programs as cores": Situation(programs=CORES),
    "twice as many splitting processes as cores": Situation(processes=2 * CORES),
    "one core left to the main thread": Situation(narrow="main thread"),
    "one core left to all threads": Situation(narrow="all threads"),
}


def measure(name: str, options: argparse.Namespace) -> list[Result]:
    """Measure a situation: new processes, all cases, contenders in turns of random order."""
    situation, results = SITUATIONS[name], []
    with ExitStack() as stack:
        every = [
            harness.team_of(stack, options.contender, options.before)
            for _ in range(situation.processes)
        ]
        teams = {name: [workers[name] for workers in every] for name in options.contender}
        for team in teams.values():
            for case in (harness.WARM, SIZES["4K frame"]):  # not every contender can do both
                if not any(together(team, "prepare", case, "out")):
                    together(team, "calls", harness.WARM_SECONDS)  # loads kernels, starts pools
            if situation.narrow:
                together(team, "narrow", situation.narrow == "all threads")
        stack.enter_context(harness.busy_programs(situation.programs))
        rest = harness.rest_among(teams)
        for size, outputs in product(options.size, options.outputs):
            harness.say(f"{name}: {size}, {outputs}")

            def turn(contender, size=size, outputs=outputs):
                team = teams[contender]
                if any(together(team, "prepare", SIZES[size], outputs)):
                    return []  # this contender is not installed
                answers = together(team, "calls", options.seconds, rest, situation.pause)
                together(team, "release")
                return answers

            turns = harness.in_turns(teams, options.rounds, turn)
            results.append(result(name, f"{size}, {outputs}", turns))
    return results


def result(situation: str, case: str, turns: dict[str, list[list[dict]]]) -> Result:
    """Summarize what the workers of each contender answered in their turns, in seconds.

    A mean is the time that a worker spends per split. The 99th percentiles are over the calls of
    all workers.
    """
    found = Result(situation, case, {})
    for name, of in turns.items():
        workers = [*zip(*of, strict=True)]  # the turns of each worker
        if workers:
            times = [np.concatenate([turn["times"] for turn in worker]) for worker in workers]
            rate = sum(1e9 / one.mean() for one in times)
            found.seconds[name] = float(len(times) / rate)
            found.p99[name] = float(np.percentile(np.concatenate(times), 99) / 1e9)
            found.cpu[name] = float(np.mean([turn["cpu"] for turns in of for turn in turns]))
    return found


def tables(results: list[Result]) -> str:
    """Return the times, and the comparison with the rivals, as Markdown."""
    head = ["contender", "situation", "throughput, mean", "throughput, least", "p99, most"]
    return "\n\n".join([
        "Mean time of a split, and in parentheses its 99th percentile:",
        harness.sections(results, [*PEERS, "NumPy, split"]),
        "### All situations",
        "Relative to the best of one thread and NumPy in each case; CPU time, to one thread:",
        harness.table([*head, "CPU time, mean"], comparisons(results)),
    ])  # fmt: skip


def comparisons(results: list[Result]) -> list[list]:
    """Compare ours in each situation with the fastest rivals; throughput above 1 is better."""
    rows = []
    for name, situation in product((OURS, BEFORE), SITUATIONS):
        found = [r for r in results if r.place == situation and r.ratio(RIVALS, name)]
        if found:
            worst = min(found, key=lambda r: r.ratio(RIVALS, name))
            mean = geometric_mean(r.ratio(RIVALS, name) for r in found)
            least = f"{worst.ratio(RIVALS, name):.2f} ({worst.case}, {worst.best(RIVALS)})"
            p99 = max(r.p99[name] / r.p99[r.best(RIVALS)] for r in found)
            cpu = [r.cpu[name] / r.cpu[ALONE] for r in found if ALONE in r.cpu]
            rows.append([name, situation, mean, least, p99, geometric_mean(cpu) if cpu else None])
    return rows


def main() -> None:
    """Measure the situations of the command line, save the results and print the tables."""
    options = harness.parser(
        __doc__, before=True, situation=[*SITUATIONS], size=[*SIZES], outputs=OUTPUTS,
        contender=CONTENDERS, rounds=(3, "turns of each contender in a case"),
        seconds=(0.8, "length of a turn"),
    ).parse_args()  # fmt: skip
    options.contender += [BEFORE] * bool(options.before)
    machine = harness.describe()
    results = [result for name in options.situation for result in measure(name, options)]
    harness.finish(options, machine, tables(results), results)


if __name__ == "__main__":
    main()
