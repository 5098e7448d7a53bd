"""Copy with helpers: threads of our own that nobody waits for.

A parallel region waits for all of its threads. If another program has the core of one of them,
everybody waits for that program, far longer than for the copy. Here, the caller opens a job,
wakes helpers, and copies chunk after chunk itself. Helpers that come in time take chunks, too.
Whoever comes late finds the job closed::

    caller                                  helper
      write the JOB                           spin for a moment, then sleep on its lock
      OPEN = 1, GENERATION += 1               GENERATION has changed, and the job is OPEN:
      wake helpers 0 and 1                    wake two more
      take chunks until all are taken         ACTIVE += 1
      OPEN = 0                                if OPEN: take chunks until all are taken
      wait until ACTIVE = 0                            or its turn ends
                                              ACTIVE -= 1
                                              if its turn has ended: let others run,
                                                       then look at OPEN again

A helper counts itself into ACTIVE before it looks at OPEN, and the caller closes OPEN before it
looks at ACTIVE. All four steps are sequentially consistent, so no helper touches the memory of a
job whose caller has returned, and the caller waits only for chunks that a helper has begun. A
second caller copies alone. `tests/kernels/test_team.py` tries all orders of these steps.

The caller takes chunks from the front and helpers take them from the back, so that two threads
which copy the same arrays again find their halves in their own caches.

Four rules say who is asked; `splitjit._abi.thresholds` has their numbers, and what set them:

0. A helper may run on all cores of the process but the caller's. The system wakes a thread on its
   waker's core if it may, and there it waits for the next tick of the scheduler.
1. A helper waits awake while a split is going on, and for a moment after it. While the caller
   copies, its program does nothing else that could want the core. But if a helper without a chunk
   waits for more than a millisecond, the system has probably stopped the caller. Each millisecond a
   helper leaves the job and yields its core to others, before the system stops it within a chunk.
2. A sleeping helper is woken for copies of `wake_from` bytes and more. A smaller one asks helpers
   only if it follows a large copy at once: then they are awake, or soon pay.
3. Helpers that did not come though they were awake, or were stopped in a chunk, are left alone for
   a multiple of the time that this took: another program has their core.

The caller wakes two helpers, and each of them wakes two more. How many pay is a model on paper.
Its unit is the time in which a thread copies 128 KB. A wake costs the waker a quarter of it, and
the helper comes 3 after its wake. So the caller copies from 0, two helpers from 3, four more from
6, eight from 9 and sixteen from 12::

    4 MB, 32 units              ends at 9: six helpers pay, and the next eight would come too late
    32 MB, 256 units            ends at 18: all 31 pay, unless memory is at its limit before

So a sleeping helper must get a megabyte to be worth its wake, and one that is awake a quarter.

A helper is a thread of the C library: it runs no Python code, has no Python thread state, and
receives no signals. It sleeps on a lock of Python's C API, which needs no GIL. Its memory is
never freed.
"""

import functools

from numba import njit, prange, types

from splitjit._abi.calls import AT, CHUNKS_PER_THREAD, FEWEST_CHUNKS, MOST_HELPERS, SPACING
from splitjit._abi.structs import INT_MASK, LIST
from splitjit._kernels.compiling import jit
from splitjit._kernels.core import c_api
from splitjit._kernels.ir.intrinsics import (
    add_to,
    address_of_function,
    call_address,
    exchange,
    out_of_line,
    read_word,
    relax,
    stored,
    words_at,
)

_RELAXED = 100_000  # nanoseconds after which the caller naps between looks at ACTIVE
_BACK = 1 << 32  # one chunk from the back, in TAKEN
_SLOWEST = 400  # picoseconds per byte: a thread that has a core copies faster


_serve = types.ExternalFunction("serve", types.intp(types.intp))


# ---- the helper ----------------------------------------------------------------------------


@jit
def _take_chunks(team, step, until):
    """Take chunks of the open job and copy them; return how many.

    Stop when all chunks are taken, or after the chunk during which the time runs out.

    Parameters
    ----------
    team : int
    step : int
        1 to take chunks from the front, `_BACK` to take them from the back.
    until : int
        When the time runs out, in nanoseconds of `c_api.now`; 0 for no limit.
    """
    job, done = words_at(read_word(team + AT.job)), 0
    loop, chunks, arguments = job[0], job[1], job[2]
    while done == 0 or until == 0 or c_api.now() < until:
        taken = add_to(team + AT.taken, step)
        front, back = taken % _BACK, taken // _BACK
        if front + back >= chunks:
            return done
        call_address(loop, (front if step == 1 else chunks - 1 - back, chunks, arguments))
        done += 1
    return done


@jit
def _spin(team, seen):
    """Wait awake until there is a new job: while a split is going on, and a moment after it.

    If the split goes on for longer than a turn, the caller has probably lost its core, perhaps to
    this helper.
    """
    now, awake = c_api.now(), read_word(team + AT.awake)
    end, latest = now + awake, now + read_word(team + AT.turn)
    while read_word(team + AT.generation) == seen and now < end:
        if read_word(team + AT.busy) and now < latest:
            end = now + awake
        relax()
        now = c_api.now()


@jit
def _sleep_until_woken(team, line, lock, seen):
    """Sleep until a caller wakes this helper, unless there is a new job already."""
    exchange(line, 1)
    # A caller that has cleared the mark has released the lock, or is about to.
    if read_word(team + AT.generation) == seen or exchange(line, 0) == 0:
        c_api.acquire(lock, 1)


@jit
def _wake(team, first, asked):
    """Wake two helpers that sleep, `first` and the next one, if the job asks for them."""
    for number in range(first, min(first + 2, asked)):
        line = team + AT.helpers + SPACING * number
        if read_word(line) and exchange(line, 0):
            c_api.release(words_at(line)[1])


@jit
def serve(team):
    """Help with every job; the code of a helper's thread, which never returns."""
    c_api.ignore_signals()
    number = add_to(team + AT.numbered, 1)
    line = team + AT.helpers + SPACING * number
    lock = c_api.new_lock()
    c_api.acquire(lock, 1)
    words_at(line)[1] = lock
    seen = until = 0
    while True:
        _spin(team, seen)
        if read_word(team + AT.generation) == seen:
            # Now, since the system wakes it where it may run then.
            c_api.stay_off(read_word(team + AT.core))
            _sleep_until_woken(team, line, lock, seen)
            until = c_api.now() + read_word(team + AT.turn)
        seen = read_word(team + AT.generation)
        asked = read_word(team + AT.asked)
        if number < asked and read_word(team + AT.open):
            core = c_api.core_of_thread()
            if core == read_word(team + AT.core):  # the caller has moved
                c_api.stay_off(core)
            _wake(team, 2 * number + 2, asked)
            add_to(team + AT.active, 1)
            if read_word(team + AT.open):
                add_to(team + AT.helped, _take_chunks(team, _BACK, until))
            add_to(team + AT.active, -1)
            if c_api.now() > until:
                c_api.let_others_run()
                until, seen = c_api.now() + read_word(team + AT.turn), -1  # look at the job again


# ---- the caller ----------------------------------------------------------------------------


@jit
def _start_helpers(team, helpers):
    """Start missing helpers; return how many there are, at most `helpers`."""
    started = read_word(team + AT.started)
    while started < helpers:
        thread = c_api.start_thread(address_of_function(_serve), team)
        if thread & INT_MASK == INT_MASK:  # -1, of which Windows returns 32 bits
            return started  # the system allows no more threads now
        started += 1
        exchange(team + AT.started, started)
    return helpers


@jit
def _copy_with_helpers(team, loop, helpers, chunks, nbytes, arguments):
    out_of_line()
    began, before = c_api.now(), read_word(team + AT.served)
    helpers = _start_helpers(team, helpers)
    exchange(team + AT.job, stored((loop, chunks, arguments)))
    exchange(team + AT.asked, helpers)
    exchange(team + AT.core, c_api.core_of_thread())
    exchange(team + AT.taken, 0)
    exchange(team + AT.open, 1)
    add_to(team + AT.generation, 1)
    _wake(team, 0, helpers)
    _take_chunks(team, 1, 0)
    exchange(team + AT.open, 0)
    closed = ended = c_api.now()
    while read_word(team + AT.active):  # only for chunks that helpers have begun
        if ended - closed < _RELAXED:
            relax()
        else:
            c_api.nap()
        ended = c_api.now()
    exchange(team + AT.served, ended)
    # If another program seems to have the helpers' core, leave them alone for a while.
    were_awake = began - before < read_word(team + AT.awake)
    are_missed = were_awake and read_word(team + AT.taken) < _BACK  # they took no chunk
    lost = closed - began if are_missed else ended - closed
    longest = max(read_word(team + AT.stopped), nbytes // chunks * _SLOWEST // 1000)
    if are_missed or lost > longest:
        exchange(team + AT.paused, ended + lost * read_word(team + AT.pause))


@jit
def _may_help(team):
    """Return how many helpers may run now, by the limits of the process and of this thread."""
    alone, of_numba = read_word(team + AT.alone), read_word(team + AT.numba)
    if alone and words_at(alone)[LIST.length]:
        return 0
    most = min(read_word(team + AT.allowed), c_api.count_cores() - 1)
    if of_numba:
        most = min(most, (call_address(of_numba, ()) & INT_MASK) - 1)
    return min(most, MOST_HELPERS)


@jit
def _to_ask(team, nbytes):
    """Return how many helpers a copy asks."""
    began = c_api.now()
    since = began - read_word(team + AT.ended)
    is_in_a_row = since < read_word(team + AT.in_a_row)
    is_called_for = is_in_a_row or nbytes >= read_word(team + AT.wake_from)
    if began < read_word(team + AT.paused) or not is_called_for:
        return 0
    is_awake = since < read_word(team + AT.awake)
    pay = nbytes // read_word(team + (AT.awake_share if is_awake else AT.asleep_share))
    return min(pay, _may_help(team)) if pay > 0 else 0


@jit
def share(team, loop, nbytes, arguments):
    """Copy, with as many helpers as come in time.

    Parameters
    ----------
    team : int
        The address of the team record.
    loop, arguments : int
        The addresses of a loop and of its `Arguments`, which may be on the caller's stack.
    nbytes : int
        Bytes of all parts.
    """
    helpers = _to_ask(team, nbytes)
    chunks = min(nbytes // read_word(team + AT.chunk), CHUNKS_PER_THREAD * (helpers + 1))
    if helpers > 0 and chunks >= FEWEST_CHUNKS and exchange(team + AT.busy, 1) == 0:
        _copy_with_helpers(team, loop, min(helpers, chunks - 1), chunks, nbytes, arguments)
        exchange(team + AT.busy, 0)
    else:
        call_address(loop, (0, 1, arguments))
    if chunks >= FEWEST_CHUNKS:  # a small copy that Python makes is in no row of large ones
        exchange(team + AT.ended, c_api.now())


# ---- Numba's threads -------------------------------------------------------------------------


@functools.cache  # makes it on first use, since Numba refuses if it can write no cache
def runner_on_numba():
    """Return a function that runs a loop on Numba's threads, for ``SPLITJIT_THREADS=numba``.

    Then all work of a program is on one pool. Numba's own rules hold, as for any function that it
    compiles: all threads wait for the last one, the "workqueue" layer allows one parallel region at
    a time, and GNU OpenMP allows none in a forked child. So this is a choice, not the default.
    """

    @njit(parallel=True, nogil=True, cache=True)
    def run_on_numba(loop, tasks, arguments):
        """Run a loop once per task; `arguments` is the address of `Arguments`."""
        for task in prange(tasks):
            call_address(loop, (task, tasks, arguments))

    return run_on_numba
