"""Import Numba, and compile or load kernels, one thread at a time.

Only one thread is in `load` at a time. If another thread asks for a kernel
meanwhile, it does not wait: it gets None, and NumPy copies. So a signal handler
cannot wait for the thread that it interrupted, and a forked child cannot wait
for a thread that the fork did not copy.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

_loaded: dict[tuple[Any, ...], Any] = {}
_loading: list[int] = []
"""Identifiers of the threads in `load`; the first one loads. This is a list, not a lock,
because Ctrl-C between the `acquire` of a lock and its `try` would leave the lock taken."""

_is_forked_child = False


def load(kernel: Callable[..., _T | None], *arguments: object, wait: bool = False) -> _T | None:
    """Return what a function imports, compiles or loads; call the function only once.

    Parameters
    ----------
    kernel : callable
        The function. Its result is kept, unless it is None.
    *arguments
        Its arguments, hashable.
    wait : bool, default False
        Whether to wait while another thread loads.

    Returns
    -------
    object or None
        None if the function returned None, or if a kernel is being loaded: by
        another thread, by the code that a signal handler interrupted, or by a
        thread of the parent that the fork did not copy.
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
        if not _is_first(thread, wait):
            return None
        result = kernel(*arguments)
        if result is not None:
            _loaded[key] = result
        return result
    finally:
        _loading.remove(thread)


def loaded(kernel: Callable[..., _T | None], *arguments: object) -> _T | None:
    """Return what `load` has loaded, or None if it has not."""
    result: _T | None = _loaded.get((kernel, *arguments))
    return result


# A separate function, because an interrupt on a loop's backward jump would escape
# the `try` in `load`.
def _is_first(thread: int, wait: bool) -> bool:
    while wait and not _is_forked_child and _loading[0] != thread:
        time.sleep(0.001)
    return _loading[0] == thread


def jit_disabled() -> bool:
    """Return whether Numba compiles nothing, as with ``NUMBA_DISABLE_JIT=1``."""
    import numba

    return bool(numba.config.DISABLE_JIT)


def is_forked_child() -> bool:
    """Return whether this process is a forked child, whose threads the fork did not copy."""
    return _is_forked_child


def _after_fork_in_child() -> None:
    global _is_forked_child
    _is_forked_child = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
