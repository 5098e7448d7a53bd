"""Splitting files: rules, orders, dtypes, and what a failure leaves on disk."""

import contextlib
import ctypes
import errno
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

import splitjit
from splitjit import files
from splitjit.files import tiles
from splitjit.files.checkpoints import operations
from splitjit.files.formats import base
from splitjit.files.formats.base import PlainWriter, Source
from splitjit.files.formats.npy import Npy
from tests.files.folders import assert_joined, refused, save, split_file, split_refused
from tests.processes import limited, python


def write(planned, count=lambda nbytes: None):
    operations.write(planned, False, lambda written, total: count(written))


def as_bytes(x):
    return x.view(np.dtype((np.void, x.itemsize)))


def listing(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def assert_parts(x, paths, *args, **kwargs):
    # As plain bytes: NumPy does not copy the padding of structured dtypes.
    expected = splitjit.split(as_bytes(x), *args, copy=False, **kwargs)
    assert len(paths) == len(expected)
    for path, reference in zip(paths, expected, strict=True):
        part = np.load(path)
        assert part.dtype == x.dtype
        assert part.shape == reference.shape
        assert as_bytes(part).tobytes() == reference.tobytes()
        assert part.flags.c_contiguous or (part.flags.fnc and x.flags.fnc)


DTYPES = [
    *("?", "u1", ">f4", ">i8", "c16", "S3", "U5", ">U2", "M8[ns]", "V7", "g"),
    [("a", "u1"), ("b", ">f8"), ("c", "U2")],
    np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"]}, align=True),
    [("é", "i4")],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@settings(max_examples=settings.default.max_examples // 10)
@given(st.data())
def test_parts_are_those_of_split_and_join_to_the_file(dtype, data):
    dtype, tile = np.dtype(dtype), data.draw(st.sampled_from([1, 100, 1 << 20]))
    shape = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    length = shape[axis]
    cuts = sorted(data.draw(st.lists(st.integers(0, length), max_size=4)))
    rules = [{"split": np.diff([0, *cuts, length]).tolist()}, {"split": 4}, {"num_outputs": 4}]
    rule = data.draw(st.sampled_from([*rules, {"num_splits": length or 1}])) | {"axis": axis}
    content = np.random.default_rng(7).bytes(9**3 * dtype.itemsize)
    x = np.frombuffer(content, dtype)[: np.prod(shape)].reshape(shape)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE", tile)
        path = Path(folder, "x.npy")
        with open(path, "wb") as file:
            npy.write_array(file, x.copy(data.draw(st.sampled_from("CF"))))
        paths = split_file(path, **rule)
        assert_parts(np.load(path), paths, **rule)
        if paths:
            assert_joined(paths, path, axis=axis)


def test_no_parts_write_nothing(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(0))
    assert split_file(tmp_path / "x.npy", 3, out=tmp_path / "out") == []
    assert listing(tmp_path) == [Path("x.npy")]


def test_more_parts_than_file_descriptors(tmp_path):
    x = np.arange(2 * 900, dtype="i4").reshape(2, 900)
    np.save(tmp_path / "x.npy", x)
    with limited("RLIMIT_NOFILE", 256):
        paths = split_file(tmp_path / "x.npy", 1, axis=1)
    assert_parts(x, paths, 1, axis=1)


def test_names(tmp_path):
    for name, part in [("a.npy", "a.0.npy"), ("b.bin", "b.bin.0.npy"), ("c.1.npy", "c.1.0.npy")]:
        with open(tmp_path / name, "wb") as file:
            np.save(file, np.arange(3))
        assert split_file(tmp_path / name, num_splits=1) == [tmp_path / part]


# ---- refusals -------------------------------------------------------------------------


def test_overwrites_by_force_alone(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6))
    (tmp_path / "x.1.npy").write_text("mine")
    with refused(tmp_path, r"x\.1\.npy exists; force=True, or --force, over", FileExistsError):
        split_file(tmp_path / "x.npy", num_splits=2)
    assert_parts(np.arange(6), split_file(tmp_path / "x.npy", 3, force=True), 3)
    with pytest.raises(TypeError, match=r"no parameter num_split; did you mean num_splits\?"):
        split_file(tmp_path / "x.npy", num_split=2)


def test_never_overwrites_a_directory(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6))
    (tmp_path / "x.1.npy").mkdir()
    split_refused(tmp_path / "x.npy", "directory", force=True, error=FileExistsError)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a/x.npy", "b/x.npy"], "both would write"),
        (["x/x.npy", "X/X.npy"], "both would write .*case"),  # one file in some file systems
    ],
)
def test_parts_of_two_files_must_not_share_names(tmp_path, names, message):
    paths = [tmp_path / name for name in names]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        np.save(path, np.arange(6))
    split_refused(paths, message, out=tmp_path)
    assert len(files.plan_files(paths, num_splits=2).files) == 2
    split_refused([paths[0], Path(os.path.relpath(paths[0]))], "both would write")


def test_all_files_have_as_many_parts(tmp_path):
    for length in (6, 8):
        np.save(tmp_path / f"{length}.npy", np.arange(length))
    paths = [tmp_path / "6.npy", tmp_path / "8.npy"]
    rule = r"6\.npy into 3, .*8\.npy into 4: all tensors must have the same number"
    split_refused(paths, rule, 2)
    write(files.plan_files(paths, num_splits=2))
    assert len(listing(tmp_path)) == 6


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


FAILURES = [(Npy, "create", 1), (tiles, "split", 1), (Source, "take", 2)]
FAILURES += [(PlainWriter, "write", 4), (os, "fsync", 2)]
ERRORS = [OSError("No space left on device"), KeyboardInterrupt()]


@pytest.mark.parametrize(("owner", "name", "calls"), FAILURES)
@pytest.mark.parametrize("error", ERRORS)
def test_failure_leaves_nothing_behind(tmp_path, monkeypatch, owner, name, calls, error):
    monkeypatch.setattr(tiles, "TILE", 512)
    np.save(tmp_path / "x.npy", np.zeros((30, 6)))
    with monkeypatch.context() as patch:
        made = fail_after(patch, owner, name, calls, error)
        with refused(tmp_path, None, type(error)):
            split_file(tmp_path / "x.npy", num_splits=3, axis=1, out=tmp_path / "a" / "b")
    assert len(made) > calls


def test_failure_of_the_second_file_undoes_the_first(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(9))
    np.savez(tmp_path / "y.npz", np.arange(9))
    planned = files.plan_files([tmp_path / "x.npy", tmp_path / "y.npz"], num_splits=3)
    (tmp_path / "y.npz").unlink()
    with refused(tmp_path, None, FileNotFoundError):
        write(planned)


@pytest.mark.parametrize("size", [1, -1])
def test_a_source_that_changes_is_refused(tmp_path, monkeypatch, kind, size):
    monkeypatch.setattr(tiles, "TILE", 1000)
    path = save(tmp_path / f"x.{kind}", x=np.arange(1 << 16))

    def change(_):
        with contextlib.suppress(ValueError):
            os.truncate(path, max(4000, path.stat().st_size + size * 100_000))

    with pytest.raises(splitjit.SplitError, match=r"must not change|truncated|damaged"):
        write(files.plan_files([path], num_splits=2), change)
    assert listing(tmp_path) == [Path(path.name)]


@pytest.mark.parametrize("how", ["written", "replaced", "replaced and put back"])
def test_a_source_whose_times_are_put_back_is_refused(tmp_path, monkeypatch, kind, how):
    monkeypatch.setattr(tiles, "TILE", 1000)
    path = save(tmp_path / f"x.{kind}", x=np.arange(1 << 16))
    other = save(tmp_path / f"other.{kind}", x=np.arange(1 << 16))
    before = path.stat()
    planned = files.plan_files([path], num_splits=2, out=tmp_path / "out")
    if how == "replaced and put back":
        os.replace(path, tmp_path / "aside")
        os.replace(other, path)

    def change(_):
        if how == "written":
            with open(path, "r+b") as file:
                file.seek(before.st_size // 2 + 100)
                file.write(b"changed")
        elif how == "replaced" and other.exists():
            os.replace(other, path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(splitjit.SplitError, match=r"must not change|damaged"):
        write(planned, change)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [1 << 12, 1 << 18], ids=["small", "large"])
@pytest.mark.parametrize("how", ["chmod", "link", "renamed and back"])
def test_a_change_of_ctime_alone_is_no_change(tmp_path, kind, size, how):
    path = save(tmp_path / f"x.{kind}", x=np.arange(size))

    def touch(*_):
        if how == "chmod":
            path.chmod(0o640)
        elif how == "link":
            with contextlib.suppress(FileExistsError):
                os.link(path, tmp_path / "backup")
        else:
            os.replace(path, tmp_path / "aside")
            os.replace(tmp_path / "aside", path)

    planned = files.plan_files([path], num_splits=2, out=tmp_path / "out")
    touch()
    write(planned, touch)
    parts = files.split_files(path, num_splits=2, out=tmp_path / "again", progress=touch).targets
    for part in parts:
        assert part.read_bytes() == (tmp_path / "out" / part.name).read_bytes()
    joined = tmp_path / f"j.{kind}"
    path = parts[0]
    (tmp_path / "backup").unlink(missing_ok=True)
    files.join_files(parts, joined, axis=0, progress=touch)
    assert joined.read_bytes() == (tmp_path / f"x.{kind}").read_bytes()
    (tmp_path / "backup").unlink(missing_ok=True)
    files.reshard_files(parts, num_splits=4, out=tmp_path / "4", axis=0, progress=touch)


def test_disk_full(tmp_path, kind):
    path = save(tmp_path / f"x.{kind}", x=np.arange(1 << 16))
    with limited("RLIMIT_FSIZE", 100_000), refused(tmp_path, "File too large", OSError):
        split_file(path, num_splits=2)


def test_progress_adds_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 1000)
    np.savez(tmp_path / "x.npz", a=np.arange(3000).reshape(100, 30), b=np.arange(99))
    seen = []
    planned = files.split_files(
        tmp_path / "x.npz", num_splits=3, tensors=["a=1"], progress=lambda *now: seen.append(now)
    )
    written, totals = zip(*seen, strict=True)
    assert {*totals} == {planned.nbytes} == {written[-1]}
    assert max(np.diff(written)) <= 1000
    assert planned.nbytes == 24_000 + 3 * (99 * 8 + 128)  # a member is copied with its header
    seen.clear()
    options = {"tensors": ["a=1"], "progress": lambda *now: seen.append(now)}
    files.join_files(planned.targets, tmp_path / "j.npz", **options)
    assert {total for _, total in seen} == {seen[-1][0]} == {24_000 + 99 * 8 + 128}


# ---- copies by the system --------------------------------------------------------------


def in_turns(turns):
    """Return a copy that copies nothing when its turn is 0."""
    return lambda *arguments: next(turns) and COPY(*arguments)


CANNOT = ["EXDEV", "ENOSYS", "EINVAL", "EOPNOTSUPP"]
COPY = getattr(os, "copy_file_range", None)
COPIES = {
    "short": lambda source, target, count, start: COPY(source, target, min(count, 1000), start),
    "zero": lambda *_: 0,
    "stops": in_turns(itertools.chain([1, 1], itertools.repeat(0))),
    "at times": in_turns(itertools.cycle([0, 0, 1, 0, 1, 1, 1])),
    **{name: Mock(side_effect=OSError(getattr(errno, name), name)) for name in CANNOT},
    "missing": None,
}


@pytest.mark.skipif(COPY is None, reason="needs os.copy_file_range")
@pytest.mark.parametrize("name", COPIES)
def test_what_the_system_does_not_copy_is_read(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tiles, "TILE", 10_000)  # smaller than a run
    monkeypatch.setattr(base, "RUN", 30_000)
    if COPIES[name] is None:
        monkeypatch.delattr(os, "copy_file_range")
    else:
        monkeypatch.setattr(os, "copy_file_range", COPIES[name])
    x = np.random.default_rng(0).integers(0, 1 << 31, (300, 200), "i4")
    np.save(tmp_path / "x.npy", x)
    seen = []
    done = files.split_files(
        tmp_path / "x.npy", num_splits=2, progress=lambda *now: seen.append(now)
    )
    assert seen[-1] == (x.nbytes, x.nbytes)
    assert_parts(x, done.targets, num_splits=2)
    assert_joined(done.targets, tmp_path / "x.npy", axis=0)
    again = files.reshard_files(done.targets, num_splits=3, axis=0, out=tmp_path / "o")
    assert_parts(x, again.targets, num_splits=3)


@pytest.mark.skipif(COPY is None, reason="needs os.copy_file_range")
@pytest.mark.parametrize("verb", ["split", "join", "reshard"])
@pytest.mark.parametrize("code", ["ENOSPC", "EIO"])
def test_a_failure_of_the_system_to_copy(tmp_path, monkeypatch, verb, code):
    np.save(tmp_path / "x.npy", np.arange(60_000))
    parts = split_file(tmp_path / "x.npy", num_splits=2)
    message = r"no space for .*bytes are free" if code == "ENOSPC" else r"Input/output error: .*npy"
    out = {"out": tmp_path / "o"}
    call = {
        "split": lambda: split_file(tmp_path / "x.npy", num_splits=3, **out),
        "join": lambda: files.join_files(parts, tmp_path / "j.npy", axis=0),
        "reshard": lambda: files.reshard_files(parts, num_splits=3, axis=0, **out),
    }[verb]
    number = getattr(errno, code)
    for last in range(2):
        with monkeypatch.context() as patch, refused(tmp_path, message, OSError):
            error = OSError(number, os.strerror(number))
            made = fail_after(patch, os, "copy_file_range", last, error)
            call()
        assert len(made) == last + 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reserves space")
@pytest.mark.parametrize("code", ["EOPNOTSUPP", "ENOSYS", "ENOSPC", "EIO", "EINTR", "missing"])
def test_space_is_reserved(tmp_path, monkeypatch, code):
    x = np.arange(1 << 17)
    np.save(tmp_path / "x.npy", x)
    calls = []

    def call(file, mode, start, size):
        calls.append((mode, start, size))
        ctypes.set_errno(getattr(errno, code))
        return -1

    library = SimpleNamespace() if code == "missing" else SimpleNamespace(fallocate=call)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: library)
    if code in ("ENOSPC", "EIO"):
        message = "no space for .*bytes are free" if code == "ENOSPC" else "Input/output error"
        split_refused(tmp_path / "x.npy", message, error=OSError)
        assert listing(tmp_path) == [Path("x.npy")]
    else:
        paths = split_file(tmp_path / "x.npy", num_splits=2)
        assert_parts(x, paths, num_splits=2)
        sizes = {(1, 0, path.stat().st_size) for path in paths}
        assert {*calls} == (set() if code == "missing" else sizes)


# ---- the start of the command ---------------------------------------------------------


def test_the_command_imports_little(tmp_path):
    """A small file costs the start of Python, the import of NumPy, and little more."""
    np.save(tmp_path / "x.npy", np.arange(24).reshape(4, 6))

    def imported(*arguments):
        command = [sys.executable, "-X", "importtime", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        lines = [line for line in ended.stderr.splitlines() if line.startswith("import time:")]
        return {line.rpartition("|")[2].strip() for line in lines}

    before = imported("-c", "import numpy")
    split = imported("-m", "splitjit", "split", "x.npy", "--num-splits", "2")
    join = imported("-m", "splitjit", "join", "x.0.npy", "x.1.npy", "--axis=0", "--out=y.npy")
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "x.npy").read_bytes()
    assert "splitjit.files.tiles" in split & join
    for names in (split, join):
        assert not {"numba", "llvmlite", "torch", "transformers", "safetensors"} & names
        assert len(names - before) <= 140
    assert "splitjit.files.joined" not in split


# ---- memory ---------------------------------------------------------------------------

PEAK = """
import resource, sys
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from splitjit._cli.main import main
before = peak()
for command in sys.argv[1:]:
    assert main(command.split()) == 0
unit = 1 if sys.platform == "darwin" else 1024
print((peak() - before) * unit)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "axis"), [("npy", 1), ("npz", 1), ("safetensors", 1)])
def test_peak_memory(tmp_path, kind, axis):
    pytest.importorskip("resource")
    if shutil.disk_usage(tmp_path).free < 1 << 30:
        pytest.skip("needs 1 GiB of disk")
    x = np.zeros((1 << 12, 1 << 13), "f4")  # parts of 64 MB
    x[::512, ::512] = np.arange(128).reshape(8, 16)
    save(tmp_path / f"x.{kind}", x=x)
    commands = [f"split x.{kind} --axis {axis} --num-splits 2"]
    if (kind, axis) == ("npy", 1):
        parts = f"x.0.npy x.1.npy --axis {axis}"
        commands += [f"join {parts} --out j.npy", f"reshard {parts} --num-splits 4 --out o"]
    above = int(python("-c", PEAK, *commands, cwd=tmp_path).split()[-1])
    assert above < 50e6  # with the 40 MB of Python and NumPy, below 200 MB
    for i, expected in enumerate(splitjit.split(x, num_splits=2, axis=axis, copy=False)):
        np.testing.assert_array_equal(load(tmp_path / f"x.{i}.{kind}"), expected, strict=True)
    shutil.rmtree(tmp_path)


def load(path):
    if path.suffix == ".safetensors":
        return pytest.importorskip("safetensors.numpy").load_file(path)["x"]
    loaded = np.load(path)
    return loaded if path.suffix == ".npy" else loaded["x"]


# ---- inputs, targets and permissions --------------------------------------------------


def test_no_part_replaces_an_input(tmp_path):
    for name in ("z.npy", "z.0.npy", "blob"):
        with open(tmp_path / name, "wb") as file:
            np.save(file, np.arange(6))
    paths = [tmp_path / "z.npy", tmp_path / "z.0.npy"]
    split_refused(paths, r"z\.0\.npy would replace an input")
    (tmp_path / "link.npy").symlink_to("z.0.npy")
    with pytest.raises(splitjit.SplitError, match=r"would replace an input, .*link\.npy"):
        files.plan_files([tmp_path / "z.npy", tmp_path / "link.npy"], num_splits=2)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other permissions")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o444])
def test_parts_have_the_permissions_of_the_input(tmp_path, mode):
    path = save(tmp_path / "x.npy", x=np.arange(6))
    path.chmod(mode)
    for part in split_file(path, num_splits=2):
        assert part.stat().st_mode & 0o777 == mode
        assert part.stat().st_uid == path.stat().st_uid
        assert part.stat().st_nlink == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root gives files away")
def test_parts_have_the_owner_of_the_input(tmp_path):
    path = save(tmp_path / "x.npy", x=np.arange(6))
    os.chown(path, 1234, 2345)
    (part,) = split_file(path, num_splits=1)
    assert (part.stat().st_uid, part.stat().st_gid) == (1234, 2345)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="only root gives files away")
def test_another_group_gets_no_more_than_all_users(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    path = save(tmp_path / "x.npy", x=np.arange(6))
    path.chmod(0o654)
    os.chown(path, -1, 2345)
    monkeypatch.setattr(os, "fchown", refused)
    (part,) = split_file(path, num_splits=1)
    assert part.stat().st_mode & 0o777 == 0o644


def test_a_pipe_is_refused(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("needs named pipes")
    os.mkfifo(tmp_path / "x.npy")
    split_refused(tmp_path / "x.npy", "not a regular file", error=OSError)
