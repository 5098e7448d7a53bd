"""`join` and `stack`: the way back, against NumPy and torch, and the laws of both directions."""

import gc
import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splitjit
from splitjit import SplitError, SplitTypeError
from splitjit._abi.kernels import INTERLEAVED
from splitjit._copy import join
from splitjit._inputs import input
from tests.conftest import needs_kernels
from tests.processes import python

RNG = np.random.default_rng(0)
ITEMS = ["u1", "i2", ">f4", "f8", "c16", "V3", "S7", "V40", "M8[s]", "i2,u1,f4"]


def random(shape, dtype):
    """Return an array of random bits."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=int)) * dtype.itemsize
    return np.frombuffer(RNG.bytes(nbytes), dtype).reshape(shape).copy()


def laid_out(array, layout):
    """Return an equal array: C- or F-contiguous, with negative strides, or with gaps."""
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "reversed":
        return array[::-1].copy()[::-1]
    if layout == "gaps":
        memory = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        memory[..., ::2] = array
        return memory[..., ::2]
    return array


LAYOUTS = ["C", "F", "reversed", "gaps"]


@st.composite
def joins(draw):
    """Draw parts of one dtype, the axis, and an array to write to, or None."""
    rank = draw(st.integers(1, 4))
    axis = draw(st.integers(0, rank - 1))
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 17, 40]), min_size=rank, max_size=rank))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 64, 300]), min_size=1, max_size=9))
    if draw(st.booleans()):
        sizes = sizes[:1] * len(sizes)
    dtype = draw(st.sampled_from(ITEMS))
    layouts = draw(st.lists(st.sampled_from(LAYOUTS), min_size=len(sizes), max_size=len(sizes)))
    if draw(st.booleans()):
        layouts = layouts[:1] * len(sizes)
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    drawn = zip(shapes, layouts, strict=True)
    parts = [laid_out(random(each, dtype), layout) for each, layout in drawn]
    whole = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
    how = draw(st.sampled_from([None, *LAYOUTS]))
    return parts, axis, None if how is None else laid_out(random(whole, dtype), how)


def bits(array):
    return array.dtype, array.shape, array.tobytes()


@given(joins())
def test_arrays_are_joined_as_numpy_does(route, drawn):
    parts, axis, out = drawn
    whole = [slice(None)] * axis
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    expected = np.zeros(shape, f"V{parts[0].itemsize}")  # bits between fields, too
    start = 0
    for part in parts:
        stop = start + part.shape[axis]
        expected[(*whole, slice(start, stop))] = part.view(expected.dtype)
        start = stop
    before = [part.tobytes() for part in parts]
    for _ in range(2):  # the second one is joined at once
        joined = splitjit.join(parts, axis, out=out)
        assert bits(joined) == (parts[0].dtype, tuple(shape), expected.tobytes())
        assert joined is out or (out is None and joined.flags.c_contiguous)
    assert [part.tobytes() for part in parts] == before


@given(joins())
def test_a_join_and_a_split_are_inverse(route, drawn):
    parts, axis, _ = drawn
    sizes = [part.shape[axis] for part in parts]
    joined = splitjit.join(parts, axis)
    assert list(map(bits, splitjit.split(joined, sizes, axis))) == list(map(bits, parts))
    plan = splitjit.plan_split(joined.shape, sizes, axis)
    assert bits(plan.join(plan(joined))) == bits(plan.join(tuple(parts))) == bits(joined)


@pytest.mark.parametrize("kind", INTERLEAVED, ids=str)
@pytest.mark.parametrize("length", [1, 63, 64, 5000])
def test_items_are_interleaved(route, kind, length):
    count, itemsize = kind
    planes = [random((length,), f"V{itemsize}") for _ in range(count)]
    expected = np.stack(planes, -1).tobytes()
    for offset in {0, itemsize, 3 * itemsize, 16}:
        memory = np.zeros(len(expected) + 32, np.uint8)
        out = memory[offset : offset + len(expected)].view(f"V{itemsize}").reshape(length, count)
        assert splitjit.stack(planes, -1, out=out) is out
        assert out.tobytes() == expected
        assert not memory[:offset].any()
        assert not memory[offset + len(expected) :].any()


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("count", [1, 3, 20])
def test_stack_is_the_inverse_of_unstack(route, axis, count):
    parts = [random((30, 50), "f4") for _ in range(count)]
    whole = splitjit.stack(parts, axis)
    assert bits(whole) == bits(np.stack(parts, axis))
    assert list(map(bits, splitjit.unstack(whole, axis))) == list(map(bits, parts))
    assert bits(splitjit.stack(np.stack(parts), axis)) == bits(whole)  # one array of parts


def test_one_array_of_parts_takes_the_short_way(monkeypatch):
    planes = random((3, 30, 50), "f4")
    whole = splitjit.stack(planes, -1)
    splitjit.warmup()
    splitjit.stack(planes, -1, out=whole)
    monkeypatch.setattr("splitjit._copy.join._join", None)  # it would call None
    assert vars(splitjit)["stack"](planes, -1, out=whole) is whole  # a name is imported once
    assert bits(whole) == bits(np.stack(planes, -1))


def test_scalars_lists_and_objects():
    assert splitjit.stack([1.0, 2.0]).tolist() == [1, 2]
    assert splitjit.join([[[1, 2]], [[3, 4]]]).tolist() == [[1, 2], [3, 4]]
    strings = [np.array(["a", "bc"], object), np.array(["d"], object)]
    assert splitjit.join(strings).tolist() == ["a", "bc", "d"]
    large = [np.full((50_000, 2), None), np.full((50_000, 1), "x", object)]
    assert (splitjit.join(large, 1) == np.concatenate(large, 1)).all()


def test_the_largest_arrays_come_from_the_pool():
    splitjit.warmup()
    parts = [np.ones((1000, 500), np.float32) for _ in range(2)]
    address = splitjit.join(parts).ctypes.data
    assert splitjit.join(parts).ctypes.data == address


class Unit(np.ndarray):
    def __array_finalize__(self, x):
        """Nothing needs to be done."""


X = np.zeros((2, 3))
MASK = np.zeros(6, "i1")
READ_ONLY = np.zeros((2, 3))
READ_ONLY.flags.writeable = False
REFUSALS = {
    # what is wrong: (the call, the class, the message after the operator)
    "no part": (lambda: splitjit.join([]), SplitError, "parts=[]: must have at least one array"),
    "no sequence": (lambda: splitjit.join(3), SplitTypeError,
     "parts of type int: must be a sequence of arrays"),
    "two arrays": (lambda: splitjit.join(X, X), SplitTypeError,
     "axis=array of float64, shape (2, 3), [[0. 0. 0.] [0. 0. 0.]]: must be an integer; pass "
     "all parts in one list"),
    "a new axis": (lambda: splitjit.join([X[0], X[1]], axis=1), SplitError,
     "axis=1, shape=(3,): axis must be in [-1, 0]; stack joins along a new axis"),
    "a dict": (lambda: splitjit.join({"a": X}), SplitTypeError,
     "parts of type dict: must be a sequence of arrays; pass list(parts.values())"),
    "a table": (lambda: splitjit.join(type("Table", (), {"columns": ["a"]})()), SplitTypeError,
     "parts of type Table: must be a sequence of arrays"),
    "a shape": (lambda: splitjit.join([X, np.zeros((3, 3))], axis=1), SplitError,
     "parts[1] of shape (3, 3), parts[0] of shape (2, 3): must be equal in all axes but axis 1"),
    "no last axis": (lambda: splitjit.join([X, X[0]], 1), SplitError,
     "parts[1] of shape (3,), parts[0] of shape (2, 3): must be equal in all axes but axis 1"),
    "a number": (lambda: splitjit.join([X[0], 1.0]), SplitError,
     "parts[1] of shape (), parts[0] of shape (3,): must be equal in all axes but axis 0"),
    "rank 0": (lambda: splitjit.join([np.float64(1)]), SplitError,
     "axis=0, shape=(): rank 0 has no axis to split; stack joins along a new axis"),
    "a shape to stack": (lambda: splitjit.stack([X, X.T]), SplitError,
     "parts[1] of shape (3, 2), parts[0] of shape (2, 3): must be equal"),
    "a rank to stack": (lambda: splitjit.stack([X, X[0]], 2), SplitError,
     "parts[1] of shape (3,), parts[0] of shape (2, 3): must be equal"),
    "a dtype": (lambda: splitjit.join([X, X.astype(">f8")]), SplitTypeError,
     "parts[1] of dtype >f8, parts[0] of dtype float64: the dtypes must be equal, because bits "
     "are copied and never converted; convert the parts to one dtype"),
    "the axis": (lambda: splitjit.stack([X], 3), SplitError,
     "axis=3, shape=(2, 3, 1): axis must be in [-3, 2]"),
    "a class with a meaning": (lambda: splitjit.join([X, X.view(Unit)]), SplitTypeError,
     "parts[1] of type Unit and dtype float64: only its values would be copied, without what its "
     "class adds to them; pass np.asarray(parts[1])"),
    "the shape of out": (lambda: splitjit.join([X], out=np.zeros((3, 2))), SplitError,
     "out of shape (3, 2): the parts make the shape (2, 3)"),
    "the dtype of out": (lambda: splitjit.join([X], out=np.zeros((2, 3), "f4")), SplitTypeError,
     "out of dtype float32: the dtype must be the dtype of parts[0], float64"),
    "the type of out": (lambda: splitjit.join([X], out=[X]), SplitTypeError,
     "out of type list: must be an ndarray, as the parts are"),
    "a read-only out": (lambda: splitjit.join([X], out=READ_ONLY), SplitError,
     "out is read-only: must be writeable"),
    "an out that overlaps itself": (
     lambda: splitjit.join([X], out=np.lib.stride_tricks.as_strided(np.zeros(9), (2, 3), (8, 8))),
     SplitError, "out of strides (8, 8): its elements must not share memory; each stride must span "
     "the dims below it"),
    "shared memory": (lambda: splitjit.join([X[:, ::2], X[:, 1::2]], axis=1, out=X), SplitError,
     "out and parts[0]: must not share memory"),
    "a mask in the data of out": (
     lambda: splitjit.join([np.ma.zeros(6, "i1")], out=np.ma.array(MASK, mask=MASK.view("?"))),
     SplitError, "out: its mask must not share memory with its data"),
    "a result of 65 axes, a stack": (lambda: splitjit.stack([np.zeros((1,) * 64)]), SplitError,
     f"shape=({'1, ' * 8}...): maximum supported dimension for an ndarray is currently 64, "
     "found 65"),
    "a plan of other parts": (
     lambda: splitjit.plan_split((2, 3), [1, 2], 1).join([X[:, :2], X[:, 2:]]), SplitError,
     "parts[0] of shape (2, 2): part 0 has shape (2, 1)"),
    "a plan of more parts": (lambda: splitjit.plan_split((2, 3), [1, 2], 1).join([X]), SplitError,
     "parts of 1 arrays: the plan has 2 parts"),
    "two arrays to a plan": (
     lambda: splitjit.plan_split((2, 3), [1, 2], 1).join(X[:, :2], X[:, 2:]), SplitError,
     "parts[0] of shape (2,): part 0 has shape (2, 1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_the_part_the_values_and_the_rule(name):
    call, kind, message = REFUSALS[name]
    before = X.copy()
    for _ in range(2):
        with pytest.raises(SplitError) as caught:
            call()
        operator = "stack" if "stack" in name or name == "the axis" else "join"
        assert (type(caught.value), str(caught.value)) == (kind, f"{operator}: {message}")
    assert (before == X).all()


@pytest.mark.parametrize("start", range(8))
def test_memory_that_is_shared_is_found_on_each_route(route, start):
    memory = random((3, 8), "i4")
    before = memory.copy()
    parts = [memory[:, :2], memory[:, start : start + 1]]
    out = memory[:, 5:8]
    for _ in range(2):
        if 5 <= start < 8:
            with pytest.raises(SplitError, match="share memory"):
                splitjit.join(parts, 1, out=out)
            assert (memory == before).all()
        else:
            splitjit.join(parts, 1, out=out)
            assert (out == np.concatenate([before[:, :2], before[:, start : start + 1]], 1)).all()
            memory[...] = before


def test_parts_may_share_memory(route):
    x = random((40, 50), "i4")
    assert bits(splitjit.join([x, x[:, ::2], x], 1)) == bits(np.concatenate([x, x[:, ::2], x], 1))


def test_masks_are_joined():
    masked = np.ma.masked_array([1, 2, 3], [0, 1, 0], fill_value=7)
    joined = splitjit.join([masked, np.arange(3)])
    assert joined.mask.tolist() == [False, True, False, False, False, False]
    assert joined.fill_value == 7
    assert splitjit.join([np.ma.arange(3), np.ma.arange(2)]).mask is np.ma.nomask
    for out in np.ma.zeros(6, int), np.ma.masked_array(np.zeros(6, int), [1] * 6):
        assert splitjit.join([masked, np.arange(3)], out=out) is out
        assert (out.tolist(), out.mask.tolist()) == ([1, None, 3, 0, 1, 2], joined.mask.tolist())
    splitjit.join([np.ma.arange(6)], out=out)
    assert out.tolist() == [*range(6)]
    assert splitjit.stack([masked, masked], 1).mask.tolist() == [[0, 0], [1, 1], [0, 0]]
    unmasked, out = np.ma.arange(3), np.ma.zeros(6, int)
    assert splitjit.join([unmasked, unmasked], out=out).mask is np.ma.nomask


# ---- other libraries ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16", "complex64"])
def test_tensors_are_joined_as_torch_does(torch, dtype):
    for shape, count in ((3, 4), 2), ((300, 700), 3), ((1000, 1), 40):
        parts = [torch.arange(shape[0] * shape[1]).reshape(shape).to(getattr(torch, dtype))] * count
        for axis, (ours, theirs) in itertools.product(
            range(2), [(splitjit.join, torch.cat), (splitjit.stack, torch.stack)]
        ):
            expected = theirs(parts, axis)
            assert torch.equal(ours(parts, axis), expected)
            transposed = [part.T.contiguous().T for part in parts]
            assert torch.equal(ours(transposed, axis), expected)
            out = torch.zeros_like(expected)
            assert ours(parts, axis, out=out) is out
            assert torch.equal(out, expected)
            assert out._version >= 1


def test_gradients_flow_through_a_join(torch):
    x = torch.ones(3, 4, requires_grad=True)
    (splitjit.join([x, 2 * x], 1) * splitjit.stack([x, x]).sum()).sum().backward()
    expected = torch.ones(3, 4, requires_grad=True)
    (torch.cat([expected, 2 * expected], 1) * torch.stack([expected] * 2).sum()).sum().backward()
    assert torch.equal(x.grad, expected.grad)
    assert torch.func.vmap(lambda a: splitjit.stack([a, a]))(x).shape == (3, 2, 4)
    with pytest.raises(SplitTypeError, match=r"join: parts of type Tensor .* torch refuses"):
        splitjit.join([x], out=torch.empty(3, 4))
    with pytest.raises(SplitTypeError, match=r"join: parts of type Tensor .* torch refuses"):
        splitjit.join([torch.ones(3, 4), x], out=torch.empty(6, 4))


def test_torch_reads_tensors_with_gaps_and_writes_contiguous_ones(torch, monkeypatch):
    flat = torch.arange(60.0)
    block = flat.view(6, 10)
    parts, x = [block[:4, :2], block[:4, 1:3], block[1:5, :2]], block[:2, :4]
    out, shrunk = torch.zeros(4, 6), torch.zeros(4, 10)[:, :2]
    shrunk.untyped_storage().resize_(100)
    over = [flat[2:6].view(2, 2), torch.zeros(2, 2)]
    for call, message in (
        (lambda: splitjit.join(parts, 1, out=flat[20:44].view(4, 6)), r"parts\[0\].*share"),
        (lambda: splitjit.join([*parts[:2], shrunk], 1, out=out), r"parts\[2\].*resized"),
        (lambda: splitjit.split(x, 2, 1, out=over), "share"),
        (lambda: splitjit.split(shrunk, 1, 1, out=list(torch.zeros(2, 4, 1))), "x .*resized"),
    ):
        with pytest.raises(SplitError, match=message):
            call()
    assert torch.equal(flat, torch.arange(60.0))
    assert not out.any()
    between = [flat[4:8].view(2, 2), torch.zeros(2, 2)]  # one part lies between the rows of x
    assert torch.equal(torch.cat(splitjit.split(x, 2, 1, out=between), 1), x)
    monkeypatch.setattr("splitjit._copy.join._join", None)  # Python decides nothing
    monkeypatch.setattr("splitjit._copy.run.moves_of", None)
    assert splitjit.join(parts, 1, out=out) is out
    assert torch.equal(out, torch.cat(parts, 1))
    pieces = splitjit.split(block[:4, 1:7], 3, 1, out=list(torch.zeros(2, 4, 3)))
    assert torch.equal(torch.cat(pieces, 1), block[:4, 1:7])


def test_the_stride_of_an_axis_of_length_1_means_nothing(torch):
    ones = torch.ones(4, 1, 2)
    for strides in (2, 3, 1), (2, 0, 1), (2, 2, 1):
        out = torch.zeros(64).as_strided((4, 1, 2), strides)
        assert splitjit.join([ones, ones[:, :0]], 1, out=out) is out
        assert out.all()
        with torch.device("cpu"):  # a mode: the fast way is not taken
            assert splitjit.stack([ones[:, 0]], 1, out=out.zero_()).all()


def test_torch_joins_into_new_contiguous_tensors(torch):
    a = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for parts in [a, a], [a.clone().requires_grad_()] * 2:
        assert splitjit.join(parts, 1).is_contiguous()
        assert splitjit.stack(parts).is_contiguous()
    assert all(part.is_contiguous() for part in splitjit.numpy.split(a[0, 0].T, 1))
    for shape in (6,), (600, 600):  # neither out nor a part of a small join has got a fixed size
        parts, out = [torch.rand(shape) for _ in range(2)], torch.empty(0)
        assert splitjit.torch.cat(parts, out=out) is out
        assert torch.equal(out, torch.cat(parts))
        splitjit.join([part := torch.ones(3)]).add_(1)
        assert part.resize_(100)[:3].tolist() == [1, 1, 1]
    with torch.autocast("cpu", torch.bfloat16):  # where torch joins no float16
        assert splitjit.join([a.half(), a.half()]).dtype == torch.float16


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested", "ignore:.*quantize")
def test_tensors_that_do_not_fit_are_refused(torch):
    a = torch.zeros(3, 4)
    c, nested = a.to(torch.complex64), torch.nested.nested_tensor([a, a[:2]])
    q = [torch.quantize_per_tensor(a, scale, 0, torch.qint8) for scale in (0.1, 0.2)]
    for call, message in (
        (lambda: splitjit.join([c.conj()], out=c), r"join: out and parts\[0\]: must not share"),
        (lambda: splitjit.join([c.conj()], out=c[:1].expand(3, 4)), "its elements must not share"),
        (lambda: splitjit.join(q), r"join: parts\[1\] of dtype \(.* 0\.2, 0\)"),
        (lambda: splitjit.join(q[:1], out=q[1]), r"join: out of dtype .* 0\.2, 0\): the dtype"),
        (lambda: splitjit.join([a, a.to_sparse()]), r"parts\[1\] of type Tensor .*\.to_dense"),
        (lambda: splitjit.join([a, nested]), r"join: parts\[1\] of type Tensor .*\.unbind"),
        (lambda: splitjit.stack(nested), r"stack: parts of type Tensor .*\.unbind"),
        (lambda: splitjit.unstack(nested, out=[a, a]), r"unstack: x of type Tensor .*\.unbind"),
        (lambda: splitjit.unstack(a, out=nested), r"unstack: out of type Tensor .*\.unbind"),
        (lambda: splitjit.unstack(a, out=[nested] * 3), r"unstack: out\[0\] .*\.unbind"),
        (lambda: splitjit.unstack(a, out=a.to_sparse()), r"unstack: out of type .*\.to_dense"),
        (lambda: splitjit.join([a, a.double()]), "convert the parts to one dtype"),
        (lambda: splitjit.join([a, np.zeros(3)]), "must be arrays of one library"),
        (lambda: splitjit.join([a], out=a), "out and parts"),
        (lambda: splitjit.join([a], out=torch.zeros(2)), "the parts make the shape"),
        (lambda: splitjit.join([a], out=np.zeros((3, 4), "f4")), "out of type ndarray"),
        (lambda: splitjit.join([a.to("meta")], out=a[:2].to("meta")), "make the shape"),
        (lambda: splitjit.join([a.to("meta")], out=a.double().to("meta")), "join: out of dtype"),
        (lambda: splitjit.join([a.to("meta")], out=[a]), "join: out of type list"),
    ):
        with pytest.raises(SplitError, match=message):
            call()


def test_other_libraries_join_their_arrays(jax):
    x = jax.numpy.arange(12).reshape(3, 4)
    assert splitjit.join([x, x], 1).tolist() == np.concatenate([x, x], 1).tolist()
    assert isinstance(splitjit.stack([x, x]), jax.Array)
    assert jax.jit(lambda a: splitjit.join([a, a]))(x).shape == (6, 4)
    with pytest.raises(SplitTypeError, match="writes to no other"):
        jax.jit(lambda a: splitjit.join([a], out=np.zeros((3, 4))))(x)
    with pytest.raises(SplitTypeError, match="convert the parts to one dtype$"):
        splitjit.join([x, x * 1.5])


def test_dask_arrays_are_joined_lazily():
    da = pytest.importorskip("dask.array")
    x = da.arange(12, chunks=5).reshape(3, 4)
    for joined in splitjit.join([x, x], 1), splitjit.numpy.concatenate([x, x], 1):
        assert (joined.compute() == np.concatenate([x, x], 1)).all()
    with pytest.raises(SplitError, match="join: out for a Dask array"):
        splitjit.join([x], out=np.zeros((3, 4)))
    odd, plan = x[x[:, 0] > 0], splitjit.plan_split((4, 4), 2)  # the number of rows is unknown
    assert plan.join([odd, odd]).compute().shape == (4, 4)
    for call, message in (
        (lambda: plan.join([odd] * 3), "join: parts of 3 arrays: the plan has 2 parts"),
        (lambda: plan.join([odd[:, 1:], odd]), r"join: parts\[0\] of shape .* \(2, 4\)"),
        (lambda: splitjit.join([odd, odd], 1), "join: parts .*; call .*compute_chunk_sizes"),
        (lambda: splitjit.stack([odd, x]), "stack: parts .*; call .*compute_chunk_sizes"),
    ):
        with pytest.raises(SplitError, match=message):
            call()


# ---- anything may happen during a call ------------------------------------------------------


@needs_kernels
def test_threads_join_at_the_same_time():
    splitjit.warmup()
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            planes = [rng.integers(0, 99, (300, 700), np.uint8) for _ in range(3)]
            if not (splitjit.stack(planes, -1) == np.stack(planes, -1)).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


@needs_kernels
@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # of NumPy 2.5
def test_another_thread_may_change_a_part_while_it_is_checked(torch, monkeypatch):
    splitjit.warmup()
    tensor, masked = torch.ones(300, 3000).T, np.ma.masked_array(np.ones((3000, 300)), False)

    for x, module, name, change in (
        (tensor, join, "_check_shapes", lambda: tensor.set_(torch.zeros(4, 4))),
        (masked, input, "memory_of", lambda: setattr(masked, "shape", (300, 3000))),
    ):
        real, like = getattr(module, name), x * 1

        def switch(*given, real=real, change=change):  # stands for a switch of threads
            found = real(*given)
            change()
            return found

        monkeypatch.setattr(module, name, switch)
        joined = splitjit.join([x, like], 1)
        assert joined.shape == (3000, 600)
        assert (joined == 1).all()


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # of NumPy 2.5
def test_a_finalizer_may_change_the_arrays():
    parts, out = [np.ones((200, 300)) for _ in range(3)], np.zeros((200, 900))
    expected = np.concatenate(parts, 1)

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            parts[0].shape = (300, 200)
            out.shape = (900, 200)

    gc.freeze()  # other tests of this file import much, which each collection would look at
    threshold = gc.get_threshold()
    try:
        for first in range(1, 60, 4):  # a collection starts at each allocation in turn
            parts[0].shape, out.shape = (200, 300), (200, 900)
            out[...] = 0
            Cycle()
            gc.set_threshold(first, 1000, 1000)
            try:
                splitjit.join(parts, 1, out=out)
            except SplitError:
                assert not out.any()
            else:
                assert (out.reshape(200, 900) == expected).all()
            gc.set_threshold(*threshold)
            gc.collect()
    finally:
        gc.set_threshold(*threshold)


@needs_kernels
def test_a_program_that_only_splits_loads_no_loop_of_a_join():
    code = """
import numpy as np, splitjit
from splitjit._runtime.loading import LOADER
x = np.zeros((1000, 3000), np.float32)
parts = splitjit.split(x, 1000, axis=1)
print("join" in LOADER.loaded, end=" ")
splitjit.join(parts, 1)
print("join" in LOADER.loaded)
"""
    assert python("-c", code) == "False True\n"
