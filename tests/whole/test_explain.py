"""`explain` says how a split would run, and copies nothing."""

import re

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, explain, split
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy.how import How
from splitjit._inputs.adapt import adapt
from splitjit._runtime.loading import LOADER
from tests.conftest import needs_kernels
from tests.processes import python

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


@needs_kernels
def test_many_small_parts_are_left_to_numpy():
    """Also after warm-up, and parts that are not small are not."""
    splitjit.warmup()
    found = explain(np.zeros((5000, 100), np.uint8), 1)
    assert (found.strategy, "so many small parts" in found.reason) == ("slices", True)
    assert explain(np.zeros((5000, 5000), np.uint8), 1).strategy == "compiled"
    assert explain(np.zeros((4000, 100), np.uint8), 1).strategy == "compiled"


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


def after_gradient(torch):
    split(torch.zeros(2**17, 2).requires_grad_(), num_splits=2, axis=1)
    return torch.zeros(2**17, 2)


OPERATOR, KERNELS, LIBRARY = "made_by_operator", "copy", "made_by_library"
DECIDED = {
    # what torch makes, and who splits it along axis 1 into 2: the static rule of tensors
    "small": (lambda torch: torch.zeros(2, 6), OPERATOR),
    "small, transposed": (lambda torch: torch.zeros(6, 2).T, OPERATOR),
    "small, short runs": (lambda torch: torch.zeros(2**15, 2), OPERATOR),
    "just below 512 KB, strided": (lambda torch: torch.zeros(2, 2**17 - 4)[:, ::2], OPERATOR),
    "large, runs of 512 bytes": (lambda torch: torch.zeros(2**9, 256), OPERATOR),
    "large, runs of 504 bytes": (lambda torch: torch.zeros(2**10, 252), KERNELS),
    "32 MB, long runs": (lambda torch: torch.zeros(2**13, 1024), KERNELS),
    "large, transposed": (lambda torch: torch.zeros(2**10, 2**9).T, KERNELS),
    "large, strided": (lambda torch: torch.zeros(2**9, 1024)[:, ::2], KERNELS),
    "large, .T, gradient": (lambda torch: torch.zeros(512, 512, requires_grad=True).T, OPERATOR),
    "large, short runs, after a gradient": (after_gradient, KERNELS),
    "a lazy conjugate": (lambda torch: torch.zeros(2, 6, dtype=torch.complex64).conj(), LIBRARY),
    "no copy by torch": (lambda torch: torch.zeros(2, 6).byte().view(torch.uint1), KERNELS),
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
    "inference tensors": (lambda torch: inference(torch), True),
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


def test_objects_are_assigned_by_a_loop_only_where_the_program_uses_numba():
    code = """if True:
        import sys, numpy as np, splitjit
        x = np.full(10**5, "", object)
        splitjit.split(x, num_splits=2)
        print(splitjit.explain(x, num_splits=2).strategy, "numba" in sys.modules)
        import numba
        for size in (10**5, 10):
            print(splitjit.explain(x[:size], num_splits=2).strategy)
    """
    assert python("-c", code).split("\n") == ["slices False", "object loop", "slices", ""]
    off = python("-c", code, NUMBA_DISABLE_JIT="1").split("\n")
    assert off == ["slices False", "slices", "slices", ""]
