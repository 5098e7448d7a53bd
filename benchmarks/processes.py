"""Splits of 9 KB to 11 MB, each contender in several processes of its own.

Run it from a checkout: ``python benchmarks/processes.py --help``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean, median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.busy import markdown
from benchmarks.compare import OURS, Case
from benchmarks.machine import ROOT, provenance, rest_among
from benchmarks.workers import BEFORE, Worker

BIND = "splitjit, bind"
VARIANTS = ("splitjit, plan", BIND, "splitjit, one thread")
PEERS = ("NumPy, slices", "torch", "onnxruntime")
CONTENDERS = (OURS, *VARIANTS, "NumPy, split", *PEERS)
CASES = {
    f"{rows}x{columns}": Case((rows, columns), 1, (columns // parts,) * parts)
    for rows, columns, parts in (
        (1, 2304, 3),
        (8, 3072, 3),
        (32, 2304, 3),
        (128, 2304, 3),
        (256, 2304, 3),
        (512, 1536, 2),
        (512, 2304, 3),
        (1200, 2304, 3),
    )
}
OUTPUTS = ("fresh", "out")
MODELS = ("onnxruntime", "torch")

Medians = dict[tuple[str, str, str], list[float]]  # by outputs, contender and case: one a process


def measure(options: argparse.Namespace, medians: Medians) -> None:
    """Start one process per contender; add the median of its bursts in each case."""
    with ExitStack() as stack:
        workers = {}
        for contender in options.contender:
            checkout = options.before if contender == BEFORE else ROOT
            workers[contender] = stack.enter_context(Worker(contender, checkout))
        for outputs in options.outputs:
            for case in options.case:
                ready = [
                    contender
                    for contender, worker in workers.items()
                    if not worker.ask("prepare", CASES[case], outputs)
                ]
                rest = rest_among([*ready, options.after])
                bursts = {contender: [] for contender in ready}
                for _ in range(options.rounds):
                    for contender in random.sample(ready, len(ready)):
                        order = ["after", options.after] if options.after else ["burst", False]
                        bursts[contender].append(workers[contender].ask(*order, rest))
                for contender, seconds in bursts.items():
                    medians.setdefault((outputs, contender, case), []).append(median(seconds))


def tables(medians: Medians) -> str:
    """Return the times of splitjit, and the ratios of other times to them, as Markdown."""
    seconds = {key: median(values) for key, values in medians.items()}
    lines = []
    for outputs in dict.fromkeys(key[0] for key in seconds):
        found = {key[1:]: value for key, value in seconds.items() if key[0] == outputs}
        cases = list(dict.fromkeys(case for _, case in found))
        contenders = list(dict.fromkeys(contender for contender, _ in found))
        rows = []
        for contender in contenders:
            if contender == OURS:
                rows.append([f"{OURS}, µs", *(f"{1e6 * found[OURS, case]:.3g}" for case in cases)])
            else:
                ratios = (found[contender, case] / found[OURS, case] for case in cases)
                rows.append([f"{contender}, over ours", *(f"{ratio:.2f}" for ratio in ratios)])
        summaries = []
        for ours in (OURS, *VARIANTS, BEFORE):
            if (ours, cases[0]) in found and (ratios := best_peer_over(ours, found, cases)):
                rows.append([f"best peer over {ours}", *(f"{ratio:.2f}" for ratio in ratios)])
                least, mean = min(ratios), geometric_mean(ratios)
                summaries.append(f"{ours}: least {least:.2f}, geometric mean {mean:.2f}")
        lines += ["", f"### {outputs}", "", *markdown(["contender", *cases], rows)]
        lines += ["", f"Best peer over {'; '.join(summaries)}."] if summaries else []
    return "\n".join(lines)


def best_peer_over(ours: str, found: dict[tuple[str, str], float], cases: list[str]) -> list[float]:
    """Return the time of the fastest peer over ours, by case; no list without peers."""
    peers = [peer for peer in PEERS if (peer, cases[0]) in found]
    return [min(found[peer, case] for peer in peers) / found[ours, case] for case in cases if peers]


def main() -> None:
    """Measure the cases of the command line, save the medians and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--case", nargs="+", choices=CASES, default=list(CASES))
    add("--outputs", nargs="+", choices=OUTPUTS, default=list(OUTPUTS))
    add("--contender", nargs="+", choices=CONTENDERS[1:], default=list(CONTENDERS[1:]))
    add("--after", choices=MODELS, help="time each call right after a model of this library")
    add("--before", type=Path, metavar="DIR", help="a checkout of splitjit to measure as well")
    add("--processes", type=int, default=7, help="processes per contender, one after the other")
    add("--rounds", type=int, default=9, help="bursts of each contender in a case and process")
    add("--json", type=Path, metavar="FILE", help="write the median of each process")
    add("--markdown", type=Path, metavar="FILE", help="write the tables")
    options = parser.parse_args()
    options.contender = [OURS, *options.contender, *([BEFORE] if options.before else [])]

    origin, medians = provenance(), {}
    for i in range(options.processes):
        print(f"processes {i + 1} of {options.processes}", file=sys.stderr, flush=True)
        measure(options, medians)
    if options.json:
        names = ("outputs", "contender", "case", "seconds")
        results = [dict(zip(names, (*key, found), strict=True)) for key, found in medians.items()]
        text = json.dumps({**origin, "results": results}, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
    after = f"Each call came right after a model of {options.after}.\n" if options.after else ""
    report = f"{origin['machine']}\n{after}{tables(medians)}\n"
    print(report)
    if options.markdown:
        options.markdown.write_text(report, encoding="utf-8")


if __name__ == "__main__":
    main()
