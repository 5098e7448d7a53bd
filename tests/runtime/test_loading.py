"""When kernels, llvmlite and Numba are loaded, each case in a process of its own."""

import pytest

from tests.conftest import long, needs_fork, needs_kernels, needs_signals
from tests.processes import CHILD, ON_IMPORT, SPLIT, YAML, run

pytestmark = [needs_kernels, pytest.mark.usefixtures("warm")]  # kernels are in the cache

IMPORTS = """
import sys
import numpy as np
import splitjit
from splitjit._runtime import threads
from splitjit._runtime.loading import LOADER
from splitjit._abi import calls as shared

def is_imported(name):
    return name in sys.modules

def check(x, parts, axis=-1):
    whole = splitjit.split(x, num_splits=parts, axis=axis)
    for part, view in zip(whole, np.split(x, parts, axis), strict=True):
        assert np.array_equal(part, view)
"""


CORES = """
threads.allowed = lambda now: 2
large = np.ones((1024, 6144), np.float32)
"""
OPERATOR = "torch's own operator loads nothing"
SCRIPTS = {
    "the 500th small split loads kernels": """
x = np.arange(6.0)
for i in range(499):
    out = [np.zeros(2) for _ in range(3)] if i % 3 else None
    splitjit.split(x + i, num_splits=3, out=out)
    for uncounted in np.zeros(2, object), np.zeros((2, 0)):
        splitjit.split(uncounted, 1)
    assert not LOADER.loaded and not is_imported("llvmlite"), i
parts = splitjit.split(x, num_splits=3, out=out)
assert LOADER.loaded and not is_imported("numba")
assert [part.tolist() for part in parts] == x.reshape(3, 2).tolist()
""",
    "a split of 64 KB loads kernels, and smaller ones do not": """
for shape, order in ((500, 5), "C"), ((4, 4095), "F"), ((4, 4095), "C"), ((6,), "C"):
    for call in range(3):
        check(np.ones(shape, np.float32, order), shape[-1])
        if call:
            said = splitjit.explain(np.ones(shape, np.float32, order), 1, axis=-1).reason
            assert said.count("64 KB") == 1 and said.count(".") == 0, said
assert not LOADER.loaded and not is_imported("llvmlite")
check(np.ones((4, 4096), np.float32), 2)
assert LOADER.loaded and not is_imported("numba")
""",
    OPERATOR: """
import torch
for x in torch.zeros(2**19), torch.zeros(300).requires_grad_():
    for _ in range(300):
        splitjit.split(x, len(x) // 2)
assert not LOADER.loaded and not LOADER.splits
splitjit.split(torch.zeros(2**18, 2), 1, axis=1)
assert LOADER.loaded
""",
    "an error that passes only puts loading off": """
import ctypes, time
from splitjit._runtime import loading
load = LOADER._load
wrapped = RuntimeError("Failed in nopython mode")
wrapped.__cause__ = RecursionError()
for error in RecursionError(), MemoryError(), ctypes.ArgumentError(), wrapped:
    def fail(*arguments, **options):
        raise error
    LOADER._load = fail
    check(large, 3)
    time.sleep(10 * loading._RETRY_AFTER)
LOADER._load = load
check(large, 3)
assert "core" in LOADER.loaded
""",
    "only a RecursionError says that the limit is near": """
splitjit.warmup(["u1"])

def at_depth(n, call):
    return call() if n == 0 else at_depth(n - 1, call)

def split_anew(n):
    x = np.zeros((4, 3 * n + 3))
    splitjit.split(x, num_splits=3, axis=1)
    splitjit.split(x, num_splits=3, axis=1)
    splitjit.split(x, num_splits=3, axis=1, out=[np.zeros((n + 1, 4)).T for _ in range(3)])
    splitjit.clear_caches()

errors = []
for margin in range(100, 1, -1):
    try:
        at_depth(sys.getrecursionlimit() - margin, lambda: split_anew(margin))
    except Exception as error:
        errors.append(type(error))
assert set(errors) == {RecursionError}, set(errors)
""",
}


@pytest.mark.parametrize("name", long(*SCRIPTS, if_not=SCRIPTS.keys() - {OPERATOR}))
def test_what_is_loaded(name, tmp_path):
    if "import torch" in SCRIPTS[name]:
        pytest.importorskip("torch")
    run(tmp_path, IMPORTS + CORES + SCRIPTS[name])


LACKING = """
load, asked = LOADER._load, []

def note(name, wait, may_compile=True):
    asked.append(may_compile)
    return None if may_compile else load(name, wait, may_compile)

LOADER._load = note
x, y = np.arange(6.0), np.ones((256, 256))
splitjit.split(y, 128, axis=1)
assert asked == [False]  # 512 KB: the cache is read
"""
LACKED = {
    "the 20 000th split compiles": """
LOADER.splits = 19_000
while LOADER.splits < 19_999:
    assert asked == [False]
    splitjit.split(x, 2)
splitjit.split(x, 2)
""",
    "a split of 4 MB compiles": """
for _ in range(3):
    splitjit.split(y, 128, axis=1)
    splitjit.split(np.ones((1024, 1023), np.float32), 1023, axis=1)
    assert asked == [False]
said = splitjit.explain(y, 128, axis=1).reason
assert "if they must first be compiled, one of 4 MB, or the 20 000th" in said, said
splitjit.split(np.ones((1024, 1024), np.float32), 512, axis=1)
""",
}


@pytest.mark.parametrize("name", LACKED)
def test_a_cache_that_lacks_the_kernels(name, tmp_path):
    code = IMPORTS + LACKING + LACKED[name] + "assert asked == [False, True], asked"
    run(tmp_path, code, NUMBA_CACHE_DIR=str(tmp_path / "cache"))


def test_numba_that_is_disabled(tmp_path):
    code = """
check(np.ones((1024, 6144), np.float32), 3)
splitjit.warmup()
check(np.ones((1024, 6144), np.float32), 3)
assert not LOADER.loaded and not is_imported("llvmlite") and not is_imported("numba")
"""
    run(tmp_path, IMPORTS + code, NUMBA_DISABLE_JIT="1")


LOGGED = (
    ON_IMPORT
    + """
import logging
from splitjit._runtime import loading

class Warnings(logging.Handler):
    def emit(self, record):
        warnings.append(record.getMessage())

warnings = []
logging.getLogger("splitjit").addHandler(Warnings(logging.WARNING))
large = np.ones((1024, 6144), np.float32)
tries = []

def fail(name):
    if name == "splitjit._kernels.compiling":
        tries.append(1)
        if fails:
            raise AttributeError("partially initialized module 'numba' has no attribute 'core'")

fails = False
on_import(fail)

def split_often():
    for _ in range(5):
        check(large, 3)
        time.sleep(2 * loading._RETRY_AFTER)
"""
)


def test_a_numba_that_cannot_be_imported_is_tried_ever_more_rarely(tmp_path):
    """Each try takes 6 ms, and each doubles the pause before the next."""
    (tmp_path / "numba").mkdir()
    (tmp_path / "numba" / "__init__.py").write_text("raise AttributeError('no dtype')")
    test = f"""
import math, time
sys.path.insert(0, "")
{LOGGED}
loading._WARN_FROM = 4 * loading._RETRY_AFTER
began = time.monotonic()

def most():
    return 1 + math.log2(1 + (time.monotonic() - began) / loading._RETRY_AFTER)

split_often()
assert 2 <= len(tries) <= most() and len(warnings) <= 1, len(tries)
time.sleep(8 * loading._RETRY_AFTER)
split_often()
assert len(tries) <= most(), len(tries)
(said,) = warnings
assert 'no dtype' in said and "Numba 0.61 to " in said, said
"""
    run(tmp_path, IMPORTS + test, NUMBA_CACHE_DIR=str(tmp_path / "cache"))


def test_a_numba_that_another_thread_is_importing_is_tried_again(tmp_path):
    """Python lets both threads go on if each waits for a module of the other."""
    (tmp_path / "yaml.py").write_text(YAML)
    test = f"""
import threading, time
{LOGGED}
fails = True
started, end = threading.Event(), threading.Event()
other = threading.Thread(target=lambda: __import__("numba"), daemon=True)
other.start()
started.wait()
split_often()
assert len(tries) > 2 and not warnings
fails = False
end.set()
other.join()
"""
    run(tmp_path, IMPORTS + test, NUMBA_CACHE_DIR=str(tmp_path / "cache"))


@needs_signals
def test_ctrl_c_while_llvmlite_is_imported(tmp_path):
    """It interrupts the split, and a later split imports llvmlite again."""
    code = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt(name):
    if name == "llvmlite.binding.ffi":
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(20):
            time.sleep(0.001)

on_import(interrupt)
try:
    check(np.ones((1024, 6144), np.float32), 3)
except KeyboardInterrupt:
    pass
else:
    sys.exit("the interrupt is lost")
del sys.meta_path[0]
check(np.ones((1024, 6144), np.float32), 3)
assert LOADER.loaded
"""
    run(tmp_path, IMPORTS + ON_IMPORT + code)


@pytest.mark.long
def test_an_import_in_a_program_that_is_imported(tmp_path):
    """Another thread would wait for the program, which waits for that thread."""
    (tmp_path / "program.py").write_text(
        IMPORTS
        + ON_IMPORT
        + """
on_import(lambda name: name == "numba" and __import__("program"))
check(np.ones((1024, 6144), np.float32), 3)
assert LOADER.compiled
"""
    )
    run(tmp_path, "import program", NUMBA_CACHE_DIR=str(tmp_path / "cache"))


@needs_fork
@pytest.mark.parametrize("before", ["", "splitjit.warmup(['u1'])", "import numba"])
def test_a_forked_child_starts_helpers_and_imports_nothing(before, tmp_path):
    code = f"""
import os, signal
{before}

def in_child():
    imported = is_imported("numba")
    check(large, 3)
    check(large, 3)
    assert threads.TEAM.word(shared.AT.started).value == 1
    splitjit.warmup()
    assert LOADER.loaded and is_imported("numba") == imported

"""
    child = CHILD.replace("function=check", "function")
    run(tmp_path, IMPORTS + CORES + child + code + "child(in_child)")


@needs_signals
@pytest.mark.parametrize("raises", [False, True])
def test_a_handler_inside_of_link(raises, tmp_path):
    """It splits. Or it raises, and later splits load the kernels."""
    code = f"""
raises, handled, inside = {raises}, 0, False

def handler(*_):
    global handled
    if inside:
        handled += 1
        check()
        if raises:
            raise KeyboardInterrupt

def interrupted(*arguments):
    global inside
    inside = True
    signal.raise_signal(signal.SIGALRM)
    found = link(*arguments)
    signal.raise_signal(signal.SIGALRM)
    inside = False
    return found

signal.signal(signal.SIGALRM, handler)
link, loading._link = loading._link, interrupted
try:
    check()
    assert not raises and LOADER.loaded and handled >= 4
except KeyboardInterrupt:
    assert raises and not LOADER.loaded
assert not LOADER._loading
loading._link = link
inside = False
check()
assert LOADER.loaded
"""
    run(tmp_path, SPLIT + code)


@needs_fork
def test_a_child_compiles_nothing(tmp_path):
    code = """
def in_child():
    check()
    splitjit.warmup()
    assert not LOADER.loaded and "numba" not in sys.modules

child(in_child)
"""
    run(tmp_path, SPLIT + CHILD + code, NUMBA_CACHE_DIR=str(tmp_path))
    assert not list(tmp_path.rglob("*.o"))
