"""What each mechanism saves: the same splits with it and without it, in new processes.

``--page`` writes the table to docs/architecture.md.
"""

import functools
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.documentation import filled
from benchmarks.harness import ROOT, time_text

PAGE = ROOT / "docs" / "architecture.md"

START = """
import contextlib, os, random, sys, time
import numpy as np
import splitjit

def times_of(call, count, before=lambda: None):
    times = []
    for _ in range(count):
        before()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times[count // 5 :]

def median_of(*arguments, **options):
    times = sorted(times_of(*arguments, **options))
    return times[len(times) // 2]

def mean_of(*arguments, **options):  # what waiting for a core costs is rare, and long
    times = times_of(*arguments, **options)
    return sum(times) / len(times)

def array(*shape):
    return np.random.default_rng(0).random(shape, np.float32)
"""
"""The start of each program, which prints seconds."""

WARM = "splitjit.warmup()\n"
FIRST = """
x = array(2048, 2048)
print(median_of(lambda: splitjit.split(x, num_splits=4, axis=1), 1))
"""
NUMBAS = """
began = time.perf_counter()
from numba import njit
from numba.core import entrypoints

entrypoints.init_all = lambda: None  # not the time of splitjit's functions for compiled code

@njit(cache=True)
def split(x, count):
    size = x.shape[1] // count
    return [x[:, i * size : (i + 1) * size].copy() for i in range(count)]

x = array(2048, 2048)
split(x, 4)
print(time.perf_counter() - began)
sys.exit()
"""
"""The rival of object files: a function that Numba compiled before, and keeps in its own cache."""


class Mechanism(NamedTuple):
    """A mechanism, a program that prints how long a split takes, and how to switch it off."""

    name: str
    where: str
    task: str
    program: str
    off: str = ""  # code that runs before the program, or in its place
    variables: tuple[str, ...] = ()  # of the environment, instead
    busy: int = 0  # programs that each keep a core busy
    processes: int = 1  # that begin at once, with an empty cache if there are several


MECHANISMS = (
    Mechanism(
        "kernels as object files, linked without Numba; without it: Numba's own cache",
        "`_runtime/loading.py`, `_runtime/kernel_files.py`",
        "first 16 MB of a process",
        FIRST,
        NUMBAS,
    ),
    Mechanism(
        "one process compiles a kernel, and NumPy copies in the others",
        "the same",
        "4 processes, empty cache",
        FIRST,
        "from splitjit._runtime import kernel_files\n"
        "kernel_files.compiling = lambda name: contextlib.nullcontext()",
        processes=4,
    ),
    Mechanism(
        "builtin functions check and make arrays",
        "`_copy/kernel_copy.py`, `_kernels/entry.py`",
        "(1, 2304) into 3, `out=`",
        f"{WARM}x = array(1, 2304)\nplan = splitjit.plan_split(x.shape, num_splits=3, axis=1)\n"
        "out = plan.empty(x.dtype)\nprint(median_of(lambda: plan(x, out), 20000))",
        "from splitjit._abi import structs\nstructs.READS_ARRAYS = False",
    ),
    Mechanism(
        "plans are kept, with their recipes",
        "`_plan/cache.py`, `_copy/recipe.py`",
        "(6,) into 3",
        f"{WARM}x = array(6)\nprint(median_of(lambda: splitjit.split(x, num_splits=3), 20000))",
        "from splitjit._plan.cache import PLANS\nPLANS.add = lambda key, plan: None",
    ),
    Mechanism(
        "large blocks are reused, by Python and by compiled code",
        "`_kernels/blocks.py`, `_copy/buffers.py`",
        "(2048, 22016) into 2, fresh",
        f"{WARM}x = array(2048, 22016)\n"
        "print(median_of(lambda: splitjit.split(x, num_splits=2, axis=1), 40))",
        "splitjit.set_buffer_limit(0)",
    ),
    Mechanism(
        "helpers that nobody waits for, in place of `prange`",
        "`_kernels/team.py`",
        "11 MB beside a busy program",
        f"{WARM}x = array(1200, 2304)\n"
        "print(mean_of(lambda: splitjit.split(x, num_splits=3, axis=1), 500))",
        variables=("SPLITJIT_THREADS=numba",),
        busy=1,
    ),
    Mechanism(
        "arrays of new shapes are laid out and copied at once",
        "`_kernels/entry.py`",
        "random small shapes",
        f"{WARM}shapes = [[random.randrange(2, 30) for _ in range(3)] for _ in range(4000)]\n"
        "arrays = iter([array(*shape) for shape in shapes])\n"
        "splitjit.split(array(16, 600), 200, axis=1), splitjit.split(array(16, 600), 200, axis=1)\n"
        "print(median_of(lambda: splitjit.split(next(arrays), 2, axis=1), 4000))",
        "from splitjit._copy.kernel_copy import NEW_SHAPES\n"
        "NEW_SHAPES.use = lambda loop, address, code: None",
    ),
    Mechanism(
        "each copy runs the way that was the fastest where it runs",
        "`_runtime/ways.py`",
        "4.7 MB of a tensor between operators of torch",
        f"{WARM}import torch\nx, other = torch.rand(512, 2304), torch.rand(1 << 20)\n"
        "split = lambda: splitjit.split(x, num_splits=3, axis=1)\n"
        "print(median_of(split, 1000, before=lambda: other.mul_(1.0)))",
        "from splitjit._runtime.ways import Ways\nWays.choose = lambda self: 0",
    ),
    Mechanism(
        "one rule for slices of one array, in Python and in compiled code",
        "`_abi/columns.py`",
        "1000 interleaved outputs, checked in Python",
        "from splitjit._copy import outputs\n"
        "whole = array(4, 2000)\n"
        "parts = [whole[:, 2 * i : 2 * i + 2] for i in range(1000)]\n"
        "print(median_of(lambda: outputs.check_apart(parts, 1), 5))",
        "from splitjit._copy import outputs\noutputs._are_apart = lambda parts, axis: False",
    ),
)


def seconds(mechanism: Mechanism, without: bool, folder: Path) -> float:
    """Return the time that the program prints; of several processes, the longest time."""
    variables = [v.split("=") for v in mechanism.variables] if without else []
    program = folder / f"program_{without}.py"  # a file, because Numba caches functions of files
    if not program.exists():
        code = [START, mechanism.off if without else "", mechanism.program]
        program.write_text("\n".join(code), "utf-8")
    with tempfile.TemporaryDirectory() as cache, harness.busy_programs(mechanism.busy):
        if mechanism.processes > 1:
            variables.append(["NUMBA_CACHE_DIR", cache])
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict(variables)}
        run = functools.partial(
            subprocess.Popen, [sys.executable, program], env=environment, cwd=ROOT,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with ExitStack() as stack:
            programs = [stack.enter_context(run()) for _ in range(mechanism.processes)]
            return max(float(program.communicate()[0].split()[-1]) for program in programs)


def rows(results: list[list]) -> str:
    """Return the table of mechanisms, as Markdown."""
    of = {m.name: m for m in MECHANISMS}
    lines = [
        [name, of[name].where, f"{of[name].task}: {time_text(with_it)}", time_text(without)]
        for name, with_it, without in results
    ]
    return harness.table(["mechanism", "where", "with it", "without it"], lines)


def main() -> None:
    """Measure each mechanism, with it and without it in turns, and print the table."""
    parser = harness.parser(__doc__)
    parser.add_argument("--processes", type=int, default=3, help="of each kind")
    parser.add_argument("--only", default="", help="the mechanisms whose names contain this")
    parser.add_argument("--page", action="store_true", help="write docs/architecture.md")
    options = parser.parse_args()
    results = []
    for mechanism in MECHANISMS:
        if options.only in mechanism.name:
            harness.say(mechanism.name)
            with tempfile.TemporaryDirectory() as folder:
                turn = functools.partial(seconds, mechanism, folder=Path(folder))
                for without in (False, True):  # what is not in the cache is compiled
                    turn(without)
                turns = harness.in_turns((False, True), options.processes, turn)
            results.append([mechanism.name, median(turns[False]), median(turns[True])])
    machine, found = harness.describe(), rows(results)
    harness.finish(options, machine, found, {"results": results})
    if options.page:
        text = filled(PAGE.read_text("utf-8"), mechanisms=f"{machine}\n\n{found}")
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
