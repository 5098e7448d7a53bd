"""The commands about kernels: ``check``, ``warmup`` and ``cache``.

``check`` compares typical splits with NumPy's, joins them back, and times them.
"""

import argparse
import math
import os
import platform
import random
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import splitjit
from splitjit._abi.kernels import KERNELS, processor
from splitjit._cli.lines import amount, number_of, print_json, printable, say
from splitjit._runtime import kernel_files, threads
from splitjit._runtime.loading import LOADER, never_compiles


def load() -> tuple[float, str]:
    """Load or compile all kernels, and say so.

    Returns
    -------
    float
        The seconds that this took.
    str
        Which kernels are not loaded, and why; empty if all are.
    """
    say("loading the kernels; compiling those that are not in the cache takes 10 to 30 s")
    began = time.perf_counter()
    splitjit.warmup()
    seconds = time.perf_counter() - began
    missing = ", ".join([name for name in KERNELS if name not in LOADER.loaded])
    if missing:
        reason = "NUMBA_DISABLE_JIT is set" if never_compiles() else "the log says why"
        missing = f"kernels not loaded: {missing}; {reason}, and NumPy copies instead"
    return seconds, missing


def warmup(arguments: argparse.Namespace) -> int:
    """Load or compile all kernels; with ``--check``, also say which ones were missing."""
    seconds, missing = load()
    if missing:
        say(missing)
        return 2
    print(f"All kernels are loaded; this took {seconds:.1f} s.")
    for name in KERNELS if arguments.check else []:
        state = "missing or damaged, compiled now" if name in LOADER.compiled else "whole"
        print(f"{name}: {state}")
    return int(arguments.check and bool(LOADER.compiled))


def cache(arguments: argparse.Namespace) -> int:
    """Print the folders of the cache and their sizes, or remove the files in them."""
    clear = arguments.clear
    files = kernel_files.remove(older=False) if clear else kernel_files.files()
    left = kernel_files.files() if clear else {}
    found = []
    for folder in kernel_files.folders():
        sizes = [size for path, size in files.items() if os.path.dirname(path) == folder]
        found.append({"path": folder, "files": len(sizes), "bytes": sum(sizes)})
        if not arguments.json:
            what = f"{number_of(len(sizes), 'file')}, {amount(sum(sizes))}"
            print(f"{printable(folder)}: {'removed ' if clear else ''}{what}")
    if arguments.json:
        print_json({"cleared": clear, "folders": found})
    for path in left:
        say(f"cannot remove {path}")
    return 2 if left else 0


# ---- splitjit check ----------------------------------------------------------------------

SECONDS = 0.4
"""Seconds for which each workload is timed."""

SAMPLE = 2e-4
"""Least duration of one timing in seconds. A timing repeats calls that are shorter."""


class Workload(NamedTuple):
    """An array to split, and the rule.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : str
    axis : int
    rule : dict
        The rule as a keyword argument of `splitjit.split`; `numpy.split` takes its value.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int
    rule: dict[str, Any]

    def make(self) -> np.ndarray:
        """Make an array of random bits, or of strings if the dtype is object."""
        size, dtype = math.prod(self.shape), np.dtype(self.dtype)
        if dtype.hasobject:
            return np.array([f"token {i}" for i in range(size)], object).reshape(self.shape)
        bits = np.random.default_rng(0).bytes(size * dtype.itemsize)
        return np.frombuffer(bits, dtype).reshape(self.shape)


_THREE = {"num_splits": 3}
_UNEVEN = {"indices": [1_000_000, 1_500_001, 5_500_001]}

WORKLOADS = (
    Workload("QKV 3x768, 1 token", (1, 2304), "float32", 1, _THREE),
    Workload("QKV 3x768, 16 tokens", (16, 2304), "float32", 1, _THREE),
    Workload("QKV 3x768, 512 tokens", (512, 2304), "float32", 1, _THREE),
    Workload("gate/up 2x11008, 2048 rows", (2048, 22016), "float32", 1, {"num_splits": 2}),
    Workload("RGB image 1080x1920", (1080, 1920, 3), "uint8", -1, _THREE),
    Workload("NCHW 32x3x224x224, channels", (32, 3, 224, 224), "float32", 1, _THREE),
    Workload("1-D, 4 uneven parts", (8_000_000,), "float64", 0, _UNEVEN),
    Workload("object strings 4x50000", (4, 50_000), "object", 1, {"num_splits": 2}),
)


def check(arguments: argparse.Namespace) -> int:
    """Check and time every workload, and print the results: a table, or one JSON object.

    Returns
    -------
    int
        The exit status: 1 if a part differs from NumPy's in any byte, else 0.
    """
    begun = time.monotonic()
    loading, missing = load()
    say(f"comparing {len(WORKLOADS)} typical splits with NumPy's, and timing both, takes 5 to 15 s")
    if not arguments.json:
        print(_COLUMNS.format("", "parts", "fresh", "out=", "NumPy"))
    found = []
    for i, workload in enumerate(WORKLOADS, 1):
        if arguments.json or not sys.stdout.isatty():  # no table on a screen shows progress
            say(f"{i} of {len(WORKLOADS)}: {workload.name}")
        ok, seconds = run(workload)
        found.append({**workload._asdict(), "ok": ok, "seconds": seconds})
        if not arguments.json:
            times = map(_duration, seconds.values())
            print(_COLUMNS.format(workload.name, "ok" if ok else "WRONG", *times), flush=True)
    wrong = sum(not one["ok"] for one in found)
    machine, taken = _machine(loading, missing), time.monotonic() - begun
    if arguments.json:
        print_json({"ok": not wrong, "seconds": taken, "machine": machine, "workloads": found})
    else:
        print(_COLUMNS_MEAN, *[f"{name:9} {fact}" for name, fact in machine.items()], sep="\n")
        right = "Every part equals NumPy's, byte for byte, and joins back."
        said = f"{wrong} workloads WRONG." if wrong else right
        print(f"\n{said} This check took {taken:.1f} s.")
    return int(wrong > 0)


_COLUMNS = "{:<28} {:>5}  {:>9} {:>9} {:>9}"

_COLUMNS_MEAN = """
fresh: into new arrays; out=: into arrays that exist;
NumPy: [part.copy() for part in np.split(...)].
"""


def run(workload: Workload) -> tuple[bool, dict[str, float]]:
    """Run a workload.

    Parameters
    ----------
    workload : Workload

    Returns
    -------
    bool
        Whether all parts equal NumPy's, byte for byte, and join back. Objects must be identical.
    dict of str to float
        The median seconds of the ways to split: ``fresh``, ``out`` and ``numpy``.
    """
    x, axis, rule = workload.make(), workload.axis, workload.rule
    (sections,) = rule.values()

    def by_numpy() -> list[np.ndarray]:
        return [part.copy() for part in np.split(x, sections, axis)]

    expected = by_numpy()
    out = [np.zeros_like(part) for part in expected]  # so that a missing write shows
    calls = {
        "fresh": lambda: splitjit.split(x, axis=axis, **rule),
        "out": lambda: splitjit.split(x, axis=axis, out=out, **rule),
        "numpy": by_numpy,
    }
    made = calls["out"](), calls["fresh"]()
    ok = all(len(parts) == len(expected) and all(map(_same, parts, expected)) for parts in made)
    return ok and _same(splitjit.join(made[1], axis), x), measure(calls)


def _same(part: np.ndarray, reference: np.ndarray) -> bool:
    kind = (part.shape, part.dtype) == (reference.shape, reference.dtype)
    return kind and part.tobytes() == reference.tobytes()  # of objects, these are their addresses


def measure(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Time the calls of a workload, in turn.

    This exposes all calls to the same load of the machine.

    Parameters
    ----------
    calls : mapping of str to callable
        The ways to split an array, by name.

    Returns
    -------
    dict of str to float
        The median seconds of each way.
    """
    timers = {name: timeit.Timer(call) for name, call in calls.items()}
    repeats = {name: 1 + int(SAMPLE / min(timers[name].repeat(2, 1))) for name in timers}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(samples["out"]) < 3:
        for name in random.sample([*timers], len(timers)):
            samples[name].append(timers[name].timeit(repeats[name]) / repeats[name])
    return {name: statistics.median(times) for name, times in samples.items()}


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _machine(loading: float, missing: str) -> dict[str, str]:
    """Return the versions, the machine, and how the kernels were loaded."""
    import numba

    folders = ", ".join(kernel_files.folders()) or "none"
    origin = f"compiled {', '.join(LOADER.compiled)}" if LOADER.compiled else "from the cache"
    limits = {name: count for name, count in threads.limits().items() if count < sys.maxsize}
    limited_by, usable = next(iter(limits.items()))
    known = ", ".join([f"{name} {count}" for name, count in limits.items()])
    return {
        "splitjit": f"{splitjit.__version__}, {os.path.dirname(splitjit.__file__)}",
        "python": f"{platform.python_version()}, {platform.platform()}",
        "numpy": np.__version__,
        "numba": numba.__version__,
        "CPU": f"{processor()[0]}, {os.cpu_count()} cores",
        "threads": f"{usable}, limited by {limited_by}: {known}",
        "kernels": missing or f"{loading:.2f} s, {origin}: {folders}",
    }


COMMANDS = {"check": check, "warmup": warmup, "cache": cache}
"""The commands; each gets the arguments, and returns the exit status."""
