"""`explain` says how a split would run, and copies nothing."""

import os
import sys

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, explain, split
from splitjit._api.split_plan import by_rule
from splitjit._copy import copy, decision, torch_operator
from splitjit._inputs.adapt import adapt
from splitjit._plan.rules import NUM_SPLITS
from splitjit._runtime import cores, threads
from splitjit._runtime.ways import Ways
from tests.conftest import needs_fork, needs_kernels
from tests.processes import python, run

LARGE = (1024, 768)  # 3 MB of float32


pytestmark = pytest.mark.usefixtures("new_plans", "warm")


def assert_refused_alike(split, explain, *arguments, **keywords):
    """Check that a split and its explanation refuse by the same words."""
    with pytest.raises(SplitError) as refused:
        split(*arguments, **keywords)
    with pytest.raises(type(refused.value)) as explained:
        explain(*arguments, **keywords)
    assert str(explained.value) == str(refused.value)


def test_views():
    x = np.zeros(LARGE)
    found = explain(x, 100, copy=False)
    assert (found.strategy, found.threads, found.bytes_allocated) == ("views", 0, 0)
    assert found.parts == 11
    with pytest.raises(SplitError, match="views are not written"):
        explain(x, 512, out=split(x, 512), copy=False)


def test_few_objects_are_copied_by_numpy_and_many_by_a_loop():
    found = explain(np.zeros(6, object), 2)
    assert (found.strategy, found.loop, found.threads) == ("slices", None, 1)
    assert explain(np.zeros(1 << 16, object), 2).strategy == "object loop"


@needs_kernels
def test_many_small_parts_are_left_to_numpy():
    """Also after warm-up, and parts that are not small are not."""
    splitjit.warmup()
    found = explain(np.zeros((5000, 100), np.uint8), 1)
    assert (found.strategy, "so many small parts" in found.reason) == ("slices", True)
    assert explain(np.zeros((5000, 5000), np.uint8), 1).strategy == "compiled"
    assert explain(np.zeros((4000, 100), np.uint8), 1).strategy == "compiled"


@needs_kernels
def test_compiled_code_with_given_arrays_and_without():
    x = np.zeros(LARGE, np.float32)
    kept = splitjit.plan_split(x.shape, num_splits=3, axis=1)
    found = explain(x, num_splits=3, axis=1, out=kept.empty(x.dtype))
    assert (found.strategy, found.loop, found.past_cache) == ("compiled", "plain", False)
    assert (found.bytes_read, found.bytes_written, found.bytes_allocated) == (x.nbytes, x.nbytes, 0)
    found = explain(x, num_splits=3, axis=1)
    assert (found.strategy, found.bytes_allocated) == ("compiled", x.nbytes)


@needs_kernels
def test_the_strategy_is_that_of_the_split():
    for shape in [(6,), (600, 600), LARGE, (3, 1 << 20)]:
        x = np.zeros(shape, np.float32)
        plan = splitjit.plan_split(shape, num_sections=3, axis=-1)
        for _ in range(3):
            expected = explain(x, num_sections=3, axis=-1).strategy
            split(x, num_sections=3, axis=-1)
            compiled = copy.copy_of(plan, x)
            assert expected == ("slices" if compiled is None else "compiled")


@needs_kernels
def test_the_ways_of_a_large_array(monkeypatch):
    x = np.zeros(LARGE, np.float32)
    split(x, num_splits=3, axis=1)
    plan = splitjit.plan_split(x.shape, num_splits=3, axis=1)
    ways = plan._copy.ways = Ways(threads.WAYS[:2])
    now = 0.0
    for seconds in [3e-4] * 10 + [1e-4] * 11:
        ways.took(ways.choose(now), now, now + seconds, x.nbytes)
        now += seconds
    monkeypatch.setattr(cores, "affinity", lambda: 2)
    monkeypatch.setattr(cores, "quota", lambda: None)
    found = explain(x, num_splits=3, axis=1)
    shown = [(way["name"], way["calls"], way["is_next"]) for way in found.ways]
    assert shown == [("with helpers", 10, False), ("alone", 11, True)]
    assert found.ways[0]["seconds"] == pytest.approx(3e-4)
    assert str(found).endswith("""
ways      with helpers: 300 µs from call to call, 10 calls
          alone: 100 µs from call to call, 11 calls, next""")
    assert ways.calls == [10, 11]  # as before
    assert explain(np.zeros(6), 2).ways == ()


def test_tensors_that_torch_splits(torch):
    split(torch.zeros(2), 1)
    small = torch.zeros(6)
    assert explain(small, 2).strategy == "library"
    assert explain(small, 2, out=[torch.zeros(2) for _ in range(3)]).strategy == "library"
    assert explain(small, 2, out=list(torch.zeros(3, 4)[:, ::2])).strategy != "library"
    assert explain(torch.zeros(4, 6), 2).bytes_read == 96
    found = explain(torch.zeros(4, 6, device="meta"), 2)
    assert (found.strategy, found.threads, found.bytes_read) == ("library", None, None)
    assert "unknown" in str(found)
    x = torch.zeros(LARGE)
    found = explain(x, num_splits=3, axis=1)
    assert [way["name"] for way in found.ways] == list(torch_operator.WAYS)
    assert found.strategy == "library"
    assert explain(torch.zeros(LARGE).T, num_splits=3).strategy == "compiled"
    assert explain(torch.zeros(2**18, 3), num_splits=3, axis=1).strategy == "compiled"


DECIDED = {
    "small": (lambda torch: torch.zeros(2, 6), "operator"),
    "short runs": (lambda torch: torch.zeros(2**18, 2), "splitjit"),
    "a dtype that torch cannot copy": (
        lambda torch: torch.zeros(2, 6, dtype=torch.uint8).view(torch.uint1),
        "splitjit",
    ),
    "meta": (lambda torch: torch.zeros(2, 6, device="meta"), "library"),
    "masked": (lambda torch: np.ma.masked_array(np.zeros((2, 6)), True), "splitjit"),
}


@needs_kernels
@pytest.mark.parametrize("name", DECIDED)
def test_the_decision_that_is_explained_is_carried_out(name, monkeypatch, torch):
    make, who = DECIDED[name]
    x = make(torch)
    did = []
    for module, function, kind in (
        (torch_operator, "copy", "operator"),
        (decision, "copy_array", "splitjit"),
        (type(adapt(x)), "made_by_library", "library"),
    ):
        real = getattr(module, function)
        monkeypatch.setattr(
            module, function, lambda *a, real=real, kind=kind: did.append(kind) or real(*a)
        )
    request = by_rule(1, (NUM_SPLITS, 2))
    found = decision.decide(adapt(x), request, None, True)
    assert found.who == who or explain(x, num_splits=2, axis=1).threads_reason == "torch decides"
    assert not did  # nothing is copied before the decision is carried out
    for _ in range(2):  # the second time by the fast path
        split(x, num_splits=2, axis=1)
    assert {*did} == {who}


@needs_kernels
def test_large_arrays_are_written_past_the_cache():
    found = explain(np.zeros((4096, 6144), np.float32), num_splits=3, axis=1)
    assert found.past_cache
    assert "past the cache" in str(found)


@needs_kernels
@pytest.mark.parametrize(
    ("shape", "affinity", "threads", "reason"),
    [
        ((64, 300), 4, 1, "a helper does not pay below 524288 bytes"),
        ((256, 768), 16, 6, "a chunk has at least 131072 bytes"),
        (LARGE, 4, 4, "the caller and 3 of its helpers, limited by affinity"),
        (LARGE, 1, 1, "limited by affinity"),
    ],
)
def test_how_many_threads(shape, affinity, threads, reason, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(cores, "affinity", lambda: affinity)
    monkeypatch.setattr(cores, "quota", lambda: None)
    monkeypatch.setattr(cores, "numba_limit", lambda: sys.maxsize)
    monkeypatch.delitem(sys.modules, cores.NUMBA_THREADS, raising=False)
    found = explain(np.zeros(shape, np.float32), num_splits=2, axis=1)
    assert (found.threads, found.threads_reason) == (threads, reason)


@needs_kernels
def test_one_thread_in_a_task_of_dask():
    with threads.one_thread():
        found = explain(np.zeros(LARGE, np.float32), num_splits=3, axis=1)
    assert (found.threads, "Dask" in found.threads_reason) == (1, True)


def test_without_compiler_numpy_copies():
    code = "import numpy, splitjit; print(splitjit.explain(numpy.zeros((1024, 768)), 300))"
    printed = python("-c", code, NUMBA_DISABLE_JIT="1")
    assert printed.startswith("strategy  slices: NumPy copies, because Numba compiles nothing")


FORKED = """
import os, numpy as np, splitjit

x = np.zeros((4096, 1536), np.float32)
if os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
try:
    found = splitjit.explain(x, num_splits=3, axis=1)
    assert found.strategy == "slices", found
    assert "cannot be loaded now" in found.reason, found
    os._exit(0)
finally:
    os._exit(1)
"""


@needs_kernels
@needs_fork
def test_a_forked_child_that_must_not_compile(tmp_path):
    run(tmp_path, FORKED, NUMBA_CACHE_DIR=str(tmp_path))


X = np.zeros(4)
REFUSED = [((X, 0), {}), ((X,), {}), ((X, [1, 2]), {}), (("text", 2), {})]
REFUSED += [((X, 2), more) for more in ({"axis": 1}, {"out": [np.zeros(2)]}, {"copy": 1})]
REFUSED += [((X, 2), {"out": [X[:2], np.zeros(2)]})]


@pytest.mark.parametrize(("arguments", "keywords"), REFUSED)
def test_it_refuses_what_split_refuses(arguments, keywords):
    assert_refused_alike(split, explain, *arguments, **keywords)


@pytest.mark.parametrize("shape", [(6,), LARGE])
@pytest.mark.parametrize("given", [False, True])
def test_a_plan_explains_as_the_function_does(shape, given):
    x = np.zeros(shape, np.float32)
    plan = splitjit.plan_split(shape, num_splits=3, axis=-1)
    out = plan.empty(x.dtype) if given else None
    assert plan.explain(x, out) == explain(x, num_splits=3, axis=-1, out=out)
    assert str(plan.explain(x, copy=False)).startswith("strategy  views")
    found = plan.explain(x).as_dict()
    assert found["parts"] == 3
    assert set(found) == set(splitjit.Explanation.__slots__)


def test_dask_splits_in_tasks():
    x = pytest.importorskip("dask.array").zeros((4, 6), chunks=2)
    assert explain(x, 2).strategy == splitjit.plan_split((4, 6), 2).explain(x).strategy == "dask"


OF_A_PLAN = [((np.zeros(5),), {}), (("text",), {}), ((X, [np.zeros(2)]), {}), ((X,), {"copy": 1})]


@pytest.mark.parametrize(("arguments", "keywords"), OF_A_PLAN)
def test_a_plan_refuses_what_it_would_not_split(arguments, keywords):
    plan = splitjit.plan_split((4,), 2)
    assert_refused_alike(plan, plan.explain, *arguments, **keywords)


def test_outputs_that_a_masked_array_refuses():
    x = np.ma.masked_equal(np.arange(4.0), 2)
    half = np.ma.zeros(2)
    shared = [np.ma.array(x.data[:2]), half]
    for out in ([half], [np.zeros(2)] * 2, [half, np.ma.zeros(3)], shared, 3):
        assert_refused_alike(split, explain, x, 2, out=out)


def test_outputs_that_a_tensor_refuses(torch):
    x, half = torch.arange(4.0), torch.zeros(2)
    second = [torch.zeros(3), torch.zeros(2, dtype=torch.int32), x[2:]]
    for out in ([half], *([half, part] for part in second), [np.zeros(2), np.zeros(2)]):
        assert_refused_alike(split, explain, x, 2, out=out)
    meta = torch.zeros(4, device="meta")
    assert_refused_alike(split, explain, meta, 2, out=[half, torch.zeros(2)])
