"""Arrays of other libraries: what is split, what comes back, and what is refused."""

import re

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, SplitTypeError, plan_split, split
from tests.inputs.common import WRITES


def masked(dtype="f8", nomask=False, hard=False, shape=(4, 6)):
    """Return a masked array with an unusual fill value."""
    data = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    mask = np.ma.nomask if nomask else data % 3 == 1
    return np.ma.MaskedArray(data, mask, fill_value=77, hard_mask=hard)


def assert_masked(parts, x, plan):
    """Check that parts have the data, the mask, the fill value and the hardness of `x`."""
    assert len(parts) == len(plan)
    for part, index in zip(parts, plan.slices, strict=True):
        expected = x[index]
        assert type(part) is np.ma.MaskedArray
        assert np.array_equal(part.data, expected.data)
        if x.mask is np.ma.nomask:
            assert np.ma.getmask(part) is np.ma.nomask
        else:
            assert np.array_equal(np.ma.getmask(part), np.ma.getmask(expected))
        assert part.fill_value == 77
        assert part.hardmask == x.hardmask


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("nomask", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (3000, 6), (0, 6)])
def test_masks_are_split_with_the_data(shape, nomask, hard):
    x = masked(nomask=nomask, hard=hard, shape=shape)
    for turned, axis in ((x, 1), (x.T, 0)):
        plan = plan_split(turned.shape, [1, 0, 5], axis=axis)
        copies = plan(turned)
        assert_masked(copies, turned, plan)
        assert_masked(split(turned, [1, 0, 5], axis=axis, copy=False), turned, plan)
        assert not any(np.may_share_memory(part.data, x.data) for part in copies)
        assert not any(np.may_share_memory(np.ma.getmask(p), np.ma.getmask(x)) for p in copies)
    first = split(x, [1, 0, 5], axis=1, copy=False)[2]
    assert not first.size or np.shares_memory(first.data, x.data)


def test_masked_records():
    x = np.ma.array([(1, 2.0), (3, 4.0)], dtype="i4,f8", mask=[(True, False), (False, True)])
    first, second = split(x, 1)
    assert first.mask.tolist() == [(True, False)]
    assert second.mask.tolist() == [(False, True)]


def test_operators_keep_masks():
    x = masked("f4")
    plan = plan_split(x.shape, num_splits=2)
    assert_masked(splitjit.onnx.Split(num_outputs=2)(x), x, plan)
    assert_masked(splitjit.onnx.SplitToSequence()(x, 2), x, plan)
    assert_masked(splitjit.openvino.Split(num_splits=2)(x, 0), x, plan)
    assert_masked(splitjit.openvino.VariadicSplit()(x, 0, [2, -1]), x, plan)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("nomask", [False, True])
@pytest.mark.parametrize("masks", [False, True])
def test_masked_outputs(masks, nomask, hard):
    x = masked(nomask=nomask)
    plan = plan_split(x.shape, num_splits=2, axis=1)
    for write in WRITES.values():
        out = [np.ma.MaskedArray(np.ones((4, 3)), masks or np.ma.nomask, hard_mask=hard)
               for _ in range(2)]  # fmt: skip
        written = write(x, out) or out  # split_into returns None
        assert all(a is b for a, b in zip(written, out, strict=True))
        for part, index in zip(out, plan.slices, strict=True):
            assert np.array_equal(part.data, x.data[index])
            assert np.array_equal(np.ma.getmaskarray(part), np.ma.getmaskarray(x)[index])


def test_masked_outputs_refused():
    x = masked()
    shared = np.zeros((4, 3), bool)
    read_only = np.zeros((4, 3), bool)
    read_only.flags.writeable = False
    for second, says in [
        (np.zeros((4, 3)), r"out\[1\] of type ndarray and dtype float64: .*masked array"),
        (np.ma.zeros((4, 2)), r"out\[1\] of shape \(4, 2\)"),
        (np.ma.zeros((4, 3), "f4"), r"out\[1\] of dtype float32"),
        (np.ma.MaskedArray(np.zeros((4, 3)), np.ma.getmask(x)[:, :3]), "and x: must not share"),
        (np.ma.MaskedArray(np.zeros((4, 3)), read_only), "read-only"),
    ]:
        out = [np.ma.MaskedArray(np.zeros((4, 3)), False), second]
        with pytest.raises(SplitError, match=f"^split: {says}|{says}"):
            split(x, 3, axis=1, out=out)
        assert not any(np.ma.getdata(part).any() for part in out)
    out = [np.ma.MaskedArray(np.zeros((4, 3)), shared) for _ in range(2)]
    with pytest.raises(SplitError, match="must not share memory"):
        split(x, 3, axis=1, out=out)
    with pytest.raises(SplitTypeError, match="out of type int"):
        split(x, 3, axis=1, out=5)
    with pytest.raises(SplitTypeError, match="must be a masked array"):
        plan_split(x.shape, 3, axis=1).bind([np.zeros((4, 3)), np.zeros((4, 3))])(x)


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("shape", [(6, 4), (24,), (2,)])
def test_a_mask_of_another_shape_is_refused(shape, copy):
    """NumPy itself makes one: after ``x.dtype = "f4"`` fails, only the data has the new dtype."""
    broken, x = masked(), masked()
    if shape == (2,):
        broken._mask = np.zeros(2, bool)
    else:
        np.ma.getmask(broken).shape = shape
    says = r"of shape \(4, 6\) with a mask of shape " + re.escape(str(shape))
    with pytest.raises(SplitError, match=f"^split: x {says}"):
        split(broken, 3, axis=1, copy=copy)
    with pytest.raises(SplitError, match=rf"^split: out\[1\] {says}"):
        split(np.ma.hstack([x, x]), 6, axis=1, out=[x, broken])
    with pytest.raises(SplitError, match=rf"^unstack: out\[1\] {says}"):
        splitjit.numpy.unstack(np.ma.stack([x, x]), out=[x, broken])


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex64", "bfloat16",
                                   "float8_e5m2"])  # fmt: skip
@pytest.mark.parametrize("shape", [(4, 6), (20_000, 6), (0, 6)])
def test_arrays_of_jax(jax, shape, dtype):
    x = (jax.numpy.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    plan = plan_split(shape, [1, 5], axis=1)
    for parts in (split(x, [1, 5], axis=1), split(x, [1, 5], axis=1, copy=False), plan(x)):
        for part, index in zip(parts, plan.slices, strict=True):
            assert isinstance(part, jax.Array)
            assert part.dtype == x.dtype
            assert np.asarray(part).tobytes() == np.asarray(x[index]).tobytes()
    out = plan.empty(np.asarray(x).dtype)  # arrays of JAX are immutable
    assert split(x, [1, 5], axis=1, out=out)[1] is out[1]
    assert out[1].tobytes() == np.asarray(x[:, 1:]).tobytes()


def test_no_bits_of_jax_are_cut_outside_of_x64_mode(jax):
    if not hasattr(jax, "enable_x64"):
        pytest.skip("this JAX has no such function")
    with jax.enable_x64(True):
        x = jax.numpy.array([2**40, 1, 2**33 + 5, 3])
    for parts in split(x, 2), split(x, 2, copy=False), [splitjit.join([x[:2], x[2:]])]:
        assert [str(part.dtype) for part in parts] == ["int64"] * len(parts)
        assert np.concatenate(parts).tolist() == [2**40, 1, 2**33 + 5, 3]


def test_large_parts_of_jax_are_not_copied_again(jax):
    splitjit.warmup(["f4"])
    x = jax.numpy.zeros((2048, 512), "float32")
    parts = split(x, num_splits=2, axis=1)
    first, second = (part.unsafe_buffer_pointer() for part in parts)
    assert abs(first - second) == parts[0].nbytes  # both lie in the block of splitjit


def test_unfinished_arrays_of_jax_are_awaited(jax):
    x = jax.numpy.ones((1000, 1000))
    for _ in range(10):
        x = x @ x / 1000
    assert all((np.asarray(part) == 1).all() for part in split(x, 500))


def test_arrays_of_pyarrow():
    pa = pytest.importorskip("pyarrow")
    for x in (pa.array([1, 2, 3, 4]), pa.chunked_array([[1, 2], [3, 4]])):
        parts = split(x, 2)
        assert [type(part) for part in parts] == [np.ndarray] * 2
        assert [part.tolist() for part in parts] == [[1, 2], [3, 4]]
    assert [bytes(part) for part in split(pa.py_buffer(b"abcd"), 2)] == [b"ab", b"cd"]
    with pytest.raises(SplitTypeError, match="x of type Int64Scalar: must be an array"):
        split(pa.scalar(1), 2)


def sparse(layout):
    return pytest.importorskip("scipy.sparse").eye_array(4).asformat(layout)


REFUSED = [
    *[(lambda x=x: x, "must be an") for x in (None, {1: 2}, {1, 2}, "ab", object(), len)],
    (lambda: b"ab", r"must be an array; pass np\.frombuffer\(x, dtype\)$"),
    (lambda: {}.keys(), "must be an"),
    (lambda: (n for n in range(4)), r".*; pass list\(x\)"),
    (lambda: sparse("csr"), r"must not be sparse; pass its \.toarray\(\)"),
    (lambda: sparse("coo"), r"must not be sparse; pass its \.toarray\(\)"),
]


@pytest.mark.parametrize(("make", "says"), REFUSED)
def test_objects_that_are_no_arrays_are_refused_by_type(make, says):
    x = make()
    with pytest.raises(SplitTypeError, match=f"^split: x of type {type(x).__name__}.*: {says}"):
        split(x, 2)
