"""How many threads of this process can run at once, and the size of the cache.

The affinity, a container's CPU quota and the user's limit for Numba's threads decide. All of
them may change while the process runs.

Only Linux provides all of these numbers. On other systems, and if a file is missing or
malformed, the functions here report no limit.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys

from splitjit._abi.thresholds import THRESHOLDS

NUMBA_THREADS = "numba.np.ufunc.parallel"
"""Numba's module with ``_get_num_threads``, which exists once the program has started Numba's
threads, as ``numba.set_num_threads`` does. The public ``numba.get_num_threads`` would start them.
"""


def allowed(now: float) -> int:
    """Return how many threads of this process can run at once, whatever their affinities.

    Parameters
    ----------
    now : float
        Seconds of a monotonic clock.

    Returns
    -------
    int
        The number of cores, or a smaller limit: the quota, or that of Numba's threads; at least 1.
    """
    return min(os.cpu_count() or 1, _whole(_quota_at(int(now))), numba_limit())


@functools.lru_cache(1)  # reading its files takes long
def _quota_at(second: int) -> float | None:
    return quota()


def _whole(quota: float | None) -> int:
    # Round down: with a quota of 1.5, two threads use up each 100 ms period's time in 75 ms,
    # and the system then stops them for 25 ms.
    return sys.maxsize if quota is None else max(int(quota), 1)


def limits() -> dict[str, int]:
    """Return the limits on threads that copy by name, the smallest first.

    The names are ``"cores"``, ``"Numba"``, ``"affinity"`` and ``"quota"``, in this order on a tie.
    A limit that is not set is `sys.maxsize`.
    """
    count = getattr(sys.modules.get(NUMBA_THREADS), "_get_num_threads", None) or numba_limit
    found = {"cores": os.cpu_count() or 1, "Numba": count(), "affinity": affinity()}
    found["quota"] = _whole(quota())
    return dict(sorted(found.items(), key=lambda item: item[1]))


def numba_limit() -> int:
    """Return NUMBA_NUM_THREADS, by Numba's configuration if the program has imported Numba."""
    config = getattr(sys.modules.get("numba"), "config", None)
    try:
        given = getattr(config, "NUMBA_NUM_THREADS", None) or os.environ["NUMBA_NUM_THREADS"]
        return max(int(given), 1)
    except (KeyError, ValueError):
        return sys.maxsize


def affinity() -> int:
    """Return how many cores this thread may run on now."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        with contextlib.suppress(OSError):
            return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


# ---- quota of control groups -------------------------------------------------------------


def quota(root: str = "/") -> float | None:
    """Return how many cores' worth of time the control groups grant this process.

    Version 2 groups have a quota and a period in ``cpu.max``, version 1 groups in
    ``cpu.cfs_quota_us`` and ``cpu.cfs_period_us``. Parent groups limit the process,
    too, so the smallest quota counts.

    Parameters
    ----------
    root : str, default "/"
        The folder that contains ``proc`` and ``sys``.

    Returns
    -------
    float or None
        The quota divided by the period; None if there is no quota.
    """
    mount = os.path.join(root, "sys/fs/cgroup")
    quotas = []
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            mounts, names = ("", "unified"), ["cpu.max"]
        elif "cpu" in controllers.split(","):
            mounts, names = (controllers, "cpu"), ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        # In a container, the path may be valid only outside it. The group is then the mount.
        groups = itertools.accumulate(path.split("/"), os.path.join)
        for folder in itertools.product(mounts, groups):
            texts = [_read(os.path.join(mount, *folder, name)) for name in names]
            quotas.append(_ratio(" ".join(texts)))
    return min(filter(None, quotas), default=None)


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
    """Return the size of the L3 cache in bytes, or 0 if unknown."""
    size = _read(os.path.join(root, "sys/devices/system/cpu/cpu0/cache/index3/size")).strip()
    kibibytes = size.removesuffix("K")  # the unit that Linux writes
    return int(kibibytes) << 10 if size.endswith("K") and kibibytes.isdecimal() else 0


# With an L3 cache of 256 MB, ordinary stores of runs from `LONG_RUN` on stay faster up to 2.4 times
# the size; ordinary stores of shorter runs do not. In one of 32 MB, which other machines' programs
# share, long runs of 11 MB are split in 900 us in place of 1300 by stores that bypass it, after a
# rest and in a loop alike; channels of an image are not.
if cache_bytes() >= 1 << 28:
    THRESHOLDS.stream_from = 15 << 20, 36 << 20
elif 0 < cache_bytes() <= 1 << 25:
    THRESHOLDS.stream_from = 15 << 20, 9 << 20
