"""Run splits in separate processes, so that an abort or a hang there does not stop the tests."""

import contextlib
import os
import subprocess
import sys

import pytest

SPLIT = """
import os, signal, sys, threading, time
import numpy as np
import splitjit
from splitjit._runtime import loading, threads, ways
from splitjit._api import split as split_module
from splitjit._runtime.loading import LOADER
from splitjit._abi import calls as shared, kernels

# Every split of this process is compiled, and asks as many helpers as it may.
loading._SECONDS_TO_LOAD = loading._SECONDS_IF_IMPORTED = 0.0
split_module.is_first = lambda key: False
ways.Ways.choose = lambda self, now: 0

x = np.arange(2**20, dtype=np.int32).reshape(1024, -1)

def word(name):
    return threads.TEAM.word(getattr(shared.AT, name.lower())).value

def check():
    parts = splitjit.split(x, [300, 724], axis=1)
    assert np.array_equal(parts[0], x[:, :300]) and np.array_equal(parts[1], x[:, 300:])

def run_in_threads(count, work):
    errors = []
    threading.excepthook = errors.append
    started = [threading.Thread(target=work) for _ in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not errors, errors
"""

# Helpers take part on any machine.
TWO_CORES = """
from splitjit._runtime import cores

cores.affinity = lambda: 2
cores.quota = lambda: None
"""

# Runs a function in a forked child, and checks that it succeeds.
CHILD = """
def child(function=check):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends a child that hangs
        function()
        os._exit(7)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 7, status
"""

# A signal handler that splits, but not while it splits already.
HANDLER = """
handled, nested = 0, False

def handler(*_):
    global handled, nested
    if not nested:
        nested = True
        check()
        handled += 1
        nested = False

signal.signal(signal.SIGALRM, handler)
"""


@contextlib.contextmanager
def limited(name, number):
    """Run a block with a lower limit of the system."""
    resource = pytest.importorskip("resource")
    kind = getattr(resource, name)
    limits = resource.getrlimit(kind)
    resource.setrlimit(kind, (number, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, limits)


def python(*arguments, cwd=None, timeout=300, **variables):
    """Run Python with environment variables, check its exit status, and return what it prints."""
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def start(folder, *arguments, **variables):
    """Start Python in a folder, with environment variables; it can import modules of the folder."""
    settings = {"NUMBA_NUM_THREADS": "2", "NUMBA_DISABLE_JIT": "0"}
    environment = {**os.environ, **settings, **variables}
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(*processes, timeout=100):
    """Wait for processes to end, and check that each exit status is 0."""
    try:
        errors = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.stderr.close()
            process.wait()
    assert not any(process.returncode for process in processes), "\n".join(errors)


def run(folder, code, *, timeout=100, **options):
    """Run code as a script in a folder, and check that it succeeds; `start` takes the options."""
    script = folder / "script.py"
    script.write_text(code)
    finish(start(folder, script, **options), timeout=timeout)
