"""ONNX Split and SplitToSequence: versions, types, rules, shapes and refusals."""

import re

import ml_dtypes
import numpy as np
import pytest

from splitjit import SplitError, SplitTypeError
from splitjit._tensor_types import TENSOR_TYPES
from splitjit.onnx import Split, SplitToSequence
from tests.cases import tensor_dtype
from tests.operators.common import lists
from tests.processes import python

SIX = np.arange(1, 7, dtype=np.float32)


def check_parts(parts, x):
    """Check that the parts are contiguous arrays that do not share memory with x."""
    for part in parts:
        assert type(part) is np.ndarray
        assert part.flags.c_contiguous
        assert part.flags.writeable
        assert part.dtype == x.dtype
        assert not np.shares_memory(part, x)


def of_version(operator, opset):
    if operator is SplitToSequence:
        return SplitToSequence(opset=opset)
    return Split(opset=opset, **({"num_outputs": 2} if opset >= 18 else {"outputs": 2}))


@pytest.mark.parametrize(
    ("operator", "opsets", "version"),
    [
        (Split, [1], 1),
        (Split, range(2, 11), 2),
        (Split, [11, 12], 11),
        (Split, range(13, 18), 13),
        (Split, [18, 19, 24, 27, 1000], 18),
        (SplitToSequence, range(11, 24), 11),
        (SplitToSequence, [24, 25, 1000], 24),
    ],
)
def test_opset_resolves_to_the_version_in_force(operator, opsets, version):
    for opset in opsets:
        run = of_version(operator, opset)
        assert run.since_version == version
        assert lists(run(SIX[:2])) == [[1], [2]]


WITH_LENGTHS = {
    # what gives the lengths: a call, and the versions that have it
    "attribute": (lambda opset: Split(opset=opset, split=[2, 2])(SIX[:4]), (1, 2, 11)),
    "num_outputs": (lambda opset: Split(opset=opset, num_outputs=2)(SIX[:4]), (18,)),
    "input": (lambda opset: Split(opset=opset, outputs=2)(SIX[:4], [2, 2]), (1, 13, 18)),
}


@pytest.mark.parametrize("opset", [1, 2, 11, 13, 18])
@pytest.mark.parametrize(("run", "versions"), WITH_LENGTHS.values(), ids=WITH_LENGTHS)
def test_what_a_version_does_not_have_is_refused(run, versions, opset):
    if opset in versions:
        assert lists(run(opset)) == [[1, 2], [3, 4]]
        return
    with pytest.raises(SplitError, match=rf"ONNX Split-{opset}: (split=\[2, 2\]|num_outputs=2): "):
        run(opset)


VERSIONS = [*[(Split, opset) for opset in (1, 2, 11, 13, 18)],
            *[(SplitToSequence, opset) for opset in (11, 24)]]  # fmt: skip


def first_to_take(operator, name):
    """Return the first version of an operator that takes a type."""
    if operator is SplitToSequence:
        return 24 if name == "tensor(bfloat16)" else 11
    if name in ("tensor(float16)", "tensor(float)", "tensor(double)"):
        return 1
    return 13 if name == "tensor(bfloat16)" else 2


@pytest.mark.parametrize("name", TENSOR_TYPES)
@pytest.mark.parametrize(("operator", "opset"), VERSIONS)
def test_types(operator, opset, name):
    x = np.array([1, 0]).astype(tensor_dtype(name))
    run, since = of_version(operator, opset), first_to_take(operator, name)
    if opset >= since:
        for order in "<>" if x.dtype.kind in "iufcb" else "=":
            ordered = x.astype(x.dtype.newbyteorder(order))
            parts = run(ordered)
            check_parts(parts, ordered)
            assert lists(parts) == [[x.tolist()[0]], [x.tolist()[1]]]
        return
    kind = operator.__name__
    says = f"{re.escape(name)}: only {kind}-{since} and later take this type"
    with pytest.raises(SplitTypeError, match=f"^ONNX {kind}-{opset}: input of dtype .*{says}"):
        run(x)


@pytest.mark.parametrize(
    "dtype",
    ["S3", "V5", "M8[s]", "m8[s]", np.longdouble, ml_dtypes.float8_e5m2, ml_dtypes.int4],
    ids=str,
)
@pytest.mark.parametrize("operator", [Split(num_outputs=2), SplitToSequence(opset=24)])
def test_types_that_no_version_has(operator, dtype):
    with pytest.raises(
        SplitTypeError, match=r"input of dtype .*: no version of Split\w* takes this type"
    ):
        operator(np.zeros(2, dtype))


def test_attributes_are_checked_at_construction():
    for wrong in (
        {"opset": 2},
        {"opset": 11},
        {"opset": 11, "split": [-1, 7]},
        {"opset": 11, "split": []},
        {"opset": 11, "split": [2, 4], "outputs": 3},
        {"opset": 11, "split": [True, 5]},
        {"opset": 11, "split": 3},
        {"num_outputs": 2, "outputs": 3},
        {"num_outputs": 0},
        {"num_outputs": 2**31},
        {"outputs": 0},
        {"axis": 0.0},
        {"axis": True},
        {"opset": 18.0},
        {"opset": 0},
    ):
        with pytest.raises(SplitError, match="ONNX Split"):
            Split(**wrong)
    for wrong in ({"keepdims": 2}, {"keepdims": None}, {"axis": None}, {"opset": 10}):
        with pytest.raises(SplitError, match="ONNX SplitToSequence"):
            SplitToSequence(**wrong)


def test_split_to_sequence_keepdims_0_squeezes_into_parts_of_their_own():
    x = np.arange(24.0).reshape(2, 3, 4)
    for axis in (1, -2):
        parts = SplitToSequence(axis=axis, keepdims=0)(x)
        check_parts(parts, x)
        assert lists(parts) == [x[:, i].tolist() for i in range(3)]
    assert lists(SplitToSequence(keepdims=0)(SIX, [1, 5])) == [[1], [2, 3, 4, 5, 6]]
    scalars = SplitToSequence(keepdims=0)(np.array(["a", "b"], object))
    assert [(type(part), part.shape) for part in scalars] == [(np.ndarray, ())] * 2


def test_jax_compiles_an_operator(jax):  # and refers to it weakly
    parts = jax.jit(SplitToSequence(axis=-1, keepdims=0))(np.arange(6.0).reshape(2, 3))
    assert [part.tolist() for part in parts] == [[0, 3], [1, 4], [2, 5]]


def test_split_to_sequence_keepdims_0_of_an_array_api_library():
    strict = pytest.importorskip("array_api_strict")  # its arrays have no method `squeeze`
    x = np.arange(6.0).reshape(2, 3)
    parts = SplitToSequence(axis=-1, keepdims=0)(strict.asarray(x))
    assert [np.asarray(part).tolist() for part in parts] == x.T.tolist()


@pytest.mark.parametrize(
    ("shape", "split"),
    [
        *[(shape, None) for shape in ([-1], [True], [2.0], "N", None, [])],
        *[(["N"], [2, last]) for last in (-1, 1.5)],
        *[([6], lengths) for lengths in ([2.0, 4], [2, 2], [None, 6])],
    ],
    ids=str,
)
def test_infer_shapes_refuses(shape, split):
    operator = Split(num_outputs=2) if split is None else Split()
    with pytest.raises(SplitError, match="ONNX Split-18: "):
        operator.infer_shapes(shape, split)


def test_without_the_onnx_package_only_what_needs_it_is_missing():
    code = """
import sys
sys.modules["onnx"] = None
import splitjit
print(splitjit.onnx.Split(num_outputs=2)([1.0, 2.0]), end=" ")
for name in ("reference_ops", "SplitBackend"):
    try:
        getattr(splitjit.onnx, name)
    except ImportError as error:
        print(error, end=" ")
"""
    assert python("-W", "error", "-c", code).strip() == (
        "[array([1.]), array([2.])] "
        "splitjit.onnx.reference_ops needs the onnx package: pip install onnx "
        "splitjit.onnx.SplitBackend needs the onnx package: pip install onnx"
    )
