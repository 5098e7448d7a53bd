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


def start(folder, *arguments, layer=None, **variables):
    """Start Python in a folder, whose modules it sees, with environment variables."""
    settings = {"NUMBA_NUM_THREADS": "2", "NUMBA_DISABLE_JIT": "0"}
    environment = {**os.environ, **settings, **variables}
    if layer:
        environment["NUMBA_THREADING_LAYER"] = layer
    if layer == "tbb":  # pip puts it where the system does not look
        folders = [os.path.join(sys.prefix, "lib"), os.environ.get("LD_LIBRARY_PATH")]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(*processes, timeout=100):
    """Wait until processes have succeeded."""
    try:
        errors = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.stderr.close()
            process.wait()
    assert not any(process.returncode for process in processes), "\n".join(errors)


def run(folder, code, **options):
    """Run code as a script in a folder until it has succeeded; see `start`."""
    script = folder / "script.py"
    script.write_text(code)
    finish(start(folder, script, **options))
