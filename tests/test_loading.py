"""When kernels, llvmlite and Numba are loaded, and that nothing is loaded before it pays.

Each case runs in a process of its own, in which nothing is loaded yet.
"""

import os
import signal

import numpy as np
import pytest

import splitjit
from tests.conftest import needs_kernels
from tests.processes import SPLIT, run
from tests.test_forks import CHILD

pytestmark = needs_kernels

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
needs_signals = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="needs signal.setitimer"
)

IMPORTS = """
import sys
import numpy as np
import splitjit
from splitjit._copy import threads
from splitjit._copy.loading import LOADER

def is_imported(name):
    return name in sys.modules

def check(x, parts, axis=-1):
    whole = splitjit.split(x, num_splits=parts, axis=axis)
    for part, view in zip(whole, np.split(x, parts, axis), strict=True):
        assert np.array_equal(part, view)
"""


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Put all kernels into the cache."""
    splitjit.warmup(["u1"])


@pytest.mark.parametrize("order", ["C", "F"])
def test_16_megabytes_load_kernels_without_numba(order, tmp_path):
    code = f"""
check(np.ones((1024, 4096), np.float32, {order!r}), 4)
assert LOADER._loaded and not is_imported("numba")
"""
    run(tmp_path, IMPORTS + code)


def test_the_file_command_does_not_import_numba(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((1024, 6144), np.float32))
    code = """
from splitjit._cli.main import main
assert main(["split", "x.npy", "--num-splits", "2", "--axis", "1", "--out", "parts"]) == 0
assert not is_imported("numba")
"""
    run(tmp_path, IMPORTS + code)


def test_hundreds_of_small_splits_load_nothing_and_more_load_kernels(tmp_path):
    code = """
x = np.arange(6.0)
out = [np.zeros(2) for _ in range(3)]
for i in range(300):
    splitjit.split(x, num_splits=3, out=out)
assert not LOADER._loaded and not is_imported("llvmlite")
while not LOADER._loaded:
    i += 1
    splitjit.split(x + i, num_splits=3, out=out)
assert i < 100_000 and not is_imported("numba")
assert [part.tolist() for part in out] == (x + i).reshape(3, 2).tolist()
"""
    run(tmp_path, IMPORTS + code)


@pytest.mark.parametrize(
    ("shape", "parts", "axis"),
    [((500, 5), 25, 0), ((500, 5), 5, 1), ((5, 500), 25, 1), ((256, 2304), 3, 1), ((6,), 2, 0)],
)
def test_one_modest_call_loads_nothing(shape, parts, axis, tmp_path):
    code = f"""
check(np.asfortranarray(np.ones({shape})), {parts}, {axis})
check(np.ones({shape}), {parts}, {axis})
assert not LOADER._loaded and not is_imported("llvmlite")
"""
    run(tmp_path, IMPORTS + code)


@pytest.mark.parametrize("value", ["1", "yes"])
def test_numba_that_is_disabled(value, tmp_path):
    code = """
check(np.ones((1024, 6144), np.float32), 3)
splitjit.warmup()
check(np.ones((1024, 6144), np.float32), 3)
assert not LOADER._loaded and not is_imported("llvmlite") and not is_imported("numba")
"""
    run(tmp_path, IMPORTS + code, NUMBA_DISABLE_JIT=value)


# ---- threads -----------------------------------------------------------------------------

CORES = """
threads.usable = lambda now: 2
large = np.ones((1024, 6144), np.float32)
"""


def test_numba_is_imported_when_patience_is_used_up(tmp_path):
    code = """
assert threads._PATIENCE == threads.THREADS.patience > 0
while not is_imported("numba"):
    before = threads.THREADS.patience
    check(large, 3)
    assert threads.THREADS.patience < before or is_imported("numba")
    assert is_imported("numba") == (before <= 0), before
assert threads.THREADS.run_parallel is not None
check(large, 3)
"""
    run(tmp_path, IMPORTS + CORES + code)


def test_small_copies_use_up_no_patience(tmp_path):
    code = """
for _ in range(300):
    check(np.ones((16, 6144), np.float32), 3)
assert threads.THREADS.patience == threads._PATIENCE
"""
    run(tmp_path, IMPORTS + CORES + code)


@pytest.mark.parametrize("before", ["import numba", "splitjit.warmup(['u1'])"])
def test_threads_start_at_once_if_numba_is_there(before, tmp_path):
    code = f"""
{before}
check(large, 3)
assert threads.THREADS.run_parallel is not None
assert threads.THREADS.patience == threads._PATIENCE
"""
    run(tmp_path, IMPORTS + CORES + code)


@pytest.mark.parametrize("package", ["numba.core", "elsewhere"])
def test_a_kernel_that_fails_inside_of_an_interrupted_numba_is_tried_again(package, tmp_path):
    code = f"""
import time, types
from splitjit._copy import loading

load = LOADER._load

def fail(*arguments, **options):
    raise RuntimeError("not reentrant")

LOADER._load = fail
module = types.ModuleType({package!r})
exec("def compile(handler): handler()", vars(module))
x = np.ones((1024, 6144), np.float32)
module.compile(lambda: check(x, 3))
LOADER._load = load
time.sleep(2 * loading._RETRY_AFTER)
check(x, 3)
assert bool(LOADER._loaded) == ({package!r} == "numba.core")
"""
    run(tmp_path, IMPORTS + code)


def test_threads_that_cannot_start_are_not_tried_at_each_split(tmp_path):
    code = """
import numba
load, tries = LOADER._load, 0

def fail(name, *arguments, **options):
    global tries
    if name == "parallel":
        tries += 1
        raise RuntimeError("no such kernel")
    return load(name, *arguments, **options)

LOADER._load = fail
for _ in range(5):
    check(large, 3)
starts, start = [], threads.THREADS._start
threads.THREADS._start = lambda wait: starts.append(start(wait))
check(large, 3)
assert tries == 1 and not starts, (tries, starts)
splitjit.warmup(["u1"])
assert tries == 2 and len(starts) == 1
LOADER._load = load
"""
    run(tmp_path, IMPORTS + CORES + code)


@needs_fork
@pytest.mark.parametrize("before", ["", "splitjit.warmup(['u1'])", "import numba"])
def test_a_forked_child_starts_no_threads(before, tmp_path):
    code = f"""
import os, signal
{before}

def in_child():
    imported, threads.THREADS.patience = is_imported("numba"), 0.0
    threads.THREADS.run_parallel = None  # a call would fail
    check(large, 3)
    check(large, 3)
    assert LOADER._loaded and is_imported("numba") == imported
    splitjit.warmup()
    assert is_imported("numba") == imported
    assert threads._allowed()[0] == 1

"""
    child = CHILD.replace("function=check", "function")
    run(tmp_path, IMPORTS + CORES + child + code + "child(in_child)")


# ---- signals and threads -----------------------------------------------------------------


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
    assert not raises and LOADER._loaded and handled >= 4
except KeyboardInterrupt:
    assert raises and not LOADER._loaded
assert not LOADER._loading
loading._link = link
inside = False
check()
assert LOADER._loaded
"""
    run(tmp_path, SPLIT + code)


@needs_signals
@pytest.mark.parametrize("module", ["llvmlite.binding", "numba"])
def test_a_handler_that_interrupts_an_import(module, tmp_path):
    """It may come in importlib's own code, where no other import may begin."""
    code = f"""
def handler(*_):
    global handled, nested
    if not nested:
        nested = True
        check()
        splitjit.warmup(["u1"])
        handled += 1
        nested = False

handled, nested = 0, False
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
import {module}
signal.setitimer(signal.ITIMER_REAL, 0)
assert handled > 3, handled
time.sleep(2 * loading._RETRY_AFTER)
check()
assert LOADER._loaded
splitjit.warmup(["u1"])
assert threads.THREADS.run_parallel is not None
"""
    run(tmp_path, SPLIT + code)


def test_a_split_while_a_module_is_imported(tmp_path):
    """A program may do all its work inside of an import."""
    (tmp_path / "program.py").write_text(SPLIT + "check()\nassert LOADER._loaded")
    run(tmp_path, "import program")


def test_eight_threads_that_split_for_the_first_time(tmp_path):
    code = """
errors = []
threading.excepthook = errors.append
barrier = threading.Barrier(8)

def work():
    barrier.wait()
    check()

workers = [threading.Thread(target=work) for _ in range(8)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
assert not errors, errors
time.sleep(2 * loading._RETRY_AFTER)
check()
assert LOADER._loaded and not LOADER._loading
"""
    run(tmp_path, SPLIT + code)


@needs_fork
def test_a_child_compiles_nothing(tmp_path):
    code = """
def in_child():
    check()
    splitjit.warmup()
    assert not LOADER._loaded and "numba" not in sys.modules

child(in_child)
"""
    run(tmp_path, SPLIT + CHILD + code, NUMBA_CACHE_DIR=str(tmp_path))
    assert not list(tmp_path.rglob("*.o"))
