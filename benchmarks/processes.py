"""Splits of 9 KB to 11 MB, each contender in several processes of its own."""

import argparse
import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import geometric_mean, median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import BEFORE, OURS, Case

VARIANTS = ("splitjit, plan", "splitjit, bind", "splitjit, one thread", "splitjit, Numba's threads")
PEERS = ("NumPy, slices", "torch", "onnxruntime")
CONTENDERS = (*VARIANTS, "NumPy, split", *PEERS)
CASES = {
    f"{rows}x{columns}": Case((rows, columns), 1, (columns // parts,) * parts)
    for rows, columns, parts in [
        *[(1, 2304, 3), (8, 3072, 3), (32, 2304, 3), (128, 2304, 3), (256, 2304, 3)],
        *[(512, 1536, 2), (512, 2304, 3), (1200, 2304, 3)],
    ]
}
OUTPUTS = ("fresh", "out")
MODELS = ("onnxruntime", "torch")

Medians = dict[tuple[str, str, str], list[float]]  # by outputs, contender and case: one a process
WARM, WARM_SECONDS = "512x2304", 0.3
"""What each process splits first, and how long, because the tables are about a steady state."""


def measure(options: argparse.Namespace, medians: Medians) -> None:
    """Start one process per contender; add the median of its bursts in each case."""
    with ExitStack() as stack:
        workers = harness.team_of(stack, options.contender, options.before)
        order = ["after", options.after] if options.after else ["burst", False]
        order.append(harness.rest_among([*workers, options.after]))
        # In its first tenths of a second, splitjit loads kernels and starts threads if that pays.
        for outputs in OUTPUTS:  # not every contender can do both
            harness.turns(workers, CASES[WARM], outputs, 1, "calls", WARM_SECONDS)
        for outputs, case in product(options.outputs, options.case):
            turns = harness.turns(workers, CASES[case], outputs, options.rounds, *order)
            for name, seconds in turns.items():
                medians.setdefault((outputs, name, case), []).append(median(seconds))


def tables(medians: Medians) -> str:
    """Return the times of splitjit, and the ratios of other times to them, as Markdown."""
    seconds = {key: median(values) for key, values in medians.items()}
    lines = []
    for outputs in dict.fromkeys(key[0] for key in seconds):
        found = {key[1:]: value for key, value in seconds.items() if key[0] == outputs}
        cases = list(dict.fromkeys(case for _, case in found))
        rows = [[OURS, *(harness.time_text(found[OURS, case]) for case in cases)]]
        for name in dict.fromkeys(name for name, _ in found if name != OURS):
            rows.append([f"{name}, over ours"])
            rows[-1] += [found[name, case] / found[OURS, case] for case in cases]
        summaries = []
        for ours in (OURS, *VARIANTS, BEFORE):
            if (ours, cases[0]) in found and (ratios := best_peer_over(ours, found, cases)):
                rows.append([f"best peer over {ours}", *ratios])
                least, mean = min(ratios), geometric_mean(ratios)
                summaries.append(f"{ours}: least {least:.2f}, geometric mean {mean:.2f}")
        lines += [f"### {outputs}", harness.table(["contender", *cases], rows)]
        lines += [f"Best peer over {'; '.join(summaries)}."] if summaries else []
    return "\n\n".join(lines)


def best_peer_over(ours: str, found: dict[tuple[str, str], float], cases: list[str]) -> list[float]:
    """Return the time of the fastest peer over ours, by case; no list without peers."""
    peers = [peer for peer in PEERS if (peer, cases[0]) in found]
    return [min(found[peer, case] for peer in peers) / found[ours, case] for case in cases if peers]


def main() -> None:
    """Measure the cases of the command line, save the medians and print the tables."""
    lists = {"--case": CASES, "--outputs": OUTPUTS, "--contender": CONTENDERS}
    parser = harness.parser(__doc__, *lists.items(), before=True)
    add = parser.add_argument
    add("--after", choices=MODELS, help="time each call right after a model of this library")
    add("--processes", type=int, default=7, help="processes per contender, one after the other")
    add("--rounds", type=int, default=9, help="bursts of each contender in a case and process")
    options = parser.parse_args()
    options.contender = [OURS, *options.contender, *[BEFORE] * bool(options.before)]

    machine, medians = harness.describe(), {}
    for i in range(options.processes):
        harness.say(f"processes {i + 1} of {options.processes}")
        measure(options, medians)
    results = [[*key, seconds] for key, seconds in medians.items()]
    after = f"Each call came right after a model of {options.after}.\n\n" if options.after else ""
    harness.finish(options, machine, after + tables(medians), {"results": results})


if __name__ == "__main__":
    main()
