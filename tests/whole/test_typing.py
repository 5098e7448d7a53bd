"""Right and wrong uses of the public functions, for mypy, basedpyright and Python.

Both must report an error for each wrong use, because they report each unused ``type: ignore``.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, assert_type

import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

import splitjit
from splitjit import SplitError, SplitPlan, plan_split, split, split_into

x = np.arange(6, dtype=np.float32)
out = [np.empty(3, np.float32), np.empty(3, np.float32)]
plan = plan_split((6,), 3)

Floats = list[NDArray[np.float32]]
Doubles = list[NDArray[np.float64]]


def test_parts_have_the_dtype_of_the_array() -> None:
    assert_type(split(x, 3), Floats)
    assert_type(split(x, [1, 5], copy=False), Floats)
    assert_type(split(x, (np.int64(1), 5), axis=np.int32(-1)), Floats)
    assert_type(split(x, [1, 5], -1), Floats)
    assert_type(split(x, np.array([1, 5])), Floats)
    assert_type(split(x, num_outputs=4, axis=0), Floats)
    assert_type(split(x, num_splits=np.int64(3)), Floats)
    assert_type(split(x, indices=[2, -1]), Floats)
    assert_type(split(x, indices=np.array([2, 4]), axis=-1), Floats)
    assert_type(split(x, num_sections=np.int64(4)), Floats)
    assert_type(plan(x), Floats)
    assert_type(plan(x, copy=False), Floats)
    assert_type(plan.empty(np.float32), Floats)
    assert_type(plan.empty(x.dtype), Floats)
    assert_type(splitjit.onnx.Split(num_outputs=2)(x), Floats)
    assert_type(splitjit.onnx.Split(opset=1, axis=0)(x, [1.0, 5.0]), Floats)
    assert_type(splitjit.onnx.SplitToSequence(keepdims=0)(x), Floats)
    assert_type(splitjit.onnx.SplitToSequence()(x, 2), Floats)
    assert_type(splitjit.openvino.Split(num_splits=2)(x, 0), Floats)
    assert_type(splitjit.openvino.VariadicSplit()(x, np.array([0]), [2, -1]), Floats)


@pytest.mark.parametrize("items", [x, x.tolist()])
@pytest.mark.parametrize("copy", [True, False])
def test_parts_of_what_has_no_known_dtype(
    items: Sequence[float] | NDArray[Any], copy: bool
) -> None:
    assert_type(split([[1, 2], [3, 4]], 1), list[NDArray[Any]])
    assert_type(split([1.0, 2.0], num_outputs=2), list[NDArray[Any]])
    assert_type(split([1.0, 2.0], indices=[1]), list[NDArray[Any]])
    assert_type(split([1.0, 2.0], num_sections=2), list[NDArray[Any]])
    assert_type(split(items, num_splits=2, copy=copy), list[NDArray[Any]])
    assert_type(plan(items, copy=copy), list[NDArray[Any]])
    assert_type(plan.empty("float32"), list[NDArray[Any]])
    assert_type(splitjit.onnx.Split(num_outputs=2)([1.0, 2.0]), list[NDArray[Any]])


def test_planes_have_the_type_of_the_array() -> None:
    image = np.zeros((2, 3, 4), np.float32)
    planes = [np.empty((2, 3), np.float32) for _ in range(4)]
    one = np.empty((4, 2, 3), np.float32)
    assert_type(splitjit.unstack(image, axis=-1), Floats)
    assert_type(splitjit.unstack(image, -1, out=planes), Floats)
    assert_type(splitjit.unstack(image, -1, out=one), Floats)
    assert_type(splitjit.unstack([[1, 2], [3, 4]]), list[NDArray[Any]])
    assert_type(splitjit.numpy.unstack(image, axis=-1, out=one), tuple[NDArray[np.float32], ...])
    assert_type(splitjit.numpy.unstack(image, axis=-1), tuple[NDArray[np.float32], ...])
    assert_type(splitjit.numpy.unstack(image, axis=-1, out=planes), tuple[NDArray[np.float32], ...])


def test_out_is_what_comes_back() -> None:
    assert_type(split(x, 3, out=out), Floats)
    assert_type(split(x.tolist(), num_splits=2, out=[np.empty(3) for _ in range(2)]), Doubles)
    assert_type(split(x, indices=[3], out=out), Floats)
    assert_type(plan(x, out), Floats)


def test_split_into_takes_every_rule() -> None:
    split_into(x, out, 3)
    split_into(x, out, [3, 3], -1)
    split_into(x, out, num_outputs=2, axis=0)
    split_into(x, out, num_splits=np.int64(2))
    split_into(x, out, indices=[3])
    split_into(x, out, num_sections=2)
    assert out[1].tolist() == [3, 4, 5]


@pytest.fixture
def lazy() -> Any:
    return da.ones(6, chunks=4)  # pyright: ignore


def test_parts_of_dask_arrays_are_dask_arrays(lazy: da.Array) -> None:
    parts: list[da.Array] = split(lazy, 3)  # Dask does not declare the type of slices
    parts += split(lazy, num_splits=2, copy=False)
    assert [part.shape for part in parts] == [(3,)] * 4
    assert_type(plan(lazy), list[da.Array])
    assert_type(splitjit.dask.split(lazy, [2, 4]), list[da.Array])


def test_a_plan_is_one_whatever_the_rule() -> None:
    assert_type(plan, SplitPlan)
    assert_type(plan_split(x.shape, [2, 4], axis=-1), SplitPlan)
    assert_type(plan_split(x.shape, [2, 4], -1), SplitPlan)
    assert_type(plan_split([6, np.int64(2)], num_outputs=4), SplitPlan)
    assert_type(plan_split((6,), num_splits=2, axis=np.int8(0)), SplitPlan)
    assert_type(plan_split((6,), indices=(2, np.int8(-1))), SplitPlan)
    assert_type(plan_split((6,), num_sections=4, axis=0), SplitPlan)
    assert_type(plan.sizes, tuple[int, ...])


WRONG: list[Callable[[], object]] = [
    # no rule
    lambda: split(x),  # type: ignore
    lambda: plan_split((6,)),  # type: ignore
    lambda: split_into(x, out),  # type: ignore
    # several rules
    lambda: split(x, 3, num_outputs=2),  # type: ignore
    lambda: split(x, num_outputs=2, num_splits=2),  # type: ignore
    lambda: split(x, 3, indices=[3]),  # type: ignore
    lambda: split(x, num_sections=2, num_splits=2),  # type: ignore
    lambda: plan_split((6,), 3, indices=[3]),  # type: ignore
    lambda: plan_split((6,), num_outputs=2, num_splits=2),  # type: ignore
    lambda: split_into(x, out, 3, num_splits=2),  # type: ignore
    # views together with out
    lambda: split(x, 3, out=out, copy=False),  # type: ignore
    lambda: plan(x, out, False),  # type: ignore
    # values that are no integers or no arrays
    lambda: split(x, 3.0),  # type: ignore
    lambda: split(x, [1.0, 5.0]),  # type: ignore
    lambda: split(x, "33"),  # type: ignore
    lambda: split(x, num_outputs="2"),  # type: ignore
    lambda: split(x, num_splits=2.0),  # type: ignore
    lambda: split(x, indices=3),  # type: ignore
    lambda: split(x, num_sections=2.0),  # type: ignore
    # an axis by another name, or rules by position
    lambda: split(x, 3, 0, 2),  # type: ignore
    lambda: split(x, 3, dim=0),  # type: ignore
    lambda: plan_split((6,), 3, 0, 2),  # type: ignore
    lambda: plan_split((6,), 3, dim=0),  # type: ignore
    lambda: split(x, 3, axis=0.0),  # type: ignore
    lambda: split(x, 3, copy=1),  # type: ignore
    lambda: split(x, 3, out=[[0.0] * 3] * 2),  # type: ignore
    lambda: split(object(), 3),  # type: ignore
    lambda: plan_split(6, 3),  # type: ignore
    lambda: plan_split((6.0,), 3),  # type: ignore
    lambda: splitjit.numpy.unstack(x, dim=0),  # type: ignore
    # arguments that the operator does not have, or of the wrong kind
    lambda: splitjit.onnx.Split(num_splits=2),  # type: ignore
    lambda: splitjit.onnx.Split(num_outputs=2.0),  # type: ignore
    lambda: splitjit.onnx.SplitToSequence()(x, 2.0),  # type: ignore
    lambda: splitjit.openvino.Split(),  # type: ignore
    lambda: splitjit.openvino.VariadicSplit()(x, 0, ["1", "5"]),  # type: ignore
    lambda: split(x, num_output=3),  # type: ignore
    lambda: split(da.ones(6), 3.0),  # type: ignore
    lambda: split(None, 3),  # type: ignore
    lambda: split({"a": 1}, 3),  # type: ignore
    lambda: split("abc", 3),  # type: ignore
    lambda: splitjit.explain(x, 3, num_output=2),  # type: ignore
]


# Type checkers accept these: Dask arrays and `out` have one signature for all rules.
ACCEPTED: list[Callable[[], object]] = [
    lambda: split(x, out=out),
    lambda: split(x, num_outputs=2, num_splits=2, out=out),
    lambda: splitjit.dask.split(da.ones(6), 3, num_splits=2),  # pyright: ignore
]


@pytest.mark.parametrize("use", [*WRONG, *ACCEPTED])
def test_wrong_uses_are_refused(use: Callable[[], object]) -> None:
    with pytest.raises((SplitError, TypeError)):
        use()


def test_overloads_leave_the_signatures_as_they_are() -> None:
    rules = ["split=None", "axis=0", "*", "num_outputs=None", "num_splits=None"]
    rules += ["indices=None", "num_sections=None"]
    signatures: list[tuple[Callable[..., object], list[str]]] = [
        (split, ["x", *rules, "out=None", "copy=True"]),
        (plan_split, ["shape", *rules]),
        (split_into, ["x", "outs", *rules]),
        (SplitPlan.__call__, ["self", "x", "out=None", "copy=True"]),
    ]
    for function, expected in signatures:
        signature = inspect.signature(function)
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        shown = str(signature.replace(parameters=bare, return_annotation=signature.empty))
        assert shown == f"({', '.join(expected)})"
