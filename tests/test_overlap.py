"""Shared memory is found exactly, and in time that grows with the number of parts."""

import itertools
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

import splitjit
from splitjit import SplitError
from splitjit._abi import overlap
from splitjit._copy.outputs import find_shared, overlaps_itself
from splitjit._runtime import loading


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
    assert overlaps_itself(array) == (len(set(found)) < len(found))


@given(
    st.sampled_from([1, 2, 4]),
    st.lists(st.tuples(st.integers(250, 300), AXES), min_size=2, max_size=6),
)
def test_pairs_that_share_memory(itemsize, drawn):
    memory, parts, taken = Memory(), [], []
    for offset, axes in drawn:
        shape, strides = zip(*axes, strict=True) if axes else ((), ())
        part = memory.array(offset, itemsize, shape, strides)
        found = bytes_of(part) + offset
        if len(set(found)) == len(found):  # other parts were refused before
            parts.append(part)
            taken.append({*found.tolist()})
    pairs = {(i, j) for i, j in itertools.combinations(range(len(parts)), 2) if taken[i] & taken[j]}
    pair = find_shared(parts)
    assert pair in pairs if pairs else pair is None


def columns(x, steps):
    """Cut the columns of an array so that its parts are interleaved."""
    return [x[:, i::steps] for i in range(steps)]


GRIDS = {
    "columns": lambda x: [x[:, i] for i in range(2000)],
    "pairs of columns": lambda x: [x[:, i : i + 2] for i in range(0, 2000, 2)],
    "columns of several widths": lambda x: [x[:, :1], x[:, 1:2000:2], x[:, 2:2000:2]],
    "backwards": lambda x: [x[::-1, i] for i in range(1999, -1, -1)],
    "steps": lambda x: columns(x, 700),
    "fields": lambda x: [part[..., 0] for part in columns(x.reshape(60, 1000, 2), 500)],
    "tiles": lambda x: [
        x[i : i + 6, j : j + 10] for j in range(0, 2000, 10) for i in range(0, 60, 6)
    ],
}


@pytest.mark.parametrize("grid", GRIDS)
def test_parts_of_one_array_are_not_compared_in_pairs(grid, monkeypatch):
    """2000 columns are 2 million pairs."""
    calls = []
    share = overlap.share
    monkeypatch.setattr(overlap, "share", lambda *pair: calls.append(pair) or share(*pair))
    parts = GRIDS[grid](np.zeros((60, 2000)))
    assert find_shared(parts) is None
    assert len(calls) < 3
    parts.append(parts[len(parts) // 3][3:4])
    assert find_shared(parts) == (len(parts[:-1]) // 3, len(parts) - 1)
    assert len(calls) < 20


def test_numpy_answers_what_takes_too_long(monkeypatch):
    monkeypatch.setattr("splitjit._copy.outputs._WORK", 0)
    memory = np.zeros(30, np.uint8)
    assert find_shared([memory[0::7], memory[1::5], memory[3::7]]) == (0, 1)  # byte 21
    assert find_shared([memory[0::7], memory[2::7], memory[3::7]]) is None


def test_an_output_with_overlapping_strides_is_checked_without_memory():
    memory = np.zeros(4_000_000)
    part = as_strided(memory, (1000, 1001), (24, 16))
    odd = as_strided(memory, (1000, 1000), (16, 24 * 1000 + 8))  # nested
    apart = as_strided(memory, (1000, 2), (16, 16 * 500 + 8))  # not nested
    tracemalloc.start()
    assert overlaps_itself(part)
    assert not overlaps_itself(odd)
    assert not overlaps_itself(apart)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.slow
@pytest.mark.skipif(loading.never_compiles(), reason="nothing is compiled")
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
