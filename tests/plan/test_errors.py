"""Refusals have fields, and are put into the words of the operator that the user called."""

import copy
import pickle

import numpy as np
import pytest

import splitjit
from splitjit.errors import OUT, SplitError, SplitTypeError, X, param
from splitjit.onnx import Split
from splitjit.openvino import VariadicSplit

x = np.zeros((4, 6))
UNIT = x.view(type("Unit", (np.ndarray,), {"__array_finalize__": lambda self, other: None}))
UNEVEN = "{}=3, {}=0, shape=(4, 6): the axis length 4 must be a multiple of 3"
SAME = "must not share memory"

DOORS = {
    "split": (
        lambda: splitjit.split(x, num_splits=3),
        "split: " + UNEVEN.format("num_splits", "axis"),
        "num_sections=3 makes parts whose lengths differ by one",
    ),
    "out": (lambda: splitjit.split(x, 2, out=[x[:2]] * 2), f"split: out[0] and out[1]: {SAME}", ""),
    "split_into": (
        lambda: splitjit.split_into(x, x, 2),
        "split_into: outs of type ndarray and dtype float64: must be a sequence of arrays",
        "pass list(outs)",
    ),
    "outs": (
        lambda: splitjit.split_into(x, [x[:2], x[2:].copy()], 2),
        f"split_into: outs[0] and x: {SAME}",
        "",
    ),
    "an output": (
        lambda: splitjit.split_into(x, [UNIT[:2]] * 2, 2),
        "split_into: outs[0] of type Unit and dtype float64: only its values would be copied, "
        "without what its class adds to them; pass np.asarray(outs[0])",
        "",
    ),
    "plan_split": (
        lambda: splitjit.plan_split((4, 6), [2, 4]),
        "split: split=(2, 4), axis=0, shape=(4, 6): lengths must sum to the axis length 4, "
        "not to 6",
        "the lengths sum to the length of axis 1: pass axis=1",
    ),
    "a plan": (
        lambda: splitjit.plan_split((5,), 2)(x),
        "split: x of shape (4, 6): the plan is for shape (5,)",
        "",
    ),
    "set_buffer_limit": (
        lambda: splitjit.set_buffer_limit(0.5),
        "set_buffer_limit: nbytes=0.5: must be an integer",
        "",
    ),
    "ONNX": (
        lambda: Split(opset=13, outputs=3)(x),
        "ONNX Split-13: " + UNEVEN.format("outputs", "axis"),
        "",
    ),
    "OpenVINO": (
        lambda: VariadicSplit()(x, 9, [4]),
        "OpenVINO VariadicSplit-1: axis=9, shape=(4, 6): axis must be in [-2, 1]",
        "",
    ),
    "a value like a name": (
        lambda: VariadicSplit()(x, 0, "split=x"),
        "OpenVINO VariadicSplit-1: split_lengths='split=x': must have rank 1 and be of an "
        "integer type",
        "",
    ),
    "a name in a rule": (
        lambda: VariadicSplit()(UNIT, 0, [4]),
        "OpenVINO VariadicSplit-1: data of type Unit and dtype float64: only its values would be "
        "copied, without what its class adds to them; pass np.asarray(data)",
        "",
    ),
    "unstack": (
        lambda: splitjit.unstack(x, 9),
        "unstack: axis=9, shape=(4, 6): axis must be in [-2, 1]",
        "",
    ),
    "compiled": (
        lambda: _raise_as_compiled(),
        "split: split=0, axis length 4: split must be at least 1",
        "",
    ),
}


def _raise_as_compiled():
    """Raise what compiled code does, from the texts of a rule's faults."""
    from splitjit._abi.calls import RULE_FAULT
    from splitjit._njit.rules import faults
    from splitjit._plan.rules import CHUNK, WRONG_VALUE

    raise SplitError("split", "", faults(CHUNK), RULE_FAULT + WRONG_VALUE, 0, 4, 0)


def _unbind():
    torch = pytest.importorskip("torch")
    import splitjit.torch

    with pytest.raises(SplitError) as caught:
        splitjit.torch.unbind(torch.zeros(4, 6), 9, out=[])
    return caught.value


@pytest.mark.parametrize("door", DOORS)
def test_each_operator_says_its_own_words(door):
    call, says, hint = DOORS[door]
    with pytest.raises(SplitError) as caught:
        call()
    assert str(caught.value) == says + (hint and f"; {hint}")
    _check_fields(caught.value, hint)


def test_a_drop_in_says_the_names_of_its_library():
    error = _unbind()
    assert str(error) == "unbind: dim=9, shape=(4, 6): dim must be in [-2, 1]"
    _check_fields(error, "")


def _check_fields(error, hint):
    """All copies of an error, its fields and its `args` say the same."""
    fields = error.operator, error.received, error.rule
    assert error.hint == hint
    assert str(error) == ": ".join(fields) + (hint and f"; {hint}")
    assert not any("\0" in text for text in (*fields, error.hint))
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert (str(twin), twin.hint, twin.args) == (str(error), hint, fields)
        assert repr(twin) == f"{type(error).__name__}{fields}"
        twin.named("join", keeps_hint=True)
        assert str(twin).startswith("join")
        assert str(twin).endswith(str(error)[len(error.operator) :])


@pytest.mark.parametrize("field", ["operator", "received", "rule", "hint"])
def test_no_field_can_be_set(field):
    """`args`, which pickle and `repr` read, would keep the old one."""
    with pytest.raises(AttributeError):
        setattr(SplitError("split", "axis=1", "wrong"), field, "other")


def test_names_are_looked_up_and_texts_stay():
    """A name is data: neither the same word in the text nor in a value is replaced."""
    received, rule = f"{OUT}[0] and {param('split=out')}", f"out of {X}"
    error = SplitTypeError.of(received, rule, f"pass {param('axis=1')} for axis")
    error.named("f", keeps_hint=True, out="outs", x="input", axis="dim", split="sizes")
    assert str(error) == "f: outs[0] and sizes=out: out of input; pass dim=1 for axis"
    assert error.named("g").hint == ""
    assert str(SplitError("f", "out{0}", "of {x}", hint="{")) == "f: out{0}: of {x}; {"
    assert SplitError("f", [("x", "=1"), ("axis", "=2")], "r").named("g", x="y").received == (
        "y=1, axis=2"
    )


def test_a_refusal_of_a_reshard(tmp_path):
    """Shared steps refuse as `split` or `join`; what leaves says `reshard` everywhere."""
    np.save(tmp_path / "x.npy", x)
    done = splitjit.files.split_files(tmp_path / "x.npy", 2)
    with pytest.raises(SplitError) as caught:
        splitjit.files.reshard_files(done.targets, num_splits=3, axis=0, out=tmp_path / "new")
    assert caught.value.operator.startswith("reshard ")
    _check_fields(caught.value, caught.value.hint)
