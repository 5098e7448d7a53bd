"""Time whole programs: another step, then a split, in a loop, by the way they split.

The step is a few operators of torch, a product of matrices by BLAS or ONNX Runtime, a `prange` of
Numba, or Python, and its threads use the same cores. The user waits for an iteration, the step and
the split together: a split may be fast because it slows the step. Each way to split has processes
of its own, in random order: ours, ours on one thread, slices by hand, for tensors torch's operator.
"""

import argparse
import random
import sys
from itertools import product
from pathlib import Path
from statistics import median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import BEFORE, OURS, PROGRAMS, cases
from benchmarks.harness import ROOT, Result, Worker

WAYS = ("splitjit, one thread", "NumPy, slices")
KINDS = {"arrays": (), "tensors": ("torch",)}
"""Ways to split that only arrays or tensors have."""
RIVALS = (*WAYS, *KINDS["tensors"])
SIZES, OUTPUTS = cases("in_program"), ("out", "fresh")
PLACES = ("iteration", "split alone")


def measure(options: argparse.Namespace) -> list[Result]:
    """Return the medians of the processes' means, for iterations and for their splits."""
    found: dict = {}  # by program, what is split, and way
    asked = product(range(options.processes), options.program, options.kind)
    for i, program, kind in asked:
        harness.say(f"process {i + 1} of {options.processes}: {program}, {kind}")
        ways = (OURS, *[BEFORE] * bool(options.before), *WAYS, *KINDS[kind])
        for way in random.sample(ways, len(ways)):
            with Worker(way, options.before if way == BEFORE else ROOT) as worker:
                if worker.ask("prepare", harness.WARM, "fresh", kind):
                    continue  # a library is missing
                worker.ask("calls", harness.WARM_SECONDS)
                for outputs, size in product(options.outputs, options.size):
                    worker.ask("prepare", SIZES[size], outputs, kind)
                    if means := worker.ask("between", program, options.seconds):
                        of_case = found.setdefault((program, f"{kind}, {outputs}, {size}"), {})
                        of_case.setdefault(way, []).append(means)
    return [
        Result(f"{program}, {place}", case, {w: median(m[of] for m in ways[w]) for w in ways})
        for of, place in enumerate(PLACES)
        for (program, case), ways in found.items()
        if program != "none" or not of  # without a step, the iteration is the split
    ]


def tables(results: list[Result]) -> str:
    """Return a table of iterations and one of their splits, each with the mean of its ratios."""
    lines = []
    for place in PLACES:
        found = [result for result in results if result.place.endswith(place)]
        rows = [[r.place.removesuffix(f", {place}"), r.case, *r.ranked(RIVALS)] for r in found]
        if rows:
            head = ["program", "split", OURS, "fastest other way", *harness.RANKED[2:]]
            lines += [f"### The {place}", harness.table(head, rows)]
            lines += [harness.summary(found, RIVALS, ours) for ours in (OURS, BEFORE)]
    return "\n\n".join(filter(None, lines))


def main() -> None:
    """Measure the cases of the command line, and print the tables."""
    options = harness.parser(
        __doc__, before=True, program=PROGRAMS, kind=[*KINDS], outputs=OUTPUTS, size=[*SIZES],
        processes=(3, "processes of each way"), seconds=(0.8, "of each case in each process"),
    ).parse_args()  # fmt: skip
    machine, results = harness.describe(), measure(options)
    harness.finish(options, machine, tables(results), results)


if __name__ == "__main__":
    main()
