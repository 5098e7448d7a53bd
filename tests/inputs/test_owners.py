"""Arrays whose library makes the parts: tracers of JAX, arrays on devices, and the Array API."""

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, SplitTypeError, plan_split, split, split_into
from tests import processes
from tests.conftest import long
from tests.inputs.common import CALLS, RULES, expected, operators, rules


def numbers(*shape):
    return np.arange(1.0, 1 + np.prod(shape), dtype="f4").reshape(shape)


def same(parts, others):
    assert len(parts) == len(others)
    return all(
        part.shape == other.shape and (np.asarray(part) == np.asarray(other)).all()
        for part, other in zip(parts, others, strict=True)
    )


@pytest.mark.parametrize("name", long(*RULES, if_not=("lengths", "rest", "indices")))
@pytest.mark.parametrize("call", long(*CALLS, if_not=("split",)))
def test_transforms_of_jax(jax, call, name):
    call, rule = CALLS[call], RULES[name]
    jitted = jax.jit(lambda x: call(x * 2, rule))
    for rows in (4, 7):  # shapes that change
        x = numbers(rows, 6)
        assert same(jitted(x), expected(x * 2, rule, 1))

    def total(parts):
        return sum((part * (i + 1) * part).sum() for i, part in enumerate(parts))

    x = numbers(4, 6)
    gradient = jax.grad(lambda x: total(call(x, rule)))(x)
    assert same([gradient], [jax.grad(lambda x: total(expected(x, rule, 1)))(x)])
    assert same(jax.vmap(lambda x: call(x, rule))(numbers(3, 4, 6)),
                expected(numbers(3, 4, 6), rule, 2))  # fmt: skip
    parts, tangents = jax.jvp(lambda x: call(x, rule), (x,), (x * 10,))
    assert same(parts, expected(x, rule, 1))
    assert same(tangents, expected(x * 10, rule, 1))
    shapes = jax.eval_shape(lambda x: call(x, rule), x)
    assert [part.shape for part in shapes] == [part.shape for part in expected(x, rule, 1)]


@rules
def test_a_graph_of_jax_has_the_operators_of_lax(jax, rule):
    text = str(jax.make_jaxpr(lambda x: split(x, axis=1, **rule))(numbers(4, 6)))
    assert "= split[" in text
    assert "callback" not in text


def test_exported_by_jax_with_an_unknown_dim(jax):
    export = pytest.importorskip("jax.export")
    (rows,) = export.symbolic_shape("rows")
    function = jax.jit(lambda x: split(x, [1, 0, 5], axis=1))
    exported = export.export(function)(jax.ShapeDtypeStruct((rows, 6), "f4"))
    assert same(exported.call(numbers(9, 6)), expected(numbers(9, 6), RULES["lengths"], 1))
    with pytest.raises(SplitTypeError, match="length of the axis must be known"):
        export.export(jax.jit(lambda x: split(x, 2)))(jax.ShapeDtypeStruct((rows, 6), "f4"))


def test_refusals_inside_of_jit(jax):
    with pytest.raises(SplitError) as of_arrays:
        split(numbers(4, 6), [1, 2], axis=1)
    with pytest.raises(SplitError) as refusal:
        jax.jit(lambda x: split(x, [1, 2], axis=1))(numbers(4, 6))
    assert str(refusal.value) == str(of_arrays.value)
    out = [np.zeros((4, 3), "f4")] * 2
    plan = plan_split((4, 6), 3, axis=1)
    into = plan.bind([np.zeros((4, 3), "f4") for _ in range(2)])
    for write in (lambda x: split(x, 3, axis=1, out=out), lambda x: split_into(x, out, 3, axis=1),
                  lambda x: plan(x, out), into):  # fmt: skip
        with pytest.raises(SplitTypeError, match=r"of type \w*Tracer"):
            jax.jit(lambda x, write=write: write(x))(numbers(4, 6))
    assert not out[0].any()


def test_operators_inside_of_jit(jax):
    x = numbers(4, 6)
    for operator in operators(axis=1):
        assert same(jax.jit(lambda x, run=operator: run(x))(x), expected(x, {"split": 2}, 1))
    with pytest.raises(SplitTypeError, match="bfloat16.*opset=13"):
        jax.jit(lambda x: splitjit.onnx.Split(opset=11, outputs=2)(x))(
            jax.numpy.ones(4, "bfloat16")
        )


DEVICES = """
import jax, numpy as np, splitjit
from jax.sharding import Mesh, NamedSharding, PartitionSpec

first, second = jax.devices()
x = np.arange(24.0, dtype="f4").reshape(4, 6)
mesh = Mesh(np.array([first, second]), ("rows",))
rows = NamedSharding(mesh, PartitionSpec("rows"))
jax.config.update("jax_default_device", second)
for place, devices in ((first, {first}), (second, {second}), (rows, {first, second})):
    given = jax.device_put(x, place)
    for copy in (True, False):
        left, right = splitjit.split(given, 3, axis=1, copy=copy)
        assert left.devices() == devices, (left.devices(), devices)
        assert np.array_equal(right, x[:, 3:])
    small = splitjit.split(given.astype("bfloat16"), 3, axis=1)  # DLPack has no such items
    assert small[0].devices() == devices, small[0].devices()
    out = [np.zeros((4, 3), "f4") for _ in range(2)]
    splitjit.split(given, 3, axis=1, out=out)
    assert np.array_equal(out[1], x[:, 3:])
"""


@pytest.mark.slow
def test_arrays_of_jax_stay_on_their_devices(jax, tmp_path):
    processes.run(tmp_path, DEVICES, XLA_FLAGS="--xla_force_host_platform_device_count=2")


@rules
@pytest.mark.parametrize("device", ["CPU_DEVICE", "device1"])
def test_array_api_strict(rule, device):
    strict = pytest.importorskip("array_api_strict")
    if not hasattr(strict, "Device"):
        pytest.skip("this version of array_api_strict has no devices")
    device = strict.Device(device)
    x = strict.asarray(numbers(4, 6), device=device)
    host = numbers(4, 6)
    for parts in (split(x, axis=1, **rule), split(x, axis=1, copy=False, **rule),
                  [part.T for part in split(x.T, axis=0, **rule)],
                  plan_split((4, 6), axis=1, **rule)(x)):  # fmt: skip
        assert all(part.device == device and type(part) is type(x) for part in parts)
        cpu = strict.Device("CPU_DEVICE")
        assert same([np.from_dlpack(part.to_device(cpu)) for part in parts],
                    expected(host, rule, 1))  # fmt: skip
    parts = split(x, axis=1, **rule)
    for part in parts:
        part[...] = 0.0
    assert strict.all(x > 0)


class Measured:
    """An array with the Array API that carries a unit, on a device that NumPy cannot read."""

    def __init__(self, values, unit):
        self.values, self.unit = values, unit
        self.shape, self.dtype = values.shape, values.dtype

    def __array_namespace__(self, api_version=None):
        return self

    def __dlpack_device__(self):
        return 2, 0

    def __array__(self, dtype=None, copy=None):
        raise TypeError("implicit conversion is not allowed")

    def __getitem__(self, key):
        return Measured(self.values[key], self.unit)

    @staticmethod
    def asarray(x, copy=None):
        return Measured(x.values.copy() if copy else x.values, x.unit)


def test_a_library_keeps_what_its_class_adds():
    x = Measured(numbers(6), "m")
    for copy in (True, False):
        parts = split(x, [2, 4], copy=copy)
        assert [part.unit for part in parts] == ["m", "m"]
        assert np.shares_memory(parts[0].values, x.values) != copy
    with pytest.raises(SplitTypeError, match="x of type Measured.*implicit conversion"):
        split(x, [2, 4], out=[np.zeros(2, "f4"), np.zeros(4, "f4")])
    assert splitjit.onnx.Split(num_outputs=2)(x)[1].unit == "m"
    Measured.asarray = None
    with pytest.raises(SplitTypeError, match="x of type Measured.*its library refuses"):
        split(x, [2, 4])
