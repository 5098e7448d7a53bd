"""``splitjit check``: compare typical splits with NumPy's, and time them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import platform
import random
import statistics
import sys
import textwrap
import threading
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import splitjit
from splitjit._abi.addresses import address_of
from splitjit._abi.calls import Arguments
from splitjit._abi.shared import CHUNKS_PER_THREAD
from splitjit._cli.lines import print_json, say
from splitjit._copy.kernel_copy import KernelCopy
from splitjit._runtime import cores, kernel_files
from splitjit._runtime.loading import LOADER, never_compiles
from splitjit._runtime.threads import TEAM

SCALING_SHAPE = (2048, 8192)
"""The shape of the float32 array that `_scaling` splits: 64 MB, more than a cache holds."""

SLOW, HIGH = 0.9, 2.5
"""Relative speeds below and above which a figure gets a remark."""

SECONDS = 0.4
"""Seconds for which each workload is timed."""

SAY_EVERY = 5.0
"""Seconds between lines that say that kernels are still compiling."""

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
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    axis: int
    rule: dict[str, Any]

    @property
    def sections(self) -> int | list[int]:
        """The rule as `numpy.split` takes it: a number of equal parts, or indices to cut before."""
        lengths = self.rule.get("split")
        if lengths is None:
            return self.rule["num_splits"]  # type: ignore[no-any-return]
        return [*itertools.accumulate(lengths[:-1])]

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


_THREE = {"num_splits": 3}
_UNEVEN = {"split": [1_000_000, 500_001, 4_000_000, 2_499_999]}

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
        first_use = _time_first_use()
    rows = []
    if not as_json:
        print(_COLUMNS.format("", "parts", "fresh", "out=", "GB/s", "x NumPy", "of memcpy"))
    for i, workload in enumerate(WORKLOADS, 1):
        if as_json or not sys.stdout.isatty():  # no table on a screen shows progress
            say(f"{i} of {len(WORKLOADS)}: {workload.name}")
        calls = ways(workload)
        row = Row(workload, parts_equal(calls), measure(calls))
        rows.append(row)
        if not as_json:
            print(row, flush=True)
    machine, speeds = _environment()
    machine |= {f"{n} thread{'s' * (n > 1)}": f"{speeds[n] / 1e9:.1f} GB/s" for n in speeds}
    machine |= first_use
    wrong, seconds = sum(not row.ok for row in rows), time.monotonic() - begun
    if as_json:
        found = {"ok": not wrong, "seconds": seconds, "machine": machine}
        print_json({**found, "workloads": [row.as_dict() for row in rows]})
    else:
        print(_LEGEND)
        for remark in remarks(rows, speeds):
            print(textwrap.fill(remark, 88, subsequent_indent="  ") + "\n")
        for name, value in machine.items():
            print(f"{name:<16} {value}")
        verdict = f"{wrong} workloads WRONG." if wrong else _EQUAL
        print(f"\n{verdict} This check took {seconds:.1f} s.")
    return 1 if wrong else 0


_EQUAL = "Every part equals NumPy's, byte for byte."

_COLUMNS = "{:<28} {:>5}  {:>9} {:>9} {:>7} {:>8} {:>9}"

_LEGEND = """
fresh: into new arrays; out=: into arrays that exist; GB/s: read + written, out=;
x NumPy: fresh, against [part.copy() for part in np.split(...)]; of memcpy: out=,
against np.copyto of as many bytes, which is one thread.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """The results of a workload; see `measure` for the seconds."""

    workload: Workload
    ok: bool
    seconds: dict[str, float]

    @property
    def of_numpy(self) -> float:
        """Speed of this split into new arrays, relative to NumPy."""
        return self.seconds["numpy"] / self.seconds["fresh"]

    @property
    def of_memcpy(self) -> float:
        """Speed of this split with `out`, relative to `numpy.copyto`; 0 for objects."""
        return self.seconds.get("memcpy", 0) / self.seconds["out"]

    def __str__(self) -> str:
        out, share = self.seconds["out"], self.of_memcpy
        ok = "ok" if self.ok else "WRONG"
        times = _duration(self.seconds["fresh"]), _duration(out)
        speed = f"{2 * self.workload.nbytes / out / 1e9:.1f}" if share else "-"
        shares = f"{self.of_numpy:.2f}", f"{share:.0%}" if share else "-"
        return _COLUMNS.format(self.workload.name, ok, *times, speed, *shares)

    def as_dict(self) -> dict[str, Any]:
        """Return the results for JSON."""
        of = self.workload
        rule = {"shape": of.shape, "dtype": of.dtype, "axis": of.axis, **of.rule}
        return {"name": of.name, **rule, "ok": self.ok, "seconds": self.seconds}


def remarks(rows: Sequence[Row], speeds: dict[int, float]) -> Iterator[str]:
    """Say why some figures may be far from the others.

    Parameters
    ----------
    rows : sequence of Row
    speeds : dict of int to float
        The bytes per second of a large copy, by the number of threads.
    """
    for row in rows:
        if row.of_numpy < SLOW and row.workload.dtype == "object":
            why = "no object is copied. Both libraries change each object's reference count."
        elif row.of_numpy < SLOW:
            why = "slower than NumPy. Run the check again when no other program uses the cores."
        elif row.of_memcpy > HIGH:
            why = (
                f"np.copyto runs on one thread, this split on up to {max(speeds, default=1)}. The "
                "share is still larger if parts stay in the cache, or if another program holds "
                "np.copyto up."
            )
        else:
            continue
        yield f"{row.workload.name}: {why}"
    for fewer, more in itertools.pairwise(speeds):
        if speeds[more] < SLOW * speeds[fewer]:
            yield (
                f"{more} threads are slower than {fewer}: other programs use the cores, or {fewer} "
                "can use all of the memory's bandwidth."
            )


@contextlib.contextmanager
def _counting() -> Iterator[None]:
    """Report every few seconds while the block runs."""
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
        thread.join()


Ways = dict[str, Callable[[], Any]]


def ways(workload: Workload) -> Ways:
    """Return functions that run a workload: ``fresh``, ``out``, ``numpy`` and ``memcpy``.

    Each returns the parts, except ``memcpy``, which only objects lack.

    Parameters
    ----------
    workload : Workload
    """
    x, axis, rule = workload.make(), workload.axis, workload.rule

    def by_numpy() -> list[np.ndarray]:
        return [part.copy() for part in np.split(x, workload.sections, axis)]

    out = by_numpy()
    for part in out:
        part.fill(0)  # so that a missing write shows
    calls: Ways = {
        "fresh": lambda: splitjit.split(x, axis=axis, **rule),
        "out": lambda: splitjit.split(x, axis=axis, out=out, **rule),
        "numpy": by_numpy,
    }
    if not x.dtype.hasobject:
        target = x.copy()
        calls["memcpy"] = lambda: np.copyto(target, x)
    return calls


def parts_equal(calls: Ways) -> bool:
    """Compare the parts, in new arrays and in `out`, with NumPy's.

    Parameters
    ----------
    calls : dict of str to callable
        See `ways`.

    Returns
    -------
    bool
        Whether all bytes are equal, or if the array holds objects, whether all objects
        are identical.
    """
    expected, made = calls["numpy"](), (calls["out"](), calls["fresh"]())
    return all(len(parts) == len(expected) and all(map(_same, parts, expected)) for parts in made)


def _same(part: np.ndarray, reference: np.ndarray) -> bool:
    if part.shape != reference.shape or part.dtype != reference.dtype:
        return False
    if part.dtype.hasobject:
        return all(a is b for a, b in zip(part.flat, reference.flat, strict=True))
    return part.tobytes() == reference.tobytes()


def measure(calls: Ways) -> dict[str, float]:
    """Time the ways to run a workload, in turn.

    This exposes all ways to the same load of the machine.

    Parameters
    ----------
    calls : dict of str to callable
        See `ways`.

    Returns
    -------
    dict of str to float
        The median seconds of each way.
    """
    timers = {name: timeit.Timer(call) for name, call in calls.items()}
    repeats = {name: 1 + int(SAMPLE / min(timers[name].repeat(2, 1))) for name in timers}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    order = list(timers)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(samples["out"]) < 3:
        random.shuffle(order)
        for name in order:
            samples[name].append(timers[name].timeit(repeats[name]) / repeats[name])
    return {name: statistics.median(times) for name, times in samples.items()}


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def _time_first_use() -> dict[str, str]:
    """Time the loading of the kernels, and find their cache."""
    if never_compiles():
        return {"kernels": "none: NUMBA_DISABLE_JIT is set"}
    started = time.perf_counter()
    splitjit.warmup()
    seconds = time.perf_counter() - started
    cache = os.path.dirname(kernel_files.path("plain")) or "none"
    origin = f"compiled {', '.join(LOADER.compiled)}" if LOADER.compiled else "from the cache"
    return {"kernels": f"{seconds:.2f} s, {origin}", "kernel cache": cache}


def _environment() -> tuple[dict[str, str], dict[int, float]]:
    """Return the versions and the machine, and the speeds of a large copy; see `_scaling`."""
    import llvmlite.binding
    import numba

    limits = cores.describe()
    quota = "" if limits.quota is None else f", quota {limits.quota:g} cores"
    found = {
        "splitjit": f"{splitjit.__version__}, {_FILE.parent}",
        "numba": numba.__version__,
        "numpy": np.__version__,
        "python": f"{platform.python_version()}, {platform.platform()}",
        "CPU": f"{llvmlite.binding.get_host_cpu_name()}, {os.cpu_count()} cores",
        "threads": f"{limits.usable}, limited by {limits.limited_by}: {limits.counted} cores, "
        f"affinity {limits.affinity}{quota}, Numba {limits.numba_threads or 'no limit'}",
    }
    return found, {} if never_compiles() else dict(_scaling(limits.usable))


def _scaling(threads: int) -> Iterator[tuple[int, float]]:
    """Measure the bytes per second of a large copy on 1, 2, 4 and more threads."""
    x = np.ones(SCALING_SHAPE, np.float32)
    plan = splitjit.plan_split(x.shape, num_splits=2, axis=1)
    parts = [np.ones(shape, x.dtype) for shape in plan.output_shapes]  # touched
    compiled = KernelCopy(plan, x.dtype, x.strides)
    loop = compiled.loop_for(compiled.layout)
    functions = LOADER.load(loop)
    if functions is None or TEAM.run is None:
        return
    layout = compiled.layout.to(plan, [address_of(part) for part in parts])
    arguments = Arguments(1, 0, address_of(x), layout.address)
    counts = {1 << i for i in range(threads.bit_length())} | {threads}
    for count in sorted(counts):
        how = count - 1, CHUNKS_PER_THREAD * count
        copy = functools.partial(TEAM.run, TEAM.address, functions[loop], *how, *arguments)
        copy()
        times = timeit.repeat(copy, number=1, repeat=9)
        yield count, 2 * x.nbytes / statistics.median(times)
