"""reference_ops and SplitBackend run the tests of the onnx package, and whole models."""

import importlib
import re

import numpy as np
import pytest

from splitjit import SplitError, SplitTypeError

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.backend.test import BackendTest  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402
from onnx.inliner import inline_local_functions  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from splitjit.onnx import SplitBackend, reference_ops  # noqa: E402
from tests.operators.common import lists  # noqa: E402

# onnx names one test without its opset.
PARTS = ("equal_parts", "variable_parts")
NODE_TESTS = [
    *[f"test_split_{parts}_1d_opset{opset}" for parts in PARTS for opset in (13, 18)],
    *[f"test_split_{parts}_default_axis_opset{opset}" for parts in PARTS for opset in (13, 18)],
    *["test_split_equal_parts_2d_opset13", "test_split_equal_parts_2d"],
    *[f"test_split_variable_parts_2d_opset{opset}" for opset in (13, 18)],
    *[f"test_split_zero_size_splits_opset{opset}" for opset in (13, 18)],
    *[f"test_split_{rank}_uneven_split_opset18" for rank in ("1d", "2d")],
    *[f"test_split_to_sequence_{kind}" for kind in ("1", "2", "nokeepdims")],
]
ROTARY = ["", "_3d_input", "_interleaved", "_with_rotary_dim", "_with_interleaved_rotary_dim",
          "_no_position_ids", "_no_position_ids_interleaved",
          "_no_position_ids_rotary_dim"]  # fmt: skip
LARGER_MODELS = [
    *[f"test_sequence_model{number}" for number in (6, 7, 8)],
    *["test_GLU", "test_GLU_dim", "test_operator_chunk"],
    *[f"test_affine_grid_{rank}_expanded" for rank in ("2d", "3d")],
    *[f"test_affine_grid_{rank}_align_corners_expanded" for rank in ("2d", "3d")],
    *[f"test_rotary_embedding{kind}_expanded" for kind in ROTARY],
]


class Counted:
    """The reference_ops, which count their runs: a test checks that these operators ran."""

    def __init__(self):
        self.runs = 0
        self.ops = [self._counting(op) for op in reference_ops]

    def _counting(self, op):
        def _run(node, *inputs, **attributes):
            self.runs += 1
            return op._run(node, *inputs, **attributes)

        return type(op.__name__, (op,), {"_run": _run})


@pytest.fixture(scope="module")
def official():
    """Return the test cases of the onnx package by name, and its test class for SplitBackend."""

    def import_some(package):  # onnx computes the expected values of all operators at the import
        for name in ("affinegrid", "rotaryembedding", "split", "splittosequence"):
            importlib.import_module(f"{package.__name__}.{name}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onnx.backend.test.loader.import_recursive", import_some)
        kinds = ("node", "simple", "pytorch-converted", "pytorch-operator")
        cases = {case.name: case for kind in kinds for case in load_model_tests(kind=kind)}
        tests = BackendTest(SplitBackend, __name__).include(r"^test_split_.*_cpu$").tests
    return cases, tests


@pytest.mark.slow
@pytest.mark.parametrize("name", NODE_TESTS)
def test_official_node_test_by_the_backend(official, name):
    official[1](f"{name}_cpu").debug()


def splits_in(graph):
    graphs = [attribute.g for node in graph.node for attribute in node.attribute]
    own = sum(node.op_type in ("Split", "SplitToSequence") for node in graph.node)
    return own + sum(map(splits_in, graphs))


def data_sets_of(case, model):
    """Return the data sets of a test case; read them from files if the case has none."""
    if case.data_sets:
        return case.data_sets
    folder = f"{case.model_dir}/test_data_set_0"

    def read(kind, infos):
        tensors = [onnx.load_tensor(f"{folder}/{kind}_{i}.pb") for i in range(len(infos))]
        return [numpy_helper.to_array(tensor) for tensor in tensors]

    # Old models list initializers as inputs, too.
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in constants]
    return [(read("input", inputs), read("output", model.graph.output))]


@pytest.mark.slow
@pytest.mark.parametrize("name", NODE_TESTS + LARGER_MODELS)
def test_official_model_by_reference_ops(official, name):
    case = official[0][name]
    model = case.model or onnx.load(f"{case.model_dir}/model.onnx")
    counted = Counted()
    evaluator = ReferenceEvaluator(model, new_ops=counted.ops)
    tolerances = (0, 0) if name in NODE_TESTS else (case.rtol, case.atol)
    for inputs, expected in data_sets_of(case, model):
        results = evaluator.run(None, dict(zip(evaluator.input_names, inputs, strict=False)))
        BackendTest.assert_similar_outputs(expected, results, *tolerances)
    assert 0 < counted.runs <= splits_in(model.graph)  # only one branch of an If runs


def make_model(nodes, outputs, opset, dtype=TensorProto.FLOAT, constants=()):
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", dtype, ["N"])],
        [helper.make_tensor_value_info(name, dtype, [None]) for name in outputs],
        list(constants),
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def model_of_split(opset, **attributes):
    node = helper.make_node("Split", ["x"], ["a", "b"], **attributes)
    return make_model([node], "ab", opset)


def evaluate(model, x, ops=reference_ops):
    return ReferenceEvaluator(model, new_ops=ops).run(None, {"x": x})


X = np.arange(6, dtype=np.float32)
HALVES = [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("inputs", [{"x": X}, X])
def test_inputs_by_name_or_without_a_list_are_refused(inputs):
    model = SplitBackend.prepare(model_of_split(18, num_outputs=2))
    says = "^SplitBackend: inputs of type .*: must be in the model's order; pass a list$"
    with pytest.raises(SplitTypeError, match=says):
        model.run(inputs)
    with pytest.raises(SplitError, match="^SplitBackend: device='CUDA': must be 'CPU'$"):
        SplitBackend.prepare(model_of_split(18, num_outputs=2), "CUDA")


@pytest.mark.parametrize("opset", [1, 2, 11, 13, 18])
def test_reference_ops_run_every_version(opset):
    model = model_of_split(opset, **({"num_outputs": 2} if opset == 18 else {}))
    parts = evaluate(model, X)
    assert lists(parts) == lists(SplitBackend.run_model(model, [X])) == HALVES
    assert not any(np.shares_memory(part, X) for part in parts)


@pytest.mark.parametrize(
    ("operator", "opset", "attributes"),
    [
        ("Split", 1, {}),  # Split-2 and Split-11 have no optional input
        ("Split", 13, {}),
        ("Split", 18, {"num_outputs": 6}),
        ("SplitToSequence", 11, {}),
        ("SplitToSequence", 11, {"keepdims": 0}),
        ("SplitToSequence", 24, {}),
        ("SplitToSequence", 24, {"keepdims": 0}),
    ],
)
def test_an_empty_name_omits_an_input(operator, opset, attributes):
    outputs = "abcdef" if operator == "Split" else "a"
    node = helper.make_node(operator, ["x", ""], [*outputs], **attributes)
    model = make_model([node], outputs, opset)
    for results in (
        evaluate(model, X),
        SplitBackend.run_node(node, [X], opset_version=opset),
        SplitBackend.run_model(model, [X]),
    ):
        parts = results if operator == "Split" else results[0]
        expected = X if attributes.get("keepdims") == 0 else X.reshape(6, 1)
        assert lists(parts) == expected.tolist()


def test_reference_ops_omit_outputs():
    nodes = [
        helper.make_node("Split", ["x"], ["a", "", "c"], num_outputs=3),
        # If the evaluator kept the omitted output, this node would use it as its omitted `min`.
        helper.make_node("Clip", ["c", "", "most"], ["clipped"]),
    ]
    most = numpy_helper.from_array(np.float32(4), "most")
    model = make_model(nodes, ["a", "clipped"], 18, constants=[most])
    assert lists(evaluate(model, -X)) == [[-0.0, -1], [-4, -5]]


def test_reference_ops_run_in_subgraphs():
    split = helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)
    a = helper.make_tensor_value_info("a", TensorProto.FLOAT, None)
    branch = helper.make_graph([split], "branch", [], [a])
    condition = numpy_helper.from_array(np.array(True), "condition")
    node = helper.make_node("If", ["condition"], ["y"], then_branch=branch, else_branch=branch)
    counted = Counted()
    model = make_model([node], "y", 18, constants=[condition])
    assert lists(evaluate(model, X, counted.ops)) == HALVES[:1]
    assert counted.runs == 1


@pytest.mark.parametrize(
    ("opset", "attributes", "x", "message"),
    [
        (18, {}, X, "ONNX Split-18: split=None, num_outputs=None: "),
        (13, {}, X[1:], "ONNX Split-13: outputs=2, axis=0, shape=(5,): "),
        (1, {}, X.astype(int), "ONNX Split-1: input of dtype int64"),
        (11, {"num_outputs": 2}, X, "ONNX Split-11: num_outputs=2: "),
    ],
)
def test_reference_ops_refuse_by_a_split_error(opset, attributes, x, message):
    with pytest.raises(SplitError, match=re.escape(message)):
        evaluate(model_of_split(opset, **attributes), x)


def test_backend_runs_nodes_in_the_opset_asked_for():
    node = helper.make_node("Split", ["x"], ["a", "b"])
    assert lists(SplitBackend.run_node(node, [X], opset_version=13)) == HALVES
    with pytest.raises(SplitError, match="ONNX Split-18: "):
        SplitBackend.run_node(node, [X])


FUNCTIONS = """
<ir_version: 10, opset_import: ["": 18, "local": 1]>
halves (float[N] x, bool c) => (float[M] a, float[K] b) { a, b = local.outer(x, c) }
<opset_import: ["": %s], domain: "local">
inner (x) => (a, b) { a, b = Split<num_outputs = 2>(x) }
<opset_import: ["": 18, "local": 1], domain: "local">
outer (x, c) => (a, b) {
  a, b = If (c) <
    then_branch = t () => (p, q) { p, q = local.inner(x) },
    else_branch = e () => (r, s) { r, s = Split<num_outputs = 2>(x) }
  >
}
"""


@pytest.mark.parametrize("condition", [True, False], ids=["nested function", "subgraph"])
@pytest.mark.parametrize("opset", [18, 20])
def test_operators_inside_of_functions(condition, opset, monkeypatch):
    model = onnx.parser.parse_model(FUNCTIONS % opset)
    feeds = {"x": X, "c": np.array(condition)}
    counted = Counted()
    monkeypatch.setattr("splitjit.onnx.reference.reference_ops", counted.ops)

    def run(evaluator):
        before = counted.runs
        assert lists(evaluator()) == HALVES
        return counted.runs - before

    def evaluate(model):
        return ReferenceEvaluator(model, new_ops=counted.ops).run(None, feeds)

    assert run(lambda: SplitBackend.run_model(model, list(feeds.values()))) == 1
    assert run(lambda: evaluate(model)) == 0
    inlined = inline_local_functions(model)
    # onnx.inliner leaves a function of another opset as it is.
    assert run(lambda: evaluate(inlined)) == (0 if condition and opset == 20 else 1)
