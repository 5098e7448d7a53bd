"""What tests of several libraries share: rules, calls, operators, and the parts as slices."""

import pytest

from splitjit import onnx, openvino, plan_split, split, split_into
from tests.cases import OF_SIX as RULES

CALLS = {
    "split": lambda x, rule: split(x, axis=1, **rule),
    "views": lambda x, rule: split(x, axis=1, copy=False, **rule),
    "plan": lambda x, rule: plan_split(tuple(map(int, x.shape)), axis=1, **rule)(x),
}
WRITES = {
    "out": lambda x, out: split(x, 3, axis=1, out=out),
    "split_into": lambda x, out: split_into(x, out, 3, axis=1),
    "plan": lambda x, out: plan_split((4, 6), 3, axis=1)(x, out),
    "bind": lambda x, out: plan_split((4, 6), 3, axis=1).bind(out)(x),
}
"""How two outputs of shape (4, 3) are written."""

rules = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
calls = pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
writes = pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))


def operators(axis):
    """Return functions that split six items along an axis into three parts by an operator each."""
    return [
        onnx.Split(axis=axis, num_outputs=3),
        lambda x: onnx.SplitToSequence(axis=axis, opset=24)(x, 2),
        lambda x: openvino.Split(num_splits=3)(x, axis),
        lambda x: openvino.VariadicSplit()(x, axis, [2, -1, 2]),
    ]


def expected(x, rule, axis):
    """Return the parts by slices."""
    return [x[index] for index in plan_split(tuple(x.shape), axis=axis, **rule).slices]
