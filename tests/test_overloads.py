"""`split` and `split_into` in compiled code return the same parts and refusals as in Python."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit, prange, typed
from numba.core.errors import TypingError

import splitjit
from splitjit import SplitError
from splitjit import _njit as overloads
from splitjit._core import loading, routes
from splitjit._core.arguments import most_parts
from splitjit._core.rules import MAX_PARTS

pytestmark = [
    pytest.mark.skipif(loading.jit_disabled(), reason="nothing is compiled"),
    # Numba plans to drop reflected lists of Python; while it has them, splitjit accepts them.
    pytest.mark.filterwarnings("ignore::numba.NumbaPendingDeprecationWarning"),
]


@njit
def by_split(x, split, axis):
    return splitjit.split(x, split, axis)


@njit
def by_num_outputs(x, n, axis):
    return splitjit.split(x, num_outputs=n, axis=axis)


@njit
def by_num_splits(x, n):
    return splitjit.split(x, axis=-1, num_splits=n)


@njit
def into(x, outs, split, axis):
    splitjit.split_into(x, outs, split, axis)


def assert_same(parts, expected):
    assert type(parts) is list
    for part, right in zip(parts, expected, strict=True):
        assert part.dtype == right.dtype
        assert part.shape == right.shape
        assert part.tobytes() == right.tobytes()
        assert part.flags.c_contiguous


X = np.arange(6 * 10, dtype=np.float64).reshape(6, 10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "split",
    [
        (2, 3, 5),
        [10, 0],
        np.array([4, 6], np.int32),
        np.array([4, 6], np.uint64),
        typed.List([1, 9]),
        (np.int8(1), 9),
        3,
        np.array(3),
        10**12,
    ],
    ids=repr,
)
def test_what_split_may_be(split):
    assert_same(
        by_split(X, split, 1), splitjit.split(X, list(split) if np.ndim(split) else split, axis=1)
    )


@pytest.mark.slow
def test_nothing_into_nothing():
    nothing = np.empty((0, 3))
    assert by_split(nothing, (), 0) == []
    assert by_split(nothing, 4, 0) == []
    assert_same(by_split(nothing, 2, 1), splitjit.split(nothing, 2, axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(-1, 11), (11, -1), (2**63 - 1, 2**63 - 1, 12)])
def test_lengths_that_only_seem_to_sum_to_the_axis_length(sizes):
    with pytest.raises(SplitError, match="lengths must"):
        by_split(X, np.array(sizes), 1)


@pytest.mark.slow
def test_integers_beyond_those_with_a_sign():
    huge = np.uint64(2**64 - 1)  # -1 as a signed integer
    assert_same(by_split(X, huge, 1), [X])
    for wrong in [
        lambda: by_split(X, np.array([huge, 11], np.uint64), 1),
        lambda: by_split(X, (huge, 11), 1),
        lambda: by_split(X, 5, huge),
        lambda: by_num_outputs(X, huge, 1),
        lambda: by_num_splits(X, huge),
    ]:
        with pytest.raises(SplitError):
            wrong()


@pytest.mark.slow
def test_more_parts_than_there_may_be():
    x = np.broadcast_to(np.uint8(1), 2**31)
    with pytest.raises(SplitError, match="2147483648 parts are more than the 2147483647"):
        by_split(x, 1, 0)


@pytest.mark.slow
@pytest.mark.skipif(most_parts() >= MAX_PARTS, reason="there is memory for all")
def test_more_parts_than_there_is_memory_for():
    with pytest.raises(MemoryError, match="not enough memory for so many"):
        by_num_outputs(X, MAX_PARTS, 1)


@pytest.mark.slow
def test_copy_may_be_said():
    assert_same(njit(lambda x: splitjit.split(x, 3, copy=True))(X), splitjit.split(X, 3))


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.integers(0, 20),
    st.integers(1, 30),
    st.data(),
)
def test_the_rules_are_those_of_python(sizes, chunk, n, data):
    """For valid and invalid calls, both return the same parts, or both refuse."""
    x = np.arange(4 * data.draw(st.sampled_from([sum(sizes), 7])), dtype=np.float64).reshape(4, -1)
    axis = data.draw(st.integers(-3, 2))
    for compiled, keywords in [
        (lambda: by_split(x, np.array(sizes), axis), {"split": sizes, "axis": axis}),
        (lambda: by_split(x, chunk, axis), {"split": chunk, "axis": axis}),
        (lambda: by_num_outputs(x, n, axis), {"num_outputs": n, "axis": axis}),
        (lambda: by_num_splits(x, n), {"num_splits": n, "axis": -1}),
    ]:
        try:
            expected = splitjit.split(x, **keywords)
        except SplitError:
            with pytest.raises(SplitError):
                compiled()
        else:
            assert_same(compiled(), expected)


SOURCES = [
    np.arange(24, dtype=np.uint8),
    np.asfortranarray(np.arange(6 * 8, dtype=np.int16).reshape(6, 8)),
    np.arange(2 * 6 * 8, dtype=np.complex128).reshape(2, 6, 8)[:, ::-1, ::2],
    np.arange(2 * 6 * 3 * 4, dtype=np.float32).reshape(2, 6, 3, 4).swapaxes(1, 2),
    np.arange(6 * 3 * 4 * 5, dtype=np.int32).reshape(6, 3, 4, 5)[::2],  # two of the axes merge
    np.broadcast_to(np.arange(8) > 3, (6, 8)),
    np.arange(8).astype("datetime64[s]").reshape(2, 4),
    np.array([["a", "bc"], ["", "é"]]),
    np.array([(1, 2.5), (3, -0.0), (5, np.nan)], [("i", "i1"), ("f", "f8")]),
]


@pytest.mark.slow
@pytest.mark.parametrize("x", SOURCES, ids=lambda x: f"{x.dtype} {x.ndim}-D")
def test_any_dtype_rank_and_layout(x):
    for axis in range(-x.ndim, x.ndim):
        for chunk in (1, 2, 5):
            parts = by_split(x, chunk, axis)
            for part, right in zip(parts, splitjit.split(x, chunk, axis=axis), strict=True):
                assert part.dtype == right.dtype
                assert part.shape == right.shape
                assert part.tobytes() == right.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(3, 700_001), (70_000, 30), (250_000, 8)])
def test_large_arrays_are_streamed(shape):
    """Long, short and very short runs; blocks end at any row."""
    x = np.arange(np.prod(shape), dtype=np.float64).view(np.int64).reshape(shape)
    assert x.nbytes > routes.STREAM_FROM
    sizes = np.array([1, shape[1] - 3, 2])
    expected = splitjit.split(x, sizes, axis=1)
    assert_same(by_split(x, sizes, 1), expected)
    outs = [np.zeros_like(part) for part in expected]
    into(x, outs, sizes, 1)
    assert_same(outs, expected)


@pytest.mark.slow
def test_split_into_writes_to_what_is_there():
    whole = np.zeros((2, 6, 7))
    outs = (whole[0, :, 1:5], whole[1, :, 1:7])
    into(X, outs, (4, 6), 1)
    assert np.array_equal(np.hstack(outs), X)
    assert not whole[:, :, 0].any()
    assert not whole[0, :, 5:].any()
    assert splitjit.split_into(X, outs, [4, 6], 1) is None
    assert np.array_equal(np.hstack(outs), X)


@pytest.mark.slow
def test_split_into_takes_a_list_and_a_chunk():
    outs = [np.zeros((4, 10)), np.zeros((2, 10))]
    into(X, outs, 4, 0)
    assert np.array_equal(np.vstack(outs), X)


@pytest.mark.slow
def test_split_into_takes_empty_parts_from_anywhere():
    whole = X.copy()
    into(whole, [out := np.zeros_like(X), whole[:, 3:3]], np.array([10, 0]), 1)
    assert np.array_equal(out, X)


def test_split_into_refuses_what_does_not_fit():
    a, b = np.zeros((6, 4)), np.zeros((6, 6))
    whole = np.zeros((6, 10))
    for x, outs, split, axis in [
        (X, [a], (4, 6), 1),
        (X, [a, b, b], (4, 6), 1),
        (X, [b, a], (4, 6), 1),
        (X, [a, b], (4, 5), 1),
        (X, [a, b], (4, 6), 2),
        (whole, [whole], (10, 0), 1),
        (whole, [whole], (10,), 1),
        (np.zeros((12, 4)), [a, a], (6, 6), 0),
    ]:
        with pytest.raises(SplitError):
            into(x, outs, np.array(split), axis)
    assert not a.any()
    assert not b.any()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: by_split(X, (2.0, 8.0), 1), "split must be an integer, a tuple"),
        (lambda: by_split(X, True, 1), "split must be an integer, a tuple"),
        (lambda: by_split(X, np.ones((2, 2), int), 1), "split must be an integer, a tuple"),
        (lambda: by_split(X, 5, 1.0), "axis must be an integer"),
        (lambda: by_num_outputs(X, 2.5, 1), "num_outputs must be an integer"),
        (lambda: by_split([1, 2], 1, 0), "x must be an array of rank 1 or more"),
        (lambda: by_split(np.array(1), 1, 0), "x must be an array of rank 1 or more"),
        (lambda: into(X, X, 5, 0), "outs must be arrays of one type"),
        (lambda: into(X, (np.zeros((6, 10), int),), 6, 0), "the dtype and rank of x"),
        (lambda: into(X, (np.broadcast_to(0.0, X.shape),), 6, 0), "outs must be writeable"),
        (njit(lambda: splitjit.split(X, 2, copy=False)), "slice x for views"),
        (njit(lambda: splitjit.split(X, 2, out=(X, X, X))), "split_into takes the place"),
    ],
)
def test_wrong_types_are_refused_readably(call, says):
    with pytest.raises(TypingError, match=says):
        call()


@pytest.mark.slow
def test_exactly_one_rule():
    @njit
    def by_two(x):
        return splitjit.split(x, 2, num_splits=2)

    with pytest.raises(ValueError, match="exactly one of split, num_outputs, num_splits"):
        by_two(X)


@pytest.mark.slow
def test_refusals_say_what_was_received():
    with pytest.raises(SplitError, match=r"^split: axis=2 of rank 2: axis must be in \[-2, 1\]"):
        by_split(X, 2, 2)
    says = "split of 2 lengths, axis length 10: lengths must sum to the axis length 10, not to 9"
    with pytest.raises(SplitError, match=f"^split: {says}") as caught:
        by_split(X, np.array([4, 5]), 1)
    assert type(caught.value) is SplitError
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(SplitError, match=r"^split: split of 3 lengths, .* at least 0, not -5"):
        by_split(X, (4, -5, 11), 1)
    with pytest.raises(SplitError, match="^split: num_splits=4, axis length 10: .* 10 .* of 4$"):
        by_num_splits(X, 4)
    outs = [np.zeros((6, 4)), np.zeros((6, 5))]
    with pytest.raises(SplitError, match=r"^split_into: outs\[1\]: must have the shape"):
        into(X, outs, (4, 6), 1)


RULES = [(split, "split") for split in ([4, 5], [11, -1], (-1, 11), 0, -1)] + [
    (count, name) for name in ("num_outputs", "num_splits") for count in (0, -3, 3, 2**31)
]


@pytest.mark.slow
@pytest.mark.parametrize(("value", "name"), RULES, ids=str)
def test_refusals_have_the_rule_text_of_python(value, name):
    compiled = {
        "split": lambda: by_split(X, value, -1),
        "num_outputs": lambda: by_num_outputs(X, value, -1),
        "num_splits": lambda: by_num_splits(X, value),
    }
    try:
        splitjit.split(X, axis=-1, **{name: value})
    except SplitError as error:
        with pytest.raises(SplitError) as caught:
            compiled[name]()
        assert (caught.value.operator, caught.value.rule) == ("split", error.rule)
    else:
        assert sum(part.shape[1] for part in compiled[name]()) == 10


@pytest.mark.slow
def test_in_parallel_code():
    @njit(parallel=True, nogil=True)
    def sums(x, n):
        total = np.zeros((x.shape[0], n))
        for i in prange(x.shape[0]):
            parts = splitjit.split(x[i], num_splits=n)
            for k in range(n):
                total[i, k] = parts[k].sum()
        return total

    x = np.random.default_rng(0).random((50, 60))
    assert np.allclose(sums(x, 3), x.reshape(50, 3, 20).sum(axis=2))


@njit
def sum_or(x, n, otherwise):
    total = 0.0
    for i in range(len(x)):
        try:
            parts = splitjit.split(x[i], n)  # Numba loses keywords in `try`
            total += parts[0].sum()
        except Exception:
            try:
                parts = splitjit.split(x[i], n + 0)
            except Exception:
                total += otherwise
    return total


@njit
def after_a_try(x, n):
    try:
        total = x.sum()
    except Exception:
        total = 0.0
    parts = splitjit.split(x, num_splits=n)
    return total + parts[0].sum()


@njit
def generated(x, n):
    for row in x:
        for part in splitjit.split(row, num_splits=n):
            yield part.sum()


@pytest.mark.slow
def test_refusals_are_caught_in_compiled_code():
    x = np.ones((3, 6))
    assert (sum_or(x, 2, 0.5), sum_or(x, 0, 0.5)) == (6, 1.5)


@pytest.mark.slow
@pytest.mark.parametrize(("function", "right"), [(after_a_try, 27), (generated, [3.0] * 6)])
def test_calls_in_other_places(function, right):
    x = np.ones((3, 6)) if function is generated else np.ones(18)
    result = function(x, 2)
    assert (list(result) if function is generated else result) == right
    with pytest.raises(SplitError, match="must be a multiple of 4"):
        list(function(x, 4))


@pytest.mark.slow
def test_in_cached_code(tmp_path):
    """The second process loads the machine code that the first process saved."""
    (tmp_path / "users.py").write_text(
        """
import numpy as np, splitjit
from numba import njit

@njit(cache=True)
def halves(x):
    a, b = splitjit.split(x, num_splits=2)
    return a.sum(), b.sum()

assert halves(np.arange(10.0)) == (10, 35)
print(sum(halves.stats.cache_hits.values()))
"""
    )
    for hits in (0, 1):
        result = subprocess.run(
            [sys.executable, tmp_path / "users.py"], capture_output=True, text=True, check=True
        )
        assert int(result.stdout) == hits


def test_the_entry_point_is_what_numba_calls():
    from importlib.metadata import entry_points

    (entry,) = [e for e in entry_points(group="numba_extensions") if "splitjit" in e.value]
    assert entry.name == "init"
    assert entry.load() is overloads.init
