"""C functions of Python and of the operating system in compiled code.

Of Python's, only locks, threads and `take_gil` work without the global interpreter lock (GIL). An
object is represented by its address, as `id` returns it; 0 means that Python has set an error.
"""

import sys

from numba import int32, intp, types, uint32, void

from splitjit._abi.calls import MOST, WORD
from splitjit._abi.kernels import LINE
from splitjit._abi.structs import ALIGNED, C_CONTIGUOUS, INT_MASK, WRITEABLE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import call_address, reserve, words_at

# Functions of Python's C API. `increment` and `decrement` accept 0 as an object.
increment = types.ExternalFunction("Py_IncRef", void(intp))
decrement = types.ExternalFunction("Py_DecRef", void(intp))
new_list = types.ExternalFunction("PyList_New", intp(intp))
set_item = types.ExternalFunction("PyList_SetItem", int32(intp, intp, intp))
integer_object = types.ExternalFunction("PyLong_FromSsize_t", intp(intp))
as_integer = types.ExternalFunction("PyLong_AsSsize_t", intp(intp))
clear_error = types.ExternalFunction("PyErr_Clear", void())
set_error = types.ExternalFunction("PyErr_SetObject", void(intp, intp))
capsule_of = types.ExternalFunction("PyCapsule_New", intp(intp, intp, intp))
memory_of = types.ExternalFunction("PyCapsule_GetPointer", intp(intp, intp))
release_gil = types.ExternalFunction("PyEval_SaveThread", intp())
take_gil = types.ExternalFunction("PyEval_RestoreThread", void(intp))
new_lock = types.ExternalFunction("PyThread_allocate_lock", intp())
acquire = types.ExternalFunction("PyThread_acquire_lock", int32(intp, int32))
release = types.ExternalFunction("PyThread_release_lock", void(intp))
start_thread = types.ExternalFunction("PyThread_start_new_thread", intp(intp, intp))


@jit
def new_array(api, dtype, rank, shape, data, owner):
    """Make a C-contiguous ndarray.

    Parameters
    ----------
    api : Expected
        Holds the addresses of NumPy's functions.
    dtype : int
        Address of the dtype.
    rank, shape : int
        The number of dims, and the address of their extents.
    data, owner : int
        Address of the memory, and the object that the array keeps alive because it owns this
        memory; or 0 and 0 for new memory, which the array owns.

    Returns
    -------
    int
        A new reference, or 0 if NumPy has set an error.
    """
    increment(dtype)  # NumPy steals this reference, even on error
    flags = int32(C_CONTIGUOUS | ALIGNED | WRITEABLE if data else 0)
    arguments = api.array_type, dtype, int32(rank), shape, 0, data, flags, 0
    array = call_address(api.new_array, arguments)
    if array and owner:
        increment(owner)  # NumPy steals this reference, even on error
        if call_address(api.set_base, (array, owner)) & INT_MASK:
            decrement(array)
            return 0
    return array


# ---- the system: the time, a nap, its cores, and no signals ------------------------------------

_ON_LINUX, _ON_WINDOWS = sys.platform == "linux", sys.platform == "win32"
_MONOTONIC = {"linux": 1, "darwin": 6}.get(sys.platform, 4)
_SET_MASK = 3 if sys.platform == "darwin" else 2
_FAULTS = (4, 8, 11, 10 if sys.platform == "darwin" else 7)  # SIGILL, SIGFPE, SIGSEGV, SIGBUS
_TIME = 2 * WORD  # bytes of C's `timespec`
_MASK = 128  # bytes of C's `cpu_set_t` (1024 cores) and `sigset_t`

usleep = types.ExternalFunction("usleep", int32(uint32))
let_others_run = types.ExternalFunction("SwitchToThread" if _ON_WINDOWS else "sched_yield", int32())
_sleep = types.ExternalFunction("Sleep", void(uint32))
_file_time = types.ExternalFunction("GetSystemTimePreciseAsFileTime", void(intp))
_clock_gettime = types.ExternalFunction("clock_gettime", int32(int32, intp))
_fill_signals = types.ExternalFunction("sigfillset", int32(intp))
_remove_signal = types.ExternalFunction("sigdelset", int32(intp, int32))
_set_signals = types.ExternalFunction("pthread_sigmask", int32(int32, intp, intp))
_core = types.ExternalFunction("sched_getcpu", int32())
_process = types.ExternalFunction("getpid", int32())
_get_affinity = types.ExternalFunction("sched_getaffinity", int32(int32, intp, intp))
_set_affinity = types.ExternalFunction("sched_setaffinity", int32(int32, intp, intp))
_count_in_mask = types.ExternalFunction("__sched_cpucount", int32(intp, intp))


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
        usleep(20)  # microseconds; the system adds about 50


@jit
def core_of_thread():
    """Return the core of the calling thread, or -1 if the system does not say."""
    return intp(_core()) if _ON_LINUX else -1


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
    mask = reserve(_MASK, LINE)
    if not _ON_LINUX or _get_affinity(0, _MASK, mask) < 0:
        return MOST
    return _count_in_mask(_MASK, mask)  # behind C's macro `CPU_COUNT_S`


@jit
def stay_off(core):
    """Let the calling thread run on all cores that the process may use, but one.

    The process may use the cores that its main thread may use at this moment. If somebody limits
    these later, the calling thread obeys as soon as it calls this again.
    """
    others = reserve(_MASK, LINE)
    if not _ON_LINUX or core < 0 or _get_affinity(_process(), _MASK, others) < 0:
        return
    words_at(others)[core // 64] &= ~(1 << core % 64)
    _set_affinity(0, _MASK, others)  # changes nothing if there is no other core
