"""``splitjit check``: compare typical splits with NumPy's, and time them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import platform
import random
import statistics
import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import splitjit
from splitjit._cli.lines import say
from splitjit._copy import cache_folder, cores
from splitjit._copy.addresses import address_of
from splitjit._copy.compiled import Compiled
from splitjit._copy.loading import LOADER, never_compiles
from splitjit._copy.threads import THREADS
from splitjit._kernels.table import Arguments

SCALING_SHAPE = (2048, 8192)
"""The shape of the float32 array that `_scaling` splits: 64 MB, more than a cache holds."""

SECONDS = 0.4
"""Seconds for which each workload is timed."""

SAY_EVERY = 5.0
"""Seconds between two lines that say that kernels are still compiled."""

_FILE = Path(splitjit.__file__)

SAMPLE = 2e-4
"""Least duration of one timing in seconds. A timing repeats calls that are shorter."""


@dataclass(frozen=True, slots=True)
class Workload:
    """An array to split, and the rule.

    Attributes
    ----------
    name : str
    shape : tuple of int
    dtype : str
    axis : int
    rule : dict
        The rule as a keyword argument of `splitjit.split`.
    sections : int or list of int
        The same rule as an argument of `numpy.split`: a number of equal parts, or
        the indices before which it cuts.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int
    rule: dict[str, Any]
    sections: int | list[int]

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def make(self) -> np.ndarray:
        """Make an array of random bits, or of strings if the dtype is object."""
        if self.dtype == "object":
            words = [f"token {i}" for i in range(math.prod(self.shape))]
            return np.array(words, object).reshape(self.shape)
        bits = np.frombuffer(np.random.default_rng(0).bytes(self.nbytes), self.dtype)
        return bits.reshape(self.shape)


_THREE: dict[str, Any] = {"num_splits": 3}
_UNEVEN = [1_000_000, 500_001, 4_000_000, 2_499_999]

WORKLOADS = (
    Workload("QKV 3x768, 1 token", (1, 2304), "float32", 1, _THREE, 3),
    Workload("QKV 3x768, 16 tokens", (16, 2304), "float32", 1, _THREE, 3),
    Workload("QKV 3x768, 512 tokens", (512, 2304), "float32", 1, _THREE, 3),
    Workload("gate/up 2x11008, 2048 rows", (2048, 22016), "float32", 1, {"num_splits": 2}, 2),
    Workload("RGB image 1080x1920", (1080, 1920, 3), "uint8", -1, _THREE, 3),
    Workload("NCHW 32x3x224x224, channels", (32, 3, 224, 224), "float32", 1, _THREE, 3),
    Workload(
        "1-D, 4 uneven parts",
        (sum(_UNEVEN),),
        "float64",
        0,
        {"split": _UNEVEN},
        [*itertools.accumulate(_UNEVEN[:-1])],
    ),
    Workload("object strings 4x50000", (4, 50_000), "object", 1, {"num_splits": 2}, 2),
)


def run(as_json: bool = False) -> int:
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
    begun = time.monotonic()
    with _counting():
        first_use = dict(_time_first_use())
    rows = []
    if not as_json:
        print(_COLUMNS.format("", "parts", "fresh", "out=", "GB/s", "x NumPy", "of memcpy"))
    for i, workload in enumerate(WORKLOADS, 1):
        if as_json or not sys.stdout.isatty():  # the table does not show the progress
            say(f"{i} of {len(WORKLOADS)}: {workload.name}")
        row = _Row(workload, parts_equal(workload, x := workload.make()), measure(workload, x))
        rows.append(row)
        if not as_json:
            print(row, flush=True)
    machine = {**dict(_environment()), **first_use}
    (_print_json if as_json else _print_end)(rows, machine, time.monotonic() - begun)
    return 0 if all(row.ok for row in rows) else 1


_COLUMNS = "{:<28} {:>5}  {:>9} {:>9} {:>7} {:>8} {:>9}"


@dataclass(frozen=True, slots=True)
class _Row:
    """The results of a workload; see `measure` for the seconds."""

    workload: Workload
    ok: bool
    seconds: dict[str, float]

    def __str__(self) -> str:
        figures = _figures(self.workload.nbytes, self.seconds)
        return _COLUMNS.format(self.workload.name, "ok" if self.ok else "WRONG", *figures)

    def as_dict(self) -> dict[str, Any]:
        """Return the results for JSON."""
        of = self.workload
        rule = {"shape": of.shape, "dtype": of.dtype, "axis": of.axis, **of.rule}
        return {"name": of.name, **rule, "ok": self.ok, "seconds": self.seconds}


def _print_end(rows: list[_Row], machine: dict[str, str], seconds: float) -> None:
    print(
        "\nfresh: into new arrays; out=: into arrays that exist; GB/s: read + written, out=;\n"
        "x NumPy: fresh, against [part.copy() for part in np.split(...)]; of memcpy: out=,\n"
        "against np.copyto of as many bytes, which is one thread.\n"
    )
    for name, value in machine.items():
        print(f"{name:<16} {value}")
    wrong = sum(not row.ok for row in rows)
    verdict = f"{wrong} workloads WRONG." if wrong else "Every part equals NumPy's, byte for byte."
    print(f"\n{verdict} This check took {seconds:.1f} s.")


def _print_json(rows: list[_Row], machine: dict[str, str], seconds: float) -> None:
    ok = all(row.ok for row in rows)
    found = {"ok": ok, "seconds": seconds, "machine": machine}
    print(json.dumps({**found, "workloads": [row.as_dict() for row in rows]}, indent=1))


@contextlib.contextmanager
def _counting() -> Iterator[None]:
    """Say every few seconds that the block still runs."""
    ended, begun = threading.Event(), time.monotonic()

    def count() -> None:
        while not ended.wait(SAY_EVERY):
            say(f"still compiling, {time.monotonic() - begun:.0f} s")

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()  # another Python thread would change how many threads may copy


def parts_equal(workload: Workload, x: np.ndarray) -> bool:
    """Compare the parts, in new arrays and in `out`, with NumPy's.

    Parameters
    ----------
    workload : Workload
    x : ndarray
        The array that ``workload.make()`` returned.

    Returns
    -------
    bool
        Whether all bytes are equal, or if `x` holds objects, whether all objects
        are identical.
    """
    expected = np.split(x, workload.sections, workload.axis)
    out = [np.zeros(part.shape, part.dtype) for part in expected]
    splitjit.split(x, axis=workload.axis, out=out, **workload.rule)
    fresh = splitjit.split(x, axis=workload.axis, **workload.rule)
    return len(fresh) == len(expected) and all(
        _same(part, reference) for part, reference in zip(fresh + out, expected * 2, strict=True)
    )


def _same(part: np.ndarray, reference: np.ndarray) -> bool:
    if part.shape != reference.shape or part.dtype != reference.dtype:
        return False
    if part.dtype.hasobject:
        return all(a is b for a, b in zip(part.flat, reference.flat, strict=True))
    return part.tobytes() == reference.tobytes()


def measure(workload: Workload, x: np.ndarray) -> dict[str, float]:
    """Time the ways to run a workload, in alternation.

    Alternation exposes all ways to the same load of the machine.

    Parameters
    ----------
    workload : Workload
    x : ndarray
        The array that ``workload.make()`` returned.

    Returns
    -------
    dict of str to float
        Median seconds of ``fresh``, ``out``, ``numpy`` and, unless `x` holds
        objects, ``memcpy``.
    """
    axis, rule = workload.axis, workload.rule
    out = [part.copy() for part in np.split(x, workload.sections, axis)]  # pages touched
    calls: dict[str, Callable[[], object]] = {
        "fresh": lambda: splitjit.split(x, axis=axis, **rule),
        "out": lambda: splitjit.split(x, axis=axis, out=out, **rule),
        "numpy": lambda: [part.copy() for part in np.split(x, workload.sections, axis)],
    }
    if not x.dtype.hasobject:
        target = x.copy()
        calls["memcpy"] = lambda: np.copyto(target, x)

    timers = {name: timeit.Timer(call) for name, call in calls.items()}
    repeats = {}
    for name, timer in timers.items():
        timer.timeit(1)
        repeats[name] = 1 + int(SAMPLE / timer.timeit(1))
    samples: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(samples["out"]) < 3:
        random.shuffle(order)
        for name in order:
            samples[name].append(timers[name].timeit(repeats[name]) / repeats[name])
    return {name: statistics.median(times) for name, times in samples.items()}


def _figures(nbytes: int, seconds: dict[str, float]) -> Iterator[str]:
    yield _duration(seconds["fresh"])
    yield _duration(seconds["out"])
    yield f"{2 * nbytes / seconds['out'] / 1e9:.1f}" if "memcpy" in seconds else "-"
    yield f"{seconds['numpy'] / seconds['fresh']:.2f}"
    yield f"{seconds['memcpy'] / seconds['out']:.0%}" if "memcpy" in seconds else "-"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _time_first_use() -> list[tuple[str, str]]:
    """Time the loading of the kernels, and find their cache."""
    if never_compiles():
        return [("kernels", "none: NUMBA_DISABLE_JIT is set")]
    started = time.perf_counter()
    splitjit.warmup()
    seconds = time.perf_counter() - started
    origin = f"compiled {', '.join(LOADER.compiled)}" if LOADER.compiled else "from the cache"
    return [("kernels", f"{seconds:.2f} s, {origin}"), ("kernel cache", cache_folder.folder())]


def _environment() -> Iterator[tuple[str, str]]:
    import llvmlite.binding
    import numba

    yield "splitjit", f"{splitjit.__version__}, {_FILE.parent}"
    yield "numba", numba.__version__
    yield "numpy", np.__version__
    yield "python", f"{platform.python_version()}, {platform.platform()}"
    yield "CPU", f"{llvmlite.binding.get_host_cpu_name()}, {os.cpu_count()} cores"
    try:
        threads = numba.get_num_threads()  # starts the threading layer
        layer = numba.threading_layer()
    except (ValueError, Warning) as error:  # no threading layer can be loaded
        threads, layer = 1, str(error)
    yield "threading layer", layer
    limits = cores.describe(threads)
    quota = "" if limits.quota is None else f", quota {limits.quota:g} cores"
    yield (
        "threads",
        f"{limits.usable}, limited by {limits.limited_by}: {limits.counted} cores, "
        f"affinity {limits.affinity}{quota}, Numba {limits.numba_threads}",
    )
    if not never_compiles():
        for count, speed in _scaling(threads):
            yield f"{count} thread{'s' * (count > 1)}", f"{speed / 1e9:.1f} GB/s"


def _scaling(threads: int) -> Iterator[tuple[int, float]]:
    """Measure the bytes per second of a large copy on 1, 2, 4 and more threads.

    This calls the kernel without the governor, which would leave parallel
    copies out if the machine is busy.
    """
    x = np.ones(SCALING_SHAPE, np.float32)
    plan = splitjit.plan_split(x.shape, num_splits=2, axis=1)
    parts = [np.ones(shape, x.dtype) for shape in plan.output_shapes]  # touched
    compiled = Compiled(plan, x.dtype, x.strides)
    loop = compiled.loop_for(compiled.layout)
    functions = LOADER.load(loop)
    if functions is None or THREADS.run is None:
        return
    layout = compiled.layout.to(plan, [address_of(part) for part in parts])
    arguments = Arguments(1, 0, address_of(x), layout.address)
    counts = {1 << i for i in range(threads.bit_length())} | {threads}
    if THREADS.run_parallel is None:
        counts = {1}
    for count in sorted(counts):
        run = THREADS.run_parallel if count > 1 else THREADS.run
        copy = functools.partial(run, functions[loop], 0, count, *arguments)
        copy()
        times = timeit.repeat(copy, number=1, repeat=9)
        yield count, 2 * x.nbytes / statistics.median(times)
