"""Random and hostile calls of all public functions, compared with the model in tests/model.py."""

import collections
import operator
import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from numpy.lib.stride_tricks import as_strided

import splitjit
from splitjit import SplitError, openvino, plan_split
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy import buffers
from splitjit._runtime import loading
from splitjit.onnx import Split, SplitToSequence
from tests import model
from tests.conftest import new_pool, take
from tests.copy.test_split import random_array
from tests.hostile import HOSTILE, foreign


def run_plan(x, split=None, out=None, copy=True, **rules):
    plan = plan_split(np.shape(x), split, **rules)
    return plan(x, out, copy)


OPERATORS = {  # a constructor, the model, and the names of the inputs
    "ONNX Split": (
        lambda attribute=None, **others: Split(split=attribute, **others),
        model.onnx_split,
        ("input", "split"),
    ),
    "ONNX SplitToSequence": (SplitToSequence, model.onnx_split_to_sequence, ("input", "split")),
    "OpenVINO Split-1": (openvino.Split, model.openvino_split, ("data", "axis")),
    "OpenVINO VariadicSplit-1": (
        openvino.VariadicSplit, model.openvino_variadic_split, ("data", "axis", "split_lengths"),
    ),
}  # fmt: skip


def make(name, values):
    """Make an operator from the values that are attributes; return the operator and the inputs."""
    kind, _, inputs = OPERATORS[name]
    attributes = {key: value for key, value in values.items() if key not in inputs}
    return kind(**attributes), [values.get(key) for key in inputs]


def call(name, values):
    made, inputs = make(name, values)
    return made(*inputs)


def infer(name, values, shape):
    made, inputs = make(name, values)
    return made.infer_shapes(shape, *inputs[1:])


def outcome(function, *args, name=None, **values):
    """Return the result of a call, its refusal, or MemoryError; a refusal must name the call."""
    try:
        return function(*args, **values)
    except model.Refused:
        return SplitError
    except MemoryError:
        return MemoryError
    except SplitError as refusal:
        assert re.match(rf"{name}(-\d+)?: ", str(refusal)), refusal
        assert refusal.received
        assert refusal.rule
        return refusal


def bits(x):
    """Return all bits of an array, also the padding of records; of objects, return identities."""
    if x.dtype == object:
        return list(map(id, x.ravel()))
    return x.tolist() if x.dtype.hasobject else x.view(f"V{x.itemsize}").tobytes()


def assert_agree(ours, expected):
    """Compare the outcomes of a call and of the model; compare parts bit by bit."""
    if not isinstance(expected, list):
        assert ours is expected or isinstance(ours, expected), ours
        return
    assert isinstance(ours, list), ours
    assert [getattr(part, "shape", part) for part in ours] == [part.shape for part in expected]
    for part, right in zip(ours, expected, strict=True):
        if isinstance(part, tuple):  # an inferred shape
            continue
        assert type(part) is (type(right) if isinstance(right, np.ma.MaskedArray) else np.ndarray)
        assert part.dtype == right.dtype
        assert bits(part) == bits(right)


def expected_shapes(name, values, shape):
    """Run the model on an array of a given shape, and of a dtype that the operator accepts."""
    _, reference, inputs = OPERATORS[name]
    split = outcome(model.array, values.get("split"))
    dtype = split.dtype if isinstance(split, np.ndarray) and split.dtype.char in "ed" else "f4"
    return outcome(reference, **{**values, inputs[0]: np.broadcast_to(np.zeros((), dtype), shape)})


X = np.arange(12, dtype=np.float32).reshape(6, 2)
VALID = [
    ("split", {"x": X, "split": [2, 4], "axis": 0, "out": None}),
    ("split", {"x": X, "split": 3, "num_splits": None, "out": None}),
    ("split", {"x": X, "num_splits": 2, "num_outputs": None}),
    ("split", {"x": X, "num_outputs": 2, "axis": -2, "split": None}),
    ("split", {"x": X, "indices": [2, 4], "num_sections": None}),
    ("split", {"x": X, "num_sections": 4, "axis": 0, "indices": None}),
    ("ONNX Split", {"input": X, "split": [2, 4], "axis": 0, "opset": 13, "outputs": 2}),
    ("ONNX Split", {"input": X, "split": [2, 4], "outputs": 2}),
    ("ONNX Split", {"input": X, "split": [2.0, 4.0], "opset": 1}),
    ("ONNX Split", {"input": X, "num_outputs": 3, "split": None, "outputs": None}),
    ("ONNX Split", {"input": X, "attribute": [2, 4], "opset": 11, "outputs": None}),
    ("ONNX Split", {"input": X, "attribute": [2, 4], "split": [2.0, 4.0], "opset": 1}),
    ("ONNX Split", {"input": X, "outputs": 2, "opset": 2, "num_outputs": None}),
    ("ONNX SplitToSequence", {"input": X, "split": 2, "axis": 0, "opset": 24, "keepdims": 0}),
    ("ONNX SplitToSequence", {"input": X, "split": None, "opset": 11, "keepdims": 0}),
    ("ONNX SplitToSequence", {"input": X, "split": [2, 4], "axis": 0}),
    ("OpenVINO Split-1", {"data": X, "axis": 0, "num_splits": 2}),
    ("OpenVINO VariadicSplit-1", {"data": X, "axis": 0, "split_lengths": [2, 4]}),
    ("OpenVINO VariadicSplit-1", {"data": X, "axis": [0], "split_lengths": [2, -1]}),
]
SAYS = {
    "x": "shape",
    "input": "shape",
    "data": "shape",
    "attribute": "split",
    "opset": r"Split-\d+",
}
"""Words by which a refusal may name an argument, besides the argument's own name."""


@pytest.mark.parametrize(
    ("name", "valid", "argument"),
    [(name, valid, argument) for name, valid in VALID for argument in valid],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else value,
)
def test_one_hostile_value_among_valid_ones(name, valid, argument):
    says = re.compile(rf"\b({argument}|{SAYS.get(argument, argument)}|no rule)\b")
    for i, new in enumerate(HOSTILE):
        values, twins = {**valid, argument: new()}, {**valid, argument: new()}
        try:
            if name == "split":
                expected = outcome(model.split, **twins)
                results = [outcome(splitjit.split, name=name, **values)]
                if argument != "x":
                    results.append(outcome(run_plan, name=name, **{**valid, argument: new()}))
            else:
                expected = outcome(OPERATORS[name][1], **twins)
                results = [outcome(call, name, values, name=name)]
            for ours in results:
                assert_agree(ours, expected)
                if isinstance(ours, SplitError):
                    assert says.search(str(ours).rpartition(": ")[0]), ours
            if name != "split" and argument != OPERATORS[name][2][0]:
                values, twins = {**valid, argument: new()}, {**valid, argument: new()}
                shapes = outcome(infer, name, values, X.shape, name=name)
                assert_agree(shapes, expected_shapes(name, twins, X.shape))
        except BaseException as error:
            error.add_note(f"HOSTILE[{i}] as {argument}")
            raise


PLAN = plan_split((6, 2), [2, 4])
ELSEWHERE = [
    ("split", "shape", lambda value: plan_split(value, 2)),
    ("split", "shape", lambda value: splitjit.SplitPlan(value, 0, (2, 4))),
    ("split", "axis|split", lambda value: splitjit.SplitPlan((6, 2), value, (2, 4))),
    ("split", "sizes|split", lambda value: splitjit.SplitPlan((6, 2), 0, value)),
    ("split", "x", lambda value: PLAN(value)),
    ("split", "dtype|shape", lambda value: PLAN.empty(value)),
    ("set_buffer_limit", "nbytes", splitjit.set_buffer_limit),
    ("ONNX Split", "shape", Split(num_outputs=2).infer_shapes),
    ("ONNX SplitToSequence", "shape", SplitToSequence().infer_shapes),
    ("OpenVINO Split-1", "shape",
     lambda value: openvino.Split(num_splits=2).infer_shapes(value, 0)),
    ("OpenVINO VariadicSplit-1", "shape",
     lambda value: openvino.VariadicSplit().infer_shapes(value, 0, [2, -1])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "says", "function"), ELSEWHERE)
def test_one_hostile_value_elsewhere(name, says, function, monkeypatch):
    monkeypatch.setattr(buffers, "POOL", buffers._Pool(2**28))  # `set_buffer_limit` is called
    for i, new in enumerate(HOSTILE):
        try:
            ours = outcome(function, new(), name=name)
            assert ours is not MemoryError
            if isinstance(ours, SplitError):
                assert re.search(rf"\b({says})\b", ours.received), ours
        except BaseException as error:
            error.add_note(f"HOSTILE[{i}]")
            raise


def test_what_is_a_sequence_is_read_once():
    class Fickle(list):
        def __iter__(self):
            values = tuple(super().__iter__())
            self[:] = ["other"]
            return iter(values)

    assert plan_split(Fickle([6, 2]), Fickle([2, 4])).sizes == (2, 4)
    assert openvino.VariadicSplit().infer_shapes(Fickle(["N"]), 0, Fickle([2, 4])) == [(2,), (4,)]
    assert [part.size for part in Split(opset=1)(X[:, 0], Fickle([2.0, 4]))] == [2, 4]


DTYPES = [
    "f2", "f4", "f4", ">f4", ">f8", "?", "i8", "u1", "c16", "g", "S3", ">U2", "T", object, "M8[s]",
    "V3",    ml_dtypes.bfloat16, ml_dtypes.int4, np.dtype([("a", "u1"), ("b", ">i4")], align=True),
]  # fmt: skip
NUMBERS = [
    int, int, int, int, np.int64, np.int32, np.uint8, np.array, float, np.float32, str,
    lambda n: np.array(n, ">i2"), lambda n: foreign(__index__=lambda self: n), lambda n: [n],
    lambda n: np.array([n]),
]  # fmt: skip
LISTS = [
    list, list, list, tuple, collections.deque, lambda v: np.array(v, np.int64),
    lambda v: np.array(v, ">i4"), lambda v: np.array(v, np.uint8),
    lambda v: np.array(v, np.float32), lambda v: np.array(v, ">f8"),
    lambda v: list(map(float, v)), lambda v: list(map(np.int8, v)),
    lambda v: [v], lambda v: [*v, 0], lambda v: [*v[:-1], -1], lambda v: np.array(v[:1] * 2),
]  # fmt: skip
_INTEGERS = st.integers().filter(lambda n: not 10**5 < n < 2**31)  # so many parts take minutes
nested = st.recursive(
    st.none() | st.booleans() | _INTEGERS | st.floats() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=5,
)


def spell(draw, value, kinds):
    """Draw one of several ways to write a value; rarely, draw an unrelated value."""
    odd = draw(st.integers(0, 20))
    if odd == 20:
        return draw(nested)
    if odd == 19:
        return draw(st.sampled_from(HOSTILE))()
    try:
        return draw(st.sampled_from(kinds))(value)
    except OverflowError:  # a negative number as an unsigned integer
        return value


@st.composite
def arrays(draw):
    """Draw a small array, one of its axes, and the lengths of parts along that axis."""
    shape = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    axis = draw(st.integers(0, len(shape) - 1))
    cuts = draw(st.lists(st.integers(0, shape[axis]), max_size=4).map(sorted))
    lengths = np.diff([0, *cuts, shape[axis]]).tolist()
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    if dtype.kind in "OTU":
        x = np.array([f"{i}" for i in range(np.prod(shape))], dtype).reshape(shape)
    else:
        x = random_array(np.random.default_rng(draw(st.integers(0, 9))), shape, dtype)
    turned = draw(st.sampled_from([lambda x: x, lambda x: x.copy("F"), lambda x: x[::-1][::-1]]))
    return turned(x), axis - draw(st.sampled_from([0, len(shape)])), lengths


@st.composite
def calls(draw):
    """Draw the name of a call, the values of its arguments, and the array to split."""
    x, axis, lengths = draw(arrays())
    count = draw(st.sampled_from([len(lengths), x.shape[axis], 1, 2, 3, 7])) or 1
    indices = sorted(draw(st.lists(st.integers(-2, 8), max_size=3)), key=lambda i: i % 9)
    new = {
        "axis": lambda: spell(draw, axis, NUMBERS),
        "number": lambda: spell(draw, count, NUMBERS),
        "sizes": lambda: spell(draw, lengths, LISTS),
        "indices": lambda: spell(draw, indices, LISTS),
        "flag": lambda: spell(draw, draw(st.integers(0, 1)), NUMBERS),
        "either": lambda: new[draw(st.sampled_from(["number", "sizes"]))](),
    }

    def some(valid, options):
        """Draw values for a valid set of arguments, or for any set."""
        any_of_them = st.lists(st.sampled_from(sorted(options)), max_size=3, unique=True)
        keys = draw(st.sampled_from(valid) | any_of_them)
        return {key: new[options[key]]() for key in keys}

    name = draw(st.sampled_from(["split", *OPERATORS]))
    if name == "split":
        options = {"split": "either", "num_outputs": "number", "num_splits": "number",
                   "indices": "indices", "num_sections": "number"}  # fmt: skip
        values = {"x": x, "axis": new["axis"](), **some([[key] for key in options], options)}
    elif name == "ONNX Split":
        opset = draw(st.sampled_from([1, 2, 10, 11, 12, 13, 17, 18, 25]))
        options = {"attribute": "sizes", "split": "sizes", "num_outputs": "number",
                   "outputs": "number", "axis": "axis"}  # fmt: skip
        valid = [["split" if opset == 1 or opset > 12 else "attribute", "axis"]]
        valid += [["num_outputs" if opset > 17 else "outputs", "axis"]]
        values = {"input": x, "opset": spell(draw, opset, NUMBERS), **some(valid, options)}
    elif name == "ONNX SplitToSequence":
        options = {"axis": "axis", "split": "either", "keepdims": "flag"}
        values = {"input": x, "opset": draw(st.integers(9, 25)), **some([["axis"]], options)}
    elif name == "OpenVINO Split-1":
        values = {"data": x, "axis": new["axis"](), "num_splits": new["number"]()}
    else:
        values = {"data": x, "axis": new["axis"](), "split_lengths": new["sizes"]()}
    return name, values, x


@pytest.mark.slow
@settings(max_examples=3 * settings.default.max_examples)
@given(calls())
def test_random_calls(drawn):
    name, values, x = drawn
    before = bits(x)
    if name == "split":
        expected = outcome(model.split, **values)
        ours = [
            outcome(splitjit.split, name=name, **values),
            outcome(splitjit.split, name=name, copy=False, **values),
            outcome(run_plan, name=name, **values),
        ]
    else:
        expected = outcome(OPERATORS[name][1], **values)
        ours = [outcome(call, name, values, name=name)]
        shapes = outcome(infer, name, values, x.shape, name=name)
        assert_agree(shapes, expected_shapes(name, values, x.shape))
    for result in ours:
        assert_agree(result, expected)
    assert bits(x) == before


@settings(max_examples=2 * settings.default.max_examples)
@given(calls(), st.sets(st.integers(0, 2)))
def test_inferred_shapes_are_those_of_all_dims_that_fit(drawn, unknown):
    name, values, x = drawn
    if name == "split":
        return
    dims = [f"d{i}" if i in unknown else extent for i, extent in enumerate(x.shape)]
    symbolic = outcome(infer, name, values, dims, name=name)
    for n in range(8):
        shape = [n if i in unknown else extent for i, extent in enumerate(x.shape)]
        known = outcome(infer, name, values, shape, name=name)
        if not isinstance(known, list):
            continue
        assert isinstance(symbolic, list), symbolic
        guesses = [symbolic[0]] * len(known) if ... in symbolic else symbolic
        for part, guess in zip(known, guesses, strict=True):
            for extent, dim in zip(part, guess, strict=True):
                assert dim in (None, extent) or (dim in dims and shape[dims.index(dim)] == extent)


@pytest.mark.slow
@settings(max_examples=2 * settings.default.max_examples)
@given(st.data())
def test_out_is_taken_where_no_byte_is_anothers(data):
    """Draw the parts and the source anywhere in the same 96 bytes, with any strides."""
    memory = np.arange(96, dtype=np.uint8)

    def view(shape):
        strides = data.draw(st.tuples(*[st.integers(-9, 9)] * len(shape)))
        reach = [stride * max(n - 1, 0) for stride, n in zip(strides, shape, strict=True)]
        start = -sum(n for n in reach if n < 0)
        room = 96 - 2 - start - sum(n for n in reach if n > 0)
        start += data.draw(st.integers(0, room))
        return as_strided(memory[start:].view("u1")[:2].view(kind), shape, strides)

    kind = data.draw(st.sampled_from(["u1", "u2"]))
    sizes = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=3))
    shape = (2, sum(sizes))
    x = view(shape) if data.draw(st.booleans()) else np.ones(shape, kind)
    out = [view((2, size)) for size in sizes]
    expected = outcome(model.split, x, sizes, axis=1, out=out)
    if isinstance(expected, list):
        expected = [part.copy() for part in expected]
    before = bits(memory)
    ours = outcome(splitjit.split, x, sizes, axis=1, out=out, name="split")
    assert_agree(ours, expected)
    if isinstance(ours, list):
        assert all(map(operator.is_, ours, out))
    else:
        assert bits(memory) == before


class Memory(RuleBasedStateMachine):
    """Create and drop parts and views in any order: an array that is held never changes."""

    held = Bundle("held")

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        take("slices" if loading.never_compiles() else "serial", self.patch.setattr)
        self.patch.setattr(THRESHOLDS, "large", 1)
        self.pool = new_pool(2**16, self.patch.setattr)
        self.boxes = []
        self.count = 0
        self.limit_of_pool = 2**16

    def teardown(self):
        self.patch.undo()

    def hold(self, part):
        box = [part, part.tobytes()]
        self.boxes.append(box)
        return box

    @rule(target=held, size=st.integers(1, 3), out=st.booleans(), keep=st.integers(0, 3))
    def split(self, size, out, keep):
        self.count += 1
        x = np.full((4, 64 * size), self.count, np.uint32)
        plan = plan_split(x.shape, num_splits=4, axis=1)
        parts = plan(x, plan.empty(x.dtype) if out else None)
        assert all((part == self.count).all() for part in parts)
        return self.hold(parts[keep])

    @rule(target=held, box=held, copy=st.booleans())
    def split_again(self, box, copy):
        return self.hold(splitjit.split(box[0], num_outputs=2, copy=copy)[0])

    @rule(target=held, box=held)
    def view(self, box):
        rest = np.frombuffer(memoryview(box[0])[1:], np.uint8)
        return self.hold(rest.reshape(2 - rest.size % 2, -1))

    @rule(box=consumes(held))
    def drop(self, box):
        self.boxes = [other for other in self.boxes if other is not box]
        box.clear()

    @rule(nbytes=st.sampled_from([0, 1024, 4096, 2**16]))
    def limit(self, nbytes):
        splitjit.set_buffer_limit(nbytes)
        self.limit_of_pool = nbytes

    @invariant()
    def nothing_changes(self):
        assert all(part.tobytes() == before for part, before in self.boxes)
        assert self.pool.kept <= self.limit_of_pool


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=settings.default.max_examples // 5)
