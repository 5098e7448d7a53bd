"""Plans made by each rule: the case table, the laws and the refusals."""

import copy
import dataclasses
import functools
import itertools
import pickle
import pickletools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splitjit
from splitjit import SplitError, SplitPlan, SplitTypeError, plan_split
from splitjit._plan.rules import (
    CHUNK,
    COUNTS,
    NUM_SPLITS,
    PARAMETERS,
    WRONG_LENGTH,
    count_parts,
    size_of_part,
    sizes_of_parts,
)
from splitjit.errors import shorten
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


@pytest.mark.parametrize("kind", [CHUNK, *map(PARAMETERS.index, COUNTS)])
def test_sizes_are_those_of_each_part(kind):
    """Plans take `sizes_of_parts`; compiled code takes `size_of_part`."""
    for value, length in itertools.product(range(1, 20), range(60)):
        count, fault = count_parts(kind, value, length)
        if fault:
            assert (kind, fault) == (NUM_SPLITS, WRONG_LENGTH)
            continue
        sizes = tuple([size_of_part(kind, value, i, length) for i in range(count)])
        assert sizes == sizes_of_parts(kind, value, count, length)
        assert sum(sizes) == length


@given(shapes, st.data())
def test_laws(shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    length = shape[axis]
    count = data.draw(st.integers(1, 60))
    rules = ["split", "num_outputs", "num_sections", *["num_splits"] * (length % count == 0)]
    plan = plan_split(shape, axis=axis, **{data.draw(st.sampled_from(rules)): count})
    assert sum(plan.sizes) == length
    assert plan.axis == axis % len(shape)
    assert plan.offsets == tuple(sum(plan.sizes[:i]) for i in range(len(plan)))
    assert list(plan) == list(zip(plan.offsets, plan.sizes, strict=True))
    for size, out in zip(plan.sizes, plan.output_shapes, strict=True):
        assert out == (*shape[: plan.axis], size, *shape[plan.axis + 1 :])
    # The same lengths, given as `split`, make an equal plan.
    assert plan_split(shape, plan.sizes, axis=axis) == plan


@pytest.mark.parametrize("rule", [{"num_outputs": 2**31 - 1}, {"num_splits": 2**31 - 1}])
def test_a_plan_that_would_not_fit_in_memory(rule, monkeypatch):
    monkeypatch.setattr("splitjit._plan.plan.MOST_IN_MEMORY", 10**6)
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


@pytest.mark.parametrize("shape", [6, None, (6.0,), (True,), ("6",), {6}, [[6]], (-1,)])
def test_a_shape_is_a_sequence_of_integers_of_at_least_0(shape):
    says = "extents must be at least 0" if shape == (-1,) else "must be a sequence of integers"
    with pytest.raises(SplitError, match=f"^split: shape=.*: {says}") as caught:
        plan_split(shape, 2)
    assert (type(caught.value) is SplitTypeError) == (shape != (-1,))


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


def test_a_dict_of_a_plan_has_no_private_field():
    plan = plan_split((4, 600), num_splits=2, axis=1)
    plan(np.zeros((4, 600)))
    names = {"shape", "axis", "sizes", "offsets", "output_shapes", "slices"}
    assert dataclasses.asdict(plan).keys() == names
    assert dataclasses.replace(plan, sizes=(100, 500)).offsets == (0, 100)


def test_pickles_name_no_private_module():
    """So that plans and refusals can be loaded after private modules have moved."""
    for value in (plan_split((4, 6), [2, 4], axis=1), SplitError("split", "axis=1", "wrong")):
        data = pickle.dumps(value)
        names = [arg for _, arg, _ in pickletools.genops(data) if isinstance(arg, str)]
        assert any(name.startswith("splitjit") for name in names)
        assert not [name for name in names if "._" in name]


HINTS = [
    (((4, 6), [2, 4]), {}, "the lengths sum to the length of axis 1: pass axis=1"),
    (((6, 6), [2, 1]), {}, "pass them as indices= in ascending order"),
    (((3, 3, 4), [1, 2]), {"axis": 2}, "pass them as indices= in ascending order"),  # axis 0 or 1?
    (((7,),), {"num_splits": 2}, "num_outputs=2 allows a shorter last part"),
    (((6,),), {"num_splits": 4}, "num_sections=4 makes parts whose lengths differ by one"),
    (((4,),), {"num_splits": 8}, "must be a multiple of 8"),
    (((10,),), {"num_splits": [5, 5]}, "must be an integer; pass lengths as split=[5, 5]"),
    (((10,),), {"num_sections": np.array([5, 5])}, "split=array of int64, [5 5]"),
    (
        ((10,),),
        {"indices": 5},
        "pass indices=[5] to cut there, or num_sections=5 for so many parts",
    ),
    (((10,),), {"indices": True}, "must be a sequence of integers or a 1-D integer array"),
    (((10,), [0.8, 0.2]), {}, "for an axis of length n, pass split=[int(0.8 * n), -1]"),
    (((10,), [0.7, 0.2]), {}, "; convert floats by int(), or divide integers by //"),
    (((10,), [0.5, 0.5, 2]), {}, "; convert floats by int(), or divide integers by //"),
    (((10,), [8.0, 2.0]), {}, "; convert floats by int(), or divide integers by //"),
    (((10,), 10 / 2), {}, "; convert floats by int(), or divide integers by //"),
    (
        ((10,),),
        {"num_outputs": np.float64(2)},
        "; convert floats by int(), or divide integers by //",
    ),
    *[
        ((x, 2), {}, "type ndarray and dtype float64: must be a sequence of integers; pass x.shape")
        for x in (np.zeros((2, 3)), np.zeros(4), np.zeros(()))
    ],
    ((6, 2), {}, "shape=6: must be a sequence of integers; pass (6,)"),
    ((np.int64(6), 2), {}, "shape=np.int64(6): must be a sequence of integers; pass (6,)"),
    ((True, 2), {}, "shape=True: must be a sequence of integers"),
    (((6,), iter([2, 4])), {}, "a 1-D integer array; pass list(split)"),
    (((6,),), {"indices": iter([2])}, "a 1-D integer array; pass list(indices)"),
    ((np.zeros((2, 2), int), 2), {}, "must be a sequence of integers; pass x.shape"),
]


@pytest.mark.parametrize(("arguments", "rule", "end"), HINTS)
def test_a_hint_helps(arguments, rule, end):
    with pytest.raises(SplitError) as caught:
        plan_split(*arguments, **rule)
    assert str(caught.value).endswith(end)
    if end.startswith("num_sections"):  # no part is empty, as one would be by num_outputs
        assert min(plan_split(*arguments, num_sections=rule["num_splits"]).sizes) > 0


def test_long_arrays_are_abbreviated():
    text = shorten(np.arange(10**6) + 0.5)
    assert re.fullmatch(r"array of float64, \[5\.0.*\.\.\..*9\.9999\S*\]", text)
    assert len(shorten(np.arange(500))) <= 120


X = np.zeros((2, 6))
CALLS = {
    "split": functools.partial(splitjit.split, X),
    "plan_split": functools.partial(plan_split, X.shape),
    "explain": functools.partial(splitjit.explain, X),
    "split_into": functools.partial(splitjit.split_into, X, [X]),
    "ONNX Split": splitjit.onnx.Split,
    "ONNX Split-18": splitjit.onnx.Split(num_outputs=2),
    "ONNX SplitToSequence": splitjit.onnx.SplitToSequence,
    "OpenVINO Split-1": functools.partial(splitjit.openvino.Split(num_splits=2), X),
    "OpenVINO VariadicSplit-1": splitjit.openvino.VariadicSplit().infer_shapes,
}
RULES = ("split", "plan_split", "explain", "split_into")
MISSPELT = [
    *[(name, *words) for name in RULES for words in (
        ("dim", "axis"), ("sections", "num_sections"), ("chunks", "num_outputs"),
        ("num_outptus", "num_outputs"), ("indeces", "indices"), ("nonsense", None),
        ("indices_or_sections", "num_splits or num_sections or indices"),
        ("num_or_size_splits", "num_splits or split"))],
    ("split", "outs", "out"), ("plan_split", "shapes", "shape"), ("split_into", "out", "outs"),
    ("ONNX Split", "num_output", "num_outputs"), ("ONNX Split-18", "lengths", "split"),
    ("ONNX SplitToSequence", "keepdim", "keepdims"), ("OpenVINO Split-1", "dim", "axis"),
    ("OpenVINO VariadicSplit-1", "split_length", "split_lengths"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "meant"), MISSPELT)
def test_a_misspelt_parameter_is_refused_with_the_right_one(name, given, meant):
    hint = f"; did you mean {meant}[?]" if meant else ""
    says = f"^{name}: {given}=2: there is no parameter {given}{hint}$"
    with pytest.raises(SplitTypeError, match=says):
        CALLS[name](**{given: 2})


@pytest.mark.parametrize("dtypes", ["float32", np.float32, np.dtype("f4")])
def test_one_dtype_is_no_list_of_dtypes(dtypes):
    with pytest.raises(SplitTypeError, match=r'^warmup: dtypes=.*such as \["float32"\]$'):
        splitjit.warmup(dtypes)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_after_the_axis_needs_its_name(name):
    for value in (1, None):
        with pytest.raises(TypeError, match=rf"^{name}(: argument=.* by name|\(\) takes .*)$"):
            CALLS[name](2, 0, value)


def test_the_axis_may_follow_the_rule():
    x = np.arange(12.0).reshape(2, 6)
    expected = [part.tolist() for part in splitjit.split(x, 4, axis=1)]
    assert [part.tolist() for part in splitjit.split(x, 4, 1)] == expected
    assert plan_split(x.shape, 4, 1) is plan_split(x.shape, 4, axis=1)
    assert splitjit.explain(x, 4, 1).parts == 2
    out = plan_split(x.shape, 4, 1).empty(x.dtype)
    splitjit.split_into(x, out, 4, 1)
    assert [part.tolist() for part in out] == expected
