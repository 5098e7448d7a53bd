"""Blocks of memory are aligned, and are reused only when no part of them is reachable."""

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, SplitTypeError, split
from splitjit._abi.calls import SLOTS
from splitjit._copy import buffers
from tests.conftest import long, needs_fork, needs_kernels, new_pool
from tests.processes import python

pytestmark = needs_kernels  # without kernels, NumPy allocates the parts

X = np.arange(2**20, dtype=np.int32)
"""Large enough that the block of its parts is a memory map."""


@pytest.fixture(autouse=True)
def _empty_pool(monkeypatch):
    splitjit.warmup(["u1"])
    new_pool(2**28, monkeypatch.setattr)


def block_of(parts):
    """Return the address of the parts' block; the address does not keep the block alive."""
    return parts[0].ctypes.data


def test_a_block_is_reused_once_all_its_parts_are_gone():
    parts = split(X, 2**18)
    first = block_of(parts)
    last = parts[-1]
    del parts
    others = split(X, 2**18)
    assert block_of(others) != first
    assert np.array_equal(last, X[-(2**18) :])
    del last
    assert block_of(split(X, 2**18)) == first


KEEPERS = {
    "slice": lambda part: part[3:7],
    "slice of a slice": lambda part: part[3:100][1:][::2],
    "transpose of a reshape": lambda part: part.reshape(2, -1).T,
    "other dtype": lambda part: part.view(np.uint8),
    "scalar view": lambda part: part[3, ...],
    "iterator": lambda part: part.flat,
    "memoryview": memoryview,
    "memoryview of a slice": lambda part: memoryview(part[5:])[2:],
    "frombuffer": lambda part: np.frombuffer(part, np.int32),
    "dlpack": np.from_dlpack,
    "capsule": lambda part: part.__dlpack__(),
    "array interface": lambda part: np.asarray(type("Other", (), {
        "__array_interface__": part.__array_interface__, "part": part})()),
    "subclass": lambda part: part.view(np.recarray),
    "masked": lambda part: np.ma.masked_array(part)[2:],
    "base": lambda part: part.base,
    "base of the base": lambda part: part.base.base,
    "ctypes": lambda part: part.ctypes.data_as(__import__("ctypes").c_void_p),
    "list of parts of parts": lambda part: [split(part, 100, copy=False)[2]],
    "cycle": lambda part: cycle(part),
    "torch": lambda part: pytest.importorskip("torch").from_numpy(part)[5:],
}  # fmt: skip


def cycle(part):
    box = [part]
    box.append(box)
    return box


QUICK = ["slice", "memoryview", "dlpack", "cycle"]


@pytest.mark.parametrize(
    "keeper",
    [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in KEEPERS],
)
def test_a_block_is_never_reused_while_a_part_is_reachable(keeper):
    parts = split(X, 2**18)
    first = block_of(parts)
    kept = KEEPERS[keeper](parts[1])
    del parts
    for _ in range(3):
        assert block_of(split(X, 2**18)) != first
    del kept
    gc.collect()
    held = [split(X, 2**18) for _ in range(3)]
    assert first in map(block_of, held)


def test_a_block_cannot_be_damaged():
    lease = split(X, 2**18)[0].base
    with pytest.raises(ValueError, match="does not own its data"):
        lease.resize(2**24)
    assert type(lease.base).__name__ == "PyCapsule"  # which has no methods


def test_the_limit_bounds_what_is_kept():
    splitjit.set_buffer_limit(X.nbytes)
    held = [split(X, 2**18) for _ in range(3)]
    assert buffers.POOL.kept == 0
    del held
    assert buffers.POOL.kept == X.nbytes
    splitjit.set_buffer_limit(0)
    assert buffers.POOL.kept == 0
    split(X, 2**18)
    assert buffers.POOL.kept == 0


def test_blocks_of_sizes_that_are_no_longer_used_make_room():
    pool = new_pool(10 << 20)
    for _ in range(2):
        old = [pool.lease(4 << 20) for _ in range(3)]
        del old
        assert pool.kept == 8 << 20
        new = {pool.lease(1 << 20).ctypes.data for _ in range(40)}
        assert len(new) < 40  # some were reused
        assert pool.lease(1 << 20).ctypes.data in new


def test_more_blocks_than_slots():
    pool = new_pool(1 << 40)
    held = [pool.lease(1 << 19) for _ in range(2 * SLOTS)]
    for i, lease in enumerate(held):
        lease[...] = i
    assert len({lease.ctypes.data for lease in held}) == len(held)
    assert all((lease == i).all() for i, lease in enumerate(held))
    del held, lease
    assert pool.kept == SLOTS << 19
    pool.clear()
    assert pool.kept == 0


def test_a_block_is_not_spent_on_parts_much_smaller():
    large = block_of(split(X, 2**18))
    assert block_of(split(X[: 2**18 + 9], 2**17)) != large
    assert block_of(split(X[: 2**19 + 9], 2**18)) == large


@pytest.mark.parametrize("limit", [-1, 1.5, True, None, np.zeros(3)])
def test_limits_refused(limit):
    error = SplitError if type(limit) is int else SplitTypeError
    with pytest.raises(error, match="^set_buffer_limit: nbytes=.*: must be"):
        splitjit.set_buffer_limit(limit)


@pytest.mark.parametrize(
    "value", ["0", " 1048576", "", "-1", "256M", *long(" ", "--5", "x", "1e6", "9" * 5000)]
)
def test_limit_by_environment(value):
    """A value that is no number of bytes gives a warning, and the default."""
    expected = {"0": 0, " 1048576": 1 << 20}.get(value)
    code = """
import warnings
with warnings.catch_warnings(record=True) as found:
    from splitjit._copy import buffers
print(buffers.POOL._record[0], *[f"{w.category.__name__}: {w.message}" for w in found])
"""
    kept, _, said = python("-c", code, SPLITJIT_BUFFER_LIMIT=value).partition(" ")
    assert int(kept) == (1 << 28 if expected is None else expected)
    warning = f"RuntimeWarning: SPLITJIT_BUFFER_LIMIT={value[:40]!r} must be"
    assert said.startswith(warning) if expected is None else not said


def test_threads_share_the_pool():
    def work(seed):
        x = X + seed
        for _ in range(30):
            parts = split(x, 2**18)
            assert all(part[0] == seed + i * 2**18 for i, part in enumerate(parts))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    buffers.POOL.clear()
    assert buffers.POOL.kept == 0


def test_a_collection_may_begin_at_any_allocation():
    pool = new_pool(4 << 20)
    held = [pool.lease(1 << 20) for _ in range(40)]
    thresholds = gc.get_threshold()
    try:
        for k in range(500):
            cycle(pool.lease(1 << 20))
            gc.disable()
            gc.set_threshold(gc.get_count()[0] + 1 + k % 14, 1000, 1000)
            gc.enable()
            pool.lease(1 << 20)
    finally:
        gc.set_threshold(*thresholds)
    del held
    gc.collect()
    assert pool.kept == 4 << 20


@pytest.mark.parametrize("length", [2**58, *(2**63 - n for n in (1, 64, 65, 128))])
def test_parts_that_do_not_fit_in_memory(length):
    x = np.broadcast_to(np.zeros(1, np.uint8), (length,))
    for count in (1, 4):
        with pytest.raises(MemoryError, match="not enough memory for the parts"):
            split(x, num_sections=count)


@pytest.mark.parametrize("fails", ["lease", "numpy"])
def test_idle_blocks_are_freed_before_memory_runs_out(fails):
    split(X, 2**18)
    assert buffers.POOL.kept

    def make():
        if buffers.POOL.kept:
            raise MemoryError
        return "made"

    if fails == "numpy":
        assert buffers.retry(make) == "made"
    else:
        huge = np.broadcast_to(X[:1], (2**56,))
        with pytest.raises(MemoryError):
            split(huge, num_splits=2)
    assert buffers.POOL.kept == 0


@needs_fork
def test_a_forked_child_does_not_write_to_its_parents_parts():
    code = """
import numpy as np, os, splitjit
x = np.arange(2**20, dtype=np.int32)
kept = splitjit.split(x, 2**18)
splitjit.split(x + 1, 2**18)
child = os.fork()
if child == 0:
    splitjit.split(x + 2, 2**18)
    kept[0][...] = -1
    os._exit(0)
os.waitpid(child, 0)
assert np.array_equal(np.concatenate(kept), x)
"""
    python("-c", code)


def test_parts_may_be_made_read_only_and_writeable_again():
    part = split(X, 2**18)[1]
    part.flags.writeable = False
    part.flags.writeable = True


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("x", ["x", *long("x.T"), "x.view('u1').reshape(-1, 3)"])
def test_a_split_takes_little_memory_beyond_its_parts(x):
    code = f"""
import numpy as np, splitjit, numba
from pathlib import Path

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

x = np.ones((3000, 3000), np.float64)
x = {x}
plan = splitjit.plan_split(x.shape, 1 if x.shape[1] == 3 else 1000, axis=1)
parts = [np.ones(shape, x.dtype) for shape in plan.output_shapes]
splitjit.warmup(["u1"])
plan(x[:, :], parts)
before = peak()
plan(x, parts)
with_out = peak() - before
del parts
parts = plan(x)
fresh = peak() - before
most = 2**20 * numba.get_num_threads()
assert with_out <= most, with_out
assert fresh <= most + 2**20, fresh  # the freed parts of `out` left room for these
"""
    python("-c", code)
