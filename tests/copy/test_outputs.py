"""Splits into given arrays: which arrays are accepted, and that a refused call writes nothing."""

import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from splitjit import SplitError, SplitTypeError, plan_split, split, split_into
from tests.conftest import call_at, long, routes
from tests.copy.test_split import same_bits, strided


@st.composite
def target(draw, shape, dtype):
    """Draw a writeable array of a given shape, with any strides."""
    order = draw(st.permutations(range(len(shape))))
    steps = draw(st.tuples(*[st.sampled_from([1, 1, 2, -1])] * len(shape)))
    margins = draw(st.tuples(*[st.sampled_from([0, 0, 3])] * len(shape)))
    stored = [shape[d] * abs(steps[d]) + margins[d] for d in order]
    whole = np.zeros(stored, dtype).transpose(np.argsort(order))
    return whole[tuple(slice(None, None, step) for step in steps)][tuple(slice(n) for n in shape)]


EQUAL_RUNS = [(1, 3), (2, 4), (1, 70), (3, 2), (4, 70), (16, 5), (24, 70), (40, 2), (64, 5)]
EQUAL_RUNS += [(64, 70), (100, 2), (300, 70), (2100, 5), (5000, 2), (5000, 70)]
LONG_RUNS = [[65, 100, 64], [128] * 9, [4099, 70], [300, 20, 64]]
COLLECTED_RUNS = [[4, 8, 12], [12, 4, 12], [12, 64, 16, 100], [24, 8, 24, 4]]


@pytest.mark.parametrize(
    "sizes", [*([run] * n for run, n in EQUAL_RUNS), *LONG_RUNS, *COLLECTED_RUNS], ids=str
)
@pytest.mark.parametrize("route", routes("serial", "parallel-streamed"), indirect=True)
def test_parts_that_start_anywhere_in_a_cache_line(route, sizes):
    """Rows without and with gaps, in few rows and in many."""
    rng = np.random.default_rng(0)
    for rows, gap in [(max(40_000 // sum(sizes), 3), 0), (1, 0), (2, 5), (33, 5), (67, 0)]:
        x = rng.integers(0, 256, (rows, sum(sizes) + gap), np.uint8)[:, : sum(sizes)]
        plan = plan_split(x.shape, sizes, axis=1)
        for shift in (0, 16, 61):  # the same for all parts, or another one for each part
            for step in (0, 16, 7):
                memory = [np.full(rows * size + 128, 0x5A, np.uint8) for size in sizes]
                starts = [(shift + p * step - a.ctypes.data) % 64 for p, a in enumerate(memory)]
                ends = [start + rows * size for start, size in zip(starts, sizes, strict=True)]
                spans = zip(memory, starts, ends, strict=True)
                out = [whole[start:end].reshape(rows, -1) for whole, start, end in spans]
                plan(x, out)
                for p, whole in enumerate(memory):
                    assert np.array_equal(out[p], x[plan.slices[p]])
                    assert (whole[: starts[p]] == 0x5A).all()
                    assert (whole[ends[p] :] == 0x5A).all()


@pytest.mark.parametrize("how", ["out", *long("bind")])
@given(drawn=strided(), data=st.data())
def test_parts_are_written_in_place_whatever_the_strides(how, route, drawn, data):
    x, sizes, axis = drawn
    plan = plan_split(x.shape, sizes, axis=axis)
    out = [data.draw(target(shape, x.dtype)) for shape in plan.output_shapes]
    bases = [part.base if part.base is not None else part for part in out]
    into = plan.bind(out) if how == "bind" else lambda x: split(x, sizes, axis=axis, out=out)
    for source in (x, np.asfortranarray(x), x[::-1].copy()):
        result = into(source)
        assert [a is b for a, b in zip(result, out, strict=True)] == [True] * len(out)
        for part, base, index in zip(out, bases, plan.slices, strict=True):
            assert same_bits(part, source[index])
            # Memory around the part is unchanged.
            part.view(f"V{x.itemsize}")[...] = b"\0"
            assert not base.tobytes().strip(b"\0")


X = np.arange(12.0).reshape(2, 6)


def fitting():
    return [np.zeros((2, 2)), np.zeros((2, 4))]


def read_only():
    array = np.zeros((2, 4))
    array.flags.writeable = False
    return array


memory = np.zeros(64)


def shared_by_itself(*strides):
    return [np.zeros((2, 2)), as_strided(memory, (2, 4), strides)]


BOTH_SHARE = r"out\[0\] and out\[1\]: must not share memory"
SHARES_ITSELF = "its elements must not"
REFUSED = [
    ([np.zeros((2, 2))], SplitError, "out of 1 arrays: .*each of 2 parts"),
    ([*fitting(), np.zeros((2, 0))], SplitError, "out of 3 arrays"),
    ([np.zeros((2, 2)), np.zeros((2, 3))], SplitError, r"out\[1\] of shape \(2, 3\): .*\(2, 4\)"),
    ([np.zeros((2, 2)), np.zeros(8)], SplitError, r"out\[1\] of shape \(8,\)"),
    ([np.zeros((2, 2)), np.zeros((2, 4), "f4")], SplitTypeError, r"out\[1\] of dtype float32"),
    ([np.zeros((2, 2)), np.zeros((2, 4), ">f8")], SplitTypeError, r"out\[1\] of dtype >f8"),
    ([np.zeros((2, 2)), np.zeros((2, 4), "V8")], SplitTypeError, r"out\[1\] of dtype \|V8"),
    ([np.zeros((2, 2)), read_only()], SplitError, r"out\[1\] is read-only"),
    ([np.zeros((2, 2)), read_only()[:]], SplitError, r"out\[1\] is read-only"),
    ([np.zeros((2, 2)), [[0.0] * 4] * 2], SplitTypeError, "type list.* sequence of ndarrays"),
    (np.zeros((2, 2, 6)), SplitTypeError, r"ndarray and dtype float64: .*; pass list\(out\)$"),
    (iter(fitting()), SplitTypeError, r"must be a sequence of arrays; pass list\(out\)$"),
    (5, SplitTypeError, "must be a sequence of arrays$"),
    # A dataset of h5py has a length, and its items are copies.
    (type("Dataset", (), {"shape": (2, 4), "__len__": len})(), SplitTypeError, "of arrays$"),
    ([np.zeros((2, 2)), X[:, :4]], SplitError, r"out\[1\] and x: must not share memory"),
    ([X[:, ::3], np.zeros((2, 4))], SplitError, r"out\[0\] and x: must not share memory"),
    ([memory[:4].reshape(2, 2), memory[3:11].reshape(2, 4)], SplitError, BOTH_SHARE),
    ([memory[:32:8].reshape(2, 2), memory[24:64:5].reshape(2, 4)], SplitError, BOTH_SHARE),
    (shared_by_itself(0, 8), SplitError, rf"out\[1\] of strides \(0, 8\): {SHARES_ITSELF} share"),
    *[(shared_by_itself(*n), SplitError, SHARES_ITSELF) for n in ((16, 8), (80, 4), (80, 7))],
    # Its items 0 2 4 6 and 3 5 7 9 are apart.
    (shared_by_itself(24, 16), SplitError, "each stride must span the dims below it"),
]


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize(("out", "error", "says"), REFUSED)
def test_refusals(out, error, says, warm, route):
    for _ in range(3 * warm):
        split(X, [2, 4], axis=1, out=fitting())
    arrays = [part for part in out if isinstance(part, np.ndarray)] if isinstance(out, list) else []
    before = [part.copy() for part in arrays]
    with pytest.raises(error, match=f"^split: {says}|^split: .*{says}"):
        split(X, [2, 4], axis=1, out=out)
    for part, unchanged in zip(arrays, before, strict=True):
        assert np.array_equal(part, unchanged)


class Fickle(Sequence):
    """A sequence that returns other arrays each time it is read."""

    def __init__(self, *generations):
        self.generations = list(generations)

    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i >= 2:
            self.generations.pop(0)
            raise IndexError
        return self.generations[0][i]


def test_out_is_read_once(route):
    first = fitting()
    assert split(X, [2, 4], axis=1, out=Fickle(first, [np.zeros(0), np.zeros(0)])) == first


class Liar(np.ndarray):
    """An array whose attribute `shape` is wrong."""

    shape = (2, 4)


def test_subclasses_are_what_their_memory_is(route):
    with pytest.raises(SplitError, match=r"out\[1\] of shape \(3,\)"):
        split(X, [2, 4], axis=1, out=[np.zeros((2, 2)), np.zeros(3).view(Liar)])
    masked = np.ma.masked_array(np.zeros((2, 4)), mask=True, hard_mask=True)
    out = [np.zeros((2, 2)), masked]
    assert split(X, [2, 4], axis=1, out=out)[1] is masked
    assert np.array_equal(masked.data, X[:, 2:])


CHANGES = {  # the array whose attribute changes, the attribute, its new value
    "shape of x": (lambda x, out: x, "shape", (6, 2)),
    "dtype of x": (lambda x, out: x, "dtype", "f4"),
    "shape of an output": (lambda x, out: out[1], "shape", (-1,)),
    "dtype of an output": (lambda x, out: out[0], "dtype", "V1"),
    "mask of x": (lambda x, out: np.ma.getmask(x), "shape", (6, 2)),
    "mask of an output": (lambda x, out: np.ma.getmask(out[1]), "shape", (-1,)),
}


def bits(parts, masked):
    """Return the bytes of all data, and of all masks if there are any."""
    given = (np.ma.getdata, np.ma.getmaskarray)[: 1 + masked]
    return [of(part).tobytes() for part in parts for of in given]


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
@pytest.mark.parametrize("how", ["fresh", "out", "bind"])
@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("route", routes("slices", "parallel"), indirect=True)
def test_an_array_that_changes_at_any_line_of_the_call(changed, how, route):
    """Another thread or a finalizer changes it: the call has the values of one moment."""
    choose, *change = CHANGES[changed]
    masked, plan = "mask" in changed, plan_split(X.shape, [2, 4], axis=1)
    first = 0  # the first line of the calls that are not a plan's first
    for line in itertools.count(1):
        if not first and how == "fresh":
            plan._use(None)
        x, out = X.copy(), fitting()
        if masked:
            x, out = np.ma.array(x, mask=X % 5 == 0), [np.ma.array(a, mask=a != 0) for a in out]
        expected = bits(plan(x, copy=False), masked)
        kept = [part.view() for part in out]
        into = plan.bind(out) if how == "bind" else partial(plan, out=out if how == "out" else None)
        try:
            parts, reached = call_at(
                line - first, partial(setattr, choose(x, out), *change), into, x
            )
        except SplitError:
            assert not any(map(any, bits(kept, masked)))
            continue
        assert bits(parts if how == "fresh" else kept, masked) == expected
        if not reached:
            if first or how != "fresh":
                break
            first = line


def test_an_enormous_part_that_shares_its_memory_is_refused_at_once():
    one = np.zeros(1)
    x = np.broadcast_to(one, (2**40,))
    with pytest.raises(SplitError, match="its elements must not share memory"):
        split(x, num_splits=1, out=[as_strided(one.copy(), (2**40,), (0,))])


def test_empty_parts_share_no_element(route):
    empty = np.zeros((0,))
    parts = split(np.arange(3.0), [0, 3, 0], out=[empty, np.zeros(3), empty])
    assert parts[0] is parts[2] is empty
    assert parts[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize("shape", [(2, 6), (200, 600), (300, 3000)])
def test_each_call_has_outputs_of_its_own(shape):
    plan = plan_split(shape, num_splits=3, axis=1)
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    whole = np.zeros((4, *plan.output_shapes[0]), np.float32)
    for _ in range(2):
        for order in ([0, 1, 2], [3, 0, 1], [2, 3, 0]):
            whole[...] = 0
            plan(x, [whole[i] for i in order])
            for i, index in zip(order, plan.slices, strict=True):
                assert np.array_equal(whole[i], x[index])
    with pytest.raises(SplitError, match=r"out\[0\] and out\[2\]: must not share memory"):
        plan(x, [whole[0], whole[1], whole[0]])
    for _ in range(20):  # more outputs than a plan remembers
        plan(x, plan.empty(np.float32))
    plan(x, [whole[i] for i in range(3)])
    assert np.array_equal(whole[0], x[plan.slices[0]])


def test_outputs_that_own_their_memory_are_apart_from_others_only(route):
    whole, half = np.arange(12.0), np.zeros(6)
    for x, sizes, out, says in (
        (whole, [6, 6], [half, half], r"out\[0\] and out\[1\]"),
        (whole, [12], [whole], r"out\[0\] and x"),
        (whole[:], [12], [whole], r"out\[0\] and x"),
        (whole[::-1], [0, 12], [np.zeros(0), whole], r"out\[1\] and x"),
    ):
        with pytest.raises(SplitError, match=f"{says}: must not share memory"):
            split(x, sizes, out=out)
    split(whole[::-1], [6, 6], out=[half, np.zeros(6)])
    assert np.array_equal(half, np.arange(11.0, 5.0, -1))


@pytest.mark.parametrize("turn", [slice(None), slice(None, None, -1)])
@pytest.mark.parametrize("begin", [0, 5, 11, 12, 17, 30, 35, 36])
def test_a_source_anywhere_beside_the_outputs(turn, begin):
    """The outputs are elements 12 to 20 and 26 to 30 of a block, the source 12 from `begin` on."""
    block = np.arange(48.0)
    plan = plan_split((12,), [8, 4])
    out = [block[12:20], block[26:30]]
    x = block[begin : begin + 12][turn]
    shares = any(np.shares_memory(x, part) for part in out)
    for write in 2 * [lambda x: plan(x, out), plan.bind(out)]:
        if shares:
            with pytest.raises(SplitError, match=r"out\[[01]\] and x: must not share memory"):
                write(x)
        else:
            write(x)
            assert np.array_equal(np.concatenate(out), x)


@pytest.mark.parametrize(("axis", "index"), [(2, "..., None"), (1, ":, None"), (0, "None")])
def test_planes_without_the_axis_are_refused_with_the_fix(axis, index):
    x = np.arange(24.0).reshape(2, 3, 4)
    planes = [np.zeros(np.take(x, 0, axis).shape) for _ in range(x.shape[axis])]
    with pytest.raises(SplitError, match=rf"pass out\[0\]\[{index}\], or call unstack\(out=\)"):
        split(x, 1, axis=axis, out=planes)
    split(x, 1, axis=axis, out=[eval(f"plane[{index}]") for plane in planes])
    assert np.array_equal(planes[1], np.take(x, 1, axis))


def test_outputs_with_gaps_are_checked_again_if_their_strides_change():
    memory = np.zeros(32)
    x = np.arange(8.0).reshape(2, 4)

    def outputs(step):
        return [as_strided(memory[at:], (2, 2), (8 * step, 16)) for at in (0, 1)]

    for factor in (1, 2, 3):
        split(factor * x, num_splits=2, axis=1, out=outputs(4))
        assert memory[:8].tolist() == (factor * np.array([0, 2, 1, 3, 4, 6, 5, 7])).tolist()
    before = memory.copy()
    with pytest.raises(SplitError, match=BOTH_SHARE):
        split(x, num_splits=2, axis=1, out=outputs(1))
    assert np.array_equal(memory, before)


X_OF_SIX, FRAME = np.arange(6.0), np.zeros((2, 4, 3), np.uint8)
PLANES = np.zeros((3, 2, 4), np.uint8)
INTO_REFUSED = [
    (X_OF_SIX, None, SplitTypeError, "outs=None: must be a sequence"),
    (X_OF_SIX, [np.zeros(1)], SplitError, "outs of 1 arrays: must"),
    (X_OF_SIX, [np.zeros(2), np.zeros(5)], SplitError, r"outs\[1\] of shape"),
    (X_OF_SIX, [X_OF_SIX[1:3], np.zeros(4)], SplitError, r"outs\[0\] and x: must not"),
    (FRAME, [*PLANES], SplitError, r"outs\[0\] of shape \(2, 4\): .*; pass outs\[0\]\["),
    (FRAME, PLANES[..., None], SplitTypeError, r"outs of type ndarray .*; pass list\(outs\)$"),
    ([*PLANES], FRAME, SplitTypeError, ".*x is the array to split, and outs are the arrays"),
]


@pytest.mark.parametrize(("x", "outs", "error", "says"), INTO_REFUSED)
def test_split_into_refuses_in_its_own_name(x, outs, error, says):
    rule = ([2, 4], 0) if x is X_OF_SIX else (1, 2)
    with pytest.raises(error, match=f"^split_into: {says}"):
        split_into(x, outs, *rule)
