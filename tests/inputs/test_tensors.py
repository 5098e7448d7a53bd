"""Tensors of torch: parts are tensors of the same bits, and nothing is lost silently."""

import gc
import io
import itertools
import sys
import warnings
import weakref
from functools import partial

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, SplitTypeError, plan_split, split, split_into
from tests.conftest import call_at, new_pool

torch = pytest.importorskip("torch")


def dtypes():
    """Return all dtypes of CPU tensors except the quantized ones, which are refused."""
    found = {dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    return sorted((dtype for dtype in found if "qint" not in str(dtype)
                   and "quint" not in str(dtype)), key=str)  # fmt: skip


def same(a, b):
    """Compare dtype, shape and all bits of two tensors."""
    assert type(a) is torch.Tensor
    return a.dtype == b.dtype and a.shape == b.shape and bits(a) == bits(b)


def bits(x):
    return words(x).contiguous().view(torch.uint8).numpy().tobytes() if x.numel() else b""


def tensor(shape, dtype):
    """Return a contiguous tensor of random bits."""
    rng = np.random.default_rng(0)
    count = int(np.prod(shape)) * dtype.itemsize
    raw = rng.integers(0, 2 if dtype == torch.bool else 256, count, np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of complex32
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.from_numpy(raw).view(dtype).reshape(shape)


def words(x):
    """Return the same bits as integers: torch has no copy for its smallest dtypes."""
    return x.view(torch.uint8) if x.dtype.itemsize == 1 else x


LAYOUTS = {
    "contiguous": lambda dtype: tensor((6, 10), dtype),
    "transposed": lambda dtype: tensor((10, 6), dtype).T,
    "strided": lambda dtype: tensor((12, 30), dtype)[::2, ::3],
    "zero-size": lambda dtype: tensor((0, 10), dtype),
    "large": lambda dtype: tensor((40, 4000), dtype)[:, :10][:6],
    "kernel": lambda dtype: tensor((20_000, 10), dtype),
}


@pytest.mark.filterwarnings("ignore:B?Complex")  # torch says that some dtypes are experimental
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes(), ids=str)
def test_parts_equal_those_of_torch(dtype, layout):
    x = LAYOUTS[layout](dtype)
    sizes = [3, 0, 7]
    plan = plan_split(tuple(x.shape), sizes, axis=1)
    expected = [
        part.view(dtype) if dtype.itemsize == 1 else part
        for part in torch.split_with_sizes_copy(words(x), sizes, 1)
    ]
    before = bits(x) if layout == "contiguous" else None
    fresh = split(x, sizes, axis=1)
    views = split(x, sizes, axis=1, copy=False)
    out = plan.empty(dtype)
    written = split(x, sizes, axis=1, out=out)
    bound = plan.bind(plan.empty(dtype))(x)
    into = plan.empty(dtype)
    split_into(x, into, sizes, axis=1)
    for parts in (fresh, views, written, bound, plan(x), into):
        assert isinstance(parts, list)
        assert all(same(a, b) for a, b in zip(parts, expected, strict=True))
    assert all(a is b for a, b in zip(written, out, strict=True))
    assert all(part.is_contiguous() for part in fresh)
    for part, view in zip(fresh, views, strict=True):
        if part.numel():
            assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            assert part.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
    assert before is None or bits(x) == before


@pytest.mark.parametrize("kind", ["fresh", "out", "views", "bind"])
def test_no_reference_is_left(kind):
    plan = plan_split((600, 600), num_splits=2)
    x, out = torch.ones(600, 600), plan.empty(torch.float32)
    watched = [weakref.ref(x), *map(weakref.ref, out)]
    if kind == "bind":
        parts = plan.bind(out)(x)
    else:
        parts = plan(x, out if kind == "out" else None, kind != "views")
    watched += map(weakref.ref, parts)
    del x, out, parts
    if any(ref() is not None for ref in watched):
        gc.collect()  # torch makes so many objects that this takes a second
    assert [ref() for ref in watched] == [None] * len(watched)


def test_blocks_return_to_the_pool(monkeypatch):
    splitjit.warmup(["f4"])
    pool = new_pool(2**28, monkeypatch.setattr)
    parts = split(torch.ones(1 << 20, 2), 1, axis=1)
    last = parts.pop()[5:]
    del parts
    assert pool.kept == 0
    assert last[0] == 1
    del last
    assert pool.kept == 1 << 23


def test_parts_are_leaves_of_their_own():
    """Writing to one part does not disturb another, and saving one saves no other."""
    for dtype in (torch.float32, torch.bfloat16):
        first, second = split(torch.ones(2, 5000, dtype=dtype), num_splits=2)
        assert not first._is_view()
        first.add_(1)
        assert second._version == 0
        file = io.BytesIO()
        torch.save(first, file)
        assert len(file.getvalue()) < 1.5 * first.nbytes
        weight = torch.ones((), dtype=dtype, requires_grad=True)
        second.mul_(weight)
        second.sum().backward()
        assert weight.grad is not None


def fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(4)


QINT = torch.qint8
COMPLEX = torch.ones(4, dtype=torch.complex64) * 1j
MADE_BY_TORCH = {
    "gradient": lambda: torch.ones(4, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(4)),
    "gradient of bfloat16": lambda: torch.ones(4, dtype=torch.bfloat16, requires_grad=True),
    "meta": lambda: torch.ones(4, device="meta"),
    "conjugated": COMPLEX.conj,
    "negated": lambda: COMPLEX.conj().imag,
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    "fake": fake,
}


@pytest.mark.filterwarnings("ignore:.*quantize")  # it is deprecated
@pytest.mark.parametrize("kind", MADE_BY_TORCH)
def test_tensors_that_numpy_cannot_read_are_split_by_torch(kind):
    x = MADE_BY_TORCH[kind]()
    for copy in (True, False):
        parts = split(x, 2, copy=copy)
        for part, other in zip(parts, torch.split(x, 2), strict=True):
            assert type(part) is type(other)
            assert (part.shape, part.dtype) == (other.shape, other.dtype)
            assert part.requires_grad == x.requires_grad
            assert kind in ("meta", "fake") or torch.equal(part, other)
    if kind != "negated":  # torch.split(x, 4) is the same tensor
        says = "must not be a lazy conjugate" if kind == "conjugated" else ""
        with pytest.raises(SplitError, match=rf"^split: .*out\[0\].*{says}"):
            split(torch.ones(4).to(x.dtype) if kind != "quantized" else torch.ones(4), 4, out=[x])


REFUSED = {
    "sparse": (lambda: torch.ones(4).to_sparse(), r"sparse_coo; pass its \.to_dense\(\)"),
    "compressed": (lambda: torch.ones(4, 4).to_sparse_csr(), r"pass its \.to_dense\(\)"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), r"\.unbind\(\)"),
}


@pytest.mark.filterwarnings("ignore:.*beta state", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("make", "says"), REFUSED.values(), ids=REFUSED)
def test_refused_tensors_name_the_fix(make, says):
    x = make()
    for copy in (True, False):
        with pytest.raises(SplitTypeError, match=rf"^split: x of type \w+ and dtype .*{says}"):
            split(x, 2, copy=copy)
    with pytest.raises(SplitTypeError, match=rf"^split: out\[0\] .*{says}"):
        split(torch.ones(4), 4, out=[x])


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("contiguous", [True, False])  # torch's operator takes no others
@pytest.mark.parametrize("changed", ["x", "x whose storage is too small", "an output"])
def test_a_tensor_whose_memory_changes_at_any_line_of_the_call(changed, contiguous, dtype):
    dtype = getattr(torch, dtype)
    for line in itertools.count(1):
        x, base = torch.ones(8, dtype=dtype), torch.zeros(8, dtype=dtype)
        out = [base[:4], base[4:]] if contiguous else [base[::2], base[1::2]]
        tensor = out[0] if changed == "an output" else x
        change = partial(setattr, tensor, "data", torch.full((64,), 2, dtype=dtype)[::9])
        if "storage" in changed:
            x.untyped_storage().resize_(2)
        kept = [part.detach() for part in out]
        try:
            _, reached = call_at(line, change, lambda x, out: split(x, 4, out=out), x, out)
        except SplitError:
            assert not base.any()
            if x.untyped_storage().nbytes() == 2:  # the call had no such line
                break
            continue
        values = (1, 2) if changed == "x" else (2,) if "storage" in changed else (1,)
        ends = torch.cat(kept).tolist(), torch.cat(out).tolist()
        assert [n for n in values if [float(n)] * 8 in ends]
        if not reached:
            break


def test_autograd_sees_that_outputs_were_written():
    out = [torch.ones(2), torch.ones(2)]
    weight = torch.ones(2, requires_grad=True)
    for write in (lambda: split(torch.ones(4), 2, out=out), plan_split((4,), 2).bind(out)):
        product = (weight * out[0]).sum()
        write() if write.__class__.__name__ == "function" else write(torch.ones(4))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()


WRONG_OUT = [
    ([np.zeros(2, "f4")] * 2, SplitTypeError, r"out\[0\] of type ndarray and .*torch"),
    ([torch.zeros(2), torch.zeros(2).double()], SplitTypeError, r"out\[1\] of dtype torch.float64"),
    ([torch.zeros(3)] * 2, SplitError, r"out\[0\] of shape \(3,\)"),
    ([torch.zeros(2)], SplitError, "out of 1 arrays"),
    ([torch.zeros(1).expand(2)] * 2, SplitError, "its elements must not share memory"),
    ([torch._neg_view(torch.zeros(2))] * 2, SplitTypeError, "must not be a lazy conjugate or neg"),
    (torch.zeros(2, 2), SplitTypeError, "out of type Tensor .*: must be a sequence"),
    (5, SplitTypeError, "out of type int"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*quantize")
def test_quantized_outputs_of_another_scheme_are_refused_before_a_write():
    x, out = MADE_BY_TORCH["quantized"](), torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, QINT)
    other = torch.quantize_per_channel(torch.zeros(2), torch.ones(2), torch.zeros(2), 0, QINT)
    with pytest.raises(SplitTypeError, match=r"^split: out\[1\] of dtype .*per_channel"):
        split(x, 2, out=[out, other])
    larger = torch.quantize_per_tensor(torch.zeros(4), 0.5, 0, QINT)  # torch writes 10 for 1.0
    with pytest.raises(SplitTypeError, match=r"^split: out\[1\] of dtype .* 0\.5, 0\)"):
        split(x, 2, out=[out, larger[2:]])
    assert not out.int_repr().any()
    assert not larger.int_repr().any()
    with pytest.raises(SplitTypeError, match=r"^split: dtype=torch.qint8"):
        plan_split((4,), 2).empty(QINT)
    with pytest.raises(SplitError, match="verflow"):
        plan_split((2**62, 4), num_splits=2).empty(torch.float32)
    with pytest.raises(MemoryError):
        plan_split((2**58,), num_splits=2).empty(torch.float32)


@pytest.mark.parametrize(("out", "error", "says"), WRONG_OUT)
def test_outputs_refused(out, error, says):
    split(torch.zeros(2), 1)  # from the second split on, torch's operator may take outputs
    with pytest.raises(error, match=f"^split: {says}|^split: .*{says}"):
        split(torch.ones(4), 2, out=out)
    for part in out if isinstance(out, list) else []:
        assert not part.any()


def test_bindings_of_tensors_and_of_arrays_do_not_mix():
    plan = plan_split((4,), 2)
    into = plan.bind(plan.empty(torch.bfloat16))
    for x in (np.ones(4, np.int16), torch.ones(4), torch.ones(4, dtype=torch.int16)):
        with pytest.raises(SplitTypeError, match=r"out\[0\] of "):
            into(x)
    with pytest.raises(SplitTypeError, match="must be a torch tensor"):
        plan.bind(plan.empty(np.int16))(torch.ones(4, dtype=torch.bfloat16))
    with pytest.raises(SplitError, match=r"a sequence of ndarrays; pass out\[0\].numpy\(\)"):
        split(np.ones(4, "f4"), 2, out=[torch.zeros(2)] * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool])
def test_small_tensors(dtype):
    for x in (tensor((2, 6), dtype), tensor((6, 2), dtype).T, tensor((2, 12), dtype)[:, 5:11]):
        expected = [part.contiguous() for part in torch.split(x, (2, 4), 1)]
        out = [torch.zeros_like(part) for part in expected]
        versions = [part._version for part in out]
        assert all(same(a, b) for a, b in zip(split(x, (2, 4), 1, out=out), expected, strict=True))
        assert [part._version for part in out] == [version + 1 for version in versions]
        parts = split(x, (2, 4), 1)
        assert all(same(a, b) for a, b in zip(parts, expected, strict=True))
        assert all(part.is_contiguous() and not part._is_view() for part in parts)
        parts[0].zero_()
        assert same(parts[1], expected[1])
        assert [sys.getrefcount(part) for part in (parts[0], out[0])] == [4, 4]


def shrink(tensor):
    tensor.untyped_storage().resize_(100)
    return tensor


def inferred():
    with torch.inference_mode():
        return torch.zeros(2**15)


CHANGES = {
    "the same": lambda x, a, b: (x, [a, b]),
    "another order": lambda x, a, b: (x, (b, a)),
    "one shorter": lambda x, a, b: (x, [a, b[:-1]]),
    "one resized": lambda x, a, b: (x, [a, b.resize_(10)]),
    "one strided": lambda x, a, b: (x, [a, torch.zeros(2**16)[::2]]),
    "another dtype": lambda x, a, b: (x, [a, b.double()]),
    "a gradient": lambda x, a, b: (x, [a, b.requires_grad_()]),
    "of inference mode": lambda x, a, b: (x, [a, inferred()]),
    "no memory": lambda x, a, b: (x, [a, b.to("meta")]),
    "a shrunk storage": lambda x, a, b: (x, [a, shrink(b)]),
    "a class": lambda x, a, b: (x, [a, b.as_subclass(type("Mine", (torch.Tensor,), {}))]),
    "a parameter": lambda x, a, b: (x, [a, torch.nn.Parameter(b, requires_grad=False)]),
    "an array": lambda x, a, b: (x, [a, b.numpy()]),
    "twice the same": lambda x, a, b: (x, [a, a]),
    "a part of x": lambda x, a, b: (x, [a, x[2**15 :]]),
    "one too few": lambda x, a, b: (x, [a]),
    "none": lambda x, a, b: (x, []),
    "one sparse": lambda x, a, b: (x, [a, b.to_sparse()]),
    "one nested": lambda x, a, b: (x, [a, torch.nested.nested_tensor([a[:9], b[9:]])]),
    "x with a gradient": lambda x, a, b: (x.clone().requires_grad_(), [a, b]),
    "x negated lazily": lambda x, a, b: (torch._neg_view(x), [a, b]),
    "x strided": lambda x, a, b: (torch.stack([x, x], 1)[:, 0], [a, b]),
    "x shrunk": lambda x, a, b: (shrink(x.clone()), [a, b]),
    "x of another dtype": lambda x, a, b: (x.int(), [a, b]),
}


FRESH = [key for key in CHANGES if key.startswith("x ")]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("inferring", [False, True], ids=["", "warm in inference mode"])
@pytest.mark.parametrize(
    ("has_out", "change"), [*((True, key) for key in CHANGES), *((False, key) for key in FRESH)]
)
def test_tensors_unlike_those_that_passed_are_checked(has_out, change, inferring):
    """Nothing is remembered of the first calls but the kind of their tensors."""

    def outcome(warm):
        splitjit.clear_caches()
        x, a, b = torch.arange(2.0**16), torch.zeros(2**15), torch.zeros(2**15)
        with torch.inference_mode(inferring):
            for out in [[torch.zeros(2**15), torch.zeros(2**15)], [a, b], [a, b]] * warm:
                split(x, 2**15, out=out if has_out else None)
        x, out = CHANGES[change](x, a.zero_(), b.zero_())
        try:
            parts = split(x, 2**15, out=out if has_out else None)
        except SplitError as error:
            return str(error), [bits(part.detach()) for part in out[:1]]
        return [(part.dtype, part.requires_grad, bits(part.detach())) for part in parts]

    assert outcome(warm=True) == outcome(warm=False)
