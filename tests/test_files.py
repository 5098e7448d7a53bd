"""Splitting .npy files: every rule, order and dtype, and nothing left behind."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy

import splitjit
from splitjit import files


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def split_file(path, *args, force=False, **kwargs):
    planned = files.plan_file(path, *args, **kwargs)
    files.write_parts(planned, force)
    return list(planned.targets)


def as_bytes(x):
    return x.view(np.dtype((np.void, x.itemsize)))


def listing(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def assert_parts(x, paths, *args, **kwargs):
    # As plain bytes: NumPy leaves the padding of records behind when it copies them.
    expected = splitjit.split(as_bytes(x), *args, copy=False, **kwargs)
    assert len(paths) == len(expected)
    for path, reference in zip(paths, expected, strict=True):
        part = np.load(path)
        assert part.dtype == x.dtype
        assert part.shape == reference.shape
        assert as_bytes(part).tobytes() == reference.tobytes()
        assert part.flags.c_contiguous or (part.flags.fnc and x.flags.fnc)


RULES = [
    {"split": [2, 3, 1]},
    {"split": [6]},
    {"split": [0, 6, 0]},
    {"split": 4},
    {"split": 9},
    {"num_outputs": 4},
    {"num_outputs": 8},
    {"num_splits": 3},
]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rules_and_orders(tmp_path, rule, axis, order):
    x = np.arange(216, dtype="i2").reshape(6, 6, 6, order=order)
    np.save(tmp_path / "x.npy", x)
    assert_parts(x, split_file(tmp_path / "x.npy", axis=axis, **rule), axis=axis, **rule)


DTYPES = [
    "?",
    "u1",
    ">f4",
    ">i8",
    "c16",
    "S3",
    "U5",
    ">U2",
    "M8[ns]",
    "V7",
    "g",
    [("a", "u1"), ("b", ">f8"), ("c", "U2")],
    np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"]}, align=True),
    [("名", "i4")],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(tmp_path, dtype, rng):
    dtype = np.dtype(dtype)
    x = np.frombuffer(rng.bytes(30 * dtype.itemsize), dtype).reshape(5, 6)
    path = tmp_path / "x.npy"
    with open(path, "wb") as file:
        npy.write_array(file, x, version=(3, 0))  # np.save warns where it chooses this one
    assert_parts(np.load(path), split_file(path, [1, 5], axis=1), [1, 5], axis=1)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 4)])
def test_arrays_of_size_0(tmp_path, shape):
    x = np.zeros(shape, "f4")
    np.save(tmp_path / "x.npy", x)
    paths = split_file(tmp_path / "x.npy", num_splits=1, axis=-1)
    assert_parts(x, paths, num_splits=1, axis=-1)


def test_no_parts_write_nothing(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(0))
    assert split_file(tmp_path / "x.npy", 3, folder=tmp_path / "out") == []
    assert listing(tmp_path) == [Path("x.npy")]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("maps", [2, 100])
@pytest.mark.parametrize("tile", [1, 100, 1 << 10, 1 << 20])
@pytest.mark.parametrize("shape", [(40, 30), (3, 300), (600,), (9, 4, 20), (3, 5, 2)])
def test_tiles(tmp_path, monkeypatch, shape, tile, maps, order, rng):
    monkeypatch.setattr(files, "TILE", tile)
    monkeypatch.setattr(files, "MAPS", maps)
    x = np.asarray(rng.integers(0, 1 << 31, shape), "i4", order=order)
    np.save(tmp_path / "x.npy", x)
    for axis in range(len(shape)):
        length = shape[axis]
        sizes = [1, 0, length // 2, length - 1 - length // 2]
        folder = tmp_path / str(axis)
        paths = split_file(tmp_path / "x.npy", sizes, axis=axis, folder=folder)
        assert_parts(x, paths, sizes, axis=axis)


def test_more_parts_than_file_descriptors(tmp_path):
    resource = pytest.importorskip("resource")
    x = np.arange(2 * 900, dtype="i4").reshape(2, 900)
    np.save(tmp_path / "x.npy", x)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limit[1]))
    try:
        paths = split_file(tmp_path / "x.npy", 1, axis=1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert_parts(x, paths, 1, axis=1)


def test_names(tmp_path):
    for name, part in [("a.npy", "a.0.npy"), ("b.bin", "b.bin.0.npy"), ("c.1.npy", "c.1.0.npy")]:
        with open(tmp_path / name, "wb") as file:
            np.save(file, np.arange(3))
        assert split_file(tmp_path / name, num_splits=1) == [tmp_path / part]


def test_parts_have_the_permissions_of_new_files(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    (path,) = split_file(tmp_path / "x.npy", num_splits=1)
    assert path.stat().st_mode == (tmp_path / "x.npy").stat().st_mode


# ---- refusals -------------------------------------------------------------------------


def npy_bytes(header, data=b"", version=1):
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


BAD_FILES = {
    "empty": b"",
    "text": b"a,b\n1,2\n",
    "magic only": b"\x93NUMPY\1\0",
    "version 9": npy_bytes(b"", version=9),
    "no header": npy_bytes(b"\n"),
    "open bracket": npy_bytes(b"{'descr': (\n"),
    "deeply nested": npy_bytes(b"(" * 5000),
    "negative shape": npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }\n"),
    "immense shape": npy_bytes(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }\n" % 10**30
    ),
    "objects": npy_bytes(b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }\n", b"x" * 64),
    "truncated": npy_bytes(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }\n", b"x"),
}


@pytest.mark.filterwarnings("default")  # NumPy's own, of what it reads
@pytest.mark.parametrize("content", BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(splitjit.SplitError, match=r"no \.npy file"):
        split_file(path, num_splits=1)
    assert listing(tmp_path) == [Path("x.npy")]


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(FileNotFoundError):
        split_file(tmp_path / "x.npy", num_splits=1)
    with pytest.raises(OSError, match=r"directory|denied"):
        split_file(tmp_path, num_splits=1)


def test_rank_0(tmp_path):
    np.save(tmp_path / "x.npy", np.float32(1))
    with pytest.raises(splitjit.SplitError, match="rank 0"):
        split_file(tmp_path / "x.npy", num_splits=1)


def test_overwrites_by_force_alone(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6))
    (tmp_path / "x.1.npy").write_text("mine")
    before = listing(tmp_path)
    with pytest.raises(FileExistsError, match=r"x\.1\.npy exists"):
        split_file(tmp_path / "x.npy", num_splits=2)
    assert listing(tmp_path) == before
    assert (tmp_path / "x.1.npy").read_text() == "mine"
    paths = split_file(tmp_path / "x.npy", num_splits=2, force=True)
    assert_parts(np.arange(6), paths, num_splits=2)


def test_never_overwrites_a_directory(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6))
    (tmp_path / "x.1.npy").mkdir()
    before = listing(tmp_path)
    with pytest.raises(FileExistsError, match="directory"):
        split_file(tmp_path / "x.npy", num_splits=2, force=True)
    assert listing(tmp_path) == before


# ---- failures -------------------------------------------------------------------------


def fail_after(monkeypatch, owner, name, calls, error):
    original = getattr(owner, name)
    made = []

    def failing(*args, **kwargs):
        made.append(args)
        if len(made) > calls:
            raise error
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return made


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (files, "_create", 1),
        (splitjit, "split", 1),
        (files, "_map", 3),
        (Path, "replace", 0),
        (Path, "replace", 2),
        pytest.param(
            os,
            "posix_fallocate",
            1,
            marks=pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not here"),
        ),
    ],
)
@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_failure_leaves_nothing_behind(tmp_path, monkeypatch, owner, name, calls, error):
    monkeypatch.setattr(files, "TILE", 64)
    np.save(tmp_path / "x.npy", np.zeros((30, 6)))
    kept = tmp_path / "kept"
    kept.mkdir()
    before = listing(tmp_path)
    with monkeypatch.context() as patch:
        made = fail_after(patch, owner, name, calls, error)
        with pytest.raises(type(error)):
            split_file(tmp_path / "x.npy", num_splits=3, axis=1, folder=kept / "a" / "b")
    assert len(made) == calls + 1
    assert listing(tmp_path) == before


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="not here")
def test_space_is_reserved_before_it_is_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(1 << 20, "u1"))
    planned = files.plan_file(tmp_path / "x.npy", num_splits=1)
    files._create(tmp_path / "part", planned, (1 << 20,))
    assert (tmp_path / "part").stat().st_blocks * 512 >= 1 << 20


# ---- memory ---------------------------------------------------------------------------

PEAK = """
import resource, sys
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
import splitjit
from splitjit.__main__ import main
splitjit.warmup(["f4"])
before = peak()
assert main(["split", *sys.argv[1:]]) == 0
unit = 1 if sys.platform == "darwin" else 1024
print((peak() - before) * unit)
"""


@pytest.mark.parametrize("axis", ["0", "1"])
def test_peak_memory(tmp_path, axis):
    pytest.importorskip("resource")
    if shutil.disk_usage(tmp_path).free < 2 << 30:
        pytest.skip("needs 2 GiB of disk")
    path = tmp_path / "x.npy"
    x = npy.open_memmap(path, "w+", np.dtype("f4"), (1 << 13, 1 << 13))
    x[::512, ::512] = np.arange(256).reshape(16, 16)
    x.flush()
    command = [sys.executable, "-c", PEAK, str(path), "--axis", axis, "--num-splits", "2"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    above = int(ended.stdout.split()[-1])
    assert above < 150e6
    for i, reference in enumerate(splitjit.split(x, num_splits=2, axis=int(axis), copy=False)):
        part = np.load(tmp_path / f"x.{i}.npy", mmap_mode="r")
        np.testing.assert_array_equal(part[::512, ::512], reference[::512, ::512])
    del x, part, reference
    for made in tmp_path.iterdir():
        made.unlink()
