"""Run splits in separate processes, so that an abort or a hang there does not stop the tests."""

import contextlib
import os
import subprocess
import sys

import pytest

SPLIT = """
import contextlib, dataclasses, os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import splitjit
from splitjit._runtime import loading, threads
from splitjit._runtime.loading import LOADER
from splitjit._abi import calls as shared, kernels
from splitjit._abi.thresholds import THRESHOLDS

# Every split of this process is compiled, and large ones ask as many helpers as may run.
for name in ("load_from", "load_after", "compile_from", "compile_after"):
    setattr(THRESHOLDS, name, 0)

x = np.arange(2**20, dtype=np.int32).reshape(1024, -1)

def word(name):
    return threads.TEAM.word(getattr(shared.AT, name.lower())).value

def let(**thresholds):
    for name, value in thresholds.items():
        threads.TEAM.word(getattr(shared.AT, name)).value = value

of_team = dataclasses.asdict(THRESHOLDS)
of_team = {name: of_team[name] for name in shared.AT._fields if name in of_team}
let(wake_from=0, pause=0, asleep_share=1 << 17, awake_share=1 << 17)

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

# Helpers take part on any machine: `have` says how many cores there are.
CORES = """
import os
import numpy as np
from splitjit._runtime import loading, threads

threads.quota = lambda: None
CORES = np.zeros(16, np.int64)  # C's `cpu_set_t`

def have(count):
    os.cpu_count = threads.affinity = lambda: count
    CORES[0] = (1 << count) - 1
    threads.TEAM.limits_until = float("-inf")

def assembled(name, code):  # in milliseconds; Numba takes a second
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(code), machine)
    engine.finalize_object()
    return engine, engine.get_function_address(name)

def link_with(name, address):  # kernels that are linked later call this function by the name
    from llvmlite.binding import JITLibraryBuilder as builder

    before = builder.add_current_process
    builder.add_current_process = lambda self: before(self.import_symbol(name, address))

def make_cores():  # before kernels are loaded
    engine, address = assembled("get_affinity", f'''
declare i8* @memcpy(i8*, i8*, i64)
define i32 @get_affinity(i32 %thread, i64 %nbytes, i8* %mask) {{
    %cores = inttoptr i64 {CORES.ctypes.data} to i8*
    %copied = call i8* @memcpy(i8* %mask, i8* %cores, i64 128)
    ret i32 128
}}''')
    link_with("sched_getaffinity", address)
    return engine
"""
TWO_CORES = (
    CORES
    + """
if threads.affinity() < 2:
    kept = make_cores()
have(2)
"""
)
MANY_CORES = CORES + "kept = make_cores()\n"

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
