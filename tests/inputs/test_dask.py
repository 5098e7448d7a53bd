"""Splits of Dask arrays: the parts, compared with NumPy's slices, and the task graph."""

import inspect
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splitjit
from splitjit import SplitError, SplitTypeError, openvino, plan_split, split
from splitjit._copy import lazy
from tests.cases import CASES, OF_SIX, REFUSALS
from tests.conftest import long, take
from tests.processes import python

da = pytest.importorskip("dask.array")

import dask  # noqa: E402
from dask.array.utils import assert_eq  # noqa: E402


def assert_parts(parts, x, plan):
    """Compare with NumPy's slices; assert_eq also compares each chunk with its declared shape."""
    assert len(parts) == len(plan)
    computed = dask.compute(*parts, scheduler="synchronous")
    for part, result, index in zip(parts, computed, plan.slices, strict=True):
        assert type(part) is da.Array
        assert_eq(part, x[index], scheduler="synchronous")
        np.testing.assert_array_equal(result, x[index], strict=True)


@pytest.mark.parametrize("chunk", [2, *long(-1)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rules(case, chunk):
    x = np.arange(math.prod(case.shape), dtype=np.int16).reshape(case.shape)
    lazy = da.from_array(x, chunks=[min(chunk, n) or -1 for n in case.shape])
    plan = plan_split(case.shape, **case.rule)
    parts = split(lazy, **case.rule)
    assert tuple(part.shape[plan.axis] for part in parts) == case.sizes
    assert_parts(parts, x, plan)
    assert [part.name for part in plan(lazy)] == [part.name for part in parts]
    assert_parts(plan(lazy, copy=False), x, plan)


@st.composite
def chunked(draw):
    """Draw the chunks of an array, some of them empty, an axis, and the lengths of its parts."""

    def composition(length, least):
        ends = draw(st.lists(st.integers(0, length), max_size=4)) if length else []
        sizes = np.diff([0, *sorted(ends), length]).tolist()
        return tuple(size for size in sizes if size >= least) or (length,)

    shape = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    chunks = tuple(composition(n, draw(st.integers(0, 1))) for n in shape)
    return chunks, axis, composition(shape[axis], 0)


@pytest.mark.slow
@given(chunked(), st.sampled_from(["u1", "f4", "c16", "U2", "M8[s]"]))
def test_parts_are_the_slices(drawn, dtype):
    chunks, axis, sizes = drawn
    shape = tuple(map(sum, chunks))
    x = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    lazy = da.from_array(x, chunks=chunks)
    parts = split(lazy, sizes, axis=axis)
    assert_parts(parts, x, plan_split(shape, sizes, axis=axis))
    # A chunk of a part ends where the part ends, or where a chunk of the array ended.
    bounds = set(np.cumsum(sizes)) | set(np.cumsum(chunks[axis]))
    ends = np.cumsum([n for part in parts for n in part.chunks[axis]])
    assert set(ends) | {0} == bounds | {0}
    for part in parts:
        assert part.chunks[axis] == (0,) or 0 not in part.chunks[axis]


@pytest.mark.parametrize(
    "dtype",
    [
        object, "S3", ">f4", "V3", ml_dtypes.bfloat16, ml_dtypes.int4,
        np.dtype([("a", "u1"), ("b", "<f8")]), np.dtypes.StringDType(),
    ],
    ids=str,
)  # fmt: skip
def test_dtypes(dtype):
    x = np.arange(60).reshape(6, 10) % 5
    x = x.astype(str if np.dtype(dtype).kind == "T" else "i1").astype(dtype)
    for part, index in zip(
        split(da.from_array(x, chunks=(3, 4)), [5, 0, 5], axis=1),
        plan_split(x.shape, [5, 0, 5], axis=1).slices,
        strict=True,
    ):
        assert part.dtype == part._meta.dtype == x.dtype
        assert type(part._meta) is np.ndarray
        result = part.compute(scheduler="synchronous")
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(result, x[index])


def persist(*arrays):
    """Compute the chunks of all arrays in one run; return one dict of chunks by key per array."""
    return [dict(array.dask) for array in dask.persist(*arrays, scheduler="synchronous")]


def test_pieces_are_contiguous_and_freed_one_by_one():
    for shape in (20, 30), (1000, 3000):
        x = da.ones(shape, chunks=shape).persist(scheduler="synchronous")
        parts = split(x, num_splits=3, axis=1)
        (chunk,) = persist(x)[0].values()
        pieces = [piece for chunks in persist(*parts) for piece in chunks.values()]
        assert all(piece.flags.c_contiguous for piece in pieces)
        assert not any(np.shares_memory(piece, chunk) for piece in pieces)
        assert len({id(piece if piece.base is None else piece.base) for piece in pieces}) == 3


def test_whole_chunks_are_passed_on():
    x = da.arange(12, chunks=4).persist(scheduler="synchronous")
    a, b = split(x, [6, 6])
    assert len(a.dask) == 3 + 2 + 2  # chunks of x, those that a needs, chunks of a
    of_x, of_a, of_b = persist(x, a, b)
    assert of_a[a.name, 0] is of_x[x.name, 0]
    assert of_b[b.name, 1] is of_x[x.name, 2]
    assert not np.shares_memory(of_a[a.name, 1], of_x[x.name, 1])


def test_one_thread_a_piece(monkeypatch):
    from splitjit._abi.calls import AT
    from splitjit._runtime import threads

    take("parallel", monkeypatch.setattr)
    generation = threads.TEAM.word(AT.generation)
    before = generation.value
    parts = split(da.ones((3000, 400), chunks=(1000, 400)), num_splits=4, axis=1)
    dask.compute(*parts, scheduler="synchronous")
    assert generation.value == before
    split(np.ones((1000, 100)), num_splits=1)  # as each task does
    assert (generation.value > before) == (threads.affinity() > 1)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_each_chunk_is_made_once_and_each_piece_copied_once(scheduler, monkeypatch):
    # Dask fuses chains of tasks. Fusing with earlier or later tasks must not repeat a call.
    from splitjit._copy import run as module

    made, copied = [], []

    def make(chunk):
        made.append(chunk.shape)
        return chunk + 1

    def counted(given, request, out, copy):
        if copy:
            assert not given.x.flags.owndata  # Dask has not copied the piece before
            copied.append(given.shape)
        return run(given, request, out, copy)

    run = module.run
    monkeypatch.setattr(module, "run", counted)
    x = da.ones((6, 24), chunks=(2, 8)).map_blocks(make, meta=np.empty((0, 0)))
    parts = [(part + i)[::2] for i, part in enumerate(split(x, [2, 14, 4, 4], axis=1))]
    total = parts[0].sum() + sum(part.mean() for part in parts)
    for results in parts, [total]:
        assert not made
        dask.compute(*results, scheduler=scheduler)
        assert made == 9 * [(2, 8)]
        assert sorted(copied) == 3 * [(2, 2)] + 6 * [(2, 4)] + 3 * [(2, 6)]
        made.clear()
        copied.clear()


def test_slices_of_parts():
    # Dask fuses slices with each other. It must not take the index of a piece for a slice.
    x = np.arange(120).reshape(6, 20)
    a, b = split(da.from_array(x, chunks=(3, 20)), [8, 12], axis=1)
    np.testing.assert_array_equal(a[1:, 2:], x[1:, 2:8])
    np.testing.assert_array_equal(b[[5, 0]], x[[5, 0], 8:])
    np.testing.assert_array_equal(b[2], x[2, 8:])


def test_nothing_is_computed_at_planning():
    def fail(block):
        raise AssertionError("computed")

    x = da.ones((4, 6), chunks=(2, 4)).map_blocks(fail, dtype=float, meta=np.empty((0, 0)))
    parts = [*split(x, [3, 0, 3], axis=1), *split(x, [3, 3], axis=1, copy=False)]
    assert parts[1].compute().shape == (4, 0)
    with pytest.raises(AssertionError, match="computed"):
        parts[0].compute()


def test_each_part_looks_only_at_its_chunks(monkeypatch):
    lengths = []
    monkeypatch.setattr(lazy, "max", lambda *n: lengths.append(n) or max(n), raising=False)
    split(da.ones(100, chunks=1), 1)
    assert len(lengths) == 200


def test_names_tell_what_they_are():
    def names(*args, **rule):
        return [part.name for part in split(*args, **rule)]

    x, y = (da.ones((6, 6), chunks=4) for _ in range(2))
    first = names(x, [2, 4])
    assert len(set(first)) == 2
    assert names(y, [2, 4]) == names(y, np.array([2, 4]), axis=-2) == first
    assert names(x, [2, 2, 2])[0] == first[0]  # the same part
    others = [names(x, [4, 2]), names(x, [2, 4], axis=1), names(x + 1, [2, 4]), names(x, [1, 5])]
    assert all(set(first).isdisjoint(other) for other in others)


@pytest.mark.parametrize("case", [c for c in REFUSALS if math.prod(c.shape) < 100], ids=str)
def test_refusals(case):
    with pytest.raises(case.error, match=case.says) as caught:
        split(da.ones(case.shape), **case.rule)
    assert type(caught.value) is case.error


def test_refusals_of_dask_arrays():
    x = da.ones((4, 6), chunks=2)
    with pytest.raises(SplitError, match=r"out for a Dask array: only dask\.array\.store"):
        split(x, 2, out=[np.empty((2, 6))] * 2)
    with pytest.raises(SplitError, match="split_into: outs for a Dask array: "):
        splitjit.split_into(x, [np.empty((2, 6))] * 2, 2)
    with pytest.raises(SplitError, match=r"only dask\.array\.store"):
        plan_split((4, 6), 2).bind([np.ones((2, 6)), np.ones((2, 6))])(x)
    with pytest.raises(SplitTypeError, match="copy=1: must be a bool"):
        split(x, 2, copy=1)
    with pytest.raises(SplitError, match=r"shape \(4, 6\): the plan is for shape \(6, 4\)"):
        plan_split((6, 4), 2)(x)


@pytest.mark.parametrize("copy", [True, False])
def test_unknown_lengths(copy):
    """An unknown length blocks only a split along its own axis."""
    whole = np.arange(24.0).reshape(4, 6)
    keep = whole.sum(axis=1) > 20
    x = da.from_array(whole, chunks=(2, 4))
    unknown = x[da.from_array(keep, chunks=2)]
    assert math.isnan(unknown.shape[0])
    for axis in (0, -2):
        says = r"shape \(nan, 6\): .* along axis 0 must be known; call x\.compute_chunk_sizes\(\)"
        with pytest.raises(SplitError, match=says):
            split(unknown, 2, axis=axis, copy=copy)
    with pytest.raises(SplitError, match="compute_chunk_sizes"):
        plan_split((4, 6), 2)(unknown, copy=copy)
    with pytest.raises(SplitError, match=r"shape=\(nan, 6\): lengths must sum"):
        split(unknown, [2], axis=1, copy=copy)
    with pytest.raises(SplitError, match=r"shape=\(nan, 6\): axis must be in"):
        split(unknown, 2, axis=2, copy=copy)
    with pytest.raises(SplitError, match=r"x of shape \(nan, 6\): the plan is for shape \(4, 7\)"):
        plan_split((4, 7), 2, axis=1)(unknown, copy=copy)
    sizes = [1, 0, 3, 2]
    plan = plan_split((4, 6), sizes, axis=1)
    for parts in (split(unknown, sizes, axis=1, copy=copy), plan(unknown, copy=copy)):
        computed = dask.compute(*parts, scheduler="synchronous")
        for part, result, index in zip(parts, computed, plan.slices, strict=True):
            assert part.shape[1] == result.shape[1]
            np.testing.assert_array_equal(result, whole[keep][index], strict=True)
    known = unknown.compute_chunk_sizes()
    assert [part.shape for part in split(known, num_sections=2, copy=copy)] == [(2, 6), (1, 6)]


def test_split_of_the_module_takes_what_split_takes():
    x = np.arange(12).reshape(2, 6)
    lazy = da.from_array(x, chunks=4)
    parameters, those_of_split = (
        [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
        for function in (splitjit.dask.split, split)
    )
    assert parameters == those_of_split
    for rule in OF_SIX.values():
        parts, same = splitjit.dask.split(lazy, axis=1, **rule), split(lazy, axis=1, **rule)
        assert [part.name for part in parts] == [part.name for part in same]
    with pytest.raises(SplitTypeError, match=r"x of type ndarray: x must be a dask\.array\.Array"):
        splitjit.dask.split(x, 2)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(da, "array_expr_enabled"), reason="this Dask has no query planning")
def test_query_planning_is_refused():
    code = """
import dask
dask.config.set({'array.query-planning': True})
import dask.array, splitjit
x = dask.array.ones(4, chunks=3)
assert [a.compute().shape for a in splitjit.split(x, 2, copy=False)] == [(2,), (2,)]
try:
    splitjit.split(x, 2)
except splitjit.SplitError as error:
    assert 'array.query-planning must be off' in str(error)
else:
    raise SystemExit('the split was not refused')
"""
    python("-W", "error", "-c", code)


@pytest.mark.long
def test_processes():
    """Two worker processes of one thread each: Dask pickles the functions and the pieces."""
    distributed = pytest.importorskip("distributed")
    x = np.arange(600 * 960, dtype="f4").reshape(600, 960)
    parts = split(da.from_array(x, chunks=(300, 640)), [600, 360], axis=1)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.get_task_stream()  # the first call starts the recording
        a, b = client.gather(client.compute(parts, optimize_graph=False))
        keys = [str(task["key"]) for task in client.get_task_stream()]
    np.testing.assert_array_equal(a, x[:, :600])
    np.testing.assert_array_equal(b, x[:, 600:])
    assert sum("splitjit-part-" in key for key in keys) == 6


def test_operators_take_the_array_that_it_computes():
    x = np.arange(6)
    parts = openvino.Split(num_splits=2)(da.from_array(x, 4), 0)
    assert [type(part) for part in parts] == [np.ndarray] * 2
    assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4, 5]]
    masked = da.from_array(np.ma.array(x, mask=x > 4), 4)
    assert str(openvino.Split(num_splits=2)(masked, 0)[1]) == "[3 4 --]"


def test_without_dask_the_import_names_the_package():
    code = """
import sys; sys.modules["dask.array"] = sys.modules["dask"] = None
try: import splitjit.dask
except ImportError as error: assert str(error).endswith("pip install dask"), error
else: raise AssertionError
"""
    python("-c", code)
