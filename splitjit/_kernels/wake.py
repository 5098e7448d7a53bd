"""Wake workers promptly, off the caller's core.

OpenMP's threads fall asleep some milliseconds after their last work. Linux may wake one on
the caller's core although another core is idle, and on virtual machines it often does. That
thread waits out the caller's time slice, 4 ms, and then the caller waits for the thread,
which spins. So:

- After its own task, the caller *naps* until every thread has started. A thread that waits
  for the caller's core starts during the nap.
- A thread that finds itself on the caller's core moves to another core. Its affinity stays
  as it was.

After a rest of 40 ms, a copy of 2.4 MB took 7 ms, and the next one 4 ms. Now they take 0.5 ms
and 0.2 ms. The move pays after rests of about 10 ms: the first two copies then average 0.34 ms,
against 0.7 ms with the nap alone, because some stall for 2 to 4 ms. After longer rests it changes
nothing.
"""

from __future__ import annotations

import sys

from numba import types

from splitjit._kernels.compiling import jit
from splitjit._kernels.intrinsics import count_one, reserve, words_at
from splitjit._kernels.table import LINE, WORD

_ON_LINUX = sys.platform == "linux"
_MASK = 128  # bytes of a set of cores: C's `cpu_set_t`, for 1024 cores
_NAP = 20  # microseconds; the system adds about 50

_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))
_pthread_self = types.ExternalFunction("pthread_self", types.intp())
_sched_getcpu = types.ExternalFunction("sched_getcpu", types.int32())
_affinity = types.int32(types.int32, types.intp, types.intp)
_sched_getaffinity = types.ExternalFunction("sched_getaffinity", _affinity)
_sched_setaffinity = types.ExternalFunction("sched_setaffinity", _affinity)

_STARTED, _CALLER, _CORE = range(3)
_STATE = 3 * WORD  # the tasks that have started, the caller's thread, and its core


@jit(inline="always")
def new_state():
    """Reserve the state of a parallel copy on the caller's stack; return its address."""
    state = reserve(_STATE, LINE)
    words = words_at(state)
    words[_STARTED] = 0
    if _ON_LINUX:
        words[_CALLER] = _pthread_self()
        words[_CORE] = _sched_getcpu()
    return state


@jit
def _leave_core(core):
    """Move the calling thread off a core, to another that it may use."""
    mask = reserve(_MASK, LINE)
    others = reserve(_MASK, LINE)
    if _sched_getaffinity(0, _MASK, mask) < 0:
        return
    cores = 0
    for i in range(_MASK // WORD):
        word = words_at(mask)[i]
        if i == core // 64:
            word &= ~(1 << core % 64)
        words_at(others)[i] = word
        cores |= word
    if cores:
        _sched_setaffinity(0, _MASK, others)
        _sched_setaffinity(0, _MASK, mask)


@jit
def start(state, naps):
    """Begin a task; if `naps`, workers first leave the caller's core."""
    words = words_at(state)
    count_one(state + _STARTED * WORD)
    if _ON_LINUX and naps and _pthread_self() != words[_CALLER]:
        core = _sched_getcpu()
        if core == words[_CORE] and core >= 0:
            _leave_core(core)


@jit
def finish(state, naps, tasks):
    """End a task: the caller naps until all tasks have started, at most `naps` times."""
    words = words_at(state)
    if _ON_LINUX and _pthread_self() == words[_CALLER]:
        for _ in range(naps):
            if words[_STARTED] >= tasks:
                return
            _usleep(_NAP)
        words[_CALLER] = 0  # the caller may have to run the other tasks, too: no more naps
