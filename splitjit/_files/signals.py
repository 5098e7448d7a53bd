"""Let signals wait while files are made, moved and removed, so that nothing is left half done."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T", bound=io.IOBase)

_ENDING = {
    getattr(signal, name, None)
    for name in (
        *("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2"),
        "SIGBREAK",  # Windows: Ctrl-Break
    )
}
"""Signals that end a process by default, and that users and schedulers send."""


def deferred(work: Callable[[Waiting], None]) -> None:
    """Call `work`; signals wait until it ends, or lets them through.

    Handlers are replaced before `work` begins, and put back after it has ended. While signals wait,
    no handler raises, so `work` can clean up with plain ``with`` and ``finally``.

    Masking signals in this thread would not help: the system would deliver them to another thread
    of the process, and Python would run the handler in the main thread. No handler runs in other
    threads, so nothing needs to be deferred there.
    """
    waiting = Waiting()
    if threading.current_thread() is not threading.main_thread():
        work(waiting)
        return
    try:
        waiting.replace_handlers()
        work(waiting)
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


class Waiting:
    """The handler of all signals while they wait.

    Attributes
    ----------
    waits : bool
        Whether signals wait. Otherwise the handlers that were replaced are called.
    """

    def __init__(self) -> None:
        self.waits = True
        self._handlers: dict[int, Any] = {}
        self._numbers: list[int] = []

    def __call__(self, number: int, frame: object) -> None:
        """Note a signal, and deliver it unless signals wait."""
        if number not in self._numbers:
            self._numbers.append(number)
        if not self.waits:
            self.pause()

    def replace_handlers(self) -> None:
        """Make this the handler of all signals that have one in Python, or end the process."""
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            ends = handler == signal.SIG_DFL and number in _ENDING
            if ends or (callable(handler) and not isinstance(handler, signal.Handlers)):
                self._handlers[number] = handler
                signal.signal(number, self)

    def put_back(self) -> None:
        """Put the handlers back that are not back yet."""
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

    def opened(self, call: Callable[[], T]) -> T:
        """Open a file while signals wait: an interrupt would lose a descriptor without an owner."""
        before, self.waits = self.waits, True
        try:
            file = call()
        finally:
            self.waits = before
        try:
            if not before:
                self.pause()
        except BaseException:
            file.close()
            raise
        return file

    def deliver(self) -> None:
        """Raise the signals that still wait, all of them even if the first handler raises."""
        if self._numbers:
            try:
                signal.raise_signal(self._numbers.pop(0))
            finally:
                self.deliver()
