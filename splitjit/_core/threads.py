"""How many threads copy: one, where more do not pay or are not safe.

Numba's settings are obeyed and never touched. Its threading layers are not
safe everywhere: `workqueue` aborts the process when two threads enter it at
once, and GNU OpenMP ends or hangs a forked child at its first parallel region.
Where that could happen, one thread copies. Each call decides for itself.

Nobody waits for a kernel that another thread imports, compiles or loads: who
finds it unfinished leaves the copy to NumPy. So there is nothing for which a
signal handler could wait that interrupted it, or a child that was forked then,
where it never ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from splitjit._core.layout import LOOPS

_BYTES_PER_TASK = 1 << 18
"""Bytes of parts that are worth waking a thread for."""

_T = TypeVar("_T")

_loaded: dict[tuple[Any, ...], Any] = {}
_loading: list[int] = []
"""Threads that are in `load`, the first at work. A lock would stay locked if Ctrl-C
came between its `acquire` and the `try` that releases it."""
_forked = False


class _Here(threading.local):
    alone = False


_here = _Here()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Have splits by the calling thread copy on it alone."""
    before = _here.alone
    _here.alone = True
    try:
        yield
    finally:
        _here.alone = before


def load(kernel: Callable[..., _T | None], *arguments: object, wait: bool = False) -> _T | None:
    """Return what a function imports, compiles or loads; it is called once.

    Parameters
    ----------
    kernel : callable
        The function. What it returns is kept, unless it is None.
    *arguments
        Its arguments, hashable.
    wait : bool, default False
        Whether to wait while another thread is in here.

    Returns
    -------
    object or None
        None if somebody is in here still: another thread, or what this one was
        doing when a signal came, or a thread that did not come along in a fork.
    """
    key = (kernel, *arguments)
    result: _T | None = _loaded.get(key)
    if result is not None:
        return result
    thread = threading.get_ident()
    if thread in _loading:
        return None
    try:
        _loading.append(thread)
        if not _comes_first(thread, wait):
            return None
        result = kernel(*arguments)
        if result is not None:
            _loaded[key] = result
        return result
    finally:
        _loading.remove(thread)


def _comes_first(thread: int, wait: bool) -> bool:  # a loop's jump back would be in no `try`
    while wait and not _forked and _loading[0] != thread:
        time.sleep(0.001)
    return _loading[0] == thread


def copy(loop: str, nbytes: int, arguments: tuple[int, ...]) -> bool:
    """Run a copy loop on as many threads as pay.

    Parameters
    ----------
    loop : str
        Which one, see `splitjit._core.layout.CopyLayout`.
    nbytes : int
        Bytes of all parts.
    arguments : tuple of int
        Those of the kernel. They have been checked, and what they address
        lives until the call returns.

    Returns
    -------
    bool
        Whether there is a kernel; otherwise nothing has been copied.
    """
    tasks = nbytes // _BYTES_PER_TASK
    if tasks > 1:
        tasks = min(tasks, _threads())
    kernel = load(_kernel, loop, tasks > 1)
    if kernel is None:
        return False
    kernel(max(tasks, 1), arguments)
    return True


def _kernel(loop: str, parallel: bool) -> Callable[[int, tuple[int, ...]], None] | None:
    """Return ``kernel(tasks, arguments)``, see `splitjit._kernels.copy.copy_kernel`."""
    if jit_disabled():
        return None
    from splitjit._kernels.copy import copy_kernel, copy_loop

    copy_kernel(False)  # with which forked children go on
    return functools.partial(copy_kernel(parallel), copy_loop(loop).address)


def _threads() -> int:
    """Return how many threads may copy, as things stand at this moment."""
    if _forked or _here.alone:
        return 1
    started = _started()
    if started is None:
        return 1
    layer, threads = started
    # Other Python threads may be in parallel regions, of ours or not.
    if layer == "workqueue" and len(sys._current_frames()) > 1:
        return 1
    return threads()


def _started(*, wait: bool = False) -> tuple[str, Callable[[], int]] | None:
    try:
        return load(_start_threads, wait=wait)
    except ValueError:  # no layer can be loaded
        return None


def _start_threads() -> tuple[str, Callable[[], int]]:
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
        load(_kernel, loop, False, wait=True)
    if _forked or not _started(wait=True):
        return
    import numba  # has been, by `load`: on its own, it could wait for what a fork left behind

    if numba.config.NUMBA_NUM_THREADS > 1:
        for loop in LOOPS:
            load(_kernel, loop, True, wait=True)


def _after_fork_in_child() -> None:
    """Remember that threads do not come along.

    Whose they were does not matter: a region of another library that shares
    GNU OpenMP is enough to hang a child's first one.
    """
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
