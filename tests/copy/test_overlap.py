"""Shared memory is found; slices of one array are told apart by one rule."""

import itertools
import re
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.array_utils import byte_bounds
from numpy.lib.stride_tricks import as_strided

import splitjit
from splitjit import SplitError
from splitjit._copy import outputs
from splitjit._copy.outputs import are_surely_apart, check_apart, overlaps_itself
from tests.conftest import needs_kernels


def bytes_of(array):
    """Return the offsets of all bytes of an array of bytes-long items, one item after another."""
    starts = np.zeros((), np.intp)
    for stride, extent in zip(array.strides, array.shape, strict=True):
        starts = np.add.outer(starts, np.arange(extent) * stride)
    return (starts.reshape(-1, 1) + np.arange(array.itemsize)).ravel()


class Memory:
    """One block of memory, and arrays in it."""

    def __init__(self):
        self.block = np.zeros(600, np.uint8)

    def array(self, offset, itemsize, shape, strides):
        first = self.block[offset : offset + itemsize].view(f"V{itemsize}").reshape(())
        return as_strided(first, shape, strides)


STEPS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 20, 24, -4, -12]
AXES = st.lists(st.tuples(st.integers(1, 5), st.sampled_from(STEPS)), max_size=3)


@given(st.sampled_from([1, 2, 3]), AXES)
def test_arrays_that_overlap_themselves(itemsize, axes):
    shape, strides = zip(*axes, strict=True) if axes else ((), ())
    array = Memory().array(300, itemsize, shape, strides)
    found = bytes_of(array)
    assert overlaps_itself(array) or len(set(found)) == len(found)


@st.composite
def outputs_in_memory(draw, steps_of_each):
    """Draw outputs anywhere in memory; return them, the axis, and the pairs that share a byte."""
    rank, itemsize = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
    axis = draw(st.integers(0, rank - 1))
    shape = draw(st.lists(st.integers(1, 5), min_size=rank, max_size=rank))
    some = st.lists(st.sampled_from(STEPS), min_size=rank, max_size=rank)
    steps = draw(some)
    memory, parts, taken = Memory(), [], []
    for _ in range(draw(st.integers(2, 6))):
        extents = [*shape]
        extents[axis] = draw(st.integers(1, 4))
        offset, strides = draw(st.integers(250, 300)), draw(some) if steps_of_each else steps
        part = memory.array(offset, itemsize, extents, strides)
        if not overlaps_itself(part):  # others are refused before
            parts.append(part)
            taken.append({*(bytes_of(part) + offset).tolist()})
    pairs = {(i, j) for i, j in itertools.combinations(range(len(parts)), 2) if taken[i] & taken[j]}
    return parts, axis, pairs


def is_refused(parts, axis, pairs):
    """Return whether parts are refused, and check that the refusal names a pair that shares."""
    try:
        check_apart(parts, axis)
    except SplitError as error:
        i, j = map(int, re.findall(r"out\[(\d+)\]", str(error)))
        assert i < j
        assert (i, j) in pairs
        return True
    return False


@given(st.booleans().flatmap(outputs_in_memory))
def test_pairs_that_share_memory(drawn):
    parts, axis, pairs = drawn
    assert is_refused(parts, axis, pairs) == bool(pairs)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outputs, "NATIVE", SimpleNamespace())  # as before kernels are loaded
        assert is_refused(parts, axis, pairs) == bool(pairs)


@needs_kernels
@given(st.booleans().flatmap(outputs_in_memory))
def test_the_compiled_rule_accepts_no_shared_memory(warm, drawn):
    parts, axis, pairs = drawn
    ranges = sorted(map(byte_bounds, parts))
    is_apart = are_surely_apart(parts, axis)
    assert not (is_apart and pairs)
    assert is_apart or not parts or any(b[0] < a[1] for a, b in itertools.pairwise(ranges))
    assert is_apart == are_surely_apart(parts[::-1], axis)


PARENTS = {
    "C": lambda x: x, "F": lambda x: np.asfortranarray(x),
    "transposed": lambda x: x.transpose(1, 0, 2), "sliced": lambda x: x[:, 1:, 2:],
    "steps": lambda x: x[::2, ::3, ::2], "backwards": lambda x: x[::-1, :, ::-1],
}  # fmt: skip


@needs_kernels
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("parent", PARENTS)
def test_slices_of_one_array_are_not_compared_in_pairs(parent, axis, warm, monkeypatch):
    parts = np.array_split(PARENTS[parent](np.zeros((6, 9, 12), np.float32)), 3, axis)
    with monkeypatch.context() as patched:
        patched.setattr(outputs, "share_memory", None)
        check_apart(parts, axis)
        check_apart(parts[::-1], axis)
    with pytest.raises(SplitError, match=r"out\[1\] and out\[3\]: must not share memory"):
        check_apart([*parts, parts[1]], axis)


def test_what_takes_too_long_counts_as_shared(monkeypatch):
    memory = np.zeros(30, np.uint8)
    a, b = memory[0::7], memory[2::7]
    assert not outputs.share_memory(a, b)

    def too_hard(*_, **__):
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", too_hard)
    assert outputs.share_memory(a, b)


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize("step", [1, -1, 7])
def test_many_outputs_in_compiled_code(step):
    """Pair by pair, 40 000 outputs take 23 s."""
    from numba import njit

    @njit
    def into(x, order, again):
        whole = np.zeros((len(x), 1))
        outs = [whole[i : i + 1] for i in order]
        if again:
            outs[0] = whole[order[-1] : order[-1] + 1]
        splitjit.split_into(x, outs, 1)
        return whole

    count = 40_000
    x = np.arange(float(count)).reshape(-1, 1)
    order = np.arange(count) * step % count
    right = np.zeros_like(x)
    right[order] = x
    assert np.array_equal(into(x, order, False), right)
    begin = time.perf_counter()
    into(x, order, False)
    with pytest.raises(SplitError, match=r"outs\[0\] and outs\[39999\]: must not share memory"):
        into(x, order, True)
    assert time.perf_counter() - begin < 5
