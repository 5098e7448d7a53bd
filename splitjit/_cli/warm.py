"""Compile all kernels for a command: on two cores, if there are two."""

from __future__ import annotations

import subprocess
import sys
import time

import splitjit
from splitjit._copy import cores
from splitjit._copy.loading import jit_disabled

_LARGEST = "transpose"
"""The loop that takes almost half of the time. `splitjit.warmup` needs it last."""

_SCRIPT = """
import sys
sys.path[:] = {path!r}
from splitjit._kernels.launch import copy_loop
copy_loop({loop!r})
"""


def compile_kernels() -> None:
    """Do as `splitjit.warmup`, while a second process compiles the largest loop.

    The second process saves the loop in the cache. If it still compiles the loop when this process
    needs it, this process waits.
    """
    second = _start_second_process()
    try:
        splitjit.warmup()
    finally:
        if second is not None:
            second.kill()
            second.wait()


def _start_second_process() -> subprocess.Popen[bytes] | None:
    """Start to compile the largest loop, unless that is not needed or does not pay."""
    if jit_disabled() or hasattr(sys, "frozen") or cores.usable(time.monotonic()) < 2:
        return None
    from splitjit._kernels.launch import is_missing

    if not is_missing(_LARGEST):  # type: ignore[no-untyped-call]
        return None
    script = _SCRIPT.format(path=sys.path, loop=_LARGEST)
    null = subprocess.DEVNULL
    try:
        return subprocess.Popen([sys.executable, "-c", script], stdout=null, stderr=null)
    except OSError:  # this process compiles all kernels
        return None
