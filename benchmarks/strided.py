"""Splits of transposed sources of 10 KB to 4 MB, compared with NumPy's slices copied by hand."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import CASES, Case
from benchmarks.harness import ROOT, Worker
from benchmarks.landscape import parse_size, size

NUMPY, COLD = "NumPy, slices", "splitjit, cold"
CONTENDERS = (COLD, "splitjit, warm", "splitjit, plan, warm")
SIZES = [10_000, 40_000, 160_000, 500_000, 1_000_000, 4_000_000]
DTYPES = ("uint8", "uint16", "float32", "float64", "complex128")
KNOWN = [Case.of(*case) for case in CASES["strided"]["known"]]
GOAL = 0.95
PAUSE = 0.001  # seconds of sleep before a burst; most of these copies run on one thread

Ratios = dict[tuple[str, Case], list[float]]


def cases(nbytes: int, dtype: str) -> list[Case]:
    """Return splits of transposed arrays of about this size, with long and with short axes."""
    items = nbytes // np.dtype(dtype).itemsize
    side, cube, plane = int(items**0.5), round(items ** (1 / 3)), int((items / 3) ** 0.5)
    shapes = [
        ((side, side), 1, 3, "F"),
        ((items // 20, 20), 1, 4, "F"),
        ((items // 48, 48), 0, 2, "F"),
        ((5, items // 5), 1, 2, "F"),
        ((3, plane, plane), 0, 3, "F"),
        ((cube, cube, cube), 2, 2, "F"),
        ((cube, cube, cube), 0, 2, "T"),
        ((items // 256, 16, 16), 2, 4, "T"),
    ]
    found = []
    for shape, axis, count, order in shapes:
        sizes = [len(part) for part in np.array_split(range(shape[axis]), count)]
        if all(sizes) and all(shape):
            found.append(Case(shape, axis, tuple(sizes), dtype, order))
    return found


def measure(chosen: list[Case], checkout: Path, rounds: int, ratios: Ratios) -> None:
    """Start one process per contender; add NumPy's time over ours, from the fastest bursts.

    Each case of the cold contender has a process of its own. In another process, a case before
    could have loaded compiled code.
    """
    with ExitStack() as stack:
        names = (*CONTENDERS[1:], NUMPY)
        team = {name: stack.enter_context(Worker(name, checkout)) for name in names}
        for case in chosen:
            with Worker(COLD, checkout) as cold:
                every = team | {COLD: cold}
                found = harness.turns(every, case, "fresh", rounds, "burst", False, PAUSE)
            for name in CONTENDERS:
                ratios.setdefault((name, case), []).append(min(found[NUMPY]) / min(found[name]))


def table(found: dict[tuple[str, Case], float], below: float) -> str:
    """Return the ratios below a limit, and a summary for each contender and size, as Markdown."""
    chosen = dict.fromkeys(case for _, case in found)
    values = {case: [found[name, case] for name in CONTENDERS] for case in chosen}
    rows = [[case, size(case.nbytes), *of] for case, of in values.items() if min(of) < below]
    lines = [harness.table(["case", "size", *CONTENDERS], rows)]
    for name, *of in zip(CONTENDERS, *values.values(), strict=True):
        low = sum(harness.below(value, GOAL) for value in of)
        lines += ["", f"{name}: geometric mean {geometric_mean(of):.2f}, "]
        lines[-1] += f"least {min(of):.2f}; {low} of {len(of)} cases below {GOAL}"
    return "\n".join(lines)


def main() -> None:
    """Measure the cases of the command line and print the ratios."""
    parser = harness.parser(__doc__, ("--dtype", DTYPES))
    add = parser.add_argument
    add("--size", nargs="+", type=parse_size, default=SIZES, metavar="SIZE")
    add("--known", action="store_true", help="only the cases that were slow once")
    add("--checkout", type=Path, default=ROOT, metavar="DIR", help="the splitjit to measure")
    add("--threads", type=int, help="of Numba; all cores by default")
    add("--processes", type=int, default=3, help="processes per contender, one after the other")
    add("--rounds", type=int, default=5, help="bursts of each contender in a case and process")
    add("--below", type=float, default=1.1, help="list the cases with a ratio below this one")
    options = parser.parse_args()
    if options.threads:
        os.environ["NUMBA_NUM_THREADS"] = str(options.threads)
    sizes = [] if options.known else options.size
    chosen = KNOWN + [case for n in sizes for dtype in options.dtype for case in cases(n, dtype)]

    machine, ratios = harness.describe(), {}
    for i in range(options.processes):
        harness.say(f"processes {i + 1} of {options.processes}")
        measure(chosen, options.checkout, options.rounds, ratios)
    found = {key: median(values) for key, values in ratios.items()}
    named = [[name, str(case), case.nbytes, value] for (name, case), value in found.items()]
    report = f"NumPy's time over splitjit's:\n\n{table(found, options.below)}"
    harness.finish(options, machine, report, {"results": named})


if __name__ == "__main__":
    main()
