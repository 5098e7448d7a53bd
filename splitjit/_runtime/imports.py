"""Import Numba and llvmlite so that no signal handler breaks the import."""

from __future__ import annotations

import sys
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from typing import Any, TypeVar

from splitjit._runtime.stacks import COMPILER, interrupts_numba, is_inside_import

T = TypeVar("T")


def import_apart(imports: Callable[[], T]) -> T:
    """Run a function that imports modules; if this is the main thread, on another thread.

    Python runs signal handlers in the main thread. If Ctrl-C ended an import there, some modules
    could not be imported again in this process, such as the parts of yaml that Cython has compiled.
    Ctrl-C still interrupts the main thread at once, and the import ends in the background.

    Raises
    ------
    BlockingIOError
        If a module is not complete yet, because another thread is importing it.
    """
    import threading

    is_main = get_ident() == threading.main_thread().ident
    # The other thread would wait forever for a lock that this thread holds.
    if not is_main or is_inside_import() or interrupts_numba():
        return _import(imports)
    outcome: list[tuple[Any, BaseException | None]] = []
    done = allocate_lock()
    done.acquire()

    def work() -> None:
        try:
            outcome.append((_import(imports), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            done.release()

    try:
        # A `threading.Thread` takes locks that a signal handler may have found taken.
        start_new_thread(work, ())
    except RuntimeError:  # the system allows no more threads, or Python is shutting down
        return _import(imports)
    done.acquire()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _import(imports: Callable[[], T]) -> T:
    try:
        return imports()
    except (ImportError, AttributeError) as error:
        if is_importing_compiler():
            raise BlockingIOError("another thread is importing Numba or llvmlite") from error
        raise


def is_importing_compiler() -> bool:
    """Return whether a thread is importing Numba, llvmlite or a part of them right now."""
    for name, module in sys.modules.copy().items():
        if name.partition(".")[0] in COMPILER:
            spec = getattr(module, "__spec__", None)
            if getattr(spec, "_initializing", False):
                return True
    return False
