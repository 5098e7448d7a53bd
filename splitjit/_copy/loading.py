"""Import Numba, and compile or load kernels, without waiting for other code.

If Numba is busy, a split does not wait: `load` returns None, and NumPy copies.
Numba is busy

- while another thread is in `load`, compiles its own functions, or imports Numba;
- if a signal handler splits, and the handler interrupted such work;
- in a forked child, if another thread did such work at the fork. The fork does not
  copy that thread, so its locks stay taken.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from _thread import get_ident  # `threading` takes 1 ms to import
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from splitjit._copy.events import debug

if TYPE_CHECKING:
    from threading import RLock

_T = TypeVar("_T")

_RETRY_AFTER = 0.01
"""Seconds after which a split asks again, since the question takes up to a millisecond."""

LOADED: dict[tuple[Any, ...], Any] = {}
"""What functions have loaded, by the function and its arguments. `load` adds to it; a large copy
reads it without a call."""

_loading: list[int] = []
"""Identifiers of the threads in `load`; the first one loads. This is a list, not a lock,
because Ctrl-C between the `acquire` of a lock and its `try` would leave the lock taken."""

_busy_until = 0.0
_busy_at_fork = False
_is_forked_child = False
_is_unsafe_child = False

_IMPORTED = {*sys.stdlib_module_names, "numpy", "llvmlite", "numba", "splitjit"}
"""The packages that a load may import."""
_IMPORT_SYSTEM = ("importlib", "_frozen_importlib", "_frozen_importlib_external")
_module_locks: dict[str, Any] = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
"""Python's weak references to the locks of the modules that threads import at this moment."""


def load(kernel: Callable[..., _T | None], *arguments: object, wait: bool = False) -> _T | None:
    """Return what a function imports, compiles or loads; call the function only once.

    Parameters
    ----------
    kernel : callable
        The function. Its result is kept, unless it is None. BlockingIOError from it
        says that another process compiles.
    *arguments
        Its arguments, hashable.
    wait : bool, default False
        Whether to wait while another thread or another process is at work. A forked
        child never waits.

    Returns
    -------
    object or None
        None if the function returned None, or if Numba is busy.
    """
    global _busy_until
    key = (kernel, *arguments)
    result: _T | None = LOADED.get(key)
    if result is not None:
        return result
    thread = get_ident()
    if thread in _loading or (time.monotonic() < _busy_until and not wait):
        return None
    try:
        _loading.append(thread)
        began = time.monotonic()
        result = _call(kernel, arguments, wait and not _is_forked_child)
        if result is not None:
            LOADED[key] = result
            seconds = time.monotonic() - began
            debug("compiled or loaded %s%r in %.3f s", kernel.__name__, arguments, seconds)
        return result
    except BlockingIOError:
        _busy_until = time.monotonic() + _RETRY_AFTER
        debug("Numba is busy, so NumPy copies instead of %s%r", kernel.__name__, arguments)
        return None
    finally:
        _loading.remove(thread)


def loaded(kernel: Callable[..., _T | None], *arguments: object) -> _T | None:
    """Return what `load` has loaded, or None if it has not."""
    result: _T | None = LOADED.get((kernel, *arguments))
    return result


def has_loaded() -> bool:
    """Return whether `load` has loaded anything, and thereby imported Numba."""
    return bool(LOADED)


# A separate function, because an interrupt on a loop's backward jump would escape
# the `try` in `load`.
def _call(kernel: Callable[..., _T], arguments: tuple[object, ...], wait: bool) -> _T:
    """Call the function. If Numba is busy, wait, or raise BlockingIOError."""
    while True:
        try:
            return _call_now(kernel, arguments)
        except BlockingIOError:
            if not wait or _has_interrupted_numba():
                raise
        time.sleep(0.001)


def _call_now(kernel: Callable[..., _T], arguments: tuple[object, ...]) -> _T:
    thread = get_ident()
    if _is_unsafe_child or _loading[0] != thread or _has_interrupted_numba() or _importing():
        raise BlockingIOError
    return _call_with(_locks_of_numba(), kernel, arguments)


def _call_with(locks: list[RLock], kernel: Callable[..., _T], arguments: tuple[object, ...]) -> _T:
    """Call the function while this thread holds all locks; raise BlockingIOError if it cannot."""
    if not locks:
        return kernel(*arguments)
    *others, lock = locks
    try:
        if not lock.acquire(blocking=False):
            raise BlockingIOError
        return _call_with(others, kernel, arguments)
    finally:
        # No call may come before `release`: Ctrl-C could arrive there and leave the lock taken.
        try:  # noqa: SIM105
            lock.release()
        except RuntimeError:  # the lock was not acquired
            pass


def _locks_of_numba() -> list[Any]:
    """Return the locks that a thread must hold to compile a kernel without waiting.

    Numba has one compiler lock, and a lock for each context that it makes at its first use. The
    thread that makes a context takes the lock of the context first, and then the compiler lock. If
    this thread held only the compiler lock, each of the two threads would wait for the other, and
    neither wait would end. A context that exists needs no lock.
    """
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    contexts = ("_toplevel_typing_context", "_toplevel_target_context")
    missing = [name for name in contexts if name not in vars(cpu_target)]
    owners = [global_compiler_lock, *(vars(type(cpu_target)).get(name) for name in missing)]
    return [owner._lock for owner in owners if hasattr(owner, "_lock")]


def _has_interrupted_numba() -> bool:
    """Return whether this thread is in Numba, or imports what Numba needs."""
    return _is_in_numba(sys._getframe()) or get_ident() in _importing()


def _importing() -> list[int | None]:
    """Return the owners of the locks of modules that a load may import."""
    owners = []
    for name, reference in list(_module_locks.items()):
        if name.partition(".")[0] in _IMPORTED:
            owners.append(getattr(reference(), "owner", None))
    return owners


def _is_in_numba(frame: FrameType | None, also: tuple[str, ...] = ()) -> bool:
    """Return whether a frame, or a frame that called it, runs code of Numba or llvmlite."""
    packages = ("numba", "llvmlite", *also)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in packages:
            return True
        frame = frame.f_back
    return False


def jit_disabled() -> bool:
    """Return whether Numba compiles nothing, as with ``NUMBA_DISABLE_JIT=1``."""
    import numba

    return bool(numba.config.DISABLE_JIT)


def never_compiles() -> bool:
    """Return whether Numba would compile nothing. If Numba is not imported, do not import it."""
    if "numba" in sys.modules:
        return jit_disabled()
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


def is_forked_child() -> bool:
    """Return whether this process is a forked child, whose threads the fork did not copy."""
    return _is_forked_child


def _before_fork() -> None:
    """Note whether another thread compiles or imports."""
    global _busy_at_fork
    here = get_ident()
    others = [frame for thread, frame in sys._current_frames().items() if thread != here]
    _busy_at_fork = any(_is_in_numba(frame, _IMPORT_SYSTEM) for frame in others)


def _after_fork_in_child() -> None:
    global _is_forked_child, _is_unsafe_child
    _is_forked_child = True
    _is_unsafe_child = _is_unsafe_child or _busy_at_fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
