"""The machine that the benchmarks run on: its cores, and what a result depends on.

This is the lowest module of the benchmarks. It imports no other one, and splitjit only
inside a function, because a worker chooses the checkout of splitjit first.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

THREADS = 2
"""Threads that each contender of the report and of the history may use, on any machine."""

REST = 0.008
REST_FROM_ORT = 0.04
"""Seconds of sleep before a turn, in which thread pools come to rest. After their work, OpenMP's
threads spin for 6 ms, and the threads of ONNX Runtime spin for 29 ms."""


def rest_among(contenders: Iterable[str]) -> float:
    """Return how many seconds each of these contenders sleeps before its turn."""
    return REST_FROM_ORT if "onnxruntime" in contenders else REST


def commit() -> str:
    """Return the commit of this checkout, marked if files differ from the commit."""
    command = ["git", "describe", "--always", "--dirty"]
    git = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return git.stdout.strip() or "unknown commit"


def describe(threads: Iterable[int] = (THREADS,)) -> str:
    """Return one line about the machine, the date, the load and the versions."""
    import splitjit

    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        processor = names[0] if names else processor
    versions = [
        f"Python {platform.python_version()}",
        f"splitjit {splitjit.__version__} ({commit()})",
    ]
    packages = ["numba", "numpy", "torch", "onnxruntime", "openvino"]
    packages += ["opencv-python", "opencv-python-headless"]
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    where = [
        f"{datetime.date.today()}",
        platform.system(),
        processor,
        f"{', '.join(map(str, threads))} threads",
    ]
    if hasattr(os, "getloadavg"):
        where.append(f"load of {os.getloadavg()[0]:.1f} before")
    return f"{', '.join(where)}; {', '.join(versions)}."


def provenance() -> dict[str, object]:
    """Return the machine, the versions and the commit, on which a result depends."""
    return {"machine": describe(), "cores": CORES, "commit": commit()}
