"""Plans made by each rule: the case table, the laws and the refusals."""

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitjit import SplitError, SplitPlan, SplitTypeError, plan_split
from splitjit._core import plan as planner
from tests.cases import CASES, EXACT, REFUSALS

shapes = st.lists(st.integers(0, 50), min_size=1, max_size=5).map(tuple)


@pytest.mark.parametrize("case", CASES + EXACT, ids=str)
def test_sizes(case):
    plan = plan_split(case.shape, **case.rule)
    assert plan.sizes == case.sizes
    assert len(plan) == len(case.sizes)
    assert {*map(type, plan.sizes + plan.offsets)} <= {int}


@pytest.mark.parametrize("case", REFUSALS, ids=str)
def test_refusals_name_operator_values_and_rule(case):
    with pytest.raises(case.error, match=f"^split: .*{case.says}") as caught:
        plan_split(case.shape, **case.rule)
    assert type(caught.value) is case.error


@given(shapes, st.data())
def test_laws(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    length = shape[axis]
    rule = data.draw(
        st.one_of(
            st.fixed_dictionaries({"split": st.integers(1, 60)}),
            st.fixed_dictionaries({"num_outputs": st.integers(1, 60)}),
            st.fixed_dictionaries(
                {"num_splits": st.integers(1, 60).filter(lambda n: length % n == 0)}
            ),
        )
    )
    plan = plan_split(shape, axis=axis, **rule)
    assert sum(plan.sizes) == length
    assert plan.axis == axis % len(shape)
    assert plan.offsets == tuple(sum(plan.sizes[:i]) for i in range(len(plan)))
    for size, out in zip(plan.sizes, plan.output_shapes, strict=True):
        assert out == (*shape[: plan.axis], size, *shape[plan.axis + 1 :])
    # The same lengths, given as `split`, make an equal plan.
    assert plan_split(shape, plan.sizes, axis=axis) == plan
    (name, count) = next(iter(rule.items()))
    if name == "split":
        assert all(size == count for size in plan.sizes[:-1])
        assert all(0 < size <= count for size in plan.sizes[-1:])
    elif name == "num_outputs":
        chunk = -(-length // count)
        assert plan.sizes == tuple(min(max(length - i * chunk, 0), chunk) for i in range(count))
    else:
        assert plan.sizes == (length // count,) * count


@pytest.mark.parametrize("rule", [{"num_outputs": 2**31 - 1}, {"num_splits": 2**31 - 1}])
def test_a_plan_that_would_not_fit_in_memory(rule, monkeypatch):
    monkeypatch.setattr(planner, "most_parts", lambda: 10**6)
    with pytest.raises(MemoryError, match="=2147483647.*: not enough memory for the plan"):
        plan_split((0,), **rule)


def test_equal_calls_share_a_plan_and_unequal_kinds_do_not_pass_as_equal():
    plan = plan_split((4, 6), [2, 4], axis=1)
    assert plan_split([4, 6], (2, 4), axis=1) is plan
    assert plan_split((4, 6), [1, 5], axis=1) is not plan
    for rule in ({"split": [2.0, 4]}, {"split": [2, 4], "axis": True}, {"split": [True, 5]}):
        with pytest.raises(SplitTypeError):
            plan_split((4, 6), **{"axis": 1, **rule})
    with pytest.raises(SplitTypeError, match=r"shape=\(4.0, 6\)"):
        plan_split((4.0, 6), [2, 4], axis=1)


@pytest.mark.parametrize(("ndim", "value"), [(0, True), (1, [1])])
def test_tensors_whose_index_numpy_would_refuse(ndim, value):
    methods = {"__index__": lambda self: 1, "tolist": lambda self: value}
    tensor = type("Tensor", (), {"ndim": ndim, **methods})()  # torch tensors have these methods
    for rule in ({"num_outputs": tensor}, {"split": [tensor, 5]}, {"split": 2, "axis": tensor}):
        with pytest.raises(SplitTypeError):
            plan_split((6, 6), **rule)


@pytest.mark.parametrize("shape", [6, None, (6.0,), (True,), ("6",), {6}, [[6]]])
def test_a_shape_is_a_sequence_of_integers(shape):
    with pytest.raises(SplitTypeError, match="^split: shape=.*: must be a sequence of integers"):
        plan_split(shape, 2)


def test_an_extent_is_not_negative():
    with pytest.raises(SplitError, match=r"shape=\(-1,\): extents must be at least 0"):
        plan_split((-1,), 2)


def test_a_plan_is_frozen_hashable_and_checked_when_made_by_hand():
    plan = SplitPlan((4, 6), -1, [2, 4])
    assert plan == plan_split((4, 6), [2, 4], axis=1)
    assert hash(plan) == hash(plan_split((4, 6), [2, 4], axis=1))
    with pytest.raises(AttributeError):
        plan.axis = 0
    with pytest.raises(TypeError):
        plan.sizes[0] = 1
    with pytest.raises(SplitError, match="not to 7"):
        SplitPlan((4, 6), 1, (2, 5))
    with pytest.raises(SplitTypeError):
        SplitPlan((4, 6), 1, (2.0, 4))


def test_plans_and_errors_travel_between_processes():
    plan = plan_split((4, 6), [2, 4], axis=1)
    for twin in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan), copy.copy(plan)):
        assert twin == plan
        assert twin.output_shapes == plan.output_shapes
    with pytest.raises(SplitTypeError) as caught:
        plan_split((4, 6), 2.5)
    error = pickle.loads(pickle.dumps(caught.value))
    assert type(error) is SplitTypeError
    assert str(error) == str(caught.value)
    assert str(error.named("ONNX Split-13")).startswith("ONNX Split-13: split=2.5: must")


def test_repr_shows_axis_sizes_and_shapes():
    assert repr(plan_split((2, 7), axis=-1, num_outputs=3)) == (
        "SplitPlan(shape=(2, 7), axis=1, sizes=(3, 3, 1), output_shapes=((2, 3), (2, 3), (2, 1)))"
    )
    assert len(repr(plan_split((10**5,), 1))) < 300


def test_importing_the_package_imports_no_numba():
    code = (
        "import sys, splitjit, numpy as np\n"
        "splitjit.split(np.arange(6), 2); splitjit.plan_split((6,), 2)\n"
        "splitjit.split(np.arange(10**6), 2**18, copy=False)\n"
        "assert 'numba' not in sys.modules and 'onnx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
