"""A forked child splits as its parent does, even if other threads were busy at the fork.

`SPLITJIT_FORKS` sets how many children are forked beside threads that copy.
"""

import os

import pytest

from tests.conftest import needs_fork
from tests.processes import CHILD, SPLIT, TWO_CORES, run

pytestmark = [pytest.mark.slow, needs_fork]

COUNT = int(os.environ.get("SPLITJIT_FORKS", "100"))

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

def fork():
    for _ in range(4):
        child()

with beside(2, check):
    fork()
    forker = threading.Thread(target=fork)
    forker.start()
    while forker.is_alive():
        check()
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

# During the forks, another thread loads kernels, and starts helpers.
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

# Threads of this process copy all the time, with helpers or alone. Each child starts helpers
# of its own. The system may refuse a thread for a moment, so it may take more than one split.
# Every tenth child waits until a helper has copied.
BESIDE_COPIES = """
def in_child():
    assert word("STARTED") == word("HELPED") == word("ACTIVE") == word("BUSY") == 0
    check()
    end = time.monotonic() + 30
    while not word("STARTED") or i % 10 == 0 and not word("HELPED"):
        assert time.monotonic() < end
        check()
    assert word("STARTED") == 1

check()
with beside(2, check):
    for i in range(COUNT):
        child(in_child)
check()
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


@pytest.mark.parametrize(
    "situation",
    [
        FORKS,
        WHILE_ANOTHER_THREAD_SPLITS_FIRST,
        BESIDE_COPIES.replace("COUNT", str(COUNT)),
        POOLS_OF_FRESH_PROCESSES,
    ],
    ids=["forks", "first split", "copies", "fresh processes"],
)
def test_children_copy_with_helpers(situation, tmp_path):
    run(tmp_path, SPLIT + TWO_CORES + CHILD + situation, timeout=100 + COUNT)
