"""Everything public decides in one place; see `splitjit._copy.run`."""

import importlib

import numpy as np
import pytest

import splitjit
import splitjit.numpy
from splitjit import openvino
from splitjit._copy import run
from splitjit.onnx import Split, SplitToSequence

explain_module = importlib.import_module("splitjit._copy.explanation")
split_module = importlib.import_module("splitjit._api.split")
decide = run.decide
X = np.arange(12.0).reshape(2, 6)
PLAN = splitjit.plan_split(X.shape, 3, axis=1)


def outs():
    return PLAN.empty(X.dtype)


def dask_parts():
    import dask.array

    x = dask.array.from_array(X, chunks=(2, 4))
    return [part.compute() for part in splitjit.split(x, 3, axis=1)]


def tensor_parts():
    import torch

    import splitjit.torch

    return [part.numpy() for part in splitjit.torch.split(torch.from_numpy(X), 3, dim=1)]


CALLS = {
    "split": lambda: splitjit.split(X, 3, axis=1),
    "split, views": lambda: splitjit.split(X, 3, axis=1, copy=False),
    "split, lists": lambda: splitjit.split(X.tolist(), 3, axis=1),
    "split, masked": lambda: splitjit.split(np.ma.array(X), 3, axis=1),
    "split_into": lambda: splitjit.split_into(X, outs(), 3, axis=1),
    "a plan": lambda: PLAN(X),
    "a bound plan": lambda: PLAN.bind(outs())(X),
    "explain": lambda: splitjit.explain(X, 3, axis=1) and None,
    "a plan explains": lambda: PLAN.explain(X) and None,
    "onnx.Split": lambda: Split(opset=18, axis=1, num_outputs=2)(X),
    "onnx.SplitToSequence": lambda: SplitToSequence(axis=1)(X, 3),
    "openvino.Split": lambda: openvino.Split(num_splits=2)(X, 1),
    "openvino.VariadicSplit": lambda: openvino.VariadicSplit()(X, 1, [3, 3]),
    "numpy.split": lambda: splitjit.numpy.split(X, 2, axis=1),
    "numpy.array_split": lambda: splitjit.numpy.array_split(X, 2, axis=1),
    "numpy.hsplit": lambda: splitjit.numpy.hsplit(X, 2),
    "torch.split": tensor_parts,
    "tasks of Dask": dask_parts,
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_decided_in_one_place(name, new_plans, monkeypatch):
    if name in ("torch.split", "tasks of Dask"):
        pytest.importorskip(name.split()[-1].split(".")[0].lower())
    decided = []
    for module in (run, explain_module):
        monkeypatch.setattr(module, "decide", lambda *a, **k: decided.append(1) or decide(*a, **k))
    PLAN._use(KnowsNothing())
    monkeypatch.setattr(split_module, "FIRST", KnowsNothing())
    parts = CALLS[name]()
    assert decided
    for part, expected in zip(parts or (), (X[:, :3], X[:, 3:]), strict=bool(parts)):
        assert np.array_equal(part, expected)


class KnowsNothing:
    """How no array is copied at once: the fast path decides nothing."""

    def at_once(self, plan, x, out):
        return None
