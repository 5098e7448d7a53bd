"""Outputs that are bound to a plan: the checks when they are bound, and at each call."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest

from splitjit import SplitError, SplitTypeError, plan_split
from tests.hostile import fail, foreign


def test_the_list_is_new_and_the_arrays_are_the_same():
    plan = plan_split((6,), 2)
    out = plan.empty(float)
    into = plan.bind(out)
    first = into(np.arange(6.0))
    first.clear()
    assert all(a is b for a, b in zip(into(np.arange(6.0)), out, strict=True))


def test_outputs_live_as_long_as_the_binding():
    plan = plan_split((6,), 2)
    out = plan.empty(float)
    watched = weakref.ref(out[0])
    into = plan.bind(out)
    del out
    gc.collect()
    assert into(np.arange(6.0))[0].tolist() == [0, 1]
    del into
    gc.collect()
    assert watched() is None


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_a_copy_of_a_binding_has_arrays_of_its_own(duplicate):
    plan = plan_split((4, 600), num_splits=2, axis=1)
    out = plan.empty(float)
    into = plan.bind(out)
    into(np.ones((4, 600)))
    result = duplicate(into)(np.full((4, 600), 2.0))
    assert [part.min() for part in result] == [2, 2]
    assert [part.max() for part in out] == [1, 1]
    assert copy.copy(into)(np.zeros((4, 600)))[0] is out[0]


def test_a_plan_without_parts_fits_any_dtype():
    into = plan_split((0, 3), 1).bind([])
    assert into(np.zeros((0, 3))) == []
    with pytest.raises(SplitError, match="shape"):
        into(np.zeros((1, 3)))


WRONG = [
    (np.zeros((2, 7)), SplitError, r"x of shape \(2, 7\): the plan is for shape \(2, 6\)"),
    (np.zeros((6, 2)).T[:, :5], SplitError, "x of shape"),
    (np.zeros((2, 6), "f4"), SplitTypeError, "out.* of dtype float64: .* float32"),
    (np.zeros((2, 6), ">f8"), SplitTypeError, "out.* of dtype float64"),
    (None, SplitError, "x"),
]


@pytest.mark.parametrize(("x", "error", "says"), WRONG)
def test_sources_refused(x, error, says):
    plan = plan_split((2, 6), 3, axis=1)
    out = [np.ones((2, 3)), np.ones((2, 3))]
    with pytest.raises(error, match=says):
        plan.bind(out)(x)
    assert all(part.all() for part in out)


BLOCK = np.zeros(6)
REFUSED = [
    *[(out, SplitError, "out") for out in ([], [BLOCK[:3]], [np.zeros(3), np.zeros(2)], None, 7)],
    ([foreign(dtype=property(fail))] * 2, SplitTypeError, r"out\[0\] of type Foreign"),
    ([BLOCK[:3], BLOCK[2:5]], SplitError, r"out\[0\] and out\[1\]: must not share memory"),
]


@pytest.mark.parametrize(("out", "error", "says"), REFUSED)
def test_outputs_refused(out, error, says):
    with pytest.raises(error, match=f"^split: {says}"):
        plan_split((6,), 3).bind(out)


CHANGES = {
    "_resized": lambda array: array.resize(100_000, refcheck=False),
    "_read_only": lambda array: array.setflags(write=False),
    "_other_shape": lambda array: setattr(array, "shape", (-1, 2)),
    "_other_dtype": lambda array: setattr(array, "dtype", "i4"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("numbers", [4, 1000])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_output_that_was_changed_in_place_is_refused(change, numbers):
    plan = plan_split((numbers, 2 * numbers), num_splits=2, axis=1)
    out = [np.zeros(shape, "f4") for shape in plan.output_shapes]
    into = plan.bind(out)
    x = np.ones(plan.shape, "f4")
    for _ in range(3):
        into(x)
    change(out[1])
    before = out[1].tobytes()
    with pytest.raises(SplitError, match=r"out\[1\] (of|is)"):
        into(x + 1)
    assert out[1].tobytes() == before
