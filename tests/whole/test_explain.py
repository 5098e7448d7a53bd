"""`explain` says how a split would run, and copies nothing."""

import os
import re
import sys

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, explain, split
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy.how import How
from splitjit._inputs.adapt import adapt
from splitjit._runtime import threads
from splitjit._runtime.loading import LOADER
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
        for call in range(3):
            found = explain(x, num_sections=3, axis=-1)
            before = LOADER.splits
            split(x, num_sections=3, axis=-1)
            assert found.strategy == ("slices" if LOADER.splits > before else "compiled")
            is_first = call == 0 and x.nbytes < THRESHOLDS.load_from
            assert ("first small copy" in found.reason) == is_first


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
    assert found.strategy == "library"
    assert explain(torch.zeros(LARGE).T, num_splits=3).strategy == "compiled"
    assert explain(torch.zeros(2**18, 3), num_splits=3, axis=1).strategy == "compiled"


OPERATOR, KERNELS, LIBRARY = "made_by_operator", "copy", "made_by_library"
DECIDED = {
    # what torch makes, and who splits it along axis 1 into 2: the static rule of tensors
    "small": (lambda torch: torch.zeros(2, 6), OPERATOR),
    "small, transposed": (lambda torch: torch.zeros(6, 2).T, OPERATOR),
    "small, short runs": (lambda torch: torch.zeros(2**15, 2), OPERATOR),
    "just below 512 KB, strided": (lambda torch: torch.zeros(2, 2**17 - 4)[:, ::2], OPERATOR),
    "large, runs of 512 bytes": (lambda torch: torch.zeros(2**9, 256), OPERATOR),
    "large, runs of 504 bytes": (lambda torch: torch.zeros(2**10, 252), KERNELS),
    "large, short runs": (lambda torch: torch.zeros(2**18, 2), KERNELS),
    "large, transposed": (lambda torch: torch.zeros(2**10, 2**9).T, KERNELS),
    "large, strided": (lambda torch: torch.zeros(2**9, 1024)[:, ::2], KERNELS),
    "large, transposed, with a gradient": (
        lambda torch: torch.zeros(2**10, 2**9, requires_grad=True).T,
        OPERATOR,
    ),
    "a lazy conjugate": (lambda torch: torch.zeros(2, 6, dtype=torch.complex64).conj(), LIBRARY),
    "a dtype that torch cannot copy": (
        lambda torch: torch.zeros(2, 6, dtype=torch.uint8).view(torch.uint1),
        KERNELS,
    ),
    "meta": (lambda torch: torch.zeros(2, 6, device="meta"), LIBRARY),
    "masked": (lambda torch: np.ma.masked_array(np.zeros((2, 6)), True), KERNELS),
}


@needs_kernels
@pytest.mark.parametrize("name", DECIDED)
def test_the_decision_that_is_explained_is_carried_out(name, monkeypatch, torch):
    make, who = DECIDED[name]
    x = make(torch)
    did = []
    for kind, function in ((How, KERNELS), *[(type(adapt(x)), by) for by in (OPERATOR, LIBRARY)]):
        real = getattr(kind, function)
        monkeypatch.setattr(
            kind, function, lambda *a, real=real, name=function: did.append(name) or real(*a)
        )
    found = explain(x, num_splits=2, axis=1)
    assert (found.strategy == "library") == (who != KERNELS)
    assert (found.threads_reason == "torch decides") == (who == OPERATOR)
    assert not did  # nothing is copied before the decision is carried out
    for _ in range(2):
        split(x, num_splits=2, axis=1)
    assert {*did} == {who}


OUTS = {
    # outputs for a (2, 6) tensor of float32: whether torch's own operator writes to them
    "new": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 3)], True),
    "one allocation": (lambda torch: list(torch.zeros(2, 2, 3)), True),
    "strided": (lambda torch: [torch.zeros(2, 3), torch.zeros(3, 2).T], False),
    "interleaved": (lambda torch: list(torch.zeros(2, 6).split(3, 1)), False),
    "inference tensors": (lambda torch: inference(torch), False),
    "another shape": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 4)], None),
    "too few": (lambda torch: [torch.zeros(2, 3)], None),
    "another dtype": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 3).int()], None),
    "arrays": (lambda torch: [np.zeros((2, 3), np.float32)] * 2, None),
    "one tensor twice": (lambda torch: [torch.zeros(2, 3)] * 2, None),
    "overlapping": (lambda torch: [(y := torch.zeros(9))[:6].view(2, 3), y[3:].view(2, 3)], None),
    "beyond the storage": (lambda torch: [torch.zeros(2, 3), shrunk(torch)], None),
    "a lazy negative": (
        lambda torch: [torch.zeros(2, 3), torch._neg_view(torch.zeros(2, 3))],
        None,
    ),
    "a gradient": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 3).requires_grad_()], None),
    "meta": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 3, device="meta")], None),
    "sparse": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 3).to_sparse()], None),
    "sparse rows": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 3).to_sparse_csr()], None),
    "opaque": (lambda torch: [torch.zeros(2, 3), torch.zeros(2, 3).to_mkldnn()], None),
    "nested": (
        lambda torch: [torch.zeros(2, 3), torch.nested.nested_tensor([torch.zeros(3)] * 2)],
        None,
    ),
    "a tensor": (lambda torch: torch.zeros(2, 2, 3), None),
}


def inference(torch):
    with torch.inference_mode():
        return [torch.zeros(2, 3), torch.zeros(2, 3)]


def shrunk(torch):
    x = torch.zeros(2, 3)
    x.untyped_storage().resize_(20)
    return x


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("name", OUTS)
def test_the_outputs_that_the_operator_of_torch_writes(name, monkeypatch, torch):
    """Others are left to kernels, or refused before anything is written."""
    make, by_operator = OUTS[name]
    x, out = torch.arange(12.0).view(2, 6), make(torch)
    mode = torch.inference_mode(name == "inference tensors")
    did, real = [], type(adapt(x)).made_by_operator
    monkeypatch.setattr(type(adapt(x)), "made_by_operator", lambda *a: did.append(1) or real(*a))
    with mode:
        if by_operator is None:
            assert_refused_alike(split, explain, x, 3, axis=1, out=out)
            assert not did
            assert not any(part.any() for part in out[:1])
            return
        assert (explain(x, 3, axis=1, out=out).strategy == "library") == by_operator
        split(x, 3, axis=1, out=out)
        assert (len(did) == 1) == by_operator
        assert all(map(torch.equal, out, x.split(3, 1)))


def test_no_parts_of_a_tensor_for_outputs_that_are_no_sequence(torch):
    for out in (5, torch.zeros(0), iter(())):
        assert_refused_alike(split, explain, torch.zeros(0), 3, out=out)
    assert split(torch.zeros(0), 3, out=[]) == []


@needs_kernels
def test_large_arrays_are_written_past_the_cache():
    found = explain(np.zeros((4096, 6144), np.float32), num_splits=3, axis=1)
    assert found.past_cache
    assert "past the cache" in str(found)


ALL_OF_FOUR = "the caller and 3 of its helpers, limited by affinity"
ONLY_IF_AWAKE = "below 4194304 bytes, only if it follows another large copy at once"


@needs_kernels
@pytest.mark.parametrize(
    ("shape", "affinity", "count", "reason"),
    [
        ((64, 300), 4, 1, "helpers are not asked below 524288 bytes"),
        ((256, 768), 16, 4, f"each helper gets at least 262144 bytes; {ONLY_IF_AWAKE}"),
        (
            (256, 768),
            4,
            4,
            f"{ALL_OF_FOUR}; {ONLY_IF_AWAKE}",
        ),
        ((1024, 1024), 16, 5, "each helper gets at least 1048576 bytes"),
        ((1024, 1024), 4, 4, ALL_OF_FOUR),
        (LARGE, 1, 1, "limited by affinity"),
    ],
)
def test_how_many_threads(shape, affinity, count, reason, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(threads, "affinity", lambda: affinity)
    monkeypatch.setattr(threads, "quota", lambda: None)
    monkeypatch.setattr(threads, "numba_limit", lambda: sys.maxsize)
    monkeypatch.delitem(sys.modules, threads.NUMBA_THREADS, raising=False)
    found = explain(np.zeros(shape, np.float32), num_splits=2, axis=1)
    assert (found.threads, found.threads_reason) == (count, reason)


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


@needs_kernels
def test_it_says_how_long_kernels_took_to_load():
    code = """
import numpy as np, splitjit
x = np.zeros((1000, 300))
for _ in range(2):
    print(splitjit.explain(x, num_splits=3, axis=1).reason)
"""
    first, second = python("-c", code).splitlines()
    assert re.fullmatch(r"a compiled loop copies; kernels loaded in \d\.\d\d s", first)
    assert second == "a compiled loop copies"
