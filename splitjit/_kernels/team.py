"""Copy with helpers: threads of our own that nobody waits for.

A parallel region waits for all of its threads. If another program has the core of one of them,
everybody waits for that program, 4 to 16 ms for a copy of 0.06 ms. Here, the caller opens a job,
wakes helpers, and copies chunk after chunk itself. Helpers that come in time take chunks, too.
Whoever comes late finds the job closed::

    caller                                  helper
      write the job                           spin for a while, then sleep on its lock
      OPEN = 1, GENERATION += 1               GENERATION has changed:
      wake the sleepers                       ACTIVE += 1
      take chunks until none is left          if OPEN: take chunks until none is left
      OPEN = 0                                ACTIVE -= 1
      wait until ACTIVE = 0

A helper counts itself into ACTIVE before it looks at OPEN, and the caller closes OPEN before it
looks at ACTIVE. All four steps are sequentially consistent, so no helper touches the memory of a
job whose caller has returned, and the caller waits only for chunks that a helper has begun. A
second caller copies alone. `tests/test_protocol.py` tries all orders of these steps.

The caller takes chunks from the front and helpers take them from the back, so that two threads
which copy the same arrays again find their halves in their own caches.

A helper is a thread of the C library: it runs no Python code, has no Python thread state, and
receives no signals. It sleeps on a lock of Python's C API, which needs no GIL. Its memory is
never freed.
"""

from __future__ import annotations

import sys

from numba import types

from splitjit._abi.calls import Arguments
from splitjit._abi.kernels import LINE
from splitjit._abi.layout_record import WORD
from splitjit._abi.shared import (
    ACTIVE,
    ARGUMENTS,
    ASKED,
    BUSY,
    CHUNKS,
    CORE,
    GENERATION,
    HELPED,
    HELPERS,
    LOOP,
    MOST_HELPERS,
    NUMBERED,
    OPEN,
    SERVE,
    SPACING,
    STARTED,
    TAKEN,
)
from splitjit._abi.structs import INT_MASK
from splitjit._kernels.c_api import as_integer, integer_object, release_gil, take_gil
from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import (
    add_to,
    call,
    exchange,
    least,
    out_of_line,
    read_word,
    relax,
    reserve,
    stored,
    words_at,
)

_SPIN = 1_000_000  # nanoseconds that a helper spins for the next job
_GLANCE = 1_000  # the same on a core that somebody else wants
_GROWTH = 16  # of the time to spin, after each wait in which nobody wanted the core
_GAP = 30_000  # between two looks at the clock, if somebody else had the core
_RELAXED = 2_000  # looks at ACTIVE before the caller naps between them
_NAP = 20  # microseconds; the system adds about 50
_BACK = 1 << 32  # one chunk from the back, in TAKEN

_ON_LINUX, _ON_WINDOWS = sys.platform == "linux", sys.platform == "win32"
_MONOTONIC = {"linux": 1, "darwin": 6}.get(sys.platform, 4)
_SET_MASK = 3 if sys.platform == "darwin" else 2
_FAULTS = (4, 8, 11, 10 if sys.platform == "darwin" else 7)  # SIGILL, SIGFPE, SIGSEGV, SIGBUS
_TIME = 2 * WORD  # bytes of C's `timespec`
_MASK = 128  # bytes of C's `cpu_set_t` (1024 cores) and `sigset_t`

_new_lock = types.ExternalFunction("PyThread_allocate_lock", types.intp())
_acquire = types.ExternalFunction("PyThread_acquire_lock", types.int32(types.intp, types.int32))
_release = types.ExternalFunction("PyThread_release_lock", types.void(types.intp))
_start_thread = types.ExternalFunction(
    "PyThread_start_new_thread", types.intp(types.intp, types.intp)
)
_sleep = types.ExternalFunction("Sleep", types.void(types.uint32))
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_file_time = types.ExternalFunction("GetSystemTimePreciseAsFileTime", types.void(types.intp))
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))
_fill_signals = types.ExternalFunction("sigfillset", types.int32(types.intp))
_remove_signal = types.ExternalFunction("sigdelset", types.int32(types.intp, types.int32))
_set_signals = types.ExternalFunction(
    "pthread_sigmask", types.int32(types.int32, types.intp, types.intp)
)
_core = types.ExternalFunction("sched_getcpu", types.int32())
_affinity = types.int32(types.int32, types.intp, types.intp)
_get_affinity = types.ExternalFunction("sched_getaffinity", _affinity)
_set_affinity = types.ExternalFunction("sched_setaffinity", _affinity)


# ---- the system ----------------------------------------------------------------------------


@jit
def _now():
    """Return nanoseconds of a clock."""
    time = reserve(_TIME, WORD)
    if _ON_WINDOWS:
        _file_time(time)
        return words_at(time)[0] * 100
    _clock_gettime(_MONOTONIC, time)
    return words_at(time)[0] * 1_000_000_000 + words_at(time)[1]


@jit
def _nap():
    """Let other threads run for a moment."""
    if _ON_WINDOWS:
        _sleep(0)
    else:
        _usleep(_NAP)


@jit
def _here():
    """Return the core of the calling thread, or -1 if the system does not say."""
    if _ON_LINUX:
        return types.intp(_core())
    return -1


@jit
def _ignore_signals():
    """Leave all signals to the program's own threads, except for faults of the calling thread."""
    if _ON_WINDOWS:
        return
    signals = reserve(_MASK, LINE)
    _fill_signals(signals)
    for fault in _FAULTS:
        _remove_signal(signals, fault)
    _set_signals(_SET_MASK, signals, 0)


@jit
def _leave_core(core):
    """Move the calling thread off a core, to another that it may use; keep its affinity."""
    if not _ON_LINUX:
        return
    mask = reserve(_MASK, LINE)
    others = reserve(_MASK, LINE)
    if _get_affinity(0, _MASK, mask) < 0:
        return
    cores = 0
    for i in range(_MASK // WORD):
        word = words_at(mask)[i]
        if i == core // 64:
            word &= ~(1 << core % 64)
        words_at(others)[i] = word
        cores |= word
    if cores:
        _set_affinity(0, _MASK, others)
        _set_affinity(0, _MASK, mask)


# ---- the helper ----------------------------------------------------------------------------


@jit
def _read(team, word):
    return read_word(team + SPACING * word)


@jit
def _write(team, word, value):
    """Write a word; return what it was before."""
    return exchange(team + SPACING * word, value)


@jit
def _add(team, word, value):
    """Add to a word; return what it was before."""
    return add_to(team + SPACING * word, value)


@jit
def _take_chunks(team, step):
    """Copy chunks of the open job until none is left; return how many.

    Parameters
    ----------
    team : int
    step : int
        1 to take chunks from the front, `_BACK` to take them from the back.
    """
    loop, chunks, arguments = _read(team, LOOP), _read(team, CHUNKS), _read(team, ARGUMENTS)
    done = 0
    while True:
        taken = _add(team, TAKEN, step)
        front, back = taken % _BACK, taken // _BACK
        if front + back >= chunks:
            return done
        call(loop, (front if step == 1 else chunks - 1 - back, chunks, arguments))
        done += 1


@jit
def _is_beside_caller(team):
    """Return whether this thread is on the core of the newest job's caller, as far as known."""
    core = _here()
    return core >= 0 and core == _read(team, CORE)


@jit
def _is_disturbed(team, seen, spin):
    """Spin for at most `spin` ns, until there is a new job; return whether others want the core."""
    begun = last = _now()
    while _read(team, GENERATION) == seen and not _is_beside_caller(team):
        relax()
        now = _now()
        if now - last > _GAP:
            return True
        if now - begun > spin:
            return False
        last = now
    return False


@jit
def _sleep_until_woken(team, line, lock, seen):
    """Sleep until a caller wakes this helper, unless there is a new job already."""
    exchange(line, 1)
    # A caller that has cleared the mark has released the lock, or is about to.
    if _read(team, GENERATION) == seen or exchange(line, 0) == 0:
        _acquire(lock, 1)


@jit
def serve(team):
    """Help with every job; the code of a helper's thread, which never returns."""
    _ignore_signals()
    number = _add(team, NUMBERED, 1)
    line = team + SPACING * (HELPERS + number)
    lock = _new_lock()
    _acquire(lock, 1)
    words_at(line)[1] = lock
    seen, spin = 0, _SPIN
    while True:
        disturbed = _is_disturbed(team, seen, spin)
        spin = _GLANCE if disturbed else least(_GROWTH * spin, _SPIN)
        if _read(team, GENERATION) == seen:
            _sleep_until_woken(team, line, lock, seen)
        seen = _read(team, GENERATION)
        if number >= _read(team, ASKED):
            spin = _GLANCE
            continue
        if _is_beside_caller(team):
            _leave_core(_here())
        _add(team, ACTIVE, 1)
        if _read(team, OPEN):
            _add(team, HELPED, _take_chunks(team, _BACK))
        _add(team, ACTIVE, -1)


# ---- the caller ----------------------------------------------------------------------------


@jit
def _start_helpers(team, helpers):
    """Start missing helpers; return how many there are, at most `helpers`."""
    started = _read(team, STARTED)
    while started < helpers:
        thread = _start_thread(_read(team, SERVE), team)
        if thread & INT_MASK == INT_MASK:  # -1, of which Windows returns 32 bits
            return started  # the system allows no more threads now
        started += 1
        _write(team, STARTED, started)
    return helpers


@jit
def _wake(team, helpers):
    """Wake the helpers that sleep."""
    for number in range(helpers):
        line = team + SPACING * (HELPERS + number)
        if read_word(line) and exchange(line, 0):
            _release(words_at(line)[1])


@jit
def _copy_with_helpers(team, loop, helpers, chunks, arguments):
    out_of_line()
    helpers = _start_helpers(team, least(helpers, MOST_HELPERS))
    _write(team, LOOP, loop)
    _write(team, CHUNKS, chunks)
    _write(team, ARGUMENTS, arguments)
    _write(team, ASKED, helpers)
    _write(team, CORE, _here())
    _write(team, TAKEN, 0)
    _write(team, OPEN, 1)
    _add(team, GENERATION, 1)
    _wake(team, helpers)
    _take_chunks(team, 1)
    _write(team, OPEN, 0)
    looks = 0
    while _read(team, ACTIVE):  # only for chunks that helpers have begun
        if looks < _RELAXED:
            relax()
        else:
            _nap()
        looks += 1


@jit
def share(team, loop, helpers, chunks, arguments):
    """Copy, with as many helpers as come in time, at most `helpers`; return 0.

    Parameters
    ----------
    team : int
        The address of the team record.
    loop, arguments : int
        The addresses of a loop and of its `Arguments`, which may be on the caller's stack.
    helpers, chunks : int
        How many helpers to ask, and into how many chunks to cut the copy.
    """
    if helpers > 0 and chunks > 1 and _write(team, BUSY, 1) == 0:
        _copy_with_helpers(team, loop, helpers, chunks, arguments)
        _write(team, BUSY, 0)
    else:
        call(loop, (0, 1, arguments))
    return 0


@jit
def run(module, arguments, count):
    """``run(team, loop, helpers, chunks, *Arguments)``: `share` for Python, without the GIL."""
    given = words_at(arguments)
    team, loop, helpers = as_integer(given[0]), as_integer(given[1]), as_integer(given[2])
    chunks, stream, target = as_integer(given[3]), as_integer(given[4]), as_integer(given[5])
    source, layout = as_integer(given[6]), as_integer(given[7])
    state = release_gil()
    share(team, loop, helpers, chunks, stored(Arguments(stream, target, source, layout)))
    take_gil(state)
    return integer_object(1)
