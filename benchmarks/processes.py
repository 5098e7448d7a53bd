"""Splits of 9 KB to 11 MB, each contender in several processes of its own."""

import argparse
import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import BEFORE, OURS, cases
from benchmarks.harness import Result

VARIANTS = ("splitjit, plan", "splitjit, bind", "splitjit, one thread", "splitjit, Numba's threads")
PEERS = ("NumPy, slices", "torch", "onnxruntime")
CONTENDERS = (*VARIANTS, "NumPy, split", *PEERS)
CASES, STRIDED = cases("processes", "rows"), cases("processes", "strided")
OUTPUTS = ("fresh", "out")


def measure(options: argparse.Namespace, medians: dict) -> None:
    """Start one process per contender; add the medians of its bursts, by outputs and case."""
    with ExitStack() as stack:
        workers = harness.team_of(stack, options.contender, options.before)
        order = ["burst", False, harness.rest_among(workers)]
        for outputs in OUTPUTS:  # not every contender can do both
            harness.turns(workers, harness.WARM, outputs, 1, "calls", harness.WARM_SECONDS)
        for outputs, case in product(options.outputs, options.case):
            given = (CASES | STRIDED)[case], outputs, options.rounds, *order
            for name, seconds in harness.turns(workers, *given).items():
                found = medians.setdefault((outputs, case), {})
                found.setdefault(name, []).append(median(seconds))


def tables(results: list[Result]) -> str:
    """Return the times, and the ratios of the best peer to each kind of ours, as Markdown."""
    return harness.sections(results, PEERS, OURS, *VARIANTS, BEFORE)


def main() -> None:
    """Measure the cases of the command line, save the medians and print the tables."""
    parser = harness.parser(
        __doc__, before=True, case=[*CASES, *STRIDED], outputs=OUTPUTS, contender=CONTENDERS,
        processes=(7, "processes per contender, one after the other"),
        rounds=(9, "bursts of each contender in a case and process"),
    )  # fmt: skip
    add = parser.add_argument
    add("--strided", action="store_true", help="the cases whose arrays are transposed, instead")
    options = parser.parse_args()
    if options.case == [*CASES, *STRIDED]:
        options.case = [*(STRIDED if options.strided else CASES)]
    options.contender = [OURS, *options.contender, *[BEFORE] * bool(options.before)]

    machine, medians = harness.describe(), {}
    for i in range(options.processes):
        harness.say(f"processes {i + 1} of {options.processes}")
        measure(options, medians)
    results = [
        Result(*key, {name: median(seconds) for name, seconds in found.items()})
        for key, found in medians.items()
    ]
    harness.finish(options, machine, tables(results), results)


if __name__ == "__main__":
    main()
