"""The chosen set for the history: a few numbers that old commits can be measured by, too.

`asv run HASHFILE:benchmarks/milestones.txt --bench History` measures the milestones.
One process measures all cases in turns, so that the ratios of a commit are comparable.
"""

import os
import statistics
import subprocess
import sys
import tempfile

from .compare import LIMIT, OURS, Case, contenders, measure

STRIDED = "transposed"
CASES = {
    # Each step in "Optimizations and their effects", docs/performance.md, changed one of these.
    "long runs, out": (Case((2048, 22016), 1, (11008,) * 2), "out"),
    "long runs, fresh": (Case((2048, 22016), 1, (11008,) * 2), "fresh"),
    "runs of 40 bytes, out": (Case((400_000, 100), 1, (10,) * 10), "out"),
    "pixels, out": (Case((2160, 3840, 3), 2, (1,) * 3, "uint8"), "out"),
    "single items, out": (Case((250_000, 32), 1, (1,) * 32), "out"),
    "transposed, fresh": (Case((4096, 4096), 1, (2048,) * 2), STRIDED),
    "QKV of 512 tokens, fresh": (Case((512, 2304), 1, (768,) * 3), "fresh"),
    "QKV of 1 token, out": (Case((1, 2304), 1, (768,) * 3), "out"),
    "6 into 3, fresh": (Case((6,), 0, (2,) * 3), "fresh"),
    "1000 into 100, fresh": (Case((1000,), 0, (10,) * 100), "fresh"),
    "100000 into 100000, fresh": (Case((100_000,), 0, (1,) * 100_000), "fresh"),
}
PEERS = ("NumPy, slices", "torch")

START = "import numpy, splitjit; x = numpy.ones(1 << 18, numpy.float32);"
CLOCK = "from time import perf_counter as now; start = now();"
# Linux keeps the greatest resident memory of a process, in KB, in this line.
PEAK = """
def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

x = numpy.ones(1 << 24, numpy.float32)
splitjit.split(x[: 1 << 18], num_splits=4)
before = peak()
parts = splitjit.split(x, num_splits=4)
print((peak() - before) * 1024 / x.nbytes)
"""
# Code that prints one number, in a process with an empty cache of compiled functions or a full one.
PROCESSES = {
    "import, seconds": f"{CLOCK} import splitjit; print(now() - start)",
    "first call, cached, seconds": f"{START} {CLOCK} splitjit.split(x, num_splits=4);"
    " print(now() - start)",
    "first call ever, seconds": f"{START} {CLOCK} splitjit.split(x, num_splits=4);"
    " print(now() - start)",
    "peak memory of parts over the array": START + PEAK,
}


class History:
    """Ratios, shares of the limit, times of calls, cold starts and peak memory."""

    version = "1"
    timeout = 300
    param_names = ("case",)

    def setup_cache(self):
        """Measure everything once; the benchmarks below only read the numbers."""
        seconds = {name: _measured(*CASES[name]) for name in CASES}
        return seconds, {name: _of_processes(name) for name in PROCESSES}

    setup_cache.timeout = 600

    def track_time_over_numpy(self, numbers, case):
        return _ratio(numbers[0][case], ("NumPy, slices",))

    def track_time_over_torch(self, numbers, case):
        return _ratio(numbers[0][case], ("torch",))

    def track_share_of_limit(self, numbers, case):
        return round(1 / _ratio(numbers[0][case], LIMIT), 3)

    def track_microseconds(self, numbers, case):
        return round(1e6 * numbers[0][case][OURS], 2)

    def track_process(self, numbers, what):
        return round(numbers[1][what], 3)

    for _track in (track_time_over_numpy, track_time_over_torch):
        _track.params, _track.unit = [list(CASES)], "ours/theirs"
    track_share_of_limit.params, track_share_of_limit.unit = [list(CASES)], "share"
    track_microseconds.params, track_microseconds.unit = [list(CASES)], "µs"
    track_process.params, track_process.unit = [list(PROCESSES)], "see the name"
    track_process.param_names = ("what",)
    del _track


def _measured(case: Case, target: str) -> dict[str, float]:
    """Return the seconds of each contender that can do the case."""
    if target == STRIDED:
        calls = contenders_transposed(case)
    else:
        calls = contenders(case, fresh=target == "fresh", names=(OURS, *PEERS, *LIMIT))
    return measure(calls, 7)


def contenders_transposed(case: Case) -> dict:
    """Prepare a transposed source, which only the plain copy as the limit takes as it is."""
    import numpy as np

    import splitjit

    x = np.ones(case.shape[::-1], case.dtype).T
    calls = contenders(case, fresh=True, names=LIMIT)
    views = splitjit.split(x, case.sizes, axis=case.axis, copy=False)
    calls[OURS] = lambda: splitjit.split(x, case.sizes, axis=case.axis)
    calls["NumPy, slices"] = lambda: [np.array(view, order="C") for view in views]
    try:
        import torch
    except ImportError:
        return calls
    tensor = torch.from_numpy(x)
    calls["torch"] = lambda: torch.split_with_sizes_copy(tensor, case.sizes, case.axis)
    return calls


def _ratio(seconds: dict[str, float], rivals: tuple[str, ...]) -> float:
    """Return the time of splitjit over the time of the fastest rival, or NaN without one."""
    times = [seconds[name] for name in rivals if name in seconds]
    return round(seconds[OURS] / min(times), 4) if times else float("nan")


def _of_processes(name: str) -> float:
    """Return the median of what three new processes print."""
    printed = []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(3):
            ever = folder if "ever" not in name else os.path.join(folder, str(i))
            env = {**os.environ, "NUMBA_CACHE_DIR": ever}
            command = [sys.executable, "-c", PROCESSES[name]]
            if i == 0 and "ever" not in name:  # fill the cache
                subprocess.run(command, env=env, check=True, capture_output=True)
            found = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
            printed.append(float(found.stdout))
    return statistics.median(printed)
