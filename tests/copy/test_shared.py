"""One table of outputs that share memory: refused on every way, before the first byte.

The input takes the first 24 of 48 numbers, as an array of shape (4, 6); outputs have shape (4, 3).
"""

from contextlib import nullcontext

import numpy as np
import pytest

from splitjit import SplitError, split
from tests.inputs.common import WRITES, writes

# name: (how outputs lie in the array `m` of 48 numbers and beside it, what the refusal says)
SHARED = {
    "the same output twice": (lambda m, new: [m[24:36].reshape(4, 3)] * 2, "out[0] and out[1]"),
    "two outputs that overlap": (
        lambda m, new: [m[24:36].reshape(4, 3), m[30:42].reshape(4, 3)], "out[0] and out[1]"),
    "an output that overlaps x": (lambda m, new: [m[20:32].reshape(4, 3), new()], "out[0] and x"),
    "another output that overlaps x": (lambda m, new: [new(), m[0:12].reshape(4, 3)],
                                       "out[1] and x"),
    "a column of x": (lambda m, new: [new(), m[:24].reshape(4, 6)[:, 3:]], "out[1] and x"),
    "an expanded output": (lambda m, new: [new(), expanded(m[24:27])], "out[1] of strides"),
    "an output of another shape": (lambda m, new: [new(), m[24:32].reshape(4, 2)],
                                   "out[1] of shape (4, 2)"),
}  # fmt: skip
APART = {
    "beside x": lambda m, new: [m[24:36].reshape(4, 3), m[36:48].reshape(4, 3)],
    "interleaved": lambda m, new: [m[24:48].reshape(4, 6)[:, ::2], m[24:48].reshape(4, 6)[:, 1::2]],
}


def expanded(row):
    return row.expand(4, 3) if hasattr(row, "expand") else writeable(np.broadcast_to(row, (4, 3)))


def writeable(array):
    array.flags.writeable = True
    return array


needs = pytest.importorskip


def dispatch_mode():
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: F401
    from torch.utils._python_dispatch import TorchDispatchMode

    class Plain(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    return Plain()


# The way: how memory becomes an input, and the mode in which it is split.
TORCH = {
    "kernels": (lambda x: x, nullcontext),
    "conjugate": (lambda x: x.conj(), nullcontext),
    "subclass": (lambda x: x.as_subclass(type("L", (needs("torch").Tensor,), {})), nullcontext),
    "forward mode": (lambda x: x, lambda: needs("torch").autograd.forward_ad.dual_level()),
    "function mode": (lambda x: x, lambda: needs("torch").overrides.BaseTorchFunctionMode()),
    "dispatch mode": (lambda x: x, dispatch_mode),
}


def dtype_of(way):
    return "complex64" if way == "conjugate" else "float32"


def refused(call, says):
    with pytest.raises(SplitError) as refusal:
        call()
    assert says.replace("out[", "outs[") in str(refusal.value).replace("out[", "outs[")


LENT = {
    # The library, and the dtype: how it takes memory of NumPy, which DLPack lends it.
    ("NumPy", "float64"): lambda x: x,
    ("JAX", "float32"): lambda x: needs("jax").numpy.from_dlpack(x),
    ("JAX", "int8"): lambda x: needs("jax").numpy.from_dlpack(x),
    ("Array API", "float64"): lambda x: needs("array_api_strict").asarray(x, copy=False),
}
# Other libraries take no binding of ndarrays.
WAYS = [(kind, name) for kind in LENT for name in WRITES if "NumPy" in kind or name != "bind"]


@pytest.mark.parametrize("case", SHARED)
@pytest.mark.parametrize(("kind", "name"), WAYS, ids=str)
def test_arrays(case, kind, name):
    make, says = SHARED[case]
    dtype = np.dtype(kind[1])
    block = np.zeros(48 * dtype.itemsize + 64, np.uint8)
    start = -block.ctypes.data % 64  # JAX takes aligned memory only
    memory = block[start : start + 48 * dtype.itemsize].view(dtype)
    memory[:] = np.arange(48)
    x = LENT[kind](memory[:24].reshape(4, 6))
    assert np.shares_memory(np.from_dlpack(x), memory)
    refused(lambda: WRITES[name](x, make(memory, lambda: np.zeros((4, 3), dtype))), says)
    assert memory.tolist() == [*range(48)]


@pytest.mark.parametrize("storages", ["one", "two"])
@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("case", SHARED)
@writes
def test_tensors(case, write, way, storages, torch):
    (make, says), (as_input, mode) = SHARED[case], TORCH[way]
    memory = np.arange(48, dtype=dtype_of(way))
    x = torch.from_numpy(memory)
    others = x if storages == "one" else torch.from_numpy(memory)
    new = []

    def output():
        new.append(torch.zeros(4, 3, dtype=x.dtype))
        return new[-1]

    out = make(others, output)
    given = as_input(x[:24].reshape(4, 6))
    with mode():
        refused(lambda: write(given, out), says)
    assert memory.tolist() == [*range(48)]
    assert not any(part.any() for part in new)


@pytest.mark.parametrize("way", TORCH)
@pytest.mark.parametrize("case", APART)
@writes
def test_tensors_that_share_no_element(case, write, way, torch):
    as_input, mode = TORCH[way]
    x = torch.arange(48).to(getattr(torch, dtype_of(way)))
    out = APART[case](x, None)
    wanted = [part.clone() for part in x[:24].reshape(4, 6).split(3, 1)]
    with mode():
        write(as_input(x[:24].reshape(4, 6)), out)
    assert all(torch.equal(*pair) for pair in zip(out, wanted, strict=True))


@writes
@pytest.mark.parametrize("device", ["meta", "fake"])
def test_tensors_without_memory(write, device, torch):
    """They share what their storages share."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.zeros(48, device="meta" if device == "meta" else "cpu")
        for make, says in SHARED.values():
            out = make(x, lambda x=x: torch.zeros(4, 3, device=x.device))
            refused(lambda out=out: write(x[:24].reshape(4, 6), out), says)
        for make in APART.values():
            write(x[:24].reshape(4, 6), make(x, None))


@writes
@pytest.mark.parametrize("way", ["kernels", "conjugate", "subclass"])
def test_inference_tensors_are_written_under_their_mode_only(write, way, torch):
    as_input, _ = TORCH[way]
    dtype = getattr(torch, dtype_of(way))
    x = torch.ones(4, 6, dtype=dtype)
    with torch.inference_mode():
        out = [torch.zeros(4, 3, dtype=dtype) for _ in range(2)]
    for given in (out, [torch.zeros(4, 3, dtype=dtype), out[1]]):
        with pytest.raises(SplitError, match=r"outs?\[[01]\] .*: .*inference_mode"):
            write(as_input(x), given)
        assert not given[0].any()
    with torch.inference_mode():
        write(as_input(x), out)
    assert all(part.all() for part in out)


@pytest.mark.parametrize("way", ["kernels", "conjugate", "subclass", "gradient"])
def test_a_tensor_must_lie_in_its_storage(way, torch):
    as_input = TORCH.get(way, (lambda x: x.requires_grad_(), None))[0]
    dtype = getattr(torch, dtype_of(way))
    for take in (lambda x: x, lambda x: x[500:], lambda x: x.reshape(10, 100)[:, ::50].T):
        x = torch.ones(1000, dtype=dtype)
        view = take(x)
        x.untyped_storage().resize_(1000)
        view = as_input(view)
        for call in (lambda x=view: split(x, 2), lambda x=view: split(x, 2, copy=False)):
            with pytest.raises(SplitError, match="its storage was resized to 1000 bytes"):
                call()
        rows = view.shape[0]
        if way == "kernels":
            with pytest.raises(SplitError, match=r"out\[0\] .*: its storage was resized to 1000"):
                split(torch.ones(tuple(view.shape), dtype=dtype), rows, out=[view])


@pytest.mark.parametrize("copy", [True, False])
def test_a_weak_dtype_of_jax_stays_weak(copy, jax):
    weak = jax.numpy.full(4, 1.0)
    assert weak.weak_type
    half = jax.numpy.ones(2, "float16")
    for parts in (split(weak, 2, copy=copy), jax.jit(lambda x: split(x, 2, copy=copy))(weak)):
        assert parts[0].weak_type
        assert (parts[0] + half).dtype == "float16"
    strong = split(jax.numpy.ones(4, "float32"), 2)[0]
    assert not strong.weak_type
