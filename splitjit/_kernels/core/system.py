"""What a thread asks of the operating system: the time, a nap, its cores, and no signals."""

from __future__ import annotations

import sys

from numba import types

from splitjit._abi.kernels import LINE
from splitjit._abi.layout_record import MOST, WORD
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import reserve, words_at

_NAP = 20  # microseconds; the system adds about 50
_ON_LINUX, _ON_WINDOWS = sys.platform == "linux", sys.platform == "win32"
_MONOTONIC = {"linux": 1, "darwin": 6}.get(sys.platform, 4)
_SET_MASK = 3 if sys.platform == "darwin" else 2
_FAULTS = (4, 8, 11, 10 if sys.platform == "darwin" else 7)  # SIGILL, SIGFPE, SIGSEGV, SIGBUS
_TIME = 2 * WORD  # bytes of C's `timespec`
_MASK = 128  # bytes of C's `cpu_set_t` (1024 cores) and `sigset_t`

usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_sleep = types.ExternalFunction("Sleep", types.void(types.uint32))
_file_time = types.ExternalFunction("GetSystemTimePreciseAsFileTime", types.void(types.intp))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
_fill_signals = types.ExternalFunction("sigfillset", types.int32(types.intp))
_remove_signal = types.ExternalFunction("sigdelset", types.int32(types.intp, types.int32))
_set_signals = types.ExternalFunction(
    "pthread_sigmask", types.int32(types.int32, types.intp, types.intp)
)
_core = types.ExternalFunction("sched_getcpu", types.int32())
_process = types.ExternalFunction("getpid", types.int32())
_affinity = types.int32(types.int32, types.intp, types.intp)
_get_affinity = types.ExternalFunction("sched_getaffinity", _affinity)
_set_affinity = types.ExternalFunction("sched_setaffinity", _affinity)


@jit
def now():
    """Return nanoseconds of a clock."""
    time = reserve(_TIME, WORD)
    if _ON_WINDOWS:
        _file_time(time)
        return words_at(time)[0] * 100
    _clock_gettime(_MONOTONIC, time)
    return words_at(time)[0] * 1_000_000_000 + words_at(time)[1]


@jit
def nap():
    """Let other threads run for a moment."""
    if _ON_WINDOWS:
        _sleep(0)
    else:
        usleep(_NAP)


@jit
def core_of_thread():
    """Return the core of the calling thread, or -1 if the system does not say."""
    if _ON_LINUX:
        return types.intp(_core())
    return -1


@jit
def ignore_signals():
    """Leave all signals to the program's own threads, except for faults of the calling thread."""
    if _ON_WINDOWS:
        return
    signals = reserve(_MASK, LINE)
    _fill_signals(signals)
    for fault in _FAULTS:
        _remove_signal(signals, fault)
    _set_signals(_SET_MASK, signals, 0)


@jit
def count_cores():
    """Return how many cores the calling thread may run on, or many if the system does not say."""
    if not _ON_LINUX:
        return MOST
    mask = reserve(_MASK, LINE)
    if _get_affinity(0, _MASK, mask) < 0:
        return MOST
    cores = 0
    for i in range(_MASK // WORD):
        word = words_at(mask)[i]
        while word:
            word &= word - 1
            cores += 1
    return cores


@jit
def stay_off(core):
    """Let the calling thread run on all cores that the process may use, but one.

    The cores of the process are those of its main thread, now: a limit that somebody sets later
    holds for the calling thread, too, once it calls this again.
    """
    if not _ON_LINUX:
        return
    if core < 0:
        return
    others, own = reserve(_MASK, LINE), reserve(_MASK, LINE)
    if _get_affinity(_process(), _MASK, others) < 0 or _get_affinity(0, _MASK, own) < 0:
        return
    words_at(others)[core // 64] &= ~(1 << core % 64)
    cores = changes = 0
    for i in range(_MASK // WORD):
        cores |= words_at(others)[i]
        changes |= words_at(others)[i] ^ words_at(own)[i]
    if cores and changes:
        _set_affinity(0, _MASK, others)
