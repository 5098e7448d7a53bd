"""A forked child splits as its parent does, even if other threads were busy at the fork."""

import os
from ctypes.util import find_library

import pytest

from tests.processes import SPLIT, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork"),
]

CHILD = """
def child(function=check):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # ends a child that hangs
        function()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""

# Three cases: a child forks a grandchild; the main thread and another thread fork while two more
# threads split; process pools. One pool ends each worker after one task, so a thread of the pool
# forks the next worker.
FORKS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def generation():
    check()
    child()
    check()

check()
for _ in range(2):
    child(generation)
    check()

def work():
    while not done:
        check()

def fork():
    for _ in range(4):
        child()

done = []
workers = [threading.Thread(target=work) for _ in range(2)]
for worker in workers:
    worker.start()
fork()
forker = threading.Thread(target=fork)
forker.start()
while forker.is_alive():
    check()
done.append(True)
for thread in [forker, *workers]:
    thread.join()
check()

context = multiprocessing.get_context("fork")
with context.Pool(2, signal.alarm, (60,), maxtasksperchild=1) as pool:
    results = [pool.apply_async(check) for _ in range(6)]
    check()
    for result in results:
        result.get()
with ProcessPoolExecutor(2, context, signal.alarm, (60,)) as pool:
    results = [pool.submit(check) for _ in range(6)]
    check()
    for result in results:
        result.result()
check()
"""

# During the forks, another thread imports Numba, compiles or loads kernels, and starts Numba's
# threads.
WHILE_ANOTHER_THREAD_SPLITS_FIRST = """
thread = threading.Thread(target=check)
thread.start()
while thread.is_alive():
    child()
    child(splitjit.warmup)
    time.sleep(0.02)
check()
child()
"""

WHILE_ANOTHER_THREAD_COMPILES = """
import numba

def work():
    while not done:
        numba.njit(lambda a: np.sin(a).sum())(x[0])

check()
done = []
thread = threading.Thread(target=work)
thread.start()
for _ in range(10):
    child()
done.append(True)
thread.join()
"""

AFTER_A_REGION_OF_ANOTHER_LIBRARY = """
import ctypes
gomp = ctypes.CDLL("libgomp.so.1")
work = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
gomp.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
gomp.GOMP_parallel(work, None, 2, 0)
child()
"""

POOLS_OF_FRESH_PROCESSES = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

if __name__ == "__main__":
    check()
    for method in ["spawn", "forkserver"]:
        context = multiprocessing.get_context(method)
        with (
            context.Pool(1, signal.alarm, (60,)) as pool,
            ProcessPoolExecutor(1, context, signal.alarm, (60,)) as executor,
        ):
            results = [pool.apply_async(check), executor.submit(check)]
            check()
            results[0].get()
            results[1].result()
"""


def test_forks(layer, tmp_path):
    run(tmp_path, SPLIT + CHILD + FORKS, layer=layer)


@pytest.mark.parametrize("layer", ["omp"], indirect=True)
@pytest.mark.parametrize(
    "situation",
    [
        WHILE_ANOTHER_THREAD_SPLITS_FIRST,
        WHILE_ANOTHER_THREAD_COMPILES,
        AFTER_A_REGION_OF_ANOTHER_LIBRARY,
        POOLS_OF_FRESH_PROCESSES,
    ],
    ids=["first split", "compilation", "foreign region", "fresh processes"],
)
def test_under_openmp(situation, layer, tmp_path):
    if "libgomp" in situation and find_library("gomp") is None:
        pytest.skip("needs GNU OpenMP")
    run(tmp_path, SPLIT + CHILD + situation, layer=layer)
