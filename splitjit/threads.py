"""How many threads copy: one, where more do not pay or are not safe.

Numba's settings are obeyed and never touched. Its threading layers are not
safe everywhere: `workqueue` aborts the process when two threads enter it at
once, and GNU OpenMP ends or hangs a forked child at its first parallel region.
Where that could happen, one thread copies. Each call decides for itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator

from splitjit.layout import LOOPS

_BYTES_PER_TASK = 1 << 18
"""Bytes of parts that are worth waking a thread for."""

_forked = False
_here = threading.local()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have splits by the calling thread copy on it alone."""
    before = getattr(_here, "alone", False)
    _here.alone = True
    try:
        yield
    finally:
        _here.alone = before


@functools.cache
def load_kernel(loop: str, parallel: bool) -> Callable[[int, tuple[int, ...]], None]:
    """Compile a kernel, or load it from the cache; this imports Numba's compiler.

    Parameters
    ----------
    loop : str
        What it does, see `splitjit.layout.CopyLayout`.
    parallel : bool
        Whether its tasks are run on Numba's threads, or one after another.

    Returns
    -------
    callable
        ``kernel(tasks, arguments)``, see `splitjit.kernels.copy_kernel`.
    """
    from splitjit.kernels import copy_kernel, copy_loop

    return functools.partial(copy_kernel(parallel), copy_loop(loop).address)


def copy(loop: str, nbytes: int, arguments: tuple[int, ...]) -> None:
    """Run a copy loop on as many threads as pay.

    Parameters
    ----------
    loop : str
        Which one, see `splitjit.layout.CopyLayout`.
    nbytes : int
        Bytes of all parts.
    arguments : tuple of int
        Those of the kernel. They have been checked, and what they address
        lives until the call returns.
    """
    tasks = nbytes // _BYTES_PER_TASK
    if tasks > 1:
        tasks = min(tasks, _threads())
    load_kernel(loop, tasks > 1)(max(tasks, 1), arguments)


def _threads() -> int:
    """Return how many threads may copy, as things stand at this moment."""
    if _forked or getattr(_here, "alone", False):
        return 1
    try:
        layer, threads = _threading_layer()
    except ValueError:  # none can be loaded
        return 1
    # Other Python threads may be in parallel regions, of ours or not.
    if layer == "workqueue" and len(sys._current_frames()) > 1:
        return 1
    return threads()


@functools.cache
def _threading_layer() -> tuple[str, Callable[[], int]]:
    """Start Numba's threads; return the layer's name, and what tells how many may run."""
    import numba

    numba.get_num_threads()
    return numba.threading_layer(), numba.get_num_threads


def jit_disabled() -> bool:
    """Return whether Numba compiles nothing, as with ``NUMBA_DISABLE_JIT=1``."""
    import numba

    return bool(numba.config.DISABLE_JIT)


def load_kernels() -> None:
    """Compile the kernels that splits may need, or load them from the cache."""
    for loop in LOOPS:
        load_kernel(loop, False)
        if _threads() > 1:
            load_kernel(loop, True)


def _after_fork_in_child() -> None:
    """Remember that threads do not come along.

    Whose they were does not matter: a region of another library that shares
    GNU OpenMP is enough to hang a child's first one.
    """
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
