"""Splits in processes of their own: what aborts or hangs there does not take the tests along."""

import os
import subprocess
import sys

SPLIT = """
import os, signal, sys, threading, time
import numpy as np
import splitjit

x = np.arange(2**20, dtype=np.int32).reshape(1024, -1)

def check():
    parts = splitjit.split(x, [300, 724], axis=1)
    assert np.array_equal(parts[0], x[:, :300]) and np.array_equal(parts[1], x[:, 300:])
"""

TBB = os.path.join(sys.prefix, "lib")
"""Where pip puts the library, and the system does not look."""


def start(folder, *arguments, **variables):
    """Start Python in a folder, whose modules it sees, with environment variables."""
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "NUMBA_NUM_THREADS": "2", "LD_LIBRARY_PATH": TBB, **variables},
    )  # fmt: skip


def finish(*processes, timeout=100):
    """Wait until processes have succeeded."""
    try:
        errors = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), "\n".join(errors)


def run(folder, code, **variables):
    """Run code as a script in a folder until it has succeeded; see `start`."""
    script = folder / "script.py"
    script.write_text(code)
    finish(start(folder, script, **variables))
