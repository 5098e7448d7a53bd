"""Run splits in separate processes, so that an abort or a hang there does not stop the tests."""

import contextlib
import os
import subprocess
import sys

import pytest

SPLIT = """
import contextlib, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import splitjit
from splitjit._runtime import loading, threads, ways
from splitjit._api import split as split_module
from splitjit._runtime.loading import LOADER
from splitjit._abi import calls as shared, kernels
from splitjit._copy import copy as copies

# Every split of this process is compiled, and asks as many helpers as it may.
copies._SECONDS_TO_LOAD = copies._SECONDS_IF_IMPORTED = 0.0
split_module.is_first = lambda key: False
ways.Ways.choose = lambda self, now: 0

x = np.arange(2**20, dtype=np.int32).reshape(1024, -1)

def word(name):
    return threads.TEAM.word(getattr(shared.AT, name.lower())).value

def check():
    parts = splitjit.split(x, [300, 724], axis=1)
    assert np.array_equal(parts[0], x[:, :300]) and np.array_equal(parts[1], x[:, 300:])

def check_loads():
    time.sleep(2 * loading._RETRY_AFTER)
    check()
    assert "core" in LOADER.loaded

def run_in_threads(count, work):
    with ThreadPoolExecutor(count) as pool:
        for ended in [pool.submit(work) for _ in range(count)]:
            ended.result()

@contextlib.contextmanager
def beside(count, work):  # threads repeat the work until the block ends
    end = threading.Event()

    def repeat():
        while not end.is_set():
            work()

    with ThreadPoolExecutor(count) as pool:
        repeated = [pool.submit(repeat) for _ in range(count)]
        try:
            yield
        finally:
            end.set()
    assert not any(repeat.exception() for repeat in repeated), repeated
"""

# Helpers take part on any machine.
TWO_CORES = """
from splitjit._runtime import cores

cores.affinity = lambda: 2
cores.quota = lambda: None
"""

# Calls a function with the name of each module that Python looks for, but not inside of itself.
ON_IMPORT = """
import sys, threading, types

def on_import(function):
    inside = set()

    def find_spec(name, *_):
        thread = threading.get_ident()
        if thread not in inside:
            inside.add(thread)
            try:
                function(name)
            finally:
                inside.remove(thread)

    sys.meta_path.insert(0, types.SimpleNamespace(find_spec=find_spec))
"""

# A module that Numba imports, in place of yaml: the import stays unfinished until the end.
YAML = """
import __main__
__main__.started.set()
__main__.end.wait()
raise ImportError
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


def run(folder, code, *, timeout=100, **variables):
    """Run code as a script in a folder, whose modules it can import."""
    script = folder / "script.py"
    script.write_text(code)
    settings = {"NUMBA_NUM_THREADS": "2", "NUMBA_DISABLE_JIT": "0", **variables}
    python(script, cwd=folder, timeout=timeout, **settings)
