"""The chosen set for the history: a few numbers that old commits can be measured by, too.

Each number falls when splitjit gets better, because asv reports each number that rises.

`asv run HASHFILE:benchmarks/milestones.txt --bench History` measures the milestones.
One process measures all cases in turns, on one thread and in CPU time. Other programs then hardly
change the ratios, so that commits are comparable.
"""

import os
import subprocess
import sys
import tempfile
import time

from benchmarks import contenders
from benchmarks.contenders import LIMIT, OURS
from benchmarks.harness import measure

CASES = contenders.targets("history")
LIMITED = [case for case in CASES if case != "10000 into 10000, fresh"]
"""The cases with a useful limit: to make 10 000 parts takes far longer than to copy their bytes."""
NUMPY = "NumPy, slices"

PROCESSES = contenders.CASES["new_processes"]
"""Code that prints one number, in a new process. The first process fills the cache of kernels."""


class History:
    """Ratios, shares of the limit, times of calls, cold starts and peak memory."""

    version = "1"
    timeout = 300
    param_names = ("case",)

    def setup_cache(self):
        """Measure everything once; the benchmarks below only read the numbers."""
        seconds = {name: _measured(*CASES[name]) for name in CASES}
        return seconds, _in_processes()

    setup_cache.timeout = 600

    def track_time_over_numpy(self, numbers, case):
        return _ratio(numbers[0][case], (NUMPY,))

    def track_time_over_limit(self, numbers, case):
        return _ratio(numbers[0][case], LIMIT)

    def track_microseconds(self, numbers, case):
        return round(1e6 * numbers[0][case][OURS], 2)

    def track_process(self, numbers, what):
        return round(numbers[1][what], 3)

    track_time_over_numpy.params, track_time_over_numpy.unit = [list(CASES)], "ours/theirs"
    track_time_over_limit.params, track_time_over_limit.unit = [LIMITED], "ours/theirs"
    track_microseconds.params, track_microseconds.unit = [list(CASES)], "µs"
    track_process.params, track_process.unit = [list(PROCESSES)], "see the name"
    track_process.param_names, track_process.version = ("what",), "2"


def _measured(case: contenders.Case, target: str) -> dict[str, float]:
    """Return the seconds of splitjit, NumPy and the limit, of the processor and on one thread."""
    calls = contenders.prepared(case, target == "fresh", (OURS, NUMPY, *LIMIT), 1)
    return measure(calls, 3, time.process_time)


def _ratio(seconds: dict[str, float], rivals: tuple[str, ...]) -> float:
    """Return the time of splitjit over the time of the fastest rival, or NaN without one."""
    times = [seconds[name] for name in rivals if name in seconds]
    return round(seconds[OURS] / min(times), 6) if times else float("nan")


def _in_processes() -> dict[str, float]:
    """Return what new processes print, by name."""
    numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, code in PROCESSES.items():
            if "peak" in name:  # the first run compiles, which takes memory, too
                _printed(code, folder)
            numbers[name] = _printed(code, folder)
            if not os.listdir(folder):
                raise RuntimeError(f"{name}: the process compiled nothing, so it shows no cost")
    return numbers


def _printed(code: str, cache: str) -> float:
    """Return the number that code prints in a new process, whose compiled code a folder keeps."""
    env = {**os.environ, "NUMBA_CACHE_DIR": cache}
    return float(subprocess.check_output([sys.executable, "-c", code], env=env))
