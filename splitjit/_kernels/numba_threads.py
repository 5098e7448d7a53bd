"""Run a copy loop on Numba's threads, for programs that want all work on one pool.

Numba's own rules hold, as for any function that it compiles: all threads wait for the last one,
the "workqueue" layer allows one parallel region at a time, and GNU OpenMP allows none in a forked
child. So this is a choice (``SPLITJIT_THREADS=numba``) and not the default.
"""

from __future__ import annotations

from numba import njit, prange

from splitjit._kernels.ir.intrinsics import call


@njit(parallel=True, nogil=True, cache=True)
def run_on_numba(loop, tasks, arguments):
    """Run a loop once per task; `arguments` is the address of `Arguments`."""
    for task in prange(tasks):
        call(loop, (task, tasks, arguments))
