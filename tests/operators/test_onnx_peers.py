"""The ONNX operators against onnx.reference, ONNX Runtime, OpenVINO and onnx's shape inference.

The tests exclude the cases that a peer gets wrong (docs/conformance.md), and say so there.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from splitjit import SplitError
from splitjit._tensor_types import TENSOR_TYPES
from splitjit.onnx import Split, SplitToSequence, Unknown
from tests.cases import tensor_dtype
from tests.conftest import long
from tests.operators.common import check_equal

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

PEERS = settings(max_examples=200, deadline=None, derandomize=True)
OF_EACH_TYPE = settings(PEERS, max_examples=25)

FLOATS = {"tensor(float16)", "tensor(float)", "tensor(double)"}
BFLOAT16 = "tensor(bfloat16)"
COMPLEX = {"tensor(complex64)", "tensor(complex128)"}
REAL = [name for name in TENSOR_TYPES if name not in COMPLEX]
QUICK = {"tensor(float)", "tensor(int64)", "tensor(string)", BFLOAT16}


@dataclass(frozen=True)
class Node:
    """An ONNX node, and the shape of its input."""

    op: str
    opset: int
    shape: tuple
    axis: int
    split: Any = None  # lengths; for SplitToSequence, also one length
    outputs: int = 1
    attributes: dict = field(default_factory=dict)

    @property
    def operator(self):
        if self.op == "SplitToSequence":
            return SplitToSequence(opset=self.opset, axis=self.axis, **self.attributes)
        given = {"axis": self.axis, "outputs": self.outputs, **self.attributes}
        if self.opset < 13:
            given["split"] = self.split
        return Split(opset=self.opset, **given)

    @property
    def inputs(self):
        """Return the input `split` in a list; the list is empty if the node has no such input."""
        as_attribute = self.op == "Split" and self.opset < 13
        return [] if self.split is None or as_attribute else [np.array(self.split, np.int64)]

    @property
    def length(self):
        return self.shape[self.axis]

    def run(self, x):
        return self.operator(x, *self.inputs)

    def model(self, kind=TensorProto.FLOAT, shape=(), through=None, known=True):
        """Make a model. If Python cannot pass its type, the model casts to `through` and back.

        If the value of `split` is not `known`, it is an input of the model.
        """
        names = [f"y{i}" for i in range(self.outputs)]
        constants = [numpy_helper.from_array(array, "split") for array in self.inputs]
        info = helper.make_tensor_value_info
        inputs = [info("x", kind, self.shape if shape == () else shape)]
        if not known:
            inputs += [info(array.name, array.data_type, array.dims) for array in constants]
        attributes = {"axis": self.axis, **self.attributes}
        if self.split is not None and not constants:
            attributes["split"] = self.split
        if self.op == "SplitToSequence":
            info = helper.make_tensor_sequence_value_info
        outputs = [info(name, kind, None) for name in names]
        arguments = ["x", *(constant.name for constant in constants)]
        nodes = [helper.make_node(self.op, arguments, names, **attributes)]
        if through is not None:
            cast = helper.make_node("Cast", ["x"], ["cast"], to=through)
            back = [helper.make_node("Cast", [f"c{y}"], [y], to=kind) for y in names]
            inner = [f"c{y}" for y in names]
            arguments[0] = "cast"
            nodes = [cast, helper.make_node(self.op, arguments, inner, **attributes), *back]
        graph = helper.make_graph(nodes, "model", inputs, outputs, constants if known else [])
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@st.composite
def nodes(draw, ops=("Split", "SplitToSequence"), opsets=(2, 11, 13, 18, 24)):
    """Draw a valid node."""
    op = draw(st.sampled_from(ops))
    opset = draw(st.sampled_from([o for o in opsets if op == "Split" or o >= 11]))
    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(-rank, rank - 1))
    shape = draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=6))
    shape[axis] = sum(lengths)
    node = {"op": op, "opset": opset, "axis": axis}
    if op == "SplitToSequence":
        split = draw(st.none() | st.integers(1, 8) | st.just(lengths))
        keepdims = {"keepdims": draw(st.sampled_from([0, 1]))}
        return Node(**node, shape=tuple(shape), split=split, attributes=keepdims)
    if draw(st.booleans()):
        return Node(**node, shape=tuple(shape), split=lengths, outputs=len(lengths))
    outputs = draw(st.integers(1, 6))
    if opset >= 18:
        num_outputs = {"num_outputs": outputs}
        return Node(**node, shape=tuple(shape), outputs=outputs, attributes=num_outputs)
    shape[axis] = outputs * draw(st.integers(0, 3))
    return Node(**node, shape=tuple(shape), outputs=outputs)


def array_of(name, node):
    newest = node.opset >= (13 if node.op == "Split" else 24)
    assume(newest or name != BFLOAT16)  # older versions refuse bfloat16
    assume(node.opset > 1 or name in FLOATS)
    flat = np.arange(math.prod(node.shape)) % 113
    if name == "tensor(string)":
        return np.array([f"<{i}>" for i in flat], object).reshape(node.shape)
    return flat.astype(tensor_dtype(name)).reshape(node.shape)


def kind_of(name):
    dtype = tensor_dtype(name)
    return TensorProto.STRING if dtype.hasobject else helper.np_dtype_to_tensor_dtype(dtype)


def for_runtime(node, name, x):
    """Return a model and its input: bfloat16, which Python cannot pass, is cast from float32."""
    if name == BFLOAT16:
        return node.model(through=TensorProto.BFLOAT16), x.astype(np.float32)
    return node.model(kind_of(name)), x


def as_parts(node, results):
    return results if node.op == "Split" else results[0]


@pytest.mark.parametrize("operator", [Split, SplitToSequence])
def test_the_newest_version_is_that_of_onnx(operator):
    """Fail when onnx publishes a version that splitjit does not have."""
    name, published = operator.__name__, onnx.defs.onnx_opset_version()
    known = [version.since for version in operator._versions]
    # An older onnx does not have the newest versions yet.
    newest = max(since for since in known if since <= published)
    assert onnx.defs.get_schema(name, "").since_version == newest


@pytest.mark.parametrize("name", TENSOR_TYPES)
@OF_EACH_TYPE
@given(node=nodes())
def test_onnx_reference(name, node):
    x = array_of(name, node)
    evaluator = ReferenceEvaluator(node.model(kind_of(name)))
    check_equal(node.run(x), as_parts(node, evaluator.run(None, {"x": x})))


TYPES_OF_ORT_SEQUENCES = {
    f"tensor({name})" for name in ("float16", "float", "double", "int32", "int64", "string", "bool")
}


def leaves_parts_empty(node):
    """Return whether `num_outputs` gives an empty part."""
    n = node.attributes.get("num_outputs")
    return n is not None and (n - 1) * -(-node.length // n) >= node.length


def run_onnxruntime(model, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    serialized = model.SerializeToString()
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})


@pytest.mark.parametrize("name", long(*REAL, if_not=QUICK))
@OF_EACH_TYPE
@given(node=nodes())
def test_onnxruntime(name, node):
    assume(node.op == "Split" or name in TYPES_OF_ORT_SEQUENCES)
    assume(not leaves_parts_empty(node))  # ONNX Runtime: "Split size exceeds the remaining size"
    # If `split` is a scalar and keepdims=0, ONNX Runtime squeezes the axis, and fails.
    assume(not (isinstance(node.split, int) and node.attributes["keepdims"] == 0))
    x = array_of(name, node)
    model, given = for_runtime(node, name, x)
    results = as_parts(node, run_onnxruntime(model, given))
    check_equal([part.astype(given.dtype) for part in node.run(x)], results)


@PEERS
@given(
    lengths=st.lists(st.integers(-2, 4), min_size=1, max_size=4),
    length=st.integers(0, 8),
    opset=st.sampled_from([2, 11, 13, 18]),
    op=st.sampled_from(["Split", "SplitToSequence"]),
)
def test_onnxruntime_refuses_the_same_lengths(op, opset, lengths, length):
    onnxruntime = pytest.importorskip("onnxruntime")
    if op == "SplitToSequence":
        opset = max(opset, 11)
    node = Node(op, opset, (length,), 0, lengths, outputs=1 if op != "Split" else len(lengths))
    x, state = np.zeros(length, np.float32), onnxruntime.capi.onnxruntime_pybind11_state
    errors = state.Fail, state.InvalidArgument, state.RuntimeException
    try:
        expected = as_parts(node, run_onnxruntime(node.model(), x))
    except (RuntimeError, *errors):
        with pytest.raises(SplitError):
            node.run(x)
    else:
        check_equal(node.run(x), expected)


# If the input holds strings, OpenVINO returns the first chunk as every output. It has no complex
# types.
OPENVINO_TYPES = long(*[name for name in REAL if name != "tensor(string)"], if_not=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPENVINO_TYPES)
@settings(OF_EACH_TYPE, max_examples=10)
@given(node=nodes(ops=["Split"], opsets=[1, 2, 11, 13, 18]))
def test_openvino_frontend(name, node):
    # No other peer runs Split-1. OpenVINO ignores the input `split` of Split-1, so none is drawn.
    openvino = pytest.importorskip("openvino")
    assume(not leaves_parts_empty(node))  # OpenVINO: "The split number is invalid"
    # OpenVINO refuses uneven parts along a negative axis: "must be evenly divisible".
    assume(node.axis >= 0 or node.length % node.attributes.get("num_outputs", 1) == 0)
    x = array_of(name, node)
    model, given = for_runtime(node, name, x)
    core = openvino.Core()
    results = core.compile_model(core.read_model(model.SerializeToString()), "CPU")({"x": given})
    parts = [part.astype(given.dtype) for part in node.run(x)]
    check_equal(parts, [results[i] for i in range(node.outputs)])


def shapes_inferred(node, shape, known=True):
    """Return the shapes that onnx infers; a shape of unknown rank is None."""
    model = node.model(shape=shape, known=known)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    return [shape_of(output.type) for output in inferred.graph.output]


def shape_of(kind):
    kind = kind.sequence_type.elem_type if kind.HasField("sequence_type") else kind
    if not kind.tensor_type.HasField("shape"):
        return None
    return tuple(
        # onnx invents names like "unk__0"
        dim.dim_value if dim.HasField("dim_value") else re.sub("unk__.*", "", dim.dim_param) or None
        for dim in kind.tensor_type.shape.dim
    )


def check_known(ours, theirs):
    """Check that dims that onnx knows are known here, too, and equal."""
    for shape, inferred in zip(ours, theirs, strict=True):
        if inferred is not None:
            assert len(shape) == len(inferred)
            assert all(other in (None, dim) for dim, other in zip(shape, inferred, strict=True))


def with_unknown_dims(data, shape):
    return [data.draw(st.sampled_from([extent, None, "N"])) for extent in shape]


def common(shapes):
    """Return the shape of a sequence's elements; a dim that differs between them is None."""
    shapes = [shape for shape in shapes if shape is not ...]
    return tuple([dims[0] if len(set(dims)) == 1 else None for dims in zip(*shapes, strict=True)])


@PEERS
@given(node=nodes(), data=st.data())
def test_shape_inference(node, data):
    n = node.attributes.get("num_outputs", 1)
    # If the parts before the last one exceed the axis, onnx infers a negative length for the last.
    assume((n - 1) * -(-node.length // n) <= node.length)
    shape = with_unknown_dims(data, node.shape)
    ours = node.operator.infer_shapes(shape, *node.inputs)
    theirs = shapes_inferred(node, shape)
    if node.op == "Split" and isinstance(shape[node.axis], int):
        assert ours == theirs
    elif node.op == "SplitToSequence" and ours:
        check_known([common(ours)], theirs)
    elif node.op == "Split":
        check_known(ours, theirs)


@PEERS
@given(node=nodes(opsets=(13, 18, 24)), data=st.data())
def test_shape_inference_with_a_split_of_unknown_value(node, data):
    assume(node.inputs)
    shape = with_unknown_dims(data, node.shape) if data.draw(st.booleans()) else None
    ours = node.operator.infer_shapes(Unknown() if shape is None else shape, Unknown())
    check_known(ours[:1] if node.op == "SplitToSequence" else ours,
                shapes_inferred(node, shape, known=False))  # fmt: skip
