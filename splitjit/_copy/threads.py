"""How many threads copy: one thread if more threads do not pay or are not safe.

splitjit obeys Numba's settings and never changes them. Numba's threading layers
are not safe everywhere. `workqueue` aborts the process when two threads enter it
at once. GNU OpenMP ends or hangs a forked child at the child's first parallel
region. If that could happen, one thread copies. Each call decides this anew.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import perf_counter

from splitjit._copy.cores import describe, usable
from splitjit._copy.governor import governor
from splitjit._copy.loading import LOADED, is_forked_child, jit_disabled, load
from splitjit._kernels.table import LOOPS

_BYTES_PER_TASK = 1 << 18
"""Bytes that a thread must copy at the least, so that waking the thread pays."""


_NAPS = 4
"""How often the caller lets threads start that wait for its core; see `splitjit._kernels.wake`."""


_alone = ContextVar("splitjit copies on the calling thread alone", default=False)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let the splits in the ``with`` block copy on the calling thread alone."""
    before = _alone.get()
    _alone.set(True)
    try:
        yield
    finally:
        _alone.set(before)


def is_small(nbytes: int) -> bool:
    """Return whether a copy is too small for several threads."""
    return nbytes < 2 * _BYTES_PER_TASK


def copy(loop: str, nbytes: int, arguments: tuple[int, int, int, int]) -> bool:
    """Run a copy loop on as many threads as pay.

    Parameters
    ----------
    loop : str
        The name of the loop, one of `splitjit._kernels.table.LOOPS`.
    nbytes : int
        Bytes of all parts.
    arguments : tuple of int
        The fields of `splitjit._kernels.table.Arguments`. The caller has checked them, and
        keeps the memory that they address alive until this function returns.

    Returns
    -------
    bool
        False if no kernel is loaded; then nothing has been copied.
    """
    tasks = nbytes // _BYTES_PER_TASK
    threads = 1 if is_small(nbytes) else _threads()
    if threads == 1:
        return _copy_alone(loop, arguments)
    # The governor has set `left`: one thread copies untimed (< 0), or timed (0), or several
    # threads copy (> 0). This code is inline because a call would take 0.1 µs.
    cell = governor.cells[loop][nbytes.bit_length()]
    left = cell.left
    if left < 0:
        cell.left = left + 1
        return _copy_alone(loop, arguments)
    parallel = left > 0
    if parallel:
        cell.left = left - 1
    kernel = LOADED.get((_kernel, loop, parallel)) or load(_kernel, loop, parallel)
    if kernel is None:
        return False
    began = perf_counter()
    kernel(min(tasks, threads) if parallel else 1, *arguments)
    ended = perf_counter()
    if not parallel or ended - began > cell.limit * nbytes:
        governor.learn(cell, threads, parallel, nbytes, began, ended)
    return True


def _copy_alone(loop: str, arguments: tuple[int, int, int, int]) -> bool:
    kernel = load(_kernel, loop, False)
    if kernel is None:
        return False
    kernel(1, *arguments)
    return True


def _kernel(loop: str, parallel: bool) -> Callable[..., None] | None:
    """Return ``kernel(tasks, *arguments)``, see `splitjit._kernels.launch`."""
    if jit_disabled():
        return None
    from numba import threading_layer

    from splitjit._kernels.launch import LAUNCH, copy_loop, launcher

    # Under other layers, one thread may have to run all tasks, one after the other.
    naps = _NAPS if parallel and threading_layer() == "omp" else 0
    # The code without its dispatcher, which takes 0.1 µs for a call.
    code = launcher(parallel).get_overload(LAUNCH.args)
    return functools.partial(code, copy_loop(loop).address, naps)


def loop_address(loop: str) -> int | None:
    """Return the address of a compiled loop, or None if Numba compiles nothing; for `load`."""
    if jit_disabled():
        return None
    from splitjit._kernels.launch import copy_loop

    address: int = copy_loop(loop).address
    return address


def _threads() -> int:
    """Return how many threads may copy at this moment."""
    return _allowed()[0]


def _allowed() -> tuple[int, str]:
    """Return how many threads may copy at this moment, and why only one, if a rule says so."""
    if is_forked_child():
        return 1, "this process is a forked child, which Numba's threads could end"
    if _alone.get():
        return 1, "this thread runs a task of Dask, which uses the other cores"
    started = LOADED.get((_start_threads,)) or _started()
    if started is None:
        return 1, "Numba can load no threading layer, or another thread loads it now"
    layer, threads = started
    # Any other Python thread may be in a parallel region, even a thread of another library.
    if layer == "workqueue" and len(sys._current_frames()) > 1:
        return 1, "this process has other Python threads, beside which workqueue could abort it"
    return min(threads(), usable(perf_counter())), ""


def explain(loop: str, nbytes: int) -> tuple[int, str]:
    """Return how many threads the next copy would have, and why.

    Parameters
    ----------
    loop : str
        The name of the loop.
    nbytes : int
        Bytes of all parts.

    Returns
    -------
    (int, str)
        The number of threads, and the reason for it.
    """
    if is_small(nbytes):
        return 1, f"a second thread does not pay below {2 * _BYTES_PER_TASK} bytes"
    threads, why = _allowed()
    limits = describe(threads_of_numba())
    limited = f"limited by {limits.limited_by}"
    if threads == 1:
        return 1, why or limited
    why = governor.reason_for_one(governor.cells[loop][nbytes.bit_length()])
    if why:
        return 1, why
    tasks = nbytes // _BYTES_PER_TASK
    if tasks < threads:
        return tasks, f"one thread for each {_BYTES_PER_TASK} bytes"
    return threads, limited


def threads_of_numba() -> int:
    """Return how many threads Numba allows, or 1 if its threads have not started."""
    started = LOADED.get((_start_threads,))
    return started[1]() if started else 1


def _started(*, wait: bool = False) -> tuple[str, Callable[[], int]] | None:
    try:
        return load(_start_threads, wait=wait)
    except (ValueError, Warning):  # Numba can load no layer; or it warns, and warnings are errors
        return None


def _start_threads() -> tuple[str, Callable[[], int]]:
    """Start Numba's threads; return the layer's name and the function that counts threads."""
    import numba

    threads = numba.get_num_threads()
    if jit_disabled() or threads == 1 == numba.config.NUMBA_NUM_THREADS:
        return numba.threading_layer(), numba.get_num_threads
    from splitjit._kernels.launch import thread_counter

    return numba.threading_layer(), thread_counter()


def load_kernels() -> None:
    """Compile the kernels that splits may need, or load them from the cache."""
    for loop in LOOPS:
        load(_kernel, loop, False, wait=True)
    if is_forked_child() or not _started(wait=True):
        return
    # `load` has already imported Numba. A first import here could block on a lock
    # inherited through fork.
    import numba

    if numba.config.NUMBA_NUM_THREADS > 1:
        for loop in LOOPS:
            load(_kernel, loop, True, wait=True)
