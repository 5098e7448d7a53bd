"""OpenVINO Split-1 and VariadicSplit-1: rules, shapes, refusals, and comparison with OpenVINO."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splitjit import SplitError
from splitjit.openvino import Split, VariadicSplit
from tests.conftest import long
from tests.operators.common import check_equal, lists

SIX = np.arange(6)
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_split_axis_is_0d_of_any_integer_type(dtype):
    for axis in (np.array(0, dtype), np.dtype(dtype).type(0)):
        assert lists(Split(num_splits=2)(SIX, axis)) == [[0, 1, 2], [3, 4, 5]]
        assert Split(num_splits=2).infer_shapes([6], axis) == [(3,), (3,)]


@pytest.mark.parametrize("num_splits", [0, -1, 2**31, 2.0, True, None, "2"])
def test_split_num_splits_is_checked_at_construction(num_splits):
    with pytest.raises(SplitError, match="OpenVINO Split-1: num_splits="):
        Split(num_splits=num_splits)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_variadic_axis_is_0d_or_of_shape_1_and_lengths_of_any_integer_type(dtype):
    for axis in (np.array(0, dtype), np.array([0], dtype), [0], 0):
        assert lists(VariadicSplit()(SIX, axis, np.array([2, 4], dtype))) == [[0, 1], [2, 3, 4, 5]]


def test_jax_compiles_the_operators(jax):  # and refers to them weakly
    x = np.arange(6.0)
    halves = jax.jit(Split(num_splits=2), static_argnums=1)(x, 0)
    assert [part.tolist() for part in halves] == [[0, 1, 2], [3, 4, 5]]
    unequal = jax.jit(VariadicSplit(), static_argnums=(1, 2))(x, 0, (1, 5))
    assert [len(part) for part in unequal] == [1, 5]


def test_variadic_no_lengths_fit_only_an_axis_of_length_0():
    assert VariadicSplit()(SIX[:0], 0, []) == []
    assert VariadicSplit()(SIX[:0], 0, np.zeros(0, np.int64)) == []
    with pytest.raises(SplitError, match=r"VariadicSplit-1: split_lengths=\(\)"):
        VariadicSplit()(SIX, 0, [])


# OpenVINO takes no arrays of bfloat16 or 4-bit types from Python. Its parts of strings are wrong,
# see docs/conformance.md.
NUMBERS = ["?", *INTEGERS, "f2", "f4", "f8"]
numbers = pytest.mark.parametrize("dtype", long(*NUMBERS, if_not=("i4", "f4")))


@st.composite
def splits(draw):
    """Draw a shape, an axis, and lengths that sum to the length of the axis."""
    shape = draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    shape[axis] = sum(lengths)
    return tuple(shape), axis, lengths


def array_of(shape, dtype):
    return (np.arange(math.prod(shape)) % 113).astype(dtype).reshape(shape)


def run_openvino(make, data, kind):
    """Run a model of one parameter and the node that `make` returns for it."""
    openvino = pytest.importorskip("openvino")
    from openvino import opset8

    parameter = opset8.parameter(list(data.shape), getattr(openvino.Type, kind))
    node = make(opset8, parameter)
    compiled = openvino.Core().compile_model(openvino.Model(node.outputs(), [parameter]), "CPU")
    results = compiled([data])
    return [results[port] for port in compiled.outputs]


def type_name(dtype):
    kind = np.dtype(dtype)
    return "boolean" if kind.kind == "b" else f"{kind.kind}{8 * kind.itemsize}"


@pytest.mark.slow
@numbers
@settings(max_examples=10, deadline=None, derandomize=True)
@given(split=splits(), num_splits=st.integers(1, 5), axis_type=st.sampled_from(INTEGERS))
def test_split_equals_openvino(dtype, split, num_splits, axis_type):
    shape, axis, _ = split
    axis = np.array(axis if axis_type[0] == "i" else axis % len(shape), axis_type)
    shape = tuple(n * num_splits if i == axis % len(shape) else n for i, n in enumerate(shape))
    data = array_of(shape, dtype)

    def make(ops, parameter):
        return ops.split(parameter, ops.constant(axis), num_splits)

    expected = run_openvino(make, data, type_name(dtype))
    check_equal(Split(num_splits=num_splits)(data, axis), expected)


@pytest.mark.slow
@numbers
@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    split=splits(),
    lengths_type=st.sampled_from(INTEGERS),
    rest=st.integers(0, 4),
    axis_rank=st.integers(0, 1),
)
def test_variadic_equals_openvino(dtype, split, lengths_type, rest, axis_rank):
    shape, axis, lengths = split
    if rest < len(lengths) and lengths_type[0] == "i":
        lengths[rest] = -1
    data = array_of(shape, dtype)
    axis = np.array(axis, np.int64).reshape((1,) * axis_rank)
    lengths = np.array(lengths, lengths_type)

    def make(ops, parameter):
        return ops.variadic_split(parameter, ops.constant(axis), ops.constant(lengths))

    expected = run_openvino(make, data, type_name(dtype))
    check_equal(VariadicSplit()(data, axis, lengths), expected)
