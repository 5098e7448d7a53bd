"""Layouts have as few dims and as long runs as the strides of source and parts allow."""

import numpy as np
import pytest

from splitjit import plan_split
from splitjit._abi.calls import HEADER, ROW
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy.how import lay_out
from tests.conftest import needs_kernels

pytestmark = [needs_kernels, pytest.mark.usefixtures("warm")]


X = np.zeros((6, 8, 10), np.float32)

CASES = [
    # name, source, axis, sizes, bytes of a run of each part, strides between runs of the source
    ("1-D", X.ravel(), 0, [100, 380], [400, 1520], [0]),
    ("axis 0", X, 0, [1, 5], [320, 1600], [0]),
    ("middle axis", X, 1, [3, 5], [120, 200], [320]),
    ("last axis", X, 2, [4, 6], [16, 24], [40]),
    ("a first part of length 1", X, 2, [1, 9], [4, 36], [40]),
    ("outer steps", X[::2], 2, [4, 6], [16, 24], [640, 40]),
    ("sliced rows", X[:, :, 1:9], 2, [4, 4], [16, 16], [40]),
    ("sliced rows of the middle axis", X[:, :, 1:9], 1, [4, 4], [32, 32], [320, 40]),
    ("inner steps", X[:, :, ::2], 2, [2, 3], [4, 4], [40, 8]),
    ("reversed", X[::-1, ::-1, ::-1], 0, [2, 4], [4, 4], [-4]),
    ("Fortran", X.T, 0, [4, 6], [4, 4], [40, 4, 320]),
    ("broadcast", np.broadcast_to(X[:1], X.shape), 1, [3, 5], [120, 200], [0]),
    ("an empty part", X, 2, [4, 0, 6], [16, 24], [40]),
]


def runs_and_strides(layout):
    """Return the bytes of a run of each part, and the strides between runs of the source."""
    dims, count = layout.record[[HEADER.dims, HEADER.count]].tolist()
    strides, rows = np.split(layout.record[len(HEADER) :], [dims])
    return rows[ROW.run :: len(ROW) + 2 * dims][:count].tolist(), strides.tolist()


@pytest.mark.parametrize(
    ("x", "axis", "sizes", "runs", "strides"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_fresh_parts(x, axis, sizes, runs, strides):
    layout = lay_out(plan_split(x.shape, sizes, axis=axis), x.strides, x.itemsize)
    assert runs_and_strides(layout) == (runs, strides)


def test_parts_of_the_source_s_own_order_are_copied_in_that_order():
    plan = plan_split(X.T.shape, [4, 6])
    out = [np.empty(shape, X.dtype, order="F") for shape in plan.output_shapes]
    layout = lay_out(plan, X.T.strides, X.itemsize, out)
    assert runs_and_strides(layout) == ([16, 24], [40])


def test_the_first_part_that_is_not_empty_chooses_the_order():
    plan = plan_split(X.shape, [0, 4, 6], axis=2)
    shapes = zip(plan.output_shapes, "CFC", strict=True)
    out = [np.empty(shape, X.dtype, order) for shape, order in shapes]
    layout = lay_out(plan, X.strides, X.itemsize, out)
    assert runs_and_strides(layout)[1] == [4, 40, 320]


IMAGE = np.zeros((20, 30, 3), np.uint8)
LOOP_CASES = [
    # source, sizes along the last axis, loop
    (IMAGE, [1, 1, 1], "deinterleave"), (IMAGE[:10], [1, 1, 1], "deinterleave"),
    (np.zeros((20, 6), np.uint8), [2, 2, 2], "deinterleave"), (IMAGE, [1, 2], "plain"),
    (IMAGE[:, ::2], [1, 1, 1], "plain"),
    (np.zeros((20, 30, 4), np.uint8)[..., :3], [1, 1, 1], "plain"),
    (IMAGE[..., ::-1], [1, 1, 1], "plain"), (np.zeros((20, 16), np.uint8), [1] * 16, "transpose"),
    (np.zeros((20, 5), np.uint8), [1] * 5, "plain"),
    (np.zeros((20, 4), np.uint8), [1] * 4, "deinterleave"),
    (np.zeros((20, 5), np.uint8), [1] * 3 + [2], "plain"),
    (np.zeros((20, 5), "V3"), [1] * 5, "plain"),
    (np.zeros((20, 17), np.uint8)[:, :16], [1] * 16, "plain"), (X.T, [3, 3], "transpose"),
    (X[::-1].T, [3, 3], "transpose"), (X.swapaxes(1, 2), [4, 4], "transpose"),
    (X.swapaxes(0, 1), [4, 6], "transpose"),
    (np.zeros((6, 8, 64)).swapaxes(0, 1), [32, 32], "plain"),
    (np.zeros((6, 8, 64)).swapaxes(0, 1), [64], "transpose"),
    (np.zeros((6, 8, 128)).swapaxes(0, 1), [128], "plain"),
    (np.broadcast_to(IMAGE[0, 0, 0], (20, 30)), [10, 20], "plain"),
    (np.broadcast_to(IMAGE[0, :, 0], (20, 30)), [10, 20], "plain"),
]  # fmt: skip


@pytest.mark.parametrize(("x", "sizes", "loop"), LOOP_CASES)
def test_the_loop_suits_the_strides(x, sizes, loop):
    plan = plan_split(x.shape, sizes, axis=-1)
    assert lay_out(plan, x.strides, x.itemsize).loop == loop


@pytest.mark.parametrize(
    ("long_runs", "shape", "streams"),
    [
        (15, (2048, 6144), True),  # 25 MB, runs of 6 KB
        (36, (2048, 6144), False),
        (36, (1 << 17, 96), True),  # runs of 96 bytes
        (36, (4096, 6144), True),  # 50 MB
        (36, (512, 6144), False),
        (15, (512, 6144), False),
    ],
)
def test_what_bypasses_the_cache(long_runs, shape, streams, monkeypatch):
    monkeypatch.setattr(THRESHOLDS, "stream_from", (15 << 20, long_runs << 20))
    plan = plan_split(shape, num_splits=2, axis=1)
    layout = lay_out(plan, (2 * shape[1], 2), 2)
    assert (layout.loop, layout.stream) == ("stream" if streams else "plain", streams)
