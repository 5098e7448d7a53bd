"""Files are complete, old or new: a failure, a kill or a signal at each call that changes a file.

A killed process is one whose n-th call, and all later calls of `disk.change`, only raise.
"""

import contextlib
import errno
import itertools
import os
import shlex
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit.files import disk, staging
from tests.files.folders import contents, refused

OLD = {"o/a": b"old a", "o/rank-0/b": b"old b", "o/rank-0/foreign": b"mine", "p/foreign": b"mine"}
NEW = {"o/a": b"new a", "o/rank-0/b": b"new b", "p/q/c": b"new c"}
FOREIGN = {path: content for path, content in OLD.items() if "foreign" in path}


class Killed(BaseException):
    """The process ends: no call after this changes a file."""


class Calls:
    """Counts the calls that change files. Number `at` raises the error, or a signal arrives."""

    def __init__(self, at=0, error=None):
        self.made = 0
        self.at = at
        self.error = error

    def __call__(self, call, *arguments, **keywords):
        self.made += 1
        dead = isinstance(self.error, Killed) and self.made > self.at
        if self.at and (self.made == self.at or dead):
            if not isinstance(self.error, int):
                raise self.error
            signal.raise_signal(self.error)
        if call is disk.flush:
            return None
        return call(*arguments, **keywords)


@pytest.fixture
def inject(monkeypatch):
    @contextlib.contextmanager
    def injected(at=0, error=None):
        calls = Calls(at, error)
        with monkeypatch.context() as patch:
            for module in (disk, staging):
                patch.setattr(module, "change", calls)
            yield calls

    return injected


def stage(root, force=False):
    return staging.stage([root / path for path in NEW], force=force)


def command(root, force):
    """Write all files, as the command does."""
    with stage(root, force) as staged:
        for path, file in staged.items():
            new = NEW[path.relative_to(root).as_posix()]
            if path.name == "c":
                go_on(file, new, root)
            else:
                file.write_bytes(new)
            file.protect(os.stat(root / "p"))


def go_on(file, new, folder):
    """Write a file as `PlainWriter` does: reserve space, let the system copy, write the rest."""
    file.write_bytes(b"")
    with file.open() as opened, tempfile.TemporaryFile(dir=folder) as source:
        source.write(new)
        source.flush()
        opened.allocate(1 << 20)
        copied = opened.copy(source.fileno(), 0, 3)
        assert copied == 3 * hasattr(os, "copy_file_range")
        opened.write(new[copied:])


@pytest.fixture(params=["new", "force"])
def scene(request, tmp_path):
    """Make folders, in which old files exist if new ones may replace them."""
    force = request.param == "force"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path  # thousands of files
    before = OLD if force else FOREIGN
    numbers = itertools.count()

    def make():
        root = Path(folder, str(next(numbers)))
        for path, content in before.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        return root

    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield make, force, before


def each_call(make, force, inject):
    """Yield the number of each call of `command` that changes files, and new folders for it."""
    root = make()
    with inject() as calls:
        command(root, force)
    assert contents(root) == FOREIGN | NEW
    assert 15 < calls.made < 80  # fewer on Windows, where files have other permissions
    for at in range(1, calls.made + 1):
        yield at, make()


def assert_mixture(root, before, note):
    """Nothing has changed, or all is new, or each file is complete: old or new."""
    held = contents(root, all_files=False)
    if note is None:
        assert held == before
    elif note == staging.COMPLETE:
        assert held == FOREIGN | NEW
    else:
        assert held.keys() >= before.keys()
        assert all(content in (before.get(path), NEW.get(path)) for path, content in held.items())


def note_of(error):
    return next(iter(getattr(error, "__notes__", ())), None)


def assert_complete_after_force(root):
    """The same command with force finishes what a killed process began."""
    command(root, force=True)
    assert contents(root, all_files=False) == FOREIGN | NEW


@pytest.fixture(params=[None, errno.EPERM, errno.EINVAL], ids=["links", "Linux", "Windows"])
def _links(request, monkeypatch):
    """Let the file system have links, or none, in the words of a system."""

    def refuse(*_, **__):
        raise OSError(request.param, os.strerror(request.param))

    if request.param:
        monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("_links")
def test_an_error_at_each_call(scene, inject):
    make, force, before = scene
    notes = []
    for at, root in each_call(make, force, inject):
        try:
            with inject(at, OSError(5, "Input/output error")):
                command(root, force)
        except OSError as error:
            assert "Input/output error" in str(error)
            notes.append(note_of(error))
        else:  # what removes staging folders may fail
            notes.append(staging.COMPLETE)
        assert_mixture(root, before, notes[-1])
        left = [*root.rglob(".splitjit-*")]
        assert not left or notes[-1] == staging.COMPLETE or notes[-1] is None, at
        assert_complete_after_force(root)
    assert notes == sorted(notes, key=[None, staging.PARTLY, staging.COMPLETE].index)
    assert len(set(notes)) == 3


@pytest.mark.usefixtures("_links")
def test_a_kill_at_each_call(scene, inject):
    make, force, before = scene
    for at, root in each_call(make, force, inject):
        with inject(at, Killed()), pytest.raises(Killed) as raised:
            command(root, force)
        assert_mixture(root, before, note_of(raised.value))
        left = {path: path.read_bytes() for path in root.rglob(".splitjit-*/*") if path.is_file()}
        if not force:
            with contextlib.suppress(FileExistsError):
                command(root, force)
        assert_complete_after_force(root)
        assert all(path.read_bytes() == content for path, content in left.items())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_each_call(scene, inject, number):
    def end(number, frame):
        raise KeyboardInterrupt(number)

    make, force, before = scene
    handler = signal.signal(number, end)
    try:
        for at, root in each_call(make, force, inject):
            with inject(at, int(number)), pytest.raises(KeyboardInterrupt) as raised:
                command(root, force)
            assert_mixture(root, before, note_of(raised.value))
            assert_complete_after_force(root)
    finally:
        signal.signal(number, handler)


def test_what_a_killed_command_left_is_named_and_not_touched(tmp_path, caplog):
    """The folder may be a stranger's, and hold anything."""
    np.save(tmp_path / "x.npy", np.arange(6))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "0.new").write_bytes(b"mine")
    left = tmp_path / ".splitjit-a b"
    left.mkdir()
    (left / "0.new").symlink_to(tmp_path / "x.npy")
    (left / "1.new").write_bytes(b"old")
    (tmp_path / ".splitjit-link").symlink_to("mine")
    splitjit.files.split_files(tmp_path / "x.npy", num_splits=2)
    (said,) = caplog.messages
    assert f"rm -r {shlex.quote(str(left))} {tmp_path / '.splitjit-link'}" in said
    assert (left / "0.new").is_symlink()
    assert (left / "1.new").read_bytes() == b"old"
    assert (tmp_path / "mine" / "0.new").read_bytes() == b"mine"


def fill(staged):
    for file in staged.values():
        file.write_bytes(b"new")


@pytest.mark.usefixtures("_links")
def test_a_file_that_appears_between_moves_is_not_replaced(tmp_path, monkeypatch):
    move = staging.Staged.move

    def late(self, force):
        if self.path.name == "b":
            self.path.write_bytes(b"mine")
        move(self, force)

    monkeypatch.setattr(staging.Staged, "move", late)
    with (
        pytest.raises(FileExistsError, match="b exists: it appeared meanwhile") as raised,
        staging.stage([tmp_path / "a", tmp_path / "b"]) as staged,
    ):
        fill(staged)
    assert note_of(raised.value) == staging.PARTLY
    assert contents(tmp_path) == {"a": b"new", "b": b"mine"}


@pytest.mark.usefixtures("_links")
def test_a_second_writer_keeps_its_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6))
    there = tmp_path / "shards" / "rank-1" / "x.npy"

    def meanwhile(*_):
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(b"mine")

    options = {"layout": "ranks", "out": tmp_path / "shards", "progress": meanwhile}
    with pytest.raises(FileExistsError, match="exists"):
        splitjit.files.split_files(tmp_path / "x.npy", num_splits=2, **options)
    assert there.read_bytes() == b"mine"
    assert contents(tmp_path).keys() == {"x.npy", "shards/rank-1/x.npy"}


def test_a_live_process_is_left_alone(scene):
    make, force, _ = scene
    root = make()
    with stage(root, force) as staged:
        for path, file in staged.items():
            file.write_bytes(NEW[path.relative_to(root).as_posix()])
        during = contents(root)
        with staging.stage([root / "o" / "other"]) as others:
            others[root / "o" / "other"].write_bytes(b"other")
        assert contents(root) == during | {"o/other": b"other"}
    assert contents(root) == FOREIGN | NEW | {"o/other": b"other"}


def test_of_two_that_write_the_same_files(scene):
    make, force, _ = scene
    root = make()
    with contextlib.suppress(FileExistsError), stage(root, force) as staged:
        for path, file in staged.items():
            file.write_bytes(b"late " + NEW[path.relative_to(root).as_posix()])
        command(root, force)
    late = {path: b"late " + new for path, new in NEW.items()}
    assert contents(root) == FOREIGN | (late if force else NEW)


@pytest.mark.parametrize("force", [True, False])
def test_a_folder_must_not_be_a_file_nor_that_of_a_rank_a_link(tmp_path, force):
    np.save(tmp_path / "x.npy", np.arange(6))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rank-1").symlink_to("elsewhere")
    with refused(tmp_path, "rank-1 must be a folder, and not a link", OSError):
        splitjit.files.split_files(tmp_path / "x.npy", num_splits=2, layout="ranks", force=force)
    (tmp_path / "notes").touch()
    with refused(tmp_path, "notes must be a folder", NotADirectoryError):
        splitjit.files.split_files(tmp_path / "x.npy", num_splits=2, out=tmp_path / "notes")


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "blob").write_bytes(b"blob")
    (tmp_path / "a").symlink_to("blob")
    with pytest.raises(FileExistsError), staging.stage([tmp_path / "a"]):
        pass  # refused before the block
    with staging.stage([tmp_path / "a"], force=True) as staged:
        staged[tmp_path / "a"].write_bytes(b"new")
    assert not (tmp_path / "a").is_symlink()
    assert contents(tmp_path) == {"a": b"new", "blob": b"blob"}
