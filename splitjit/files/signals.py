"""Delay signals while files are moved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

_ENDING = {
    getattr(signal, name, None)
    for name in (
        *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2"),
        "SIGBREAK",  # Windows: Ctrl-Break
    )
}
"""Signals that end a process by default, and that users and schedulers send."""


@contextlib.contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Defer signals until the end of the body, and then deliver them.

    Masking signals in this thread would not help: the system would deliver them to
    another thread of the process, and Python would run the handler in the main thread.
    No handler runs in other threads, so nothing needs to be deferred there.

    Yields
    ------
    callable
        Returns whether a signal is waiting.
    """
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    handlers = {}
    try:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            ends = handler == signal.SIG_DFL and number in _ENDING
            if ends or (callable(handler) and not isinstance(handler, signal.Handlers)):
                handlers[number] = handler
                signal.signal(number, lambda number, frame: waiting.append(number))
        yield lambda: bool(waiting)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for waited in dict.fromkeys(waiting):
            signal.raise_signal(waited)
