"""`splitjit.numpy` and `splitjit.torch`: contiguous parts, by the rules of NumPy and torch."""

import array
import collections
import ctypes
import importlib
import sys

import numpy as np
import pytest

import splitjit
from splitjit import numpy as ours
from tests import processes


def outcome(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error), str(error)


def same(parts, views, x):
    """Compare the outcome of a call with that of the original."""
    if isinstance(views, tuple) and views and isinstance(views[0], type):
        assert parts == views
        return
    assert type(parts) is type(views)
    assert len(parts) == len(views)
    for part, view in zip(parts, views, strict=True):
        assert type(part) is type(view)
        if not isinstance(view, np.ndarray):  # a scalar of np.unstack
            assert part == view
            continue
        assert part.dtype == view.dtype
        assert np.array_equal(part, view)
        assert part.flags.c_contiguous
        assert part.flags.writeable or part is np.ma.masked
        assert not np.shares_memory(part, x)


# ---- NumPy ------------------------------------------------------------------------------

SECTIONS = [3, 4, 0, -1, np.int64(3), 2.0, True, [1, 4], (2,), [], [4, 1], [-2, 10**6], [-9, 2],
            np.array([1, 2]), np.array(3), [[1, 2]], "ab", None, [1.5], 7, {2},
            range(1, 3)]  # fmt: skip
ARRAYS = [np.arange(6), np.arange(12).reshape(2, 6), np.zeros((6, 3, 6)), np.zeros((2, 0)),
          np.float64(1), np.array(1), np.arange(36.0).reshape(6, 6).T,
          np.matrix_transpose(np.arange(6).reshape(1, 6)), np.ma.masked_less(np.arange(6), 2),
          np.array(["a", "bc", "d", "e", "f", "g"]), np.array([1, None] * 3, object),
          np.broadcast_to(np.int8(1), (4, 6))]  # fmt: skip


@pytest.mark.parametrize("sections", SECTIONS, ids=str)
@pytest.mark.parametrize("name", ["split", "array_split", "hsplit", "vsplit", "dsplit"])
def test_functions_of_numpy(name, sections):
    function, original = getattr(ours, name), getattr(np, name)
    for x in ARRAYS:
        same(outcome(function, x, sections), outcome(original, x, sections), x)
        if name in ("split", "array_split"):
            for axis in (1, -1, 5, None, 1.0):
                expected = outcome(original, x, sections, axis)
                same(outcome(function, x, sections, axis), expected, x)
            same(outcome(function, ary=x, indices_or_sections=sections, axis=0),
                 outcome(original, ary=x, indices_or_sections=sections, axis=0), x)  # fmt: skip


def held(protocol):
    """Return an object that has nothing but a protocol of arrays."""
    return type("Held", (), {protocol: property(lambda _: getattr(ROWS, protocol))})()


ROWS = np.arange(12).reshape(2, 6)
SEQUENCES = {
    "list": ROWS.tolist(), "tuple": tuple(map(tuple, ROWS.tolist())), "arrays": [*ROWS],
    "objects": [[1, None, "a", 2], [{}, 3, (), 4]], "flat": [*range(6)],
    "cube": np.arange(24).reshape(2, 3, 4).tolist(), "empty": [[], []], "ragged": [[1], [2, 3]],
    "range": range(6), "deque": collections.deque(ROWS.tolist()),
    "UserList": collections.UserList(ROWS.tolist()), "array.array": array.array("i", range(6)),
    "ctypes": (ctypes.c_int * 6 * 2)(*map(tuple, ROWS.tolist())), "memoryview": memoryview(ROWS),
    "protocol": held("__array__"), "interface": held("__array_interface__"),
    "struct": held("__array_struct__"), "recarray": ROWS.view(np.recarray),
    "masked": np.ma.masked_less(ROWS, 4), "matrix": ROWS.view(np.matrix), "number": 5,
    "text": "abcdef", "set": {1, 2}, "None": None,
}  # fmt: skip
"""Objects that reach NumPy's functions, which ask sequences for the length of axis 0 alone."""

WITH_UNSTACK = [] if not hasattr(np, "unstack") else ["unstack"]


def calls_of(name):
    """Yield the arguments of a function: sections or indices, and an axis if it takes one."""
    for sections in [()] if name == "unstack" else [(2,), (3,), ([1, 4],), ([4, 1],), ([],)]:
        yield sections, {}
        if name in ("split", "array_split", "unstack"):
            yield from [(sections, {"axis": axis}) for axis in (0, 1, -1, 2)]


@pytest.mark.parametrize(
    "name", ["split", "array_split", "hsplit", "vsplit", "dsplit", *WITH_UNSTACK]
)
@pytest.mark.parametrize("kind", SEQUENCES)
def test_every_sequence_is_split_as_the_array_that_it_makes(kind, name):
    """numpy#21476: `np.array_split` of a nested list along axis 1 loses elements."""
    x = SEQUENCES[kind]
    whole = outcome(np.asanyarray, x)
    for arguments, axis in calls_of(name):
        parts = outcome(getattr(ours, name), x, *arguments, **axis)
        if isinstance(whole, tuple):
            assert parts == whole
        else:
            same(parts, outcome(getattr(np, name), whole, *arguments, **axis), whole)


@pytest.mark.skipif(not hasattr(np, "unstack"), reason="NumPy 2.0 has no unstack")
def test_unstack():
    for x in ARRAYS:
        for axis in (0, 1, -1, 3, 1.0):
            same(outcome(ours.unstack, x, axis=axis), outcome(np.unstack, x, axis=axis), x)


class Uncopied:
    """A user's object that must be returned itself."""

    def copy(self):
        raise AssertionError("copied")

    clone = copy


@pytest.mark.parametrize("order", [(0,), (0, 1)])
def test_objects_in_an_array_are_never_copied(order):
    objects = [{"a": 1}, [], np.zeros(2), Uncopied(), None]
    x = np.empty(len(objects), object)
    x[:] = objects
    for given in (x, np.ma.array(x)):
        parts = ours.unstack(given if len(order) == 1 else np.stack([given, given]), axis=-1)
        found = [part if len(order) == 1 else part[1] for part in parts]
        assert all(part is item for part, item in zip(found, objects, strict=True))


def test_the_tests_of_numpy_itself(monkeypatch):
    """The test classes of NumPy pass with the functions of splitjit in place of NumPy's."""
    tests = pytest.importorskip("numpy.lib.tests.test_shape_base")
    for name in ("split", "array_split", "hsplit", "vsplit", "dsplit"):
        monkeypatch.setattr(tests, name, getattr(ours, name))
    count = 0
    for kind in (tests.TestArraySplit, tests.TestSplit, tests.TestHsplit, tests.TestVsplit,
                 tests.TestDsplit):  # fmt: skip
        for name in dir(kind):
            if name.startswith("test") and "max_int32" not in name:  # whose parts have 64 GB
                getattr(kind(), name)()
                count += 1
    assert count > 20


# ---- objects of other classes -----------------------------------------------------------


class Keeper:
    """A class that answers NumPy's functions itself, with objects of its own."""

    def __array_function__(self, func, types, args, kwargs):
        return func.__name__


needs = pytest.importorskip
OBJECTS = {
    "Keeper": Keeper,
    "dates": lambda: needs("pandas").date_range("2020", periods=6, tz="UTC"),
    "index": lambda: needs("pandas").Index([3, 1, 2, 6, 5, 4], name="n"),
    "frame": lambda: needs("pandas").DataFrame({"a": range(6), "b": range(6)}),
    "categories": lambda: needs("pandas").Categorical([*"abcabc"]),
    "data_array": lambda: needs("xarray").DataArray(
        np.arange(6), dims="t", coords={"t": np.arange(6) * 10}
    ),
    "lazy": lambda: needs("dask.array").arange(6, chunks=4),
    "array_of_jax": lambda: needs("jax").numpy.arange(6),
    "time": lambda: needs("astropy.time").Time(np.arange(6.0) + 60000, format="mjd"),
    "quantity": lambda: np.arange(6.0) * needs("astropy.units").m,
    "measured": lambda: np.arange(6.0) * needs("pint").get_application_registry().m,
    "sparse": lambda: needs("sparse").COO.from_numpy(np.arange(6)),
    "with_gradient": lambda: needs("torch").arange(6.0).requires_grad_(),
    "recarray": lambda: np.arange(6).view(np.recarray),
    "masked": lambda: np.ma.masked_less(np.arange(6), 2),
}


def values(part):
    part = part.compute() if hasattr(part, "compute") else part
    if hasattr(part, "detach"):
        return part.requires_grad, part.detach().tolist()
    return str(part.todense() if hasattr(part, "todense") else part)


@pytest.mark.parametrize("name", ["split", "array_split", "hsplit", *WITH_UNSTACK])
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_parts_have_the_class_that_numpy_gives_them(make, name):
    x, arguments = make(), () if name == "unstack" else (2,)
    wanted = outcome(getattr(np, name), x, *arguments)
    parts = outcome(getattr(ours, name), x, *arguments)
    assert type(parts) is type(wanted)
    if isinstance(wanted, str) or isinstance(wanted[0], type):
        assert parts == wanted
        return
    assert [type(part) for part in parts] == [type(part) for part in wanted]
    assert [values(part) for part in parts] == [values(part) for part in wanted]
    if isinstance(parts[0], np.ndarray):
        assert not np.shares_memory(parts[0], x)


# ---- planes: parts without the axis, written to given arrays ----------------------------


PLANES = [((4, 6, 3), -1), ((3, 4, 6), 0), ((4, 3, 6), 1), ((3,), 0), ((40, 600, 3), 2)]


@pytest.mark.parametrize(("shape", "axis"), PLANES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_unstack_into_planes(shape, axis, order):
    x = np.arange(np.prod(shape)).reshape(shape)
    wanted = tuple(np.moveaxis(x, axis, 0))
    for given in (x, np.asfortranarray(x), np.ma.array(x)) if order == "C" else (x, x.tolist()):
        planes = [np.zeros(np.shape(part), x.dtype, order) for part in wanted]
        if isinstance(given, np.ma.MaskedArray):
            planes = [np.ma.array(plane) for plane in planes]
        parts = ours.unstack(given, axis=axis, out=planes)
        assert type(parts) is tuple
        assert all(part is plane for part, plane in zip(parts, planes, strict=True))
        assert all(np.array_equal(*pair) for pair in zip(parts, wanted, strict=True))
        one = np.stack(planes) if type(planes[0]) is np.ndarray else np.ma.stack(planes)
        one[...] = -1
        for function in (ours.unstack, splitjit.unstack):
            parts = function(given, axis=axis, out=one)
            assert np.array_equal(one, np.stack(wanted))
            assert all(np.shares_memory(part, one) for part in parts)
            one[...] = -1


@pytest.mark.parametrize(("shape", "axis"), [*PLANES, ((0, 3), 0), ((2, 0), -1), ((2, 0), 0)])
@pytest.mark.parametrize("kind", [np.asarray, np.ma.array, np.ndarray.tolist])
def test_unstack_makes_planes(shape, axis, kind):
    x = np.arange(np.prod(shape)).reshape(shape)
    if kind is np.ndarray.tolist and not x.size:
        return
    parts = splitjit.unstack(kind(x), axis)
    assert type(parts) is list
    assert [part.tolist() for part in parts] == np.moveaxis(x, axis, 0).tolist()
    for part in parts:
        assert part.shape == np.moveaxis(x, axis, 0).shape[1:]
        assert isinstance(part, np.ndarray)
        assert part.flags.c_contiguous
        assert not np.shares_memory(part, x)


def test_unstack_keeps_the_kind(torch, jax):
    x = np.arange(24.0).reshape(2, 4, 3)
    strict = pytest.importorskip("array_api_strict").asarray(x)
    lazy = pytest.importorskip("dask.array").from_array(x, chunks=2)
    for given in (torch.from_numpy(x), jax.numpy.asarray(x), strict, lazy):
        parts = splitjit.unstack(given, axis=-1)
        assert [type(part) for part in parts] == [type(given)] * 3
        assert np.array_equal(np.stack([np.asarray(part) for part in parts], -1), x)
    leaf = torch.ones(2, 3, requires_grad=True)
    (splitjit.unstack(leaf, 1)[2].sum() * 2).backward()
    assert leaf.grad.tolist() == [[0, 0, 2]] * 2
    compiled = torch.compile(splitjit.unstack, fullgraph=True, backend="eager")
    out = torch.zeros(3, 2)
    assert len(compiled(leaf, 1)) == 3
    assert len(compiled(leaf.detach(), 1, out=out)) == 3
    assert out.tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("dtype", ["i4,f8", "V2", "O", "f8"])
def test_items_of_masked_arrays(dtype):
    x = np.ma.array(np.zeros(2, dtype), mask=np.array([0, 1], bool).astype(dtype).astype(bool)
                    if dtype in "Of8" else None)  # fmt: skip
    parts, wanted = ours.unstack(x), tuple(x)
    assert list(map(type, parts)) == list(map(type, wanted))
    assert list(map(repr, parts)) == list(map(repr, wanted))
    x[:] = np.ones(2, dtype)
    assert list(map(repr, parts)) == list(map(repr, wanted)) or dtype == "i4,f8"


@pytest.mark.parametrize("masks", [(), (0,), (0, 1)], ids=str)
def test_planes_take_the_mask(masks):
    """A plane without a mask gets one, whatever its shape and layout."""
    for shape, axis in (*PLANES, ((2, 0), 1)):
        values = np.arange(np.prod(shape)).reshape(shape)
        x = np.ma.masked_where(values % 3 == 1, values)
        wanted = [np.moveaxis(x, axis, 0)[i] for i in range(shape[axis])]
        planes = [np.ma.zeros(np.shape(part), x.dtype) for part in wanted]
        for i in set(masks) & set(range(len(planes))):
            planes[i].mask = True
        hard = [plane.harden_mask() for plane in planes[:1]]
        parts = ours.unstack(x, axis=axis, out=planes)
        assert all(part is plane for part, plane in zip(parts, planes, strict=True))
        for part, plain in zip(parts, wanted, strict=True):
            assert np.array_equal(np.ma.getmaskarray(part), np.ma.getmaskarray(plain))
            assert np.ma.allequal(part, plain, fill_value=False) or np.ma.is_masked(plain)
            assert part.mask.shape == part.shape
        assert all(part.hardmask for part in hard)
        one = np.ma.zeros(np.moveaxis(values, axis, 0).shape, x.dtype)
        one.mask = bool(masks) or np.ma.nomask
        parts = splitjit.unstack(x, axis, out=one)
        for part in (one, np.ma.stack(parts)) if parts else ():
            assert np.array_equal(
                np.ma.getmaskarray(part), np.moveaxis(np.ma.getmaskarray(x), axis, 0)
            )


WRONG_PLANES = [
    (lambda x: [np.zeros((2, 4, 1))] * 3, r"out\[0\] of shape \(2, 4, 1\): part 0 has .*\(2, 4\)"),
    (lambda x: [np.zeros((4, 2))] * 3, r"out\[0\] of shape \(4, 2\): part 0 has shape \(2, 4\)"),
    (lambda x: [np.zeros((2, 4))] * 2, "out of 2 arrays: must have an array for each of 3"),
    (lambda x: [np.zeros((2, 4))] * 3, r"out\[0\] and out\[1\]: must not share memory"),
    (lambda x: [x[..., 0], *np.zeros((2, 2, 4))], r"out\[0\] and x: must not share memory"),
    (lambda x: [np.zeros((2, 4), "i4")] * 3, r"out\[0\] of dtype int32"),
    (lambda x: [[[0.0] * 4] * 2] * 3, r"out\[0\] of type list"),
    (lambda x: 5, "out of type int"),
    (lambda x: np.zeros((4, 2, 4)), "out of 4 arrays: must have an array for each of 3"),
    (lambda x: np.zeros((3, 4, 2)), r"out\[0\] of shape \(4, 2\): part 0 has shape \(2, 4\)"),
    (lambda x: np.zeros((3, 2, 4), "i4"), r"out\[0\] of dtype int32"),
    (lambda x: np.moveaxis(x, -1, 0), r"out\[0\] and x: must not share memory"),
    (lambda x: np.zeros(()), "out of rank 0"),
]


@pytest.mark.parametrize(("make", "says"), WRONG_PLANES)
def test_planes_refused(make, says):
    x = np.arange(24.0).reshape(2, 4, 3)
    out = make(x)
    for function in (ours.unstack, splitjit.unstack):
        with pytest.raises(splitjit.SplitError, match=f"^unstack: {says}"):
            function(x, axis=-1, out=out)
    assert x.tolist() == np.arange(24.0).reshape(2, 4, 3).tolist()
    for function, given in ((ours.unstack, out), (splitjit.unstack, out), (splitjit.unstack, None)):
        with pytest.raises(splitjit.SplitError, match="^unstack: axis=3"):
            function(x, axis=3, out=given)
        with pytest.raises(splitjit.SplitTypeError, match=r"^unstack: out\[0\] of type float64"):
            function(np.ones(3), out=list(np.zeros(3)))  # scalars, which nobody would see


# ---- torch ------------------------------------------------------------------------------

CALLS = {
    "split": [(4, 1), (4,), ([2, 4], 1), ([2, 3], 1), (-1, 1), (0, 1), (2.0, 1), (2, 5),
              ((2, 4), 1), ([-1, 6], 1), ([2, 4], -1), (True, 1), ([6, 0], 1), (None,),
              ([1.0, 5.0], 1), ([np.array([1, 5])], 1), ([np.int64(-1), 7], 1)],
    "split_with_sizes": [([2, 4], 1), ((2, 4), -1), ([2], 0), ([2],), ([-1, 7], 1), (3, 1)],
    "chunk": [(4, 1), (0, 1), (3,), (4, -1), (2, 5), (-1,), (2.0,), (True, 1), (9, 1)],
    "tensor_split": [(4, 1), ((2, 4), 1), ([4, 2], 1), (0, 1), ([-2], -1), (3,), (2.0,), ([],)],
    "hsplit": [(3,), (4,), ([2, 3],), ((3, 1),), (0,), (2.0,)],
    "vsplit": [(2,), (4,), ([1],)],
    "dsplit": [(2,), ([1],)],
    "unbind": [(1,), (), (-1,), (5,), (1.0,)],
}  # fmt: skip
NAMED = {
    "split": [{"split_size_or_sections": 2, "dim": 1}, {"split_size": 2}],
    "chunk": [{"chunks": 2, "dim": 1}],
    "tensor_split": [{"sections": 3, "dim": 1}, {"indices": (2,), "dim": 1}, {"dim": 1},
                     {"indices_or_sections": 2}],
    "hsplit": [{"sections": 3}, {"indices": (2,)}, {"indices_or_sections": 2}],
    "unbind": [{"dim": 1}],
}  # fmt: skip
HUGE = {
    "split": [(2**63 - 1,), (2**63,), (2**64, 1), ([2**63],), (-(2**63) - 1,)],
    "split_with_sizes": [([2**63],), ([2**64, 2],)],
    "chunk": [(2**63 - 1,), (2**62,), (2**63,), (2**64, 1), (2, 2**63)],
    "tensor_split": [([2**63 - 1, -(2**63)],), ([2**63],), ([-(2**63) - 1],), (2**63, 1)],
    "hsplit": [([2**63],), ([0, 2**64],), (2**63,)],
}  # fmt: skip
NAMES_OF_NUMPY = [{"axis": 1}, {"axis": -1}, {"axis": 5}, {"axis": 0, "dim": 0}, {"a": 1}, {"x": 1},
                  {"x1": 1}, {"x": 1, "axis": 1}, {"a": 1, "x": 1},
                  {"input": 1, "a": 1}]  # fmt: skip


def same_tensors(torch, parts, views, x):
    assert type(parts) is tuple
    if views and isinstance(views[0], type):
        assert parts[0] is views[0]
        assert parts[1].partition("\n")[0] == views[1].partition("\n")[0]
        return
    assert len(parts) == len(views)
    for part, view in zip(parts, views, strict=True):
        assert part.dtype == view.dtype
        assert torch.equal(part, view)
        assert part.is_contiguous()
        if part.numel():
            assert part.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_torch(torch, name):
    function, original = getattr(splitjit.torch, name), getattr(torch, name)
    x = torch.arange(12.0).reshape(2, 6)
    tensors = [x, x[0], x.T, torch.zeros(2, 0), torch.zeros(0), torch.tensor(1.0),
               torch.zeros(6, 3, 6), x.clone().requires_grad_(), x.bfloat16(),
               torch.complex(x, x).conj()]  # fmt: skip
    for x in tensors:
        for args in (*CALLS[name], *HUGE.get(name, ())):
            same_tensors(torch, outcome(function, x, *args), outcome(original, x, *args), x)
        for kwargs in NAMED.get(name, ()):
            same_tensors(torch, outcome(function, x, **kwargs), outcome(original, x, **kwargs), x)
    assert outcome(function, [1, 2], 1)[0] is outcome(original, [1, 2], 1)[0]


def test_without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "splitjit.torch", raising=False)
    with pytest.raises(
        ImportError, match="splitjit.torch needs torch: python -m pip install torch"
    ):
        importlib.import_module("splitjit.torch")


@pytest.mark.parametrize("name", CALLS)
def test_names_of_numpy(torch, name):
    function, original = getattr(splitjit.torch, name), getattr(torch, name)
    x = torch.arange(24.0).reshape(2, 6, 2)
    by_name = {"chunk": {"chunks": 2}, "unbind": {}, "split_with_sizes": {"split_sizes": [1, 1]}}
    for names in NAMES_OF_NUMPY:
        tensors = {key: x for key in names if key not in ("axis", "dim")}
        kwargs = names | tensors | by_name.get(name, {"sections": 2})
        args = () if tensors else (x,)
        parts, views = (outcome(f, *args, **kwargs) for f in (function, original))
        if isinstance(views[0], type):
            assert parts[0] is views[0], kwargs
        else:
            same_tensors(torch, parts, views, x)


SPARSE = {
    "coo": lambda torch: torch.arange(12.0).reshape(3, 4).to_sparse(),
    "hybrid": lambda torch: torch.arange(24.0).reshape(2, 3, 4).to_sparse(2),
    "csr": lambda torch: torch.arange(12.0).reshape(3, 4).to_sparse_csr(),
    "csc": lambda torch: torch.arange(12.0).reshape(3, 4).to_sparse_csc(),
    "bsr": lambda torch: torch.arange(16.0).reshape(4, 4).to_sparse_bsr((2, 2)),
    "bsc": lambda torch: torch.arange(16.0).reshape(4, 4).to_sparse_bsc((2, 2)),
    "nested": lambda torch: torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)]),
    "jagged": lambda torch: torch.nested.nested_tensor(
        [torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*beta state", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_and_nested_tensors_are_split_as_torch_does(torch, kind):
    for name in CALLS:
        for args in CALLS[name]:
            x = SPARSE[kind](torch)
            parts = outcome(getattr(splitjit.torch, name), x, *args)
            views = outcome(getattr(torch, name), x, *args)
            if isinstance(views[0], type):
                assert parts == views
                continue
            assert [part.layout for part in parts] == [view.layout for view in views]
            for part, view in zip(parts, views, strict=True):
                pieces = [t.unbind() if t.is_nested else [t.to_dense()] for t in (part, view)]
                assert all(torch.equal(*pair) for pair in zip(*pieces, strict=True))
                assert all(
                    a is None or a.data_ptr() != b.data_ptr()
                    for a, b in zip(memory_of(part), memory_of(x), strict=False)
                    if a.numel()
                )


def memory_of(x):
    """Return the tensors that hold the values of a sparse or nested tensor."""
    if x.is_nested or not str(x.layout).startswith("torch.sparse"):
        return [x.values() if x.is_nested else x]
    return [x._values() if x.layout is sys.modules["torch"].sparse_coo else x.values()]


GRAPHS = """
import warnings
import torch, splitjit

warnings.simplefilter("ignore")

class Splits(torch.nn.Module):
    def forward(self, x):
        a, b = torch.split(x, 2)
        c, d = torch.chunk(x, 2)
        i, j = torch.hsplit(x, 2)
        e, f = x.split([1, 3])[1].tensor_split([1])
        return a + b + c + d + i + j + torch.unbind(x)[1] + e.sum() + f.sum()

x = torch.arange(4.0)
wanted = Splits()(x)
for name in splitjit.torch.__all__:
    setattr(torch, name, getattr(splitjit.torch, name))
    setattr(torch.Tensor, name, getattr(splitjit.torch, name))
graph = torch.fx.symbolic_trace(Splits())
names = {node.target for node in graph.graph.nodes}
assert names & {splitjit.torch.chunk, "chunk"}, names  # a method, if the trace finds it as one
for made in (graph, torch.jit.trace(Splits(), x)):
    assert torch.equal(made(x), wanted)
"""
BY_DYNAMO = """
compiled = torch.compile(Splits(), backend="eager", fullgraph=True)
exported = [torch.export.export(Splits(), (x,), strict=strict).module() for strict in (True, False)]
for made in (compiled, *exported):
    assert torch.equal(made(x), wanted)
"""


@pytest.mark.long
@pytest.mark.parametrize("more", ["", BY_DYNAMO])
def test_graphs_of_a_program_that_replaced_the_functions(torch, more, tmp_path):
    """A process of its own: torch keeps tables of its functions."""
    processes.run(tmp_path, GRAPHS + more)


# ---- planes of tensors ------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "dim"), PLANES)
def test_unbind_into_planes(torch, shape, dim):
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.arange(int(np.prod(shape))).reshape(shape).to(dtype)
        planes = [torch.zeros_like(part) for part in x.unbind(dim)]
        parts = splitjit.torch.unbind(x, dim, out=planes)
        assert all(part is plane for part, plane in zip(parts, planes, strict=True))
        assert all(torch.equal(*pair) for pair in zip(parts, x.unbind(dim), strict=True))
        one = torch.zeros_like(torch.stack(planes))
        assert len(splitjit.torch.unbind(x, dim, out=one)) == len(planes)
        assert torch.equal(one, torch.stack(planes))


# ---- joins ------------------------------------------------------------------------------------

A, B = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
PADDED = np.zeros((2, 3), {"names": ["a"], "formats": ["i4"], "itemsize": 16})
JOINS = [
    ([A, B], {}), ((A, B), {"axis": 1}), ([A, B], {"axis": 5}), ([A, B], {"axis": None}),
    ([A, B.astype("f4")], {}), ([A.T.copy().T, B.astype("f4", "F")], {"axis": 1}),
    ([A, B], {"dtype": "f4", "casting": "same_kind"}), ([A, B[:1]], {}), ([A, [[1, 2, 3]]], {}),
    ([], {}), ([A, np.ma.array(B)], {}), (3, {}), ([A.astype(">f8")] * 2, {}), ([PADDED], {}),
    ([A.astype("i8")] * 2, {"dtype": np.dtype("f8")}),  # which equals None
]  # fmt: skip


@pytest.mark.parametrize("name", ["concatenate", "concat", "stack"])
def test_arrays_are_joined_as_numpy_does(name):
    function, original = getattr(ours, name), np.stack if name == "stack" else np.concatenate
    for arrays, options in JOINS:
        for out in None, np.zeros((4, 3)), np.zeros((2, 2, 3), "f4"):
            made = outcome(function, arrays, out=out, **options)
            expected = outcome(original, arrays, out=None if out is None else out.copy(), **options)
            if isinstance(expected, tuple):
                assert made == expected
            else:
                assert type(made) is type(expected)
                assert (made.dtype, made.tolist()) == (expected.dtype, expected.tolist())
                assert made.flags.c_contiguous if out is None else made is out
    large = [np.random.default_rng(0).random((300, 700)) for _ in range(3)]
    made = function(large, -1)
    assert made.flags.c_contiguous
    assert (made == original(large, -1)).all()


@pytest.mark.parametrize("name", ["cat", "concat", "concatenate", "stack"])
def test_tensors_are_joined_as_torch_does(torch, name):
    function = getattr(importlib.import_module("splitjit.torch"), name)
    original = getattr(torch, name)
    a, b = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    calls = [
        (([a, b],), {}), (((a, b), 1), {}), (([a, b],), {"axis": 1}), (([a, b], 9), {}),
        (([a, b.double()],), {}), (([a, torch.zeros(0)],), {}), (([],), {}),
        (([a, b.to_sparse()],), {}), (([a, 3],), {}), (([a.T.contiguous().T, b],), {}),
    ]  # fmt: skip
    for arguments, options in calls:
        made, expected = (outcome(f, *arguments, **options) for f in (function, original))
        if isinstance(expected, tuple):
            assert made == expected
        elif expected.layout is torch.strided:
            assert made.dtype == expected.dtype
            assert torch.equal(made, expected)
        else:
            assert torch.equal(made.to_dense(), expected.to_dense())
    out = torch.zeros_like(original([a, b], 1))
    assert function([a, b], 1, out=out) is out
    assert torch.equal(out, original([a, b], 1))
