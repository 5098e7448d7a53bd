"""Tell from the stacks of all threads whether loading a kernel is safe."""

from __future__ import annotations

import sys
from _thread import get_ident  # `threading` takes 1 ms to import
from types import FrameType

_IMPORTLIB = ("importlib", "_frozen_importlib", "_frozen_importlib_external")
COMPILER = ("numba", "llvmlite")


def others_import() -> bool:
    """Return whether another thread is importing a module, or is inside Numba or LLVM.

    A child forked now would wait forever for a lock that such a thread holds.
    """
    here = get_ident()
    others = [frame for thread, frame in sys._current_frames().items() if thread != here]
    return any(_is_within(frame, *_IMPORTLIB, *COMPILER) for frame in others)


def interrupts_import() -> bool:
    """Return whether this thread is in a signal handler or finalizer that interrupts an import.

    Before Python 3.12, another import there would make the interrupted one fail with a KeyError.
    """
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        is_module = frame.f_code.co_name == "<module>"
        if not is_module and _package(frame) not in _IMPORTLIB and _package(caller) in _IMPORTLIB:
            return True
        frame = caller
    return False


def is_inside_import() -> bool:
    """Return whether this thread runs the code of a module, or anything that it calls."""
    return _is_within(sys._getframe(), *_IMPORTLIB)


def interrupts_numba() -> bool:
    """Return whether this thread is in a signal handler or finalizer that interrupts Numba."""
    return _is_within(sys._getframe(), *COMPILER)


def _is_within(frame: FrameType | None, *packages: str) -> bool:
    while frame is not None:
        if _package(frame) in packages:
            return True
        frame = frame.f_back
    return False


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]
