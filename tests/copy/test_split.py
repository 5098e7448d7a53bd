"""Splits equal NumPy's slices byte for byte, for all dtypes, layouts, sizes and routes."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splitjit
from splitjit import SplitError, SplitTypeError, plan_split, split
from splitjit._abi.kernels import INTERLEAVED
from tests.cases import CASES, REFUSALS
from tests.conftest import long, needs_kernels
from tests.hostile import foreign

RECORD = np.dtype([("a", ">i4"), ("b", "S3", (2,))], align=True)
DTYPES = [
    "?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8", "c16",
    "g", "G", "S1", "S5", "S64", "U1", "U3", "M8[s]", "m8[ns]", ">i2", ">f4", ">c16", ">U2",
    "V3", "V6", "V24", "V31",
    np.dtype([("a", "u1"), ("b", "<f8")]),
    RECORD,
    ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
]  # fmt: skip
QUICK = ["u1", ">i2", "f4", "f8", "c16", "V3", RECORD]  # one dtype per word, and two without


def random_array(rng, shape, dtype):
    """Return an array of random bits, which include NaN payloads, -0.0 and padding."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    bits = rng.integers(0, 256, count * dtype.itemsize, np.uint8)
    if dtype.kind == "b":
        bits &= 1
    return np.frombuffer(bits.tobytes(), dtype, count).reshape(shape)


def same_bits(a, b):
    """Compare all bits of two arrays, also the padding of structured items, which NumPy ignores."""
    bits = np.dtype((np.void, a.itemsize))
    return a.dtype == b.dtype and a.view(bits).tobytes() == b.view(bits).tobytes()


LAYOUTS = {
    "C": lambda make, shape: make(shape),
    "Fortran": lambda make, shape: make(shape[::-1]).T,
    "moved axis": lambda make, shape: np.moveaxis(make((*shape[1:], shape[0])), -1, 0),
    "steps": lambda make, shape: make([2 * n for n in shape])[(slice(None, None, 2),) * len(shape)],
    "outer steps": lambda make, shape: make([3 * shape[0], *shape[1:]])[::3],
    "inner slice": lambda make, shape: make([*shape[:-1], shape[-1] + 3])[..., 2:-1],
    "reversed": lambda make, shape: make(shape)[(slice(None, None, -1),) * len(shape)],
    "broadcast": lambda make, shape: np.broadcast_to(make((1, *shape[1:])), shape),
}


def assert_parts(parts, x, plan):
    """Check the parts of a split that copies: values, layout, and memory of their own."""
    assert len(parts) == len(plan)
    for part, index in zip(parts, plan.slices, strict=True):
        expected = x[index]
        assert type(part) is np.ndarray
        assert part.shape == expected.shape
        assert part.dtype == x.dtype
        assert part.flags.c_contiguous
        assert part.flags.writeable
        assert same_bits(part, expected)
        assert not np.may_share_memory(part, x)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rules(case, route):
    x = np.arange(np.prod(case.shape, dtype=int), dtype=np.int16).reshape(case.shape)
    parts = split(x, **case.rule)
    axis = case.rule.get("axis", 0)
    assert tuple(part.shape[axis] for part in parts) == case.sizes
    assert_parts(parts, x, plan_split(case.shape, **case.rule))


@pytest.mark.parametrize("case", [c for c in REFUSALS if math.prod(c.shape) < 100], ids=str)
def test_refusals_write_nothing(case):
    x = np.ones(case.shape)
    out = [np.zeros(case.shape)] * 2
    with pytest.raises(case.error, match=f"^split: .*{case.says}"):
        split(x, out=out, **case.rule)
    assert not any(part.any() for part in out)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dtype", long(*DTYPES, if_not=QUICK), ids=lambda dtype: str(np.dtype(dtype))
)
def test_dtypes_and_layouts(dtype, layout, route):
    rng = np.random.default_rng(0)
    for shape, axis, sizes in [
        ((12,), 0, [5, 0, 7]),
        ((6, 70), 1, [1, 66, 3]),
        ((67, 6), 0, [64, 3]),
        ((33, 6), 1, [2, 2, 2]),
        ((3, 4, 35), 1, [1, 3]),
    ]:
        x = LAYOUTS[layout](lambda shape: random_array(rng, shape, dtype), shape)
        plan = plan_split(shape, sizes, axis=axis)
        assert_parts(split(x, sizes, axis=axis), x, plan)


@st.composite
def strided(draw):
    """Draw an array of any rank, strides and item size, and sizes and an axis to split it by."""
    rank = draw(st.integers(1, 5))
    shape = draw(st.tuples(*[st.integers(0, [0, 300, 40, 14, 8, 5][rank])] * rank))
    dtype = draw(st.sampled_from(DTYPES))
    order = draw(st.permutations(range(rank)))
    steps = draw(st.tuples(*[st.sampled_from([1, 1, 1, 2, -1, -3])] * rank))
    extents = [(n - 1) * abs(step) + 1 if n else 0 for n, step in zip(shape, steps, strict=True)]
    margins = draw(st.tuples(*[st.sampled_from([0, 0, 1, 5])] * rank))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    stored = [extents[d] + margins[d] for d in order]
    x = random_array(rng, stored, dtype).transpose(np.argsort(order))
    x = x[tuple(slice(n) for n in extents)][tuple(slice(None, None, step) for step in steps)]
    axis = draw(st.integers(-rank, rank - 1))
    cuts = draw(st.lists(st.integers(0, shape[axis]), max_size=6).map(sorted))
    sizes = np.diff([0, *cuts, shape[axis]])
    return x, sizes, axis


@given(strided())
def test_parts_equal_slices_and_join_to_the_input_whatever_the_strides(route, drawn):
    x, sizes, axis = drawn
    parts = split(x, sizes, axis=axis)
    assert_parts(parts, x, plan_split(x.shape, sizes, axis=axis))
    bits = np.dtype((np.void, x.itemsize))  # np.concatenate swaps bytes and drops padding
    joined = np.concatenate([part.view(bits) for part in parts], axis=axis)
    assert joined.tobytes() == x.view(bits).tobytes()


@pytest.mark.parametrize("nbytes", [2**13, 2**14, 2**18, 2**19, 2**24, 2**24 + 4, 5 * 2**23])
@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (1, (0.3, 0.1, 0.6)),
        (3, (0.5, 0.5)),
        (64, (0.5, 0.25, 0.25)),
        (-1, (3, 2, 1)),
        (-1, (40, 1)),
    ],
)
def test_sizes_across_the_thresholds(nbytes, rows, sizes):
    if rows == -1:
        rows = nbytes // 4 // sum(sizes)
    else:
        row = nbytes // 4 // rows
        sizes = [int(part * row) for part in sizes[:-1]]
        sizes.append(row - sum(sizes))
    x = np.arange(rows * sum(sizes), dtype=np.uint32).reshape(rows, -1)
    plan = plan_split(x.shape, sizes, axis=1)
    assert_parts(split(x, sizes, axis=1), x, plan)
    assert_parts(split(x.T, sizes), x.T, plan_split(x.T.shape, sizes))


@pytest.mark.parametrize(("parts", "item"), sorted(INTERLEAVED))
def test_interleaved_items(parts, item, route):
    rng = np.random.default_rng(parts)
    # With 191 rows of 1-byte items, parts of `out` start 3.25 cache lines apart.
    for rows in (1, 7, 63, 64, 65, 191, 2731):
        for skew in (0, 3):
            raw = rng.integers(0, 256, rows * parts * item + skew, np.uint8)
            x = raw[skew:].view(f"V{item}").reshape(rows, parts)
            assert_parts(split(x, 1, axis=1), x, plan_split(x.shape, 1, axis=1))
            whole = np.zeros((parts, rows * item + 17), np.uint8)
            out = [line[skew : skew + rows * item].view(x.dtype).reshape(rows, 1) for line in whole]
            split(x, 1, axis=1, out=out)
            for i, part in enumerate(out):
                assert part.tobytes() == x[:, i].tobytes()
                part.view(np.uint8)[...] = 0
            assert not whole.any()  # memory around the parts is unchanged


@pytest.mark.parametrize("item", [1, 3, 4, 16, *long(2, 8, 12, 31)])
def test_transposed_items(item, route):
    """Bands of one line to several strips, and of one step to several batches, with remainders."""
    rng = np.random.default_rng(item)
    for lines, sizes, steps in [
        (1, [1], 300),
        (5, [2, 0, 3], 1),
        (15, [1] * 15, 70),
        (17, [1] * 17, 2100),
        (20, [7, 13], 19),
        (40, [3, 30, 7], 67),
        (64, [64], 64),
        (300, [150, 0, 1, 149], 130),
    ]:
        raw = rng.integers(0, 256, (2, steps + 1, lines, item), np.uint8)
        x = raw.view(f"V{item}")[:, :steps, :, 0].swapaxes(1, 2)
        assert_parts(split(x, sizes, axis=1), x, plan_split(x.shape, sizes, axis=1))
        cut = [steps // 3, steps - steps // 3]
        assert_parts(split(x, cut, axis=2), x, plan_split(x.shape, cut, axis=2))
        reverse = x[:, ::-1, ::-1]
        assert_parts(split(reverse, sizes, axis=1), reverse, plan_split(x.shape, sizes, axis=1))
        columns = np.ascontiguousarray(raw[0, :steps]).view(x.dtype)[..., 0]
        plan = plan_split(columns.shape, 1, axis=1)
        assert_parts(plan(columns), columns, plan)
    for run, order in itertools.product((1, 2, 4), (1, -1)):  # the channels of images
        x = rng.integers(0, 256, (2, 70, 3, run), np.uint8).view(f"V{run}")[:, :, ::order, 0]
        assert_parts(split(x.swapaxes(1, 2), 1), x.swapaxes(1, 2), plan_split((2, 3, 70), 1))


def test_many_parts(route):
    x = np.arange(5 * 3000, dtype=np.uint16).reshape(5, 3000)
    assert_parts(split(x, 1, axis=1), x, plan_split(x.shape, 1, axis=1))
    assert_parts(split(x.ravel(), 1), x.ravel(), plan_split((15000,), 1))


def test_parts_are_new_and_aligned(route):
    x = np.ones((64, 48), np.float32)
    parts = split(x, [1, 7, 40], axis=1)
    if route != "slices":
        # NumPy allocates small blocks at any address, so check several of them.
        some = [split(x[:n], [1, 7, 40], axis=1) for n in range(1, 65, 3)]
        assert all(part.ctypes.data % 64 == 0 for small in [parts, *some] for part in small)
    for part in parts:
        part[...] = 0
    assert x.all()
    assert not any(part.any() for part in parts)


def test_empty_parts_of_the_largest_extents():
    x = np.zeros((2**31, 2**31, 0), np.uint8)
    for count in (7, 8):
        plan = plan_split(x.shape, num_sections=count, axis=2)
        for parts in (split(x, num_sections=count, axis=2), plan(x), plan.empty(x.dtype)):
            assert [part.shape for part in parts] == [x.shape] * count


def test_views():
    x = np.arange(24).reshape(4, 6)
    parts = split(x, [2, 4], axis=1, copy=False)
    assert [part.base is x.base or part.base is x for part in parts] == [True, True]
    parts[1][...] = -1
    assert (x[:, 2:] == -1).all()
    with pytest.raises(SplitError, match="copy=False and out"):
        split(x, [2, 4], axis=1, copy=False, out=[np.empty((4, 2), int), np.empty((4, 4), int)])
    for copy in (0, 1):
        with pytest.raises(SplitTypeError, match=f"copy={copy}: must be a bool"):
            split(x, [2, 4], axis=1, copy=copy)


class Subclass(np.ndarray):
    pass


def test_what_comes_in_as_an_array(tmp_path, route):
    x = np.arange(6.0)
    expected = [[0, 1], [2, 3], [4, 5]]
    read_only = x.copy()
    read_only.flags.writeable = False
    memmap = np.memmap(tmp_path / "x", x.dtype, "w+", shape=x.shape)
    memmap[...] = x
    for given_x in (list(x), tuple(x), read_only, memmap, x.view(Subclass), memoryview(x)):
        parts = split(given_x, 2)
        assert [type(part) for part in parts] == [np.ndarray] * 3
        assert [part.tolist() for part in parts] == expected
        assert [type(part) for part in split(given_x, 2, copy=False)] == [np.ndarray] * 3


RECORD = np.dtype([("a", "i4")])
EQUAL_DTYPES = [
    [np.dtype({"names": ["a"], "formats": ["i4"], "titles": [[1]]})],  # which has no hash
    (np.dtype("f4"), np.dtype("f4", metadata={"unit": "m"})),
    (np.dtype("l"), np.dtype("q" if np.dtype("l") == np.dtype("q") else "i")),
    (RECORD, np.dtype((np.record, RECORD))),
    [np.dtype([("a", "u1"), ("b", ">u4")]) for _ in range(3)],
]


@pytest.mark.parametrize(
    "dtypes", EQUAL_DTYPES, ids=["titles", "metadata", "number", "record", "same"]
)
def test_parts_have_the_very_dtype_of_the_array(dtypes, route):
    """A plan keeps what it knows by dtype, and dtypes that differ may be equal."""
    for dtype in (*dtypes, *dtypes):
        x = np.zeros((4, 6), dtype)
        for part in (*split(x, [2, 4], axis=1), *split(x, [2, 2])):
            assert part.dtype is dtype


def test_a_plan_runs_itself():
    plan = plan_split((4, 6), [2, 4], axis=1)
    x = np.arange(24).reshape(4, 6)
    assert_parts(plan(x), x, plan)
    assert np.shares_memory(plan(x, copy=False)[0], x)
    with pytest.raises(SplitError, match=r"x of shape \(6, 4\): the plan is for shape \(4, 6\)"):
        plan(x.T)


@pytest.mark.parametrize("dtype", [*DTYPES, object, "T"], ids=lambda dtype: str(np.dtype(dtype)))
def test_empty_parts_fit_as_out(dtype):
    plan = plan_split((40, 9), [4, 0, 5], axis=1)
    out = plan.empty(dtype)
    assert all(part.dtype == np.dtype(dtype) for part in out)
    assert all(part.flags.c_contiguous and part.flags.writeable for part in out)
    x = np.zeros((40, 9), dtype)
    assert [a is b for a, b in zip(plan(x, out), out, strict=True)] == [True] * 3


def test_warmup_leaves_nothing_to_compile():
    from numba.core import event

    splitjit.warmup()
    with event.install_recorder("numba:compile") as recorder:
        for dtype in ("u1", "f4", "c16", "V3"):
            for parts in (2, 3, 5):
                for shape in ((2**21 // parts * parts,), (300, 30 * parts), (9, 20, 30 * parts)):
                    x = np.zeros(shape, dtype)
                    split(x, num_splits=parts, axis=-1)
                    split(x.T, num_splits=parts)
                    split(x[::2], num_splits=parts, axis=-1)
        split(np.full(10**6, "a", object), 1000)
    assert not recorder.buffer


WRONG = [
    *[(lambda x=x: split(x, 1), "split: x of type list: must be an array: ")
      for x in ([[1, 2], [3]], [1, [2, 3]])],
    (lambda: split(foreign("__array__"), 1), "split: x of type Foreign: must be an array"),
    (lambda: split([1, 2], num_splits=foreign("__index__")), "split: .*: must be an integer"),
    (lambda: split(3.0, 1), "split: .*rank 0 has no axis"),
    *[(lambda dtype=dtype: plan_split((4,), 2).empty(dtype), "split: dtype=")
      for dtype in ("no dtype", "f4,,", ("f4", (2,)), [("a", "f4"), ("a", "f4")])],
    *[(lambda shape=shape: plan_split(shape, num_splits=1).empty("f4"), "split: shape=")
      for shape in ((2**70, 0), (1,) * 65)],
    *[(lambda dtypes=dtypes: splitjit.warmup(dtypes), "warmup: dtypes?=")
      for dtypes in ("float32", 3, ["no dtype"], [object()], ["f4,,"])],
]  # fmt: skip


@pytest.mark.parametrize(("call", "says"), WRONG)
def test_what_is_no_array_and_no_dtype(call, says):
    error = SplitError if "rank 0" in says or "shape=" in says else SplitTypeError
    with pytest.raises(error, match=f"^{says}"):
        call()


@needs_kernels
def test_the_first_small_array_of_a_plan_is_numpy_s_and_the_next_compiled(warm, new_plans):
    plan = plan_split((4, 6), num_splits=2, axis=1)
    x = np.arange(24.0).reshape(4, 6)
    for has_block in (False, True, True):  # compiled parts share one; their bases are bytes
        parts = plan(x)
        assert [part.tolist() for part in parts] == [x[:, :3].tolist(), x[:, 3:].tolist()]
        assert (parts[0].base is not None) == has_block


UNLIKE = {
    "list": np.ndarray.tolist,
    "subclass": lambda x: x.view(np.recarray),
    "masked": lambda x: np.ma.masked_equal(x, 3),
    "other dtype": lambda x: x.astype("f4"),
    "other shape": lambda x: x[:2],
}


@pytest.mark.parametrize("splits", [0, 1, 3])
@pytest.mark.parametrize("unlike", UNLIKE)
def test_an_object_that_is_not_as_expected_is_adapted_or_refused(unlike, splits, new_plans):
    plan = plan_split((4, 6), num_splits=2, axis=1)
    x = np.arange(24.0).reshape(4, 6)
    for _ in range(splits):
        plan(x)
    given = UNLIKE[unlike](x)
    if unlike == "other shape":
        with pytest.raises(SplitError, match="the plan is for shape"):
            plan(given)
        return
    parts, array = plan(given), np.ma.asarray(given)
    kind = np.ma.MaskedArray if unlike == "masked" else np.ndarray
    assert {type(part) for part in parts} == {kind}
    assert [np.ma.asarray(part).tolist() for part in parts] == [
        array[:, :3].tolist(),
        array[:, 3:].tolist(),
    ]
