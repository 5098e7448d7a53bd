"""An interrupted split keeps no memory once its traceback is gone."""

import gc
import sys
import traceback
import tracemalloc

import numpy as np
import pytest

import splitjit
from splitjit._api.split_plan import PLANS
from tests.conftest import long, needs_kernels, new_pool, on_linux, send_down
from tests.processes import python

X = np.ones((512, 1024))  # 4 MB
MASKED = np.ma.masked_equal(X, 0)
PLAN = splitjit.plan_split(X.shape, num_splits=4, axis=1)


def split_tensor():
    torch = pytest.importorskip("torch")
    splitjit.torch.split(torch.from_numpy(X), 256, 1)


SPLITS = {
    "rule": lambda: splitjit.split(X, num_splits=4, axis=1),
    "plan": lambda: PLAN(X),
    "rows": lambda: splitjit.split(X, 100),
    "middle": lambda: splitjit.split(X.reshape(1, 512, 1024), 100, axis=1),
    "new shape": lambda: (PLANS.clear(), splitjit.split(X, num_splits=4, axis=1)),
    "records": lambda: splitjit.split(X.view([("a", "f4"), ("b", "i4")]), 128, axis=1),
    "masked": lambda: splitjit.split(MASKED, num_splits=4, axis=1),
    "memoryview": lambda: splitjit.split(memoryview(X), num_splits=4, axis=1),
    "torch": split_tensor,
}
USUAL = ("rule", "middle", "new shape", "masked", "torch")


def interrupt(call, n):
    """Raise KeyboardInterrupt where Python would handle the signal for the nth time.

    Python handles signals when a function begins, and when a C function returns. Return the error,
    or None if the call ends earlier.
    """
    seen = 0

    def profile(frame, event, argument):
        nonlocal seen
        name = frame.f_globals.get("__name__", "")
        is_ours = name.startswith("splitjit") and not name.endswith(".cores")  # opens files
        if event in ("call", "c_return") and is_ours:
            seen += 1
            if seen == n:
                sys.setprofile(None)
                del argument  # a method of a part keeps the part
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.setprofile(None)
    return None


@needs_kernels
@pytest.mark.parametrize("route", ["slices", *long("serial"), "parallel"])
@pytest.mark.parametrize("name", long(*SPLITS, if_not=USUAL))
def test_no_interrupt_keeps_a_part(name, route, monkeypatch):
    send_down(route, monkeypatch)
    pool = new_pool(1 << 40, monkeypatch.setattr)
    call = SPLITS[name]
    for _ in range(3):
        call()
    gc.collect()
    idle = pool.kept  # all blocks
    tracemalloc.start()
    for n in range(1, 2000):
        before = tracemalloc.get_traced_memory()[0]
        error = interrupt(call, n)
        if error is None:
            break
        passed = traceback.walk_tb(error.__traceback__)
        frames = [f"{frame.f_code.co_name}:{line}" for frame, line in passed]
        del error, passed
        assert pool.kept >= idle, frames
        assert tracemalloc.get_traced_memory()[0] - before < X.nbytes // 8, frames
    tracemalloc.stop()
    assert n > 3


TWENTY = """
import signal, time
import numpy as np
import splitjit

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

def interrupted(*_):
    raise KeyboardInterrupt

splitjit.warmup(["f4"])
signal.signal(signal.SIGALRM, interrupted)
x = np.arange(4096 * 2304, dtype=np.float32).reshape(4096, -1)
kept = splitjit.split(x, num_splits=2, axis=1)
splitjit.set_buffer_limit(0)
seconds = 1.0  # of the fastest split: other programs may disturb one
for _ in range(5):
    began = time.perf_counter()
    parts = splitjit.split(x, num_splits=3, axis=1)
    seconds = min(seconds, time.perf_counter() - began)
    del parts
before, errors, i = resident(), [], 0
while len(errors) < 20 and i < 1000:
    i += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds * (0.05 + i % 9 / 10))
        parts = splitjit.split(x, num_splits=3, axis=1)
        signal.setitimer(signal.ITIMER_REAL, 0)
        del parts
    except KeyboardInterrupt as error:
        errors.append(error)
    parts = splitjit.split(x, num_splits=3, axis=1)
    assert all(np.array_equal(*pair) for pair in zip(parts, np.split(x, 3, 1), strict=True))
    parts = None
assert len(errors) == 20, len(errors)
assert np.array_equal(np.hstack(kept), x)
print((resident() - before) / x.nbytes)
"""


@needs_kernels
@on_linux
def test_twenty_interrupts_keep_no_block_and_damage_none():
    assert float(python("-c", TWENTY)) < 1
