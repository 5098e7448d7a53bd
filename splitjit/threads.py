"""How many threads copy: one, where more do not pay or are not safe.

Numba's settings are obeyed and never touched. Its threading layers are not
safe everywhere: `workqueue` aborts the process when two threads enter it at
once, and GNU OpenMP ends a forked child at its first parallel region. Where
that could happen, one thread copies. Each call decides for itself.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable

_BYTES_PER_TASK = 1 << 18
"""Bytes of parts that are worth waking a thread for."""

_workqueue = threading.Lock()
_forked = False


@functools.cache
def load_kernel(parallel: bool) -> Callable[[int, tuple[int, ...]], None]:
    """Compile a kernel, or load it from the cache; this imports Numba's compiler.

    Parameters
    ----------
    parallel : bool
        Whether its tasks are run on Numba's threads.

    Returns
    -------
    callable
        ``kernel(tasks, arguments)``, see `splitjit.kernels.copy_kernel`.
    """
    from splitjit.kernels import copy_function, copy_kernel

    return functools.partial(copy_kernel(parallel), copy_function().address)


def copy(nbytes: int, arguments: tuple[int, ...]) -> None:
    """Run the copy kernel on as many threads as pay.

    Parameters
    ----------
    nbytes : int
        Bytes of all parts.
    arguments : tuple of int
        Those of the kernel. They have been checked, and what they address
        lives until the call returns.
    """
    tasks = nbytes // _BYTES_PER_TASK
    if tasks > 1 and not _forked:
        import numba

        tasks = min(tasks, numba.get_num_threads())
        if tasks > 1:
            kernel = load_kernel(parallel=True)  # which starts the threading layer
            if numba.threading_layer() != "workqueue":
                kernel(tasks, arguments)
                return
            # Other threads may run parallel regions that are not ours.
            if threading.active_count() == 1 and _workqueue.acquire(blocking=False):
                try:
                    kernel(tasks, arguments)
                finally:
                    _workqueue.release()
                return
    load_kernel(parallel=False)(1, arguments)


def jit_disabled() -> bool:
    """Return whether Numba compiles nothing, as with ``NUMBA_DISABLE_JIT=1``."""
    import numba

    return bool(numba.config.DISABLE_JIT)


def load_kernels() -> None:
    """Compile the copy kernels, or load them from the cache."""
    load_kernel(parallel=True)
    load_kernel(parallel=False)


def _after_fork_in_child() -> None:
    """Remember that the parent's threading layer did not come along."""
    global _forked, _workqueue
    _workqueue = threading.Lock()
    if "numba" in sys.modules:
        import numba

        try:
            numba.threading_layer()
        except ValueError:  # the parent had not started one
            return
        _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
