"""Threads and forks, each in a process of its own: an abort would take the tests along."""

import os
import subprocess
import sys

import pytest

SPLIT = """
import numpy as np, os, splitjit, sys, threading
x = np.arange(2**20, dtype=np.int32).reshape(1024, -1)

def check():
    parts = splitjit.split(x, [300, 724], axis=1)
    assert np.array_equal(parts[0], x[:, :300]) and np.array_equal(parts[1], x[:, 300:])
"""

MANY_THREADS = """
def work():
    for _ in range(50):
        check()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check()
"""

USERS_REGION = """
import numba

@numba.njit(parallel=True, nogil=True)
def users(a):
    for _ in range(20):
        for i in numba.prange(a.size):
            a[i] += 1

a = np.zeros(10**5)
users(a)
check()
"""

BESIDE_USERS_REGION = (
    USERS_REGION
    + """thread = threading.Thread(target=lambda: [users(a) for _ in range(50)])
thread.start()
while thread.is_alive():
    check()
assert (a == 51 * 20).all()
check()
"""
)

BESIDE_AN_UNKNOWN_THREAD = (
    USERS_REGION
    + """
import _thread
done = []

def work():
    for _ in range(100):
        check()
    done.append(True)

_thread.start_new_thread(work, ())
while not done:
    users(a)
"""
)

FORK_DURING_IMPORT = """
import time
thread = threading.Thread(target=lambda: __import__("numba"))
thread.start()
while "numba" not in sys.modules:
    time.sleep(0.0005)
time.sleep(0.02)
child = os.fork()
if child == 0:
    os._exit(7)
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""

FORK_BESIDE_FOREIGN_OPENMP = """
import ctypes
try:
    gomp = ctypes.CDLL("libgomp.so.1")
except OSError:
    sys.exit()
work = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
gomp.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
gomp.GOMP_parallel(work, None, 2, 0)
child = os.fork()
if child == 0:
    check()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""

FORK = """
check()
for _ in range(3):
    child = os.fork()
    if child == 0:
        check()
        grandchild = os.fork()
        if grandchild == 0:
            check()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 7
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    check()
"""

ONE_THREAD = """
import numba
numba.set_num_threads(1)
from splitjit import threads
check()
assert threads.load_kernel.cache_info().currsize == 1, "the parallel kernel was loaded"
assert numba.get_num_threads() == 1
"""


def run(code, layer):
    numba = {"THREADING_LAYER": layer, "NUM_THREADS": "2", "DISABLE_JIT": "0"}
    environment = {**os.environ, **{f"NUMBA_{name}": value for name, value in numba.items()}}
    return subprocess.run(
        [sys.executable, "-c", SPLIT + code],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("layer", ["omp", "workqueue"])
@pytest.mark.parametrize(
    "situation",
    [
        MANY_THREADS,
        BESIDE_USERS_REGION,
        BESIDE_AN_UNKNOWN_THREAD,
        FORK,
        FORK_DURING_IMPORT,
        FORK_BESIDE_FOREIGN_OPENMP,
        ONE_THREAD,
    ],
    ids=[
        "many threads",
        "beside a user's region",
        "beside an unknown thread",
        "fork",
        "fork during the import of Numba",
        "fork beside foreign OpenMP",
        "one thread",
    ],
)
def test_nothing_aborts(situation, layer):
    if "fork" in situation and not hasattr(os, "fork"):
        pytest.skip("no fork here")
    result = run(situation, layer)
    if "No threading layer could be loaded" in result.stderr:
        pytest.skip(f"{layer} cannot be loaded here")
    assert result.returncode == 0, result.stderr


def test_without_a_threading_layer_one_thread_copies():
    code = "check(); splitjit.warmup(); check()"
    result = run(code, "no such layer")
    assert result.returncode == 0, result.stderr


def test_without_jit_numpy_copies():
    code = "import splitjit; splitjit.warmup(); [check() for _ in range(2)]"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    subprocess.run([sys.executable, "-c", SPLIT + code], env=environment, check=True)


def test_an_unwritable_cache_does_not_fail_a_split(tmp_path):
    """The cache folder is a file, so that nothing can be written there, even by root."""
    (tmp_path / "cache").write_text("")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", SPLIT + "check()"], env=environment, check=True)
