"""Let signals wait while files are written, and deliver them where nothing is half done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

Pause = Callable[[], None]
"""Delivers the signals that wait. Their handlers may raise."""

_ENDING = {
    getattr(signal, name, None)
    for name in (
        *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2"),
        "SIGBREAK",  # Windows: Ctrl-Break
    )
}
"""Signals that end a process by default, and that users and schedulers send."""


def deferred(work: Callable[[Pause], None]) -> None:
    """Call `work`; signals wait until it pauses or ends.

    Handlers are replaced before `work` begins, and put back after it has ended. In between, no
    handler raises except in a pause, so `work` can clean up with plain ``with`` and ``finally``.

    Masking signals in this thread would not help: the system would deliver them to another thread
    of the process, and Python would run the handler in the main thread. No handler runs in other
    threads, so nothing needs to be deferred there.
    """
    if threading.current_thread() is not threading.main_thread():
        work(lambda: None)
        return
    waiting = _Waiting()
    try:
        waiting.replace_handlers()
        work(waiting.pause)
    finally:
        # A handler that is back can interrupt what puts the others back. An interrupt comes only
        # inside a call here, never between `try` and `finally`, so the next call goes on.
        try:
            waiting.put_back()
        finally:
            try:
                waiting.put_back()
            finally:
                try:
                    waiting.put_back()
                finally:
                    waiting.deliver()


class _Waiting:
    """The handler of all signals while they wait."""

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._numbers: list[int] = []

    def __call__(self, number: int, frame: object) -> None:
        if number not in self._numbers:
            self._numbers.append(number)

    def replace_handlers(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            ends = handler == signal.SIG_DFL and number in _ENDING
            if ends or (callable(handler) and not isinstance(handler, signal.Handlers)):
                self._handlers[number] = handler
                signal.signal(number, self)

    def put_back(self) -> None:
        for number, handler in self._handlers.items():
            if signal.getsignal(number) is self:
                signal.signal(number, handler)

    def pause(self) -> None:
        """Call the handlers of the signals that wait."""
        while self._numbers:
            handler = self._handlers[self._numbers[0]]
            if handler == signal.SIG_DFL:  # clean up first; `deliver` then ends the process
                raise KeyboardInterrupt(self._numbers[0])
            handler(self._numbers.pop(0), sys._getframe())

    def deliver(self) -> None:
        """Raise the signals that still wait, all of them even if the first handler raises."""
        if self._numbers:
            try:
                signal.raise_signal(self._numbers.pop(0))
            finally:
                self.deliver()
