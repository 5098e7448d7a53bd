"""ONNX Split and SplitToSequence: versions, types, rules, shapes and refusals."""

import re

import ml_dtypes
import numpy as np
import pytest

import splitjit
from splitjit import SplitError, SplitTypeError
from splitjit._tensor_types import TENSOR_TYPES
from splitjit.errors import shorten
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


def test_defaults_are_the_newest_split_and_the_first_split_to_sequence():
    assert Split().since_version == 18
    assert SplitToSequence().since_version == 11


ATTRIBUTES = [  # opset; attributes split and num_outputs, input split
    (1, True, False, True),
    (2, True, False, False),
    (11, True, False, False),
    (13, False, False, True),
    (18, False, True, True),
]


@pytest.mark.parametrize(("opset", "split", "num_outputs", "split_input"), ATTRIBUTES)
def test_what_a_version_does_not_have_is_refused(opset, split, num_outputs, split_input):
    with_outputs = {} if opset == 18 else {"outputs": 2}
    if split:
        assert lists(Split(opset=opset, split=[2, 4])(SIX)) == [[1, 2], [3, 4, 5, 6]]
    else:
        with pytest.raises(SplitError, match=rf"ONNX Split-{opset}: split=\[2, 4\]: "):
            Split(opset=opset, split=[2, 4])
    if num_outputs:
        assert lists(Split(opset=opset, num_outputs=4)(SIX)) == [[1, 2], [3, 4], [5, 6], []]
    else:
        with pytest.raises(SplitError, match=f"ONNX Split-{opset}: num_outputs=4: only Split-18"):
            Split(opset=opset, num_outputs=4, **with_outputs)
    lengths = [2.0, 4.0] if opset == 1 else [2, 4]
    if split_input:
        assert lists(Split(opset=opset)(SIX, lengths)) == [[1, 2], [3, 4, 5, 6]]
    else:
        with pytest.raises(SplitError, match=rf"ONNX Split-{opset}: split=\[2, 4\]: "):
            Split(opset=opset, **with_outputs)(SIX, lengths)


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


@pytest.mark.parametrize("dtype", [object, "U5", np.dtypes.StringDType()], ids=str)
def test_strings(dtype):
    x = np.array(["", "ab", "ÄÖ", "日本"], dtype)
    for parts in (Split(opset=2, outputs=2)(x), SplitToSequence()(x, 2)):
        check_parts(parts, x)
        assert lists(parts) == [["", "ab"], ["ÄÖ", "日本"]]


@pytest.mark.parametrize("opset", [1, 2, 11, 13])
def test_split_1_to_13_without_split_requires_outputs(opset):
    """Without an input `split`, at construction; with one, at the call."""
    call = Split(opset=opset) if opset in (1, 13) else lambda x: Split(opset=opset)
    with pytest.raises(SplitError, match=f"ONNX Split-{opset}: split=None, outputs=None"):
        call(SIX)


@pytest.mark.parametrize("opset", [13, 18])
def test_split_13_and_18_take_lists_as_int64(opset):
    for lengths in ([2, 4], (2, 4), np.array([2, 4]), np.array([2, 4], ">i8")):
        assert lists(Split(opset=opset)(SIX, lengths)) == [[1, 2], [3, 4, 5, 6]]


def test_split_1_input_has_the_type_of_the_input():
    operator = Split(opset=1)
    for dtype in ("f2", "f4", "f8"):
        parts = operator(SIX.astype(dtype), np.array([2, 4], dtype))
        assert lists(parts) == [[1, 2], [3, 4, 5, 6]]
    for lengths in ([2.0, 4], [np.float32(2), 4]):
        assert lists(operator(SIX, lengths)) == [[1, 2], [3, 4, 5, 6]]
    with pytest.raises(SplitTypeError, match=r"must have rank 1 and be of tensor\(float\)"):
        operator(SIX, np.array([2.0, 4.0]))


def test_split_18_num_outputs_above_outputs_drops_the_tail():
    operator = Split(num_outputs=4, outputs=2)
    assert lists(operator(SIX)) == [[1, 2], [3, 4]]
    assert operator.infer_shapes([6]) == [(2,), (2,)]


def test_attributes_are_checked_at_construction():
    for wrong in (
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


@pytest.mark.parametrize("kind", [np.int32, np.int64, int])
def test_split_to_sequence_takes_int32_and_int64(kind):
    assert lists(SplitToSequence()(SIX, kind(4))) == [[1, 2, 3, 4], [5, 6]]
    assert lists(SplitToSequence()(SIX, [kind(2), kind(4)])) == [[1, 2], [3, 4, 5, 6]]


@pytest.mark.parametrize(
    ("shape", "split"),
    [
        ([-1], None),
        ([True], None),
        ([2.0], None),
        ("N", None),
        (None, None),
        ([], None),
        (["N"], [2, -1]),
        (["N"], [2, 1.5]),
        ([6], [2.0, 4]),
        ([6], [2, 2]),
        ([6], [None, 6]),
    ],
    ids=str,
)
def test_infer_shapes_refuses(shape, split):
    operator = Split(num_outputs=2) if split is None else Split()
    with pytest.raises(SplitError, match="ONNX Split-18: "):
        operator.infer_shapes(shape, split)


def test_infer_shapes_names_the_shape_it_was_given():
    message = (
        "ONNX Split-18: split=(2, 4), axis=1, shape=('N', 7): "
        "lengths must sum to the axis length 7, not to 6"
    )
    with pytest.raises(SplitError, match=re.escape(message)):
        Split(axis=1).infer_shapes(["N", 7], [2, 4])


class Raising:
    def __array__(self, *_, **__):
        raise RuntimeError("no array")


def named(value):
    return type(value).__name__ if type(value) in (object, Raising) else shorten(value)


LENGTHS = [
    [-1, 7], [2, 3], [2**63 - 1, 2**63 - 1], [2**63 - 1, 2**63 - 1, 8], [2**64, -(2**64) + 6],
    [2.5, 3.5], [np.nan, 6], [np.inf, -np.inf], [None, 6], ["2", "4"], [True, 5], [[2, 4]], [],
    "24", b"24", 2.0, True, 3j, {2, 4}, {2: 4}, object(), Raising(), 10**5000, [10**5000],
    np.array([[2, 4]]), np.array([2, 4], np.uint64), np.array([2, 4], bool),
    np.array([2**63 - 1, 2**63 - 1, 8]), np.array([-(2**63), 6]), np.array(["2", "4"]),
    np.array([2, 4], object), np.array([6, np.nan], "f4"), np.array([np.inf], "f4"),
    np.array([-1, 7], "f4"), np.array([3.4e38, 3.4e38], "f4"), np.array([5e-324, 6]),
]  # fmt: skip


@pytest.mark.parametrize("split", LENGTHS, ids=named)
@pytest.mark.parametrize(
    "operator",
    [
        Split(opset=1),
        Split(opset=13),
        Split(outputs=2),
        SplitToSequence(),
        SplitToSequence(opset=24),
    ],
    ids=["Split-1", "Split-13", "Split-18", "SplitToSequence-11", "SplitToSequence-24"],
)
def test_hostile_lengths_end_in_a_named_refusal(operator, split):
    if isinstance(operator, SplitToSequence) and type(split) is int:
        assert lists(operator(SIX, split)) == [SIX.tolist()]  # longer than the axis: one part
        return
    name = f"ONNX {type(operator).__name__}-{operator.since_version}: split="
    for run in (lambda: operator(SIX, split), lambda: operator.infer_shapes([6], split)):
        with pytest.raises(SplitError, match=re.escape(name)):
            run()


@pytest.mark.parametrize(
    "x", [0.0, np.float32(1), Raising(), [[1], [1, 2]], None, np.zeros(())], ids=named
)
@pytest.mark.parametrize("operator", [Split(num_outputs=2), SplitToSequence()])
def test_hostile_inputs_end_in_a_named_refusal(operator, x):
    with pytest.raises(SplitError, match=r"ONNX Split(ToSequence-11|-18): "):
        operator(x)


@pytest.mark.parametrize("axis", [1, -2, 2**63, -(2**63), 10**5000], ids=named)
@pytest.mark.parametrize("kind", [Split, SplitToSequence])
def test_hostile_axes_end_in_a_named_refusal(kind, axis):
    operator = kind(axis=axis, **({"num_outputs": 2} if kind is Split else {}))
    with pytest.raises(SplitError, match=r"ONNX Split(ToSequence-11|-18): axis=.*must be in"):
        operator(SIX)


TWELVE = np.arange(1, 13, dtype=np.float32).reshape(2, 6)
HALVES = [[[1, 2, 3], [7, 8, 9]], [[4, 5, 6], [10, 11, 12]]]
UNEVEN = [[[1, 2], [7, 8]], [[3, 4, 5, 6], [9, 10, 11, 12]]]
PAIRS = [[1, 2], [3, 4], [5, 6]]
TWO_FOUR = np.array([2, 4])
SEVEN = np.arange(1, 8, dtype=np.float32)
SIXTEEN = np.arange(1, 17, dtype=np.float32).reshape(2, 8)
EMPTY = np.zeros(0, np.float32)

EXAMPLES = {
    "1d: equal parts": ({"axis": 0}, SIX, None, PAIRS),
    "1d: variable parts": ({"axis": 0}, SIX, TWO_FOUR, [[1, 2], [3, 4, 5, 6]]),
    "2d: equal parts": ({"axis": 1}, TWELVE, None, HALVES),
    "2d: variable parts": ({"axis": 1}, TWELVE, TWO_FOUR, UNEVEN),
    "default_values: equal parts": ({}, SIX, None, PAIRS),
    "default_values: variable parts": ({}, SIX, TWO_FOUR, [[1, 2], [3, 4, 5, 6]]),
    "zero_size_splits": ({}, EMPTY, np.array([0, 0, 0]), [[], [], []]),
    "1d_uneven_split": ({}, SEVEN, None, [[1, 2], [3, 4], [5, 6], [7]]),
    "2d_uneven_split": ({"axis": 1}, SIXTEEN, None,
                        [[[1, 2, 3], [9, 10, 11]], [[4, 5, 6], [12, 13, 14]], [[7, 8], [15, 16]]]),
}  # fmt: skip


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_of_the_specification(name, opset):
    attributes, x, split, expected = EXAMPLES[name]
    if split is None and opset == 18:
        attributes = {**attributes, "num_outputs": len(expected)}
    operator = Split(opset=opset, outputs=len(expected), **attributes)
    if "uneven" in name and opset == 13:
        with pytest.raises(SplitError, match="must be a multiple"):
            operator(x)
        return
    parts = operator(x, split)
    check_parts(parts, x)
    assert lists(parts) == expected
    assert operator.infer_shapes(x.shape, split) == [part.shape for part in parts]


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


def test_unknown_attributes_of_the_modules():
    with pytest.raises(AttributeError, match="has no attribute 'Splits'"):
        splitjit.onnx.Splits  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute 'tensorflow'"):
        splitjit.tensorflow  # noqa: B018


@pytest.mark.slow
def test_a_graph_of_torch_may_make_an_operator():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0)

    def function(x):
        return Split(num_outputs=4, outputs=3)(x)

    torch._dynamo.reset()
    parts = torch.compile(function, backend="eager", fullgraph=True)(x)
    assert lists(parts) == lists(function(x)) == [[0, 1], [2, 3], [4, 5]]
