"""Threads and signals under each threading layer: correct parts, no abort and no deadlock."""

import signal
import sys

import pytest

from tests.processes import HANDLER, SPLIT, finish, run, start

# First, eight threads make their first split at once. Then eight threads that the module threading
# does not know split during parallel regions of the user. Then calls that run alone must be
# parallel again.
THREADS = """
import _thread, numba

errors = []
threading.excepthook = errors.append
started = [threading.Thread(target=check) for _ in range(8)]
for thread in started:
    thread.start()
for thread in started:
    thread.join()
assert not errors, errors

@numba.njit(parallel=True, nogil=True)
def users(a):
    for _ in range(20):
        for i in numba.prange(a.size):
            a[i] += 1

def work():
    for _ in range(10):
        check()
    done.append(True)

done = []
a = np.zeros(10**5)
users(a)
for _ in range(8):
    _thread.start_new_thread(work, ())
count = 1
while len(done) < 8:
    users(a)
    count += 1
assert (a == 20 * count).all()

thread = threading.Thread(target=lambda: [users(a) for _ in range(20)])
thread.start()
while thread.is_alive():
    check()
assert (a == 20 * (count + 20)).all()

def spy(*arguments):
    global parallel
    parallel += 1
    return run_parallel(*arguments)

parallel, counts = 0, []
run_parallel, threads.THREADS.run_parallel = threads.THREADS.run_parallel, spy
end = threading.Event()
check()
counts.append(parallel)
thread = threading.Thread(target=end.wait)
thread.start()
check()
counts.append(parallel)
end.set()
thread.join()
check()
counts.append(parallel)
assert counts == ([1, 1, 2] if numba.threading_layer() == "workqueue" else [1, 2, 3]), counts
"""

# A signal handler splits during other splits; the first signals arrive while Numba is imported.
SIGNALS = """
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
while handled < 50:
    check()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.slow
def test_threads(layer, tmp_path):
    run(tmp_path, SPLIT + THREADS, layer=layer)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signal.setitimer")
def test_signal_handlers(layer, tmp_path):
    run(tmp_path, SPLIT + HANDLER + SIGNALS, layer=layer)


def test_one_thread_if_the_user_says_so(tmp_path):
    code = """
import numba

numba.set_num_threads(1)
splitjit.warmup(["u1"])
threads.THREADS.run_parallel = None  # a call would fail
check()
assert numba.get_num_threads() == 1
"""
    run(tmp_path, SPLIT + code)


@pytest.mark.slow
def test_without_a_threading_layer_one_thread_copies(tmp_path):
    code = "check(); splitjit.warmup(); check()"
    run(tmp_path, SPLIT + code, layer="no such layer")


@pytest.mark.slow
def test_without_jit_numpy_copies(tmp_path):
    code = "check(); splitjit.warmup(); check()"
    run(tmp_path, SPLIT + code, NUMBA_DISABLE_JIT="1")


@pytest.mark.slow
def test_warmup_is_for_all_threads_whatever_the_caller_may_use(tmp_path):
    code = """
import numba

numba.set_num_threads(1)
splitjit.warmup(["u1"])
assert threads.THREADS.run_parallel is not None
known = set(LOADER._loaded)
numba.set_num_threads(2)
assert threads._allowed()[0] == min(2, len(os.sched_getaffinity(0)))
check()
assert set(LOADER._loaded) == known
"""
    run(tmp_path, SPLIT + code, NUMBA_NUM_THREADS="2")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs signal.setitimer")
def test_interrupts_leave_no_kernel_locked(tmp_path):
    code = """
def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
interrupts = 0
while interrupts < 300:
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)
        while True:
            LOADER._loaded.clear()
            LOADER.load("copy")
    except KeyboardInterrupt:
        interrupts += 1
LOADER._loaded.clear()
assert LOADER.load("copy")
"""
    run(tmp_path, SPLIT + code)


@pytest.mark.slow
def test_while_one_thread_loads_others_copy_and_warmup_waits(tmp_path):
    code = """
from splitjit._kernels.table import KERNELS
started, end = threading.Event(), threading.Event()
link = loading._link

def slow(*arguments):
    started.set()
    end.wait()
    return link(*arguments)

loading._link = slow
thread = threading.Thread(target=LOADER.load, args=("copy",))
thread.start()
started.wait()
check()
assert not LOADER._loaded
threading.Timer(0.2, end.set).start()
splitjit.warmup(["u1"])
assert set(LOADER._loaded) == set(KERNELS)
"""
    run(tmp_path, SPLIT + code)


# Each loop copies by stores that bypass the cache, on this thread and on Numba's threads.
SMALL_STACKS = """
import faulthandler
from splitjit._copy import crossovers
from splitjit._copy.layout import fresh_layout

faulthandler.enable()
splitjit.SplitPlan._kept = property(lambda plan: {}, lambda plan, kept: None)  # keep no recipes
splitjit.SplitPlan._compiled = property(lambda plan: None, lambda plan, compiled: None)
crossovers._STREAM_FROM = 0

def split():
    loops = set()
    for columns, count in [(60, 2), (8, 8), (20, 20), (2000, 2)]:
        y = np.arange(2**14 * columns).astype(np.uint8).reshape(-1, columns)
        plan = splitjit.plan_split(y.shape, num_splits=count, axis=1)
        loops.add(fresh_layout(plan, y.strides, y.itemsize).loop)
        for part, index in zip(plan(y), plan.slices, strict=True):
            assert np.array_equal(part, y[index])
    assert loops == {"copy", "deinterleave", "transpose"}

split()
threading.stack_size(48 * 1024)
thread = threading.Thread(target=split)
thread.start()
thread.join()
"""


@pytest.mark.slow
def test_small_stacks(tmp_path):
    run(tmp_path, SPLIT + SMALL_STACKS, layer="omp", OMP_STACKSIZE="32K")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked to move threads")
def test_a_thread_that_leaves_its_core_keeps_its_affinity(tmp_path):
    code = """
import ctypes, os, time
from numba import types
from splitjit._copy import loading
from splitjit._kernels import table, wake
from splitjit._kernels.compiling import jit, object_code

def leave(core):
    wake._leave_core(core)

table.KERNELS["leave"] = ("leave",)
code = object_code({"leave": (types.void(types.int64), jit(leave))})
found = loading._link("leave", code, {})["leave"]
_leave_core = ctypes.CFUNCTYPE(None, ctypes.c_int64)(found)
core_of_this_thread = ctypes.CDLL(None).sched_getcpu
cores = os.sched_getaffinity(0)
_leave_core(10**6)
for _ in range(100):
    core = core_of_this_thread()
    _leave_core(core)
    assert len(cores) == 1 or core_of_this_thread() != core
    assert os.sched_getaffinity(0) == cores
os.sched_setaffinity(0, {min(cores)})
_leave_core(min(cores))  # there is no other core
assert os.sched_getaffinity(0) == {min(cores)}
"""
    run(tmp_path, code)


def test_copies_after_rests(layer, tmp_path):
    code = """
for rest in [0, 0.001, 0.02, 0.05] * 5:
    time.sleep(rest)
    check()
"""
    run(tmp_path, SPLIT + code, layer=layer)


READ_ONLY = """
import errno, multiprocessing.context

def rlock(context):
    raise OSError(errno.EROFS, "Read-only file system")

multiprocessing.context.BaseContext.RLock = rlock
"""


@pytest.mark.slow
@pytest.mark.parametrize("warnings", ["error", "ignore"])
def test_a_read_only_shared_memory(warnings, tmp_path):
    """Numba warns that it cannot make a lock there. If warnings are errors, one thread copies."""
    code = f"{READ_ONLY}{SPLIT}check(); check(); splitjit.warmup(); check()\n"
    code += f"assert (threads._allowed()[0] == 1) == ({warnings!r} == 'error')"
    finish(start(tmp_path, "-W", warnings, "-c", code))
