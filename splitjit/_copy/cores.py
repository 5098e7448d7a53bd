"""How many cores this process may use now: affinity and container quota; their cache.

Numba counts the cores once, when a process imports it. The affinity may change after
that, and Numba does not read a container's CPU quota. A parallel copy on more threads
than cores is slower than a copy on one thread, because all threads wait for the last.

Only Linux provides all of these numbers. On other systems, and if a file is missing or
malformed, the functions here report no limit.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import NamedTuple


class Cores(NamedTuple):
    """The limits on the number of threads that copy.

    Attributes
    ----------
    counted : int
        Cores of the machine, as `os.cpu_count` counts them.
    affinity : int
        Cores on which the system may run this process now.
    quota : float or None
        Cores' worth of time that the control groups grant, None if unlimited.
    numba_threads : int
        Numba's number of threads.
    usable : int
        The smallest limit. The quota is rounded down, but to at least 1.
    limited_by : str
        The name of the smallest limit: ``"cores"``, ``"Numba"``, ``"affinity"`` or
        ``"quota"``; the first of these names if several limits are equal.
    """

    counted: int
    affinity: int
    quota: float | None
    numba_threads: int
    usable: int
    limited_by: str


def usable(now: float) -> int:
    """Return how many threads of this process can run at once.

    Parameters
    ----------
    now : float
        Seconds of a monotonic clock.

    Returns
    -------
    int
        The number of cores of the affinity, or the quota if it is smaller; at least 1.
    """
    return min(affinity(), _whole(_quota_at(int(now))))


@functools.lru_cache(1)  # one read takes 50 to 100 µs
def _quota_at(second: int) -> float | None:
    return quota()


def _whole(quota: float | None) -> int:
    # Round down: with a quota of 1.5, two threads use up their time of each period of 100 ms
    # in 75 ms, and then the system stops them for 25 ms.
    return sys.maxsize if quota is None else max(int(quota), 1)


def describe(numba_threads: int) -> Cores:
    """Return all limits as they are now, and the name of the smallest one.

    Parameters
    ----------
    numba_threads : int
        What `numba.get_num_threads` returns.

    Returns
    -------
    Cores
        The limits.
    """
    counted, here, granted = os.cpu_count() or 1, affinity(), quota()
    limits = {"cores": counted, "Numba": numba_threads, "affinity": here}
    if granted is not None:
        limits["quota"] = _whole(granted)
    fewest = min(limits.values())
    limited_by = next(name for name, limit in limits.items() if limit == fewest)
    return Cores(counted, here, granted, numba_threads, fewest, limited_by)


def affinity() -> int:
    """Return on how many cores the system may run this thread now."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        with contextlib.suppress(OSError):
            return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


# ---- quota of control groups -------------------------------------------------------------


def quota(root: str = "/") -> float | None:
    """Return how many cores' worth of time the control groups grant to this process.

    A group of version 2 has a file ``cpu.max`` with a quota and a period. A group of
    version 1 has ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``. The groups above the
    group of this process limit it, too, so the smallest quota counts.

    Parameters
    ----------
    root : str, default "/"
        The folder that contains ``proc`` and ``sys``.

    Returns
    -------
    float or None
        The quota divided by the period; None if there is no quota.
    """
    quotas = []
    mount = os.path.join(root, "sys/fs/cgroup")
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, _, group = line.partition(":")
        controllers, _, path = group.partition(":")
        read = _quota_of_version_1 if controllers else _quota_of_version_2
        for folder in _folders(mount, controllers, path):
            found = read(folder)
            if found is not None:
                quotas.append(found)
    return min(quotas, default=None)


def _folders(mount: str, controllers: str, path: str) -> list[str]:
    """Return the folders of a group and of all groups above it.

    In a container, `path` may be valid only outside of the container. Then the mount
    itself is the folder of the container's group.
    """
    if not controllers:
        mounts = {mount, os.path.join(mount, "unified")}
    elif "cpu" in controllers.split(","):
        mounts = {os.path.join(mount, name) for name in (controllers, "cpu")}
    else:
        return []
    names = [name for name in path.split("/") if name]
    if ".." in names:
        names = []
    return [
        os.path.join(at, *names[:depth])
        for at in mounts
        if os.path.isdir(at)
        for depth in range(len(names) + 1)
    ]


def _quota_of_version_2(folder: str) -> float | None:
    return _ratio(_read(os.path.join(folder, "cpu.max")))


def _quota_of_version_1(folder: str) -> float | None:
    quota = _read(os.path.join(folder, "cpu.cfs_quota_us"))
    return _ratio(f"{quota} {_read(os.path.join(folder, 'cpu.cfs_period_us'))}") if quota else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(1 << 16)
    except (OSError, ValueError):  # ValueError: a null character in the path
        return ""


def _ratio(text: str) -> float | None:
    try:
        quota, period = map(int, text.split())
    except ValueError:  # "max", or not two numbers
        return None
    return quota / period if quota > 0 and period > 0 else None


# ---- cache -------------------------------------------------------------------------------


@functools.cache
def cache_bytes(root: str = "/") -> int:
    """Return the size of the L3 cache in bytes, 0 if it is unknown."""
    size = _read(os.path.join(root, "sys/devices/system/cpu/cpu0/cache/index3/size")).strip()
    kibibytes = size.removesuffix("K")  # the unit that Linux writes
    return int(kibibytes) << 10 if size.endswith("K") and kibibytes.isdecimal() else 0
