"""What splitjit keeps for later calls is limited, and refusals keep nothing."""

import gc
import tracemalloc
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import splitjit
from splitjit import SplitPlan, plan_split
from splitjit._api.split_plan import PLANS
from splitjit._plan.plan import _LEAST_PARTS, _MOST_HOWS, _ROOM, MOST_PARTS, PlanCache
from splitjit._plan.rules import CHUNK
from tests.conftest import needs_kernels, on_linux
from tests.processes import python

MEASURE = """
import gc, os
import numpy as np
import splitjit

def resident():
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def growth(call, times, warm):
    for i in range(-warm, 0):
        call(i)
    before = resident()
    for i in range(times):
        call(i)
    return (resident() - before) / 1e6
"""


pytestmark = pytest.mark.usefixtures("new_plans")


@pytest.mark.parametrize(
    "rule", [{"num_splits": 10**7}, {"num_outputs": 10**7}, {"split": 1}], ids=str
)
def test_a_plan_of_ten_million_parts_takes_the_memory_of_its_sizes(rule, monkeypatch):
    monkeypatch.setattr("splitjit._plan.plan.MOST_IN_MEMORY", 10**8)
    plan_split((4,), 1)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    plan = plan_split((3, 10**7, 4), axis=1, **rule)
    assert len(plan) == 10**7
    assert repr(plan).startswith("SplitPlan(shape=(3, 10000000, 4), axis=1, sizes=(1, 1, 1, ")
    nbytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert nbytes < 8 * 10**7 + 10_000
    assert len(repr(plan)) < 300
    assert hash(plan) == hash(plan_split((3, 10**7, 4), axis=-2, **rule))


@pytest.mark.parametrize("count", [1, 5, 32, 33, 200])
@pytest.mark.parametrize("length", [0, 199, 200, 201, 1000])
def test_lazy_attributes_are_those_of_a_plan_of_lengths(count, length):
    plan = plan_split((2, length, 3), axis=1, num_outputs=count)
    twin = SplitPlan((2, length, 3), 1, plan.sizes)
    assert (plan, hash(plan)) == (twin, hash(twin))
    for name in ("sizes", "offsets", "output_shapes", "slices"):
        value = getattr(plan, name)
        assert type(value) is tuple
        assert value == getattr(twin, name)
        assert getattr(plan, name) is value
    assert plan.offsets == tuple(np.cumsum((0, *plan.sizes))[:-1])
    assert [s[1] for s in plan.slices] == [
        slice(o, o + n) for o, n in zip(plan.offsets, plan.sizes, strict=True)
    ]


CAUGHT = """
from numba import njit

@njit
def caught(n):
    x = np.ones(n)
    try:
        parts = splitjit.split(x, -n)
    except Exception:
        return x[0]
    return parts[0][0]
"""
ROWS = """
splitjit.warmup(["u1"])  # to load kernels takes memory, too
x = np.ones((64, 3000), np.float32)
"""
GROWTH = {
    # what is kept: code that runs before, the body of a call, the number of calls, and before them
    "ten thousand distinct plans": (ROWS, """
    lengths = [1000 + i % 997, i % 7, 2000 - i % 997 - i % 7]
    splitjit.split(x[: 1 + i % 64], lengths, axis=1)
    splitjit.split(x[0], [1] * (i % 100) + [3000 - i % 100])""", 10_000, 20),
    "a thousand plans of a thousand parts": ("", """
    splitjit.plan_split((2000 + i, 2), [1] * 999 + [1001 + i]).slices""", 1000, 20),
    "a million views": ("", """
    plan = splitjit.plan_split((10**6 * (i + 5),), num_outputs=10**6)
    plan(np.zeros(plan.shape, np.uint8), copy=False)""", 10, 1),
    "lists of a million lengths": ("", """
    lengths = [1 + i % 3, *[2, 4] * (10**6 // 2 - 1), 5 - i % 3]
    splitjit.plan_split((3 * 10**6,), lengths).offsets""", 10, 2),
    # njit/test_overloads.py measures what a refusal keeps: the arrays that compiled callers hold.
    "refusals that compiled code catches": (CAUGHT, """
    caught(125_000)""", 2000, 20),
}  # fmt: skip
MARKS = dict.fromkeys(["a million views", "lists of a million lengths"], pytest.mark.long)
MARKS["refusals that compiled code catches"] = [pytest.mark.long, needs_kernels]


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in GROWTH])
def test_memory_grows_little(name):
    before, body, times, warm = GROWTH[name]
    code = f"{MEASURE}{before}def call(i):{body}\nprint(growth(call, {times}, {warm}))"
    assert float(python("-c", code)) < 50


@pytest.mark.parametrize("count", [3, 1000, MOST_PARTS])
def test_results_of_a_plan_are_few(count):
    """Views of other strides each need a `How` of their own."""
    plan = plan_split((count, 3), 1)
    whole = np.ones((count, 3 * 40))
    outs = [plan.empty(whole.dtype) for _ in range(20)]
    for step in range(1, 40):
        x = whole[:, ::step][:, :3]
        plan(x[::-1])
        plan(x, outs[step % 20])
        assert 0 < len(plan._hows) <= _MOST_HOWS
    assert (x.dtype, x[::-1].strides, False, False) in plan._hows, "the newest result is kept"


def weight(cache):
    """Return for how many parts the plans of a cache count."""
    return sum([max(len(plan), _LEAST_PARTS) for plan in cache._plans.values()])


@pytest.mark.parametrize("parts", [0, 2, 200, 2000, MOST_PARTS])
def test_all_plans_in_a_cache_have_few_parts_together(parts):
    cache, most = PlanCache(SplitPlan), 0
    for i in range(3000):
        plan = cache.plan((i, parts), 1, (CHUNK, 1))
        assert cache.plan((i, parts), 1, (CHUNK, 1)) is plan
        most = max(most, weight(cache))
    assert _ROOM - max(parts, _LEAST_PARTS) < most <= _ROOM


def test_a_recipe_does_not_refer_to_its_plan():
    plan = SplitPlan((4, 600), 1, (300, 300))
    for _ in range(3):
        plan(np.zeros((4, 600)), plan.empty(float))
    gc.collect()
    assert not [each for each in gc.get_referrers(plan) if type(each) is not types.FrameType]


def test_a_plan_of_very_many_parts_is_not_kept():
    most, more = (MOST_PARTS,), (MOST_PARTS + 1,)
    assert plan_split(most, 1) is plan_split(most, 1)
    plan = plan_split(more, 1)
    assert plan_split(more, 1) is not plan
    assert plan_split(more, 1) == plan
    assert plan.slices is plan.slices
    x = np.ones(more)
    for _ in range(3):
        assert len(plan(x)) == len(plan(x, plan.empty(x.dtype))) == len(plan)
    assert (plan._hows, plan._how) == ({}, None)


def test_threads_share_the_cache():
    def work(seed):
        for i in range(3000):
            n = 1 + (i * seed) % 1500
            assert plan_split((n,), num_outputs=3).shape == (n,)
            if i % 500 == seed:
                splitjit.clear_caches()

    with ThreadPoolExecutor(4) as pool:
        for result in [pool.submit(work, seed) for seed in (1, 3, 7, 11)]:
            result.result()


def test_clear_caches():
    plan = plan_split((4, 600), num_splits=2, axis=1)
    plan(np.zeros((4, 600))), plan(np.zeros((4, 600)))
    assert len(PLANS._plans) == len(plan._hows) == 1
    splitjit.clear_caches()
    assert (PLANS._plans, PLANS._parts) == ({}, 0)
    assert plan_split((4, 600), num_splits=2, axis=1) is not plan
    assert [part.shape for part in plan(np.zeros((4, 600)))] == [(4, 300)] * 2
