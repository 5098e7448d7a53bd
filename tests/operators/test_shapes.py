"""Shape inference with inputs that are known only at run time, and with unknown dims."""

import contextlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from splitjit import SplitError, openvino, plan_split
from splitjit._operators import infer_shapes
from splitjit._plan.rules import CHUNK, LENGTHS, NUM_OUTPUTS, NUM_SECTIONS, NUM_SPLITS, PARAMETERS
from splitjit.onnx import Split, SplitToSequence, Unknown

UNKNOWN = Unknown()

DYNAMIC = (0, -1)  # OpenVINO's dim without bounds

# No test of another project has these.
OURS = [
    ("other dims unknown", Split(axis=-1, num_outputs=2), ["N", None, 4], None,
     [("N", None, 2)] * 2),
    ("axis length unknown, num_outputs", Split(num_outputs=2), ["N", 3], None, [(None, 3)] * 2),
    ("axis length unknown, lengths", Split(), [None, 3], [2, 4], [(2, 3), (4, 3)]),
    ("axis length unknown, equal parts", Split(opset=13, outputs=2), [None], None, [(None,)] * 2),
    ("axis length unknown, attribute", Split(opset=11, split=[2, 4]), ["N"], None, [(2,), (4,)]),
    ("sequence, squeezed", SplitToSequence(axis=-1, keepdims=0), ["N", 2], None, [("N",)] * 2),
    ("sequence, axis length unknown", SplitToSequence(), ["N", 3], None, [(1, 3), ...]),
    ("sequence, axis length unknown, squeezed", SplitToSequence(keepdims=0), ["N", 3], None,
     [(3,), ...]),
    ("sequence, axis length unknown, chunks", SplitToSequence(), ["N", 3], 2, [(None, 3), ...]),
    ("equal parts, no input", Split(opset=13, outputs=3), (6, "N"), None, [(2, "N")] * 3),
    ("outputs", Split(opset=13, outputs=3), (6, "N"), UNKNOWN, [(None, "N")] * 3),
    ("count", Split(opset=13), (6, "N"), Unknown(2), [(None, "N")] * 2),
    ("count unknown", Split(opset=13), (6, "N"), UNKNOWN, [(None, "N"), ...]),
    ("one output is the input", Split(outputs=1), ("N", 3), UNKNOWN, [("N", 3)]),
    ("one length is the axis length", Split(), (6, 3), Unknown(1), [(6, 3)]),
    ("an empty axis has empty parts", Split(), (0, 3), Unknown(2), [(0, 3)] * 2),
    ("the attribute is known", Split(opset=1, split=[2, 4]), (6,), UNKNOWN, [(2,), (4,)]),
    ("rank unknown, equal parts", Split(opset=13, outputs=2), UNKNOWN, None, [None] * 2),
    ("rank unknown, num_outputs", Split(num_outputs=3, outputs=2), UNKNOWN, None, [None] * 2),
    ("rank unknown, lengths", Split(), UNKNOWN, [2, 4], [None] * 2),
    ("rank unknown, lengths unknown", Split(), UNKNOWN, UNKNOWN, [None, ...]),
    ("rank known", Split(axis=1), Unknown(3), [2, 4], [(None, 2, None), (None, 4, None)]),
    ("interval that passes through", Split(num_outputs=2, axis=1), ((3, -1), 4), None,
     [((3, -1), 2)] * 2),
    ("interval of one extent", Split(num_outputs=2), ((4, 4), (0, -1)), None, [(2, None)] * 2),
    ("sequence", SplitToSequence(), (6, "N"), UNKNOWN, [(None, "N"), ...]),
    ("sequence, count", SplitToSequence(axis=1), (6, "N"), Unknown(2), [(6, None)] * 2),
    ("sequence, no lengths", SplitToSequence(), (0, "N"), Unknown(0), []),
    ("sequence, keepdims ignored", SplitToSequence(keepdims=0), (6,), UNKNOWN, [(None,), ...]),
    ("sequence, rank unknown", SplitToSequence(), UNKNOWN, None, [None, ...]),
    ("sequence, rank unknown, lengths", SplitToSequence(), UNKNOWN, [2, 4], [None, None]),
]  # fmt: skip

OPENVINO_RUN_TIME = [
    # data, axis, lengths, shapes
    ((2, 6), 1, Unknown(3), [(2, None)] * 3),
    ((2, 6), 1, Unknown(1), [(2, 6)]),
    ((2, 6), 1, UNKNOWN, [(2, None), ...]),
    (("N", "M"), -1, Unknown(2), [("N", None)] * 2),
    ((2, 6), UNKNOWN, [2, 4], [(None, None)] * 2),
    ((2, 6), UNKNOWN, [-1, 4], [(None, None)] * 2),
    ((2, 6), UNKNOWN, Unknown(3), [(None, None)] * 3),
    ((2, 6), UNKNOWN, UNKNOWN, [(None, None), ...]),
    (UNKNOWN, 1, [2, -1], [None] * 2),
    (UNKNOWN, [1], Unknown(3), [None] * 3),
    (UNKNOWN, UNKNOWN, UNKNOWN, [None, ...]),
    ((0, 3), 0, Unknown(0), []),
    (((2, 6),), 0, [-1], [((2, 6),)]),
    (((5, -1), "N"), 0, [2, -1], [(2, "N"), ((3, -1), "N")]),
    (("N",), 0, [0, -1], [(0,), ("N",)]),
    (["N", 4], 1, [1, -1], [("N", 1), ("N", 3)]),
    (["N", 4], -2, [1, -1], [(1, 4), (None, 4)]),
    (["N", 4], [0], [-1], [("N", 4)]),
    ([None, 4], 0, [1, 2], [(1, 4), (2, 4)]),
    ([np.int64(6)], 0, [1, -1], [(1,), (5,)]),
]


def rows(*tables):
    return [pytest.param(*row[1:], id=row[0]) for table in tables for row in table]


@pytest.mark.parametrize(("operator", "shape", "split", "expected"), rows(OURS))
def test_onnx(operator, shape, split, expected):
    assert operator.infer_shapes(shape, split) == expected


@pytest.mark.parametrize(("shape", "axis", "lengths", "expected"), OPENVINO_RUN_TIME)
def test_openvino_variadic_split(shape, axis, lengths, expected):
    assert openvino.VariadicSplit().infer_shapes(shape, axis, lengths) == expected


REFUSED = [
    ("count", lambda: Split(outputs=3).infer_shapes((6,), Unknown(2)),
     "ONNX Split-18: split=Unknown(length=2), outputs=3: there must be one length per output"),
    ("no output", lambda: Split().infer_shapes((6,), Unknown(0)), "at least one output"),
    ("num_outputs", lambda: Split(num_outputs=3).infer_shapes((6,), UNKNOWN), "only one of the"),
    ("no lengths", lambda: SplitToSequence().infer_shapes((6,), Unknown(0)),
     "lengths must sum to the axis length 6, not to 0"),
    ("rank 0", lambda: openvino.Split(num_splits=1).infer_shapes((), UNKNOWN), "rank 0"),
    ("rank unknown", lambda: Split().infer_shapes(UNKNOWN, [2, -1]), "at least 0, not -1"),
    ("too short", lambda: openvino.VariadicSplit().infer_shapes(((7, 9),), 0, [2, 4]),
     "shape=((7, 9),): lengths must sum to the axis length 7, not to 6"),
    ("rest", lambda: openvino.VariadicSplit().infer_shapes(((2, 3),), 0, [4, -1]),
     "lengths other than -1 must sum to at most the axis length 3, not to 4"),
    ("unknown as in OpenVINO", lambda: openvino.Split(num_splits=2).infer_shapes([-1, 6], 1),
     "shape=(-1, 6): extents must be at least 0, and bounds in order; pass None for an"),
    ("interval upside down", lambda: Split(num_outputs=1).infer_shapes(((3, 2),)),
     "and bounds in order; pass None"),
    ("length", lambda: Unknown(-1), "Unknown: length=-1: must be in [0, 2147483647]"),
    ("float", lambda: Unknown(2.0), "Unknown: length=2.0: must be an integer"),
    ("doubles", lambda: Split(opset=1)(np.zeros(6, "f4"), np.array([2.0, 4.0])),
     "split=array of float64, [2. 4.]: must have rank 1 and be of tensor(float)"),
    ("a call", lambda: Split()(np.arange(6), UNKNOWN), "ONNX Split-18: split=Unknown("),
    ("a call of OpenVINO", lambda: openvino.Split(num_splits=1)([6], UNKNOWN), "axis=Unknown("),
    ("variadic lengths", lambda: openvino.VariadicSplit()([6], 0, UNKNOWN), "lengths=Unknown("),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), rows(REFUSED))
def test_refusals(call, message):
    with pytest.raises(SplitError) as refusal:
        call()
    assert message in str(refusal.value)


RULES = st.one_of(
    st.tuples(st.sampled_from([CHUNK, NUM_OUTPUTS, NUM_SPLITS, NUM_SECTIONS]), st.integers(1, 7)),
    st.tuples(st.just(LENGTHS), st.lists(st.integers(-1, 4), min_size=1, max_size=4).map(tuple)),
)


@example(rule=(NUM_OUTPUTS, 3), low=3, width=3)  # the last part is shortest within the interval
@example(rule=(NUM_OUTPUTS, 3), low=5, width=2)  # longest within
@example(rule=(CHUNK, 4), low=0, width=3)  # one part or none
@given(rule=RULES, low=st.integers(0, 25), width=st.integers(0, 25) | st.none())
def test_intervals_are_those_of_all_axis_lengths(rule, low, width):
    """The shortest and the longest length of each part, compared with those of each axis length."""
    assume(low or width is not None)  # (0, -1) is an unknown dim, see `DYNAMIC`
    kind, value = rule
    high = low + 60 if width is None else low + width
    lists = []
    for length in range(low, high + 1):
        with contextlib.suppress(SplitError):
            lists.append(plan_split((length,), **{PARAMETERS[kind]: value}).sizes)
    shape = ((low, -1 if width is None else high),)
    if not lists:
        with pytest.raises(SplitError):
            infer_shapes(shape, 0, rule)
        return
    found = infer_shapes(shape, 0, rule)
    columns = [*itertools.zip_longest(*lists)]
    if any(None in column for column in columns):  # the number of parts varies
        assert found.pop() is ...
        columns = [[n for sizes in lists for n in sizes]]
    expected = [(min(column), max(column)) for column in columns]
    if width is None:  # only parts that grow with the axis are longer than 7
        expected = [(low, math.inf if high > 7 else high) for low, high in expected]
    assert [as_bounds(dim) for (dim,) in found] == expected


DIMS = st.one_of(
    st.integers(0, 12),
    st.none(),
    st.tuples(st.integers(0, 6), st.integers(7, 12)),
    st.tuples(st.integers(0, 6), st.just(-1)),
)


def as_bounds(dim):
    """Return the bounds of a dim of splitjit or OpenVINO."""
    if hasattr(dim, "get_min_length"):
        dim = dim.get_min_length(), dim.get_max_length()
    low, high = (0, -1) if dim is None else (dim, dim) if isinstance(dim, int) else dim
    return low, float("inf") if high == -1 else high


@given(data=st.data())
def test_the_inference_of_openvino(data):
    """Each dim here lies within the bounds that OpenVINO infers, and OpenVINO takes it back."""
    ov = pytest.importorskip("openvino")
    opset = pytest.importorskip("openvino.opset1")
    shape = data.draw(st.lists(DIMS, min_size=1, max_size=3) | st.none())
    partial = ov.PartialShape.dynamic() if shape is None else ov.PartialShape(
        [-1 if dim is None else dim for dim in shape]
    )  # fmt: skip
    axis = data.draw(st.integers(-len(shape or [0]), len(shape or [0]) - 1) | st.none())
    lengths = data.draw(st.lists(st.integers(-1, 4), min_size=1, max_size=3) | st.integers(1, 3))
    equal = isinstance(lengths, int) and data.draw(st.booleans())
    x = opset.parameter(partial, np.float32)
    at = opset.parameter([], np.int64) if axis is None else opset.constant(axis, np.int64)
    axis = Unknown() if axis is None else axis

    def node():
        if equal:
            return opset.split(x, at, lengths)
        if isinstance(lengths, int):
            return opset.variadic_split(x, at, opset.parameter([lengths], np.int64))
        return opset.variadic_split(x, at, opset.constant(lengths, np.int64))

    try:
        if equal:
            ours = openvino.Split(num_splits=lengths).infer_shapes(partial, axis)
        else:
            given = Unknown(lengths) if isinstance(lengths, int) else lengths
            ours = openvino.VariadicSplit().infer_shapes(partial, axis, given)
    except SplitError:
        known = shape and isinstance(axis, int) and isinstance(shape[axis], int)
        # OpenVINO compares no lengths with intervals and with an axis of length 0, and does
        # not see that the rest, of length -1, would be negative.
        has_rest = isinstance(lengths, list) and -1 in lengths
        if known and shape[axis] and not has_rest:
            with pytest.raises(RuntimeError):
                node()
        return
    try:
        outputs = node().outputs()
    except RuntimeError as error:
        assert "interval maximum" in str(error)  # an axis of length 0 has empty parts here
        return
    assert len(ours) == len(outputs)
    for known, output in zip(ours, outputs, strict=True):
        theirs = output.get_partial_shape()
        assert (known is None) == theirs.rank.is_dynamic
        if known is not None:
            given_back = ov.PartialShape([-1 if dim is None else dim for dim in known])
            assert [*map(as_bounds, given_back)] == [*map(as_bounds, known)]
        for dim, other in zip(known or (), theirs if known else (), strict=True):
            (low, high), (least, most) = as_bounds(dim), as_bounds(other)
            assert least <= low <= high <= most
            assert not equal or (low - least in (0, 1) and high == most)  # OpenVINO rounds down
