"""How many threads copy: only one if more would not pay or would not be safe.

splitjit obeys Numba's settings and never changes them. Numba's threading layers
are not safe everywhere: `workqueue` aborts the process if two threads enter it at
the same time, and GNU OpenMP kills or hangs a forked child in its first parallel
region. Where that could happen, one thread copies. Each call decides anew.

Starting the threads means importing Numba, which takes as long as a dozen or more large
copies. So if the program has not imported Numba, one thread copies until it has spent
`_PATIENCE` seconds on copies that more threads could share.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from splitjit._copy.builtins import METH_FASTCALL, METH_O, builtin
from splitjit._copy.cores import describe, usable
from splitjit._copy.events import debug
from splitjit._copy.frames import interrupts_import
from splitjit._copy.governor import governor
from splitjit._copy.loading import LOADER, never_compiles
from splitjit._kernels.table import LOOPS, NUMBA_FUNCTIONS

_BYTES_PER_TASK = 1 << 18
"""A thread must copy at least this many bytes for waking it to pay."""

_CORES_FOR = 0.1
"""Seconds between two reads of the usable cores; each takes 0.3 µs."""

_PATIENCE = 0.1
"""Seconds of copies on one thread before Numba is imported, which takes 0.2 s. Whether or not a
program keeps splitting, it then loses about twice as much as with the best choice."""

_NAPS = 4
"""How often the caller naps so that threads on its core can start; see `splitjit._kernels.wake`."""


_alone = ContextVar("splitjit copies on the calling thread alone", default=False)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Make splits in the ``with`` block copy on the calling thread alone."""
    before = _alone.get()
    _alone.set(True)
    try:
        yield
    finally:
        _alone.set(before)


def is_small(nbytes: int) -> bool:
    """Return whether a copy is too small for several threads."""
    return nbytes < 2 * _BYTES_PER_TASK


class _Threads:
    """Numba's threads, and the builtin functions that run loops.

    Attributes
    ----------
    layer : str
        The name of Numba's threading layer; empty until its threads have started.
    count : callable
        ``count(None)`` returns how many threads Numba allows.
    run, run_parallel : callable
        The functions of `splitjit._kernels.launch`.
    naps : int
        See `splitjit._kernels.wake`.
    cores : int
        How many threads can run at once, until the time `cores_until`.
    patience : float
        Seconds of copies on one thread, which more could share, left before Numba is imported.
    """

    def __init__(self) -> None:
        self.layer = ""
        self.count: Callable[[None], int] = lambda _: 1
        self.run: Any = None
        self.run_parallel: Any = None
        self.naps = 0
        self.cores, self.cores_until = 1, float("-inf")
        self.patience = _PATIENCE
        self._failed = False

    def load(self, *, wait: bool = False) -> bool:
        """Load the function that runs a loop on one thread; return whether it is loaded."""
        if self.run is None:
            functions = LOADER.load("serial", wait=wait)
            if functions is not None:
                self.run = builtin("run", functions["run"], METH_FASTCALL, None)
        return self.run is not None

    def start(self, *, wait: bool = False) -> bool:
        """Start Numba's threads if it is time; return whether they have started."""
        if self.run_parallel is not None:
            return True
        is_time = wait or self.patience <= 0
        if "numba" in sys.modules:  # a split does not wait while another thread imports it
            is_time = wait or hasattr(sys.modules["numba"], "prange")
        if LOADER.is_forked_child or not is_time or never_compiles() or interrupts_import():
            return False
        if self._failed or (LOADER.has_failed("parallel") and not wait):
            return False
        try:
            return self._start(wait)
        except (ImportError, AttributeError):  # Numba is still being imported
            return False
        except (ValueError, Warning) as error:
            # Numba can load no layer, or it warns and warnings are errors.
            self._failed = True
            debug("Numba's threads cannot start: %r", error)
            return False

    def _start(self, wait: bool) -> bool:
        import llvmlite.binding as llvm
        import numba
        from numba import _helperlib

        numba.get_num_threads()  # starts the threads
        symbols = {name: llvm.address_of_symbol(name) for name in NUMBA_FUNCTIONS}
        for name, place in _helperlib.c_helpers.items():  # type: ignore[attr-defined]
            if f"numba_{name}" in symbols:
                symbols[f"numba_{name}"] = place
        functions = LOADER.load("parallel", symbols=symbols, wait=wait)
        if functions is None:
            return False
        # With other layers, one thread may have to run all tasks, one after another.
        self.layer = numba.threading_layer()
        self.naps = _NAPS if self.layer == "omp" else 0
        self.count = builtin("count_threads", functions["count_threads"], METH_O, None)
        self.run_parallel = builtin("run_parallel", functions["run_parallel"], METH_FASTCALL, None)
        return True


THREADS = _Threads()


def copy(loop: str, place: int, nbytes: int, arguments: tuple[int, int, int, int]) -> None:
    """Run a copy loop on as many threads as pay.

    Parameters
    ----------
    loop : str
        The name of the loop, one of `splitjit._kernels.table.LOOPS`.
    place : int
        Its address.
    nbytes : int
        Bytes of all parts.
    arguments : tuple of int
        The fields of `splitjit._kernels.table.Arguments`. The caller has checked them, and keeps
        the memory that they point to alive until this function returns.
    """
    if is_small(nbytes):
        THREADS.run(place, 0, 1, *arguments)
        return
    threads = _allowed()[0]
    if threads == 1:
        began = perf_counter()
        THREADS.run(place, 0, 1, *arguments)
        THREADS.patience -= perf_counter() - began
        return
    # The governor has set `left`: one thread copies untimed (< 0), or timed (0), or several
    # threads copy (> 0). This code is inline because a call would take 0.1 µs.
    cell = governor.cells[loop][nbytes.bit_length()]
    left = cell.left
    if left < 0:
        cell.left = left + 1
        THREADS.run(place, 0, 1, *arguments)
        return
    parallel = left > 0
    began = perf_counter()
    if parallel:
        cell.left = left - 1
        tasks = min(nbytes // _BYTES_PER_TASK, threads)
        THREADS.run_parallel(place, THREADS.naps, tasks, *arguments)
    else:
        THREADS.run(place, 0, 1, *arguments)
    ended = perf_counter()
    if not parallel or ended - began > cell.limit * nbytes:
        governor.learn(cell, threads, parallel, nbytes, began, ended)


def _allowed() -> tuple[int, str]:
    """Return how many threads may copy now, and why only one if a rule limits them."""
    if LOADER.is_forked_child:
        return 1, "this process is a forked child, which Numba's threads could kill"
    if _alone.get():
        return 1, "this thread runs a Dask task, and Dask uses the other cores"
    now = perf_counter()
    if now >= THREADS.cores_until:
        THREADS.cores, THREADS.cores_until = usable(now), now + _CORES_FOR
    if THREADS.cores == 1:
        return 1, ""
    if THREADS.run_parallel is None and not THREADS.start():
        return 1, "Numba's threads have not started; they start once the program splits more"
    # Any other Python thread may be in a parallel region, even a thread of another library.
    if THREADS.layer == "workqueue" and len(sys._current_frames()) > 1:
        return 1, "workqueue could abort this process, which has other Python threads"
    return min(THREADS.count(None), THREADS.cores), ""


def explain(loop: str, nbytes: int) -> tuple[int, str]:
    """Return how many threads the next copy would use, and why.

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
    limits = describe(THREADS.count(None))
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


def load_all() -> None:
    """Load the kernels that splits may need, and start Numba's threads."""
    for name in (*LOOPS, "entry", "tensors", "overload"):
        LOADER.load(name, wait=True)
    THREADS.load(wait=True)
    THREADS.start(wait=True)
