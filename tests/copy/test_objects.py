"""Splits of Python objects and StringDType: correct items, and correct reference counts."""

import gc
import sys

import numpy as np
import pytest

from splitjit import SplitError, plan_split, split
from splitjit._abi.thresholds import THRESHOLDS
from tests.conftest import forget_copies

STRINGS = {
    "object": np.array([f"string {i}" for i in range(5000)], object).reshape(1000, 5),
    "StringDType": np.array([f"a string {i} too long to inline" for i in range(5000)], "T"),
    "StringDType, missing": np.array(
        ["a", np.nan] * 500, np.dtypes.StringDType(na_object=np.nan)
    ).reshape(2, -1),
    "structured": np.array([(i, str(i)) for i in range(100)], [("a", "i4"), ("b", object)]),
}


@pytest.fixture(params=["slices", "object mode"])
def object_route(request, monkeypatch):
    forget_copies(monkeypatch.setattr)
    monkeypatch.setattr(THRESHOLDS, "large", 0 if request.param == "object mode" else 1 << 62)


def items(array):
    return [repr(item) for item in array.ravel().tolist()]


@pytest.mark.parametrize("name", STRINGS)
def test_strings(name, object_route):
    for x in (STRINGS[name], STRINGS[name].T, STRINGS[name][::-2], STRINGS[name][:0]):
        for axis in range(x.ndim):
            plan = plan_split(x.shape, num_outputs=3, axis=axis)
            out = plan.empty(x.dtype)
            assert plan(x, out)[0] is out[0]
            for parts in (plan(x), out, plan.bind(plan.empty(x.dtype))(x)):
                for part, index in zip(parts, plan.slices, strict=True):
                    assert part.dtype == x.dtype
                    assert part.flags.c_contiguous
                    assert items(part) == items(x[index])
                    assert not np.may_share_memory(part, x)


@pytest.mark.parametrize("name", STRINGS)
def test_large_arrays_are_not_copied_bit_by_bit(name):
    x = np.resize(STRINGS[name], (40_000, 5))
    assert x.nbytes > THRESHOLDS.large
    expected = items(x)
    parts = split(x, 20_000)
    x[...] = x[0, 0]  # frees all items to which no part refers
    assert items(parts[0]) + items(parts[1]) == expected


def test_reference_counts(object_route):
    item = object()
    x = np.full(3000, item, object)
    before = sys.getrefcount(item)
    parts = split(x, 1000)
    assert sys.getrefcount(item) == before + 3000
    assert parts[2][999] is item
    out = [np.full(1000, "replaced", object) for _ in range(3)]
    split(x, 1000, out=out)
    assert sys.getrefcount(item) == before + 6000
    del parts, out
    assert sys.getrefcount(item) == before
    del x
    assert sys.getrefcount(item) == before - 3000


def test_objects_that_are_written_to_out_share_nothing(object_route):
    x = np.array(["a", "b", "c"], object)
    with pytest.raises(SplitError, match="out\\[0\\] and x: must not share memory"):
        split(x, 1, out=[x[:1], np.empty(1, object), np.empty(1, object)])
    assert x.tolist() == ["a", "b", "c"]


def test_a_plan_does_not_keep_the_text_of_an_array():
    """The dtype of an array of StringDType owns the text."""
    x = np.array(["a string too long to inline"] * 6, "T")
    before = sys.getrefcount(x.dtype)
    for plan in (plan_split((6,), 3), plan_split((6,), [2, 4])):
        plan(x)
        plan(x, plan.empty("T"))
        plan.bind(plan.empty("T"))(x)
    gc.collect()
    after = sys.getrefcount(x.dtype)  # inside of an assert, pytest would hold the dtype, too
    assert after == before


def test_a_missing_value_without_a_hash(object_route):
    x = np.array(["a", "b", "c"], np.dtypes.StringDType(na_object=[]))
    plan = plan_split((3,), [1, 2])
    out = plan.empty(x.dtype)
    for parts in (split(x, [1, 2]), plan(x, out), plan.bind(out)(x)):
        assert [part.tolist() for part in parts] == [["a"], ["b", "c"]]
