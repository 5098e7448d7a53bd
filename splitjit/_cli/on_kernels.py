"""The commands about kernels: ``check``, ``warmup`` and ``cache``.

``check`` compares typical splits with NumPy's, joins them back, and times them.
"""

import math
import os
import platform
import random
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import splitjit
from splitjit._abi.kernels import KERNELS
from splitjit._cli.lines import amount, number_of, print_json, printable, say
from splitjit._runtime import kernel_files, threads
from splitjit._runtime.loading import LOADER, never_compiles

_FIRST_TIME = (
    "; the first time on this machine, splitjit compiles this version of them, which takes 10 to "
    "30 s"
)


def announce() -> dict[str, bool]:
    """Say that kernels are loaded now; return for each kernel whether its file is whole."""
    names = [] if never_compiles() else list(KERNELS)
    whole = {name: kernel_files.read(name) is not None for name in names}
    say(f"loading the kernels{'' if all(whole.values()) else _FIRST_TIME}")
    return whole


def not_loaded() -> str:
    """Say which kernels are not loaded, and why; return an empty text if all are."""
    missing = ", ".join([name for name in KERNELS if name not in LOADER.loaded])
    reason = "NUMBA_DISABLE_JIT is set" if never_compiles() else "the log says why"
    return missing and f"kernels not loaded: {missing}; {reason}, and NumPy copies instead"


def warmup(and_check: bool) -> int:
    """Load or compile all kernels; with `and_check`, also say which ones were missing."""
    began = time.perf_counter()
    whole = announce()
    splitjit.warmup()
    if missing := not_loaded():
        say(missing)
        return 2
    print(f"All kernels are loaded; this took {time.perf_counter() - began:.1f} s.")
    for name in whole if and_check else []:
        was = "whole" if whole[name] else "missing or damaged"
        is_new = not whole[name] and kernel_files.read(name) is not None
        print(f"{name}: {was}{', compiled now' if is_new else ''}")
    return int(and_check and not all(whole.values()))


def cache(clear: bool, as_json: bool) -> int:
    """Print the folders of the cache and their sizes, or remove the files in them."""
    files = kernel_files.remove(older=False) if clear else kernel_files.files()
    left = kernel_files.files() if clear else {}
    found: list[dict[str, Any]] = []
    for folder in kernel_files.folders():
        sizes = [size for path, size in files.items() if os.path.dirname(path) == folder]
        found.append({"path": folder, "files": len(sizes), "bytes": sum(sizes)})
    if as_json:
        print_json({"cleared": clear, "folders": found})
    for row in [] if as_json else found:
        what = f"{number_of(row['files'], 'file')}, {amount(row['bytes'])}"
        print(f"{printable(row['path'])}: {'removed ' if clear else ''}{what}")
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


def check(as_json: bool = False) -> int:
    """Check and time every workload, and print a table of the results.

    Parameters
    ----------
    as_json : bool, default False
        Print one JSON object instead of the table. Times are seconds.

    Returns
    -------
    int
        The exit status: 1 if a part differs from NumPy's in any byte, else 0.
    """
    announce()
    say(
        "then splitting eight typical arrays, comparing each byte with NumPy's parts, and timing "
        "both in turn, which takes 5 to 15 s"
    )
    begun = time.monotonic()
    kernels = _time_first_use()
    found = []
    if not as_json:
        print(_COLUMNS.format("", "parts", "fresh", "out=", "NumPy"))
    for i, workload in enumerate(WORKLOADS, 1):
        if as_json or not sys.stdout.isatty():  # no table on a screen shows progress
            say(f"{i} of {len(WORKLOADS)}: {workload.name}")
        calls = calls_of(workload)
        ok, seconds = parts_equal(calls) and joins_back(workload), measure(calls)
        found.append({**workload._asdict(), "ok": ok, "seconds": seconds})
        if not as_json:
            times = map(_duration, seconds.values())
            print(_COLUMNS.format(workload.name, "ok" if ok else "WRONG", *times), flush=True)
    wrong = sum(not one["ok"] for one in found)
    machine, taken = _machine() | kernels, time.monotonic() - begun
    if as_json:
        print_json({"ok": not wrong, "seconds": taken, "machine": machine, "workloads": found})
    else:
        print(_COLUMNS_MEAN, *[f"{name:9} {fact}" for name, fact in machine.items()], sep="\n")
        said = "Every part equals NumPy's, byte for byte, and joins back."
        said = f"{wrong} workloads WRONG." if wrong else said
        print(f"\n{said} This check took {taken:.1f} s.")
    return 1 if wrong else 0


_COLUMNS = "{:<28} {:>5}  {:>9} {:>9} {:>9}"

_COLUMNS_MEAN = """
fresh: into new arrays; out=: into arrays that exist;
NumPy: [part.copy() for part in np.split(...)].
"""

Calls = dict[str, Callable[[], Any]]


def calls_of(workload: Workload) -> Calls:
    """Return functions that run a workload and return its parts: ``fresh``, ``out``, ``numpy``.

    Parameters
    ----------
    workload : Workload
    """
    x, axis, rule = workload.make(), workload.axis, workload.rule
    (sections,) = rule.values()

    def by_numpy() -> list[np.ndarray]:
        return [part.copy() for part in np.split(x, sections, axis)]

    out = [np.zeros_like(part) for part in by_numpy()]  # so that a missing write shows
    return {
        "fresh": lambda: splitjit.split(x, axis=axis, **rule),
        "out": lambda: splitjit.split(x, axis=axis, out=out, **rule),
        "numpy": by_numpy,
    }


def parts_equal(calls: Calls) -> bool:
    """Compare the parts, in new arrays and in `out`, with NumPy's.

    Parameters
    ----------
    calls : dict of str to callable
        See `calls_of`.

    Returns
    -------
    bool
        Whether all bytes are equal, or if the array holds objects, whether all objects
        are identical.
    """
    expected, made = calls["numpy"](), (calls["out"](), calls["fresh"]())
    return all(len(parts) == len(expected) and all(map(_same, parts, expected)) for parts in made)


def joins_back(workload: Workload) -> bool:
    """Return whether the parts of an array, joined, equal the array."""
    x = workload.make()
    parts = splitjit.split(x, axis=workload.axis, **workload.rule)
    return _same(splitjit.join(parts, workload.axis), x)


def _same(part: np.ndarray, reference: np.ndarray) -> bool:
    kind = (part.shape, part.dtype) == (reference.shape, reference.dtype)
    return kind and part.tobytes() == reference.tobytes()  # of objects, these are their addresses


def measure(calls: Calls) -> dict[str, float]:
    """Time the calls of a workload, in turn.

    This exposes all calls to the same load of the machine.

    Parameters
    ----------
    calls : dict of str to callable
        See `calls_of`.

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


def _time_first_use() -> dict[str, str]:
    """Time the loading of the kernels, and find their cache."""
    started = time.perf_counter()
    splitjit.warmup()
    seconds = time.perf_counter() - started
    if missing := not_loaded():
        return {"kernels": missing}
    folder = os.path.dirname(kernel_files.path("plain")) or "none"
    origin = f"compiled {', '.join(LOADER.compiled)}" if LOADER.compiled else "from the cache"
    return {"kernels": f"{seconds:.2f} s, {origin}: {folder}"}


def _machine() -> dict[str, str]:
    """Return the versions and the machine."""
    import llvmlite.binding
    import numba

    limits, granted = threads.limits(), threads.quota()
    limited_by, usable = next(iter(limits.items()))
    quota = "" if granted is None else f", quota {granted:g} cores"
    numba_threads = "no limit" if limits["Numba"] == sys.maxsize else limits["Numba"]
    return {
        "splitjit": f"{splitjit.__version__}, {os.path.dirname(splitjit.__file__)}",
        "python": f"{platform.python_version()}, {platform.platform()}",
        "numpy": np.__version__,
        "numba": numba.__version__,
        "CPU": f"{llvmlite.binding.get_host_cpu_name()}, {os.cpu_count()} cores",
        "threads": f"{usable}, limited by {limited_by}: {limits['cores']} cores, "
        f"affinity {limits['affinity']}{quota}, Numba {numba_threads}",
    }
