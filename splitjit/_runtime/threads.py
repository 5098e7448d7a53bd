"""Who copies: the caller, and helpers by the rules of the team.

`splitjit._kernels.core.team` is the compiled side: helpers are threads that a caller does not wait
for, so a copy never depends on other programs, pools or threads. This module owns the memory that
callers and helpers share, and writes to it the limits that only Python can read.

With ``SPLITJIT_THREADS=numba``, Numba's threads run the same loops instead.
"""

import contextlib
import ctypes
import functools
import itertools
import os
import sys
from _thread import get_ident
from collections.abc import Iterator
from dataclasses import asdict
from time import perf_counter

import numpy as np

from splitjit._abi.calls import AT, MOST_HELPERS, SPACING, WITHOUT_GIL, call, keep_forever
from splitjit._abi.structs import READS_ARRAYS
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._runtime.events import warn_of_variable
from splitjit._runtime.loading import NATIVE

NUMBA_THREADS = "numba.np.ufunc.parallel"
"""Numba's module with ``_get_num_threads``, which exists once the program has started Numba's
threads, as ``numba.set_num_threads`` does. The public ``numba.get_num_threads`` would start them.
"""


_CHOSEN = os.environ.get("SPLITJIT_THREADS", "helpers")
if _CHOSEN not in ("helpers", "numba"):
    warn_of_variable("SPLITJIT_THREADS", _CHOSEN, "'helpers' or 'numba'; helpers copy")

ON_NUMBA = _CHOSEN == "numba"
"""Whether the user chose Numba's threads."""

_ALONE: list[int] = keep_forever([])
"""The threads that are in a block of `one_thread`. Compiled code reads only the list's length."""


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Make all splits of this process copy on their calling threads alone, in the ``with`` block.

    Tasks of Dask use this: other tasks run on the other cores.
    """
    thread = get_ident()
    _ALONE.append(thread)
    try:
        yield
    finally:
        _ALONE.remove(thread)


class _Team:
    """The team record.

    Attributes
    ----------
    address : int
        The address of the record; see `splitjit._abi.calls`.
    threads : int
        How many threads may run at once, as last read.
    limits_until : float
        Until when the limits count as known.
    """

    def __init__(self) -> None:
        nbytes = AT.helpers + SPACING * (MOST_HELPERS + 1)
        self._memory = keep_forever((ctypes.c_char * nbytes)())  # helpers outlive this object
        self.address = -(-ctypes.addressof(self._memory) // SPACING) * SPACING
        self.threads, self.limits_until = 1, float("-inf")
        for name in {*AT._fields} & {*asdict(THRESHOLDS)}:
            self.word(getattr(AT, name)).value = getattr(THRESHOLDS, name)
        self.word(AT.alone).value = id(_ALONE) if READS_ARRAYS else 0

    def read_limits(self) -> None:
        """Write the limits of the process to the record, unless they were read just before."""
        now = perf_counter()
        if now >= self.limits_until:
            self.limits_until = now + 0.1  # seconds; reading takes 20 us after a rest
            self.threads = allowed(now)
            self.word(AT.allowed).value = 0 if ON_NUMBA else self.threads - 1
        count = getattr(sys.modules.get(NUMBA_THREADS), "_get_num_threads", None)
        if count is not None and not self.word(AT.numba).value:
            self.word(AT.numba).value = ctypes.cast(count, ctypes.c_void_p).value or 0

    def word(self, offset: int) -> ctypes.c_int64:
        """Return a word of the record."""
        return ctypes.c_int64.from_address(self.address + offset)

    def after_fork(self) -> None:
        """Forget the helpers, which the child of a fork does not have."""
        ctypes.memset(self.address, 0, AT.allowed)  # the words from here on hold limits
        ctypes.memset(self.address + AT.helpers, 0, SPACING * MOST_HELPERS)
        _ALONE[:] = [thread for thread in _ALONE if thread == get_ident()]


def run_loop(loop: int, nbytes: int, arguments: tuple[int, int, int, int]) -> None:
    """Run a copy loop, with helpers if they pay.

    Parameters
    ----------
    loop : int
        The loop's address.
    nbytes : int
        Bytes of all parts.
    arguments : tuple of int
        The fields of `splitjit._abi.calls.Arguments`. The caller has checked them, and
        keeps the memory that they point to alive until this function returns.
    """
    TEAM.read_limits()
    if ON_NUMBA and nbytes >= THRESHOLDS.large and not _ALONE and TEAM.threads > 1:
        from splitjit._kernels.core.team import runner_on_numba

        given = np.array(arguments, np.int64)
        runner_on_numba()(loop, min(nbytes // THRESHOLDS.chunk, TEAM.threads), given.ctypes.data)
        return
    call(NATIVE.share, arguments, TEAM.address, loop, nbytes, kind=WITHOUT_GIL)


def explain(nbytes: int) -> tuple[int, str]:
    """Return how many threads the next copy may use, and why not more.

    Parameters
    ----------
    nbytes : int
        Bytes of all parts.
    """
    if nbytes < THRESHOLDS.large:
        return 1, f"helpers are not asked below {THRESHOLDS.large} bytes"
    if _ALONE:
        return 1, "a Dask task copies, and Dask uses the other cores"
    limited_by, most = next(iter(limits().items()))
    if ON_NUMBA or most == 1:
        return most, f"limited by {limited_by}"
    share = THRESHOLDS.awake_share if nbytes < THRESHOLDS.wake_from else THRESHOLDS.asleep_share
    helpers = min(most - 1, MOST_HELPERS, nbytes // share)
    why = f"the caller and {helpers} of its helpers, limited by {limited_by}"
    if helpers < most - 1:
        why = f"each helper gets at least {share} bytes, and there are at most {MOST_HELPERS}"
    if nbytes < THRESHOLDS.wake_from:
        why += "; helpers are asked only if it follows another large copy at once"
    return helpers + 1, why


# ---- how many threads can run at once ----------------------------------------------------
#
# The affinity, a container's CPU quota and the user's limit for Numba's threads decide. All of them
# may change while the process runs. Only Linux provides all of these numbers. On other systems, and
# if a file is missing or malformed, these functions report no limit.


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
    return min(os.cpu_count() or 1, _quota_at(int(now)), numba_limit())


@functools.lru_cache(1)  # reading its files takes long
def _quota_at(second: int) -> int:
    # Round down: with a quota of 1.5, two threads use up each 100 ms period's time in 75 ms,
    # and the system then stops them for 25 ms.
    granted = quota()
    return sys.maxsize if granted is None else max(int(granted), 1)


def limits() -> dict[str, int]:
    """Return the limits on threads that copy by name, the smallest first.

    The names are ``"cores"``, ``"Numba"``, ``"affinity"`` and ``"quota"``, in this order on a tie.
    A limit that is not set is `sys.maxsize`.
    """
    count = getattr(sys.modules.get(NUMBA_THREADS), "_get_num_threads", None) or numba_limit
    found = {"cores": os.cpu_count() or 1, "Numba": count(), "affinity": affinity()}
    found["quota"] = _quota_at(int(perf_counter()))
    return dict(sorted(found.items(), key=lambda item: item[1]))


def numba_limit() -> int:
    """Return NUMBA_NUM_THREADS, by Numba's configuration if the program has imported Numba."""
    config = getattr(sys.modules.get("numba"), "config", None)
    with contextlib.suppress(KeyError, ValueError):
        given = getattr(config, "NUMBA_NUM_THREADS", None) or os.environ["NUMBA_NUM_THREADS"]
        return max(int(given), 1)
    return sys.maxsize


def affinity() -> int:
    """Return how many cores this thread may run on now."""
    with contextlib.suppress(AttributeError, OSError):  # macOS and Windows lack the function
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
            with contextlib.suppress(ValueError):  # "max", or not two numbers
                granted, period = map(int, " ".join(texts).split())
                if granted > 0 and period > 0:
                    quotas.append(granted / period)
    return min(quotas, default=None)


def _read(path: str) -> str:
    # ValueError: a null character in the path
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        return file.read(1 << 16).decode(errors="surrogateescape")
    return ""


# ---- cache -------------------------------------------------------------------------------


@functools.cache
def cache_bytes(root: str = "/") -> int:
    """Return the size of the L3 cache in bytes, or 0 if unknown."""
    size = _read(os.path.join(root, "sys/devices/system/cpu/cpu0/cache/index3/size")).strip()
    kibibytes = size.removesuffix("K")  # the unit that Linux writes
    return int(kibibytes) << 10 if size.endswith("K") and kibibytes.isdecimal() else 0


# With an L3 cache of 256 MB, ordinary stores pay longer for runs from `LONG_RUN` on, and not for
# shorter ones. Behind one of 300 MB, 11 to 33 MB alone are split 1.2 to 1.7 times as fast by stores
# that bypass it. But a program that reads the parts at once then takes a tenth to a fifth longer in
# a loop, and saves as much after a rest; from 65 MB on, it saves in both (2026-11-28). In a cache
# of 32 MB, which other machines' programs share, long runs of 11 MB are split in 900 us in place of
# 1300 by stores that bypass it, after a rest and in a loop alike; channels of an image are not.
#
# Behind the larger cache, one core of an Intel Xeon needs 220 us for 2.4 MB, twice as long. If
# helpers are woken from 1 MB on, bursts of ten take 140 us per split in place of 210, and of 1.2 MB
# 70 in place of 97. Between steps of torch, BLAS, a `prange` and Python, no size takes longer.
if cache_bytes() >= 1 << 28:
    THRESHOLDS.stream_from = 15 << 20, 36 << 20
    THRESHOLDS.wake_from = 1 << 20
elif 0 < cache_bytes() <= 1 << 25:
    THRESHOLDS.stream_from = 15 << 20, 9 << 20

TEAM = _Team()  # with these thresholds

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TEAM.after_fork)
