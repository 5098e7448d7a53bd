"""A garbage collection inside of a compiled call, where finalizers may do anything."""

import os
import subprocess
import sys

import numpy as np
import pytest

from splitjit import plan_split
from splitjit._abi import structs
from tests.conftest import long, needs_kernels
from tests.processes import python

pytestmark = [
    needs_kernels,
    pytest.mark.skipif(not structs.READS_ARRAYS, reason="arrays lie otherwise in memory here"),
]

LOOP = """
import gc, os, threading
import numpy as np
import splitjit

SIZE = {size}
splitjit.warmup(["f4"])
plan = splitjit.plan_split((8, SIZE), [SIZE // 2, SIZE // 2], axis=1)

def structured():
    return np.dtype([("a", "i2"), ("b", "u2")])  # a new object each time

def array():
    return np.arange(8 * SIZE, dtype="i4").view(structured()).reshape(8, SIZE)

class Cycle:
    def __init__(self, x):
        self.x, self.me = x, self

    def __del__(self):
        if active:
            finalize(self.x)

active, finalized = True, 0

def finalize(x):
    global finalized
    finalized += 1
    {finalizer}
    [np.full(n, 0x4141414141) for n in range(1, 100)]  # use memory that was freed

x = array()
expected = [x[index].tobytes() for index in plan.slices]
out = [np.zeros(shape, x.dtype) for shape in plan.output_shapes]
for _ in range(300):
    plan(x)
    plan(x, out)
gc.collect()
gc.disable()  # only the calls below start collections
held = []
for i in range({calls}):
    x = array()
    gc.collect(0)
    held.append([[] for _ in range(100)])  # Python keeps free lists for reuse; use them up
    Cycle(x)
    gc.set_threshold(1 + i % 12, 1000, 1000)
    gc.enable()
    try:
        parts = plan(x, out) if i % 4 == 3 else plan(x)
    except splitjit.SplitError:
        parts = None
    gc.disable()
    if parts is not None:
        assert [part.tobytes() for part in parts] == expected, "wrong part"
active = False
assert finalized > {calls} // 4, finalized
print("done")
"""

FINALIZERS = {
    "splits by the same plan": """
    plan(array())
    for _ in range(70):
        plan(array())""",
    "clears the caches": "splitjit.clear_caches()",
    "drops the copies": "plan._hows.clear(), plan._use(None)",
    "changes the source": """
    if finalized % 2:
        x.dtype = np.dtype([("c", "u2"), ("d", "i2")])
    else:
        x.shape = (4, 2 * SIZE)""",
    "frees the memory of the source": """
    x.dtype = "i4"
    try:
        x.base.resize(1, refcheck=False)
    except (AttributeError, ValueError):
        pass
    x.shape = (-1,)""",
    "raises": "raise ValueError",
    "forks": """
    if finalized % 50 == 0:
        pid = os.fork()
        if pid == 0:
            ok = [part.tobytes() for part in plan(array())] == expected
            os._exit(0 if ok else 1)
        assert os.waitpid(pid, 0)[1] == 0""",
    "splits in another thread": """
    if finalized % 20 == 0:
        thread = threading.Thread(target=lambda: [plan(array()) for _ in range(70)])
        thread.start()
        thread.join()""",
}


SMALL, LARGE = [[(name, size) for name in FINALIZERS] for size in (64, 1 << 15)]


@pytest.mark.slow
@pytest.mark.parametrize("case", [*SMALL, *long(*LARGE, if_not=LARGE[1:4:2])], ids=str)
def test_a_finalizer_inside_of_a_split(case):
    finalizer, size = case
    if finalizer == "forks" and not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    calls = 600 if size == 64 else 100
    code = LOOP.format(size=size, calls=calls, finalizer=FINALIZERS[finalizer].strip())
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    errors = [line for line in ended.stderr.splitlines() if "AssertionError" in line]
    assert (ended.returncode, ended.stdout, errors) == (0, "done\n", []), ended.stderr[-3000:]


OWNERS = """
import gc
import numpy as np
import splitjit
from splitjit._copy.how import how_of

splitjit.warmup(["f4"])
for size in (64, 1 << 15):
    plan = splitjit.plan_split((8, size), [size // 2, size // 2], axis=1)
    x = np.arange(8.0 * size).reshape(8, size)
    parts = [x[index] for index in plan.slices]
    out = plan.empty(float)
    plan(x), plan(x)  # NumPy copies the first small array
    compiled = how_of(plan, x)
    into, fresh = compiled.into, compiled.fresh
    del compiled, plan
    splitjit.clear_caches()
    gc.collect()
    filled = [np.full(n, 0x4141414141) for n in range(1, 200)]
    for copies in (fresh(x), into(x, out) and out):
        assert all(np.array_equal(a, b) for a, b in zip(copies, parts, strict=True))
print("done")
"""


def test_a_compiled_call_owns_all_that_it_reads():
    assert python("-X", "faulthandler", "-c", OWNERS) == "done\n"


def test_a_plan_keeps_few_ways_to_copy_and_one_of_many_parts_none():
    plan = plan_split((8,), 2)
    for n in range(1, 100):
        plan(np.zeros((8, n))[:, 0])
        assert len(plan._hows) <= 16
    many = plan_split((5000,), num_splits=5000)
    for _ in range(3):
        many(np.zeros(5000))
    assert not many._hows
    assert many._how is None
