"""Compiled checks refuse to copy whatever the checks in Python refuse."""

import contextlib
import ctypes
import gc
import inspect
import math
import sys
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from splitjit import SplitError, plan_split
from splitjit._abi import structs
from splitjit._abi.calls import Expected
from splitjit._abi.kernels import LOOPS
from splitjit._copy import buffers, how, run
from splitjit._copy.how import How, how_of
from splitjit._runtime.loading import LOADER, LOOP_ADDRESSES
from tests.conftest import forget_copies, needs_kernels, take

pytestmark = [needs_kernels, pytest.mark.usefixtures("warm")]


@pytest.fixture(autouse=True, params=["small", "large"])
def kind(request, monkeypatch):
    """Load the kernels, let plans forget their copies, and count all copies as small or large."""
    if not structs.READS_ARRAYS:
        pytest.skip("arrays and lists lie otherwise in memory here")
    take("parallel" if request.param == "large" else "serial", monkeypatch.setattr)
    monkeypatch.setattr(how, "shared_fields", how.shared_fields.__wrapped__)  # asks each time
    return request.param


def prepared(plan, dtype="f4"):
    """Return outputs that were written twice, so that a third split takes one compiled call."""
    out = [np.zeros(shape, dtype) for shape in plan.output_shapes]
    x = np.arange(np.prod(plan.shape)).astype(dtype).reshape(plan.shape)
    for _ in range(2):
        plan(x, out)
    return x, out


def items(arrays):
    return [array.tolist() for array in arrays]


def views(x, plan):
    return [x[index] for index in plan.slices]


@contextlib.contextmanager
def references_to(*objects):
    """Check that a block leaves no references to objects."""
    gc.collect()  # later, it would release what other tests left behind
    before = [sys.getrefcount(kept) for kept in objects]
    yield
    after = [sys.getrefcount(kept) for kept in objects]
    assert after == before


def has_builtins(made):
    """Return whether builtin functions check the arrays of a copy."""
    return made.into.__name__ in ("into", "copy_large")


def record_of(made):
    """Return what the builtin functions of a copy expect."""
    if made.fresh.__name__ == "fresh":
        return made.fresh.__self__
    return inspect.getclosurevars(made.fresh).nonlocals["copy"].__self__


@pytest.mark.parametrize("shape", [(6,), (1, 2304), (8, 3072), (300, 3), (2, 3, 4)])
@pytest.mark.parametrize("sequence", [list, tuple])
def test_one_compiled_call_checks_and_copies(shape, sequence, monkeypatch):
    plan = plan_split(shape, num_splits=3, axis=shape.index(max(shape)) if 3 not in shape else 1)
    x, out = prepared(plan)
    block = np.zeros([2 * n for n in shape], "f4")
    with_gaps = views(block[tuple(map(slice, shape))], plan)
    plan(x, with_gaps)  # loads the loop
    monkeypatch.setattr(run, "check_out", None)  # Python checks nothing
    for outputs in (out, with_gaps, with_gaps[::-1]):
        for part in outputs:
            part.fill(99)
        result = plan(x, sequence(outputs))
        assert type(result) is list
        assert all(a is b for a, b in zip(result, outputs, strict=True))
        assert items(outputs) == items(views(x, plan))


def test_one_compiled_call_checks_arrays_of_several_kinds_in_turn(monkeypatch):
    plan = plan_split((4, 6), num_splits=3, axis=1)
    whole = np.arange(24.0).reshape(4, 6)
    kinds = [whole, whole.astype("i1"), np.asfortranarray(whole), np.ma.masked_array(whole)]
    outs = [[np.zeros_like(part) for part in plan(x)] for x in kinds]
    joined = [plan.join(out) for out in outs]
    monkeypatch.setattr(run, "check_out", None)  # Python checks nothing
    for x, out in [*zip(kinds, outs, strict=True)] * 2:
        for part in out:
            part.fill(99)
        assert items(plan(x, out)) == items(views(x, plan))
    monkeypatch.setattr("splitjit._copy.join._join", None)
    for x, out, whole in [*zip(kinds[:2], outs, joined, strict=False)] * 2:
        assert items([plan.join(out), plan.join(out, whole)]) == items([x, x])


def test_one_compiled_call_joins_parts_that_share_memory_or_have_gaps(monkeypatch):
    plan = plan_split((4, 6), num_splits=3, axis=1)
    block, repeated = np.arange(45.0).reshape(5, 9), np.broadcast_to(np.ones((4, 1)), (4, 2))
    parts = [block[:4, :2], block[:4, 1:3], block[1:, :2]]
    kinds = [parts, [part[::-1, ::-1] for part in parts], [repeated, block[:2, :4].T, parts[0]]]
    beside, parts = block[:4, 3:], [*parts[:2], parts[0]]
    for _ in range(2):
        assert plan.join(parts, beside) is beside
        assert beside.tolist() == block[:4, [0, 1, 1, 2, 0, 1]].tolist()
        with pytest.raises(SplitError, match=r"out and parts\[2\]: must not share memory"):
            plan.join([*parts[:2], block[:4, 2:4]], beside)
    joined = [np.concatenate(each, 1).tolist() for each in kinds]
    assert [plan.join(each).tolist() for each in kinds] == joined
    monkeypatch.setattr("splitjit._copy.join._join", None)  # Python decides nothing
    assert [plan.join(each).tolist() for each in kinds] == joined
    record, at, no_loops = record_of(plan._join), _FIELDS["loops"], np.zeros(len(LOOPS), int)
    loaded, record[at] = record[at], no_loops.ctypes.data
    assert not plan._join.into(np.zeros((4, 6)), parts)
    record[at] = loaded


def _partly_shared(out, x):
    block = np.zeros(7, x.dtype)
    out[:2] = [block[i : i + 4].reshape(2, 2) for i in (0, 3)]


put = list.__setitem__
DEFECTS = {
    "_shared": lambda out, x: put(out, 1, out[0]),
    "_partly_shared": _partly_shared,
    "_over_source": lambda out, x: put(out, 0, x[:1, :2]),
    "_read_only": lambda out, x: out[1].setflags(write=False),
    "_strided": lambda out, x: put(out, 1, np.zeros((2, 4), x.dtype)[:, ::2]),
    "_fortran": lambda out, x: put(out, 1, np.zeros((2, 2), x.dtype, "F")),
    "_other_dtype": lambda out, x: put(out, 2, out[2].astype(">f4")),
    "_other_size": lambda out, x: put(out, 2, out[2].astype("f8")),
    "_other_shape": lambda out, x: put(out, 2, np.zeros((2, 3), x.dtype)),
    "_other_rank": lambda out, x: put(out, 2, np.zeros((2, 2, 1), x.dtype)),
    "_resized": lambda out, x: out[2].resize((3, 2), refcheck=False),
    "_no_array": lambda out, x: put(out, 0, [[1, 2], [3, 4]]),
    "_none": lambda out, x: put(out, 2, None),
    "_subclass": lambda out, x: put(out, 1, out[1].view(np.matrix)),
    "_fewer": lambda out, x: out.pop(),
    "_more": lambda out, x: out.append(out[0].copy()),
    "_empty": lambda out, x: out.clear(),
}
"""Each makes outputs wrong, or asks more of the checks."""


def outcome(call, out):
    """Return what a call raises or returns, and what the outputs hold then."""
    try:
        result = items(map(np.asarray, call()))
    except SplitError as error:
        result = type(error), str(error)
    return result, items(map(np.asarray, out))


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_the_outcome_is_as_without_builtin_functions(defect, monkeypatch):
    outcomes = []
    plan = plan_split((2, 6), [2, 2, 2], axis=1)
    for reads in (True, False):
        monkeypatch.setattr(structs, "READS_ARRAYS", reads)
        forget_copies(monkeypatch.setattr)
        x, out = prepared(plan)
        assert has_builtins(how_of(plan, x)) == reads
        for part in out:
            part.fill(99)
        defect(out, x)
        outcomes.append(outcome(lambda out=out, x=x: plan(x, out), out))
    assert outcomes[0] == outcomes[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_arrays_give_the_outcome_of_the_python_checks(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis]), max_size=4)))
    sizes = np.diff([0, *cuts, shape[axis]]).tolist()
    plan = plan_split(shape, sizes, axis=axis)
    x, _ = prepared(plan, "i2")
    # All arrays lie in one block, at random places that often overlap, and some have gaps.
    block = np.zeros(8 * x.nbytes + 100, np.uint8)

    def placed(shape):
        order = data.draw(st.permutations(range(len(shape))))
        steps = [data.draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in shape]
        room = [shape[d] * abs(steps[d]) for d in order]
        nbytes = 2 * math.prod(room)
        start = data.draw(st.integers(0, len(block) - nbytes))
        array = block[start : start + nbytes].view("i2").reshape(room).transpose(np.argsort(order))
        return array[tuple([slice(None, None, step) for step in steps])]

    source = data.draw(st.sampled_from([x, placed(shape)]))
    out = [placed(part) for part in plan.output_shapes]
    before = np.random.default_rng(0).integers(0, 256, len(block), np.uint8)
    outcomes = []
    plan._hows.clear()  # Hypothesis draws some plans again
    by_numpy = How(source.nbytes, "not yet")
    made = how_of(plan, source)
    assert (made.layout_for(plan, source, None) is not None) == (source.size > 0)
    (key,) = plan._hows
    for each in (made, by_numpy):
        plan._keep(key, each)
        plan._use(each)
        block[...] = before
        outcomes.append((outcome(lambda: plan(source, out), out), block.tolist()))
    assert outcomes[0] == outcomes[1]


def test_no_reference_is_kept():
    plan = plan_split((4, 6), 2, axis=1)
    x, out = prepared(plan)
    with references_to(x, *out):
        for _ in range(100):
            plan(x, out)
    watched = [weakref.ref(array) for array in (x, *out)]
    del x, out
    gc.collect()
    assert [watch() for watch in watched] == [None] * 4


def seen(part):
    """Return what callers see of a part, except whether it owns its memory."""
    owns = np.empty(1).flags.num & ~np.empty(1)[:].flags.num
    strides = part.strides if part.size else None  # those of an empty array mean nothing
    return type(part), part.shape, strides, part.flags.num & ~owns, part.dtype, part.dtype.metadata


@pytest.mark.parametrize(
    "dtype",
    ["u1", "f4", ">f4", "c16", "S3", "U2", "M8[ns]", [("a", "u1"), ("b", "f8")],
     np.dtype("i4", metadata={"unit": "m"})],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    ("shape", "sizes", "axis"),
    [((6,), [2, 4], 0), ((1, 6), [3, 3], 1), ((5, 7), [0, 7, 0], 1), ((3, 2, 4), [1, 3], -1),
     ((0, 4), [2, 2], 1), ((4,) + (1,) * 63, [1, 3], 0)],
)  # fmt: skip
def test_parts_are_as_numpy_makes_them(dtype, shape, sizes, axis):
    plan = plan_split(shape, sizes, axis=axis)
    x = np.arange(math.prod(shape)).astype("u1").reshape(shape)
    x = x.astype(dtype) if not isinstance(dtype, list) else np.zeros(shape, dtype)
    for source in (x, np.asfortranarray(x)):
        plan(source)
        parts = plan(source)
        expected = [np.empty(part, source.dtype) for part in plan.output_shapes]
        assert list(map(seen, parts)) == list(map(seen, expected))
        assert [part.tobytes() for part in parts] == [x.tobytes() for x in views(source, plan)]


def test_the_parts_share_an_aligned_block_and_leave_no_references():
    plan = plan_split((8, 12), 4, axis=1)
    x = np.arange(96.0).reshape(8, 12)
    plan(x)
    with references_to(x, x.dtype, np.dtype("u1"), np.ndarray, plan):
        for _ in range(100):
            parts = plan(x)
            assert all(part.ctypes.data % 64 == 0 for part in parts)
            assert all(part.base is parts[0].base for part in parts)
        base = weakref.ref(parts[0].base)
        last = parts.pop()
        del parts
        assert base() is last.base
        del last
        assert base() is None


_FIELDS = {name: i for i, name in enumerate(Expected._fields)}


def _no_second_part(record):
    ctypes.c_int64.from_address(int(record[_FIELDS["sizes"]]) + 8).value = -1  # of the second part
    return ValueError


def _no_base(record):
    # A function of the same signature that always fails.
    delete = ctypes.cast(ctypes.pythonapi.PyObject_DelItem, ctypes.c_void_p).value
    record[_FIELDS["set_base"]] = delete
    return ValueError


def test_python_makes_the_parts_if_memory_runs_out(kind):
    plan = plan_split((4, 6), [2, 4], axis=1)
    x = np.arange(24.0).reshape(4, 6)
    plan(x)
    record = record_of(how_of(plan, x))
    record[_FIELDS["nbytes"]] = 1 << 60
    with references_to(x, x.dtype, np.ndarray):
        for _ in range(100):
            assert items(plan(x)) == items(views(x, plan))
            assert how_of(plan, x).fresh(x) is None


@pytest.mark.parametrize("defect", [_no_second_part, _no_base])
def test_an_error_of_numpy_is_raised_and_leaves_no_references(defect, kind):
    plan = plan_split((4, 6), [2, 4], axis=1)
    x = np.zeros((4, 6))
    plan(x)
    error = defect(record_of(how_of(plan, x)))
    buffers.POOL.clear()
    if (defect, kind) == (_no_base, "large"):
        pytest.skip("even the block needs a base, so Python makes the parts")
    with references_to(x, x.dtype, np.ndarray):
        for _ in range(100):
            with pytest.raises(error):
                plan(x)
    if (defect, kind) == (_no_second_part, "large"):
        assert buffers.POOL.kept > 0  # the block was given back


def test_builtin_functions_that_cannot_be_loaded_at_first_are_asked_for_again(monkeypatch):
    plan = plan_split((4, 6), 2, axis=1)
    x = np.arange(24.0).reshape(4, 6)
    load = LOADER.load
    with monkeypatch.context() as patched:  # another process is compiling them
        patched.delitem(LOADER.loaded, "core")
        patched.setattr(LOADER, "load", lambda name, **_: None if name == "core" else load(name))
        assert items(plan(x)) == items(views(x, plan))
    assert items(plan(x)) == items(views(x, plan))
    assert has_builtins(how_of(plan, x))


def test_many_outputs_in_any_order():
    plan, x = plan_split((600,), num_splits=600), np.arange(600.0)
    out = plan.empty(float)
    for outputs in 3 * (out, out[::-1]):
        assert [part[0] for part in plan(x, outputs)] == x.tolist()


def test_calls_at_the_same_time_have_layouts_of_their_own(kind):
    plan = plan_split((4, 6), 2, axis=1)
    x, out = prepared(plan)
    others = [np.zeros_like(part) for part in out]
    compiled, calls = how_of(plan, x), []
    loop = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
    at = LOOPS.index(compiled.layout.loop)
    copy_chunk = loop(LOOP_ADDRESSES[at])

    @loop
    def nested(task, tasks, arguments):  # another call, as by another thread, before the copy
        calls.append(task)
        if len(calls) == 1 and kind == "large":
            assert compiled.into(x + 1, others)
        return copy_chunk(task, tasks, arguments)

    LOOP_ADDRESSES[at] = ctypes.cast(nested, ctypes.c_void_p).value
    assert compiled.into(x, out)
    LOOP_ADDRESSES[at] = ctypes.cast(copy_chunk, ctypes.c_void_p).value
    assert len(calls) > (kind == "large")
    assert items(out) == items(views(x, plan))
    if kind == "large":
        assert others[0].tolist() == (x + 1)[plan.slices[0]].tolist()


@pytest.mark.parametrize(
    ("module", "name", "value", "unread"),
    [
        *[(sys, "version_info", version, "ctypes") for version in ((3, 16, 0), (4, 0, 0))],
        (structs, "WORD", 4, "ctypes"),  # larger objects, as in free-threaded builds
        (structs, "_VERSION", 0x03000000, "API"),
    ],
)
def test_a_version_that_was_not_tested_is_not_read(module, name, value, unread, monkeypatch):
    assert structs._api() == structs.API
    monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(structs, unread, None)
    assert structs._api() is None


def test_a_small_memory_map_is_read_without_the_gil(tmp_path, kind):
    x = np.memmap(tmp_path / "x", "f4", "w+", shape=(4, 6))
    plan = plan_split((4, 6), 2, axis=1)
    for source, releases in ((np.zeros((4, 6), "f4"), kind == "large"), (x, True)):
        plan(source)
        record = record_of(plan._how)
        assert record[_FIELDS["releases_gil"]] == releases
