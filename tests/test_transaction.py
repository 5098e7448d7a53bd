"""Transactions: a failure, a kill or a signal at each call that changes a file.

`disk.change` makes all of these calls, so the tests replace it. A killed process is one whose
n-th call and all later calls do nothing but raise: no cleanup can change a file any more.
"""

import contextlib
import errno
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from splitjit.files import transaction
from splitjit.files.transaction import disk, journal, moves, recover

OLD = {"o/a": b"old a", "o/rank-0/b": b"old b", "o/rank-0/foreign": b"mine", "p/foreign": b"mine"}
NEW = {"o/a": b"new a", "o/rank-0/b": b"new b", "p/q/c": b"new c"}
FOREIGN = {path: content for path, content in OLD.items() if "foreign" in path}
TARGETS = {"o": ["a", "rank-0/b"], "p/q": ["c"]}


class Killed(BaseException):
    """The process ends: no call after this changes a file."""


class Calls:
    """Counts the calls that change files, and makes the call number `at` fail.

    Parameters
    ----------
    at : int
        The number of the call, from 1.
    error : BaseException or int
        What the call raises, or the signal that arrives before the call is made.
    """

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
    modules = [disk, moves, transaction]

    @contextlib.contextmanager
    def injected(at=0, error=None):
        calls = Calls(at, error)
        with monkeypatch.context() as patch:
            for module in modules:
                patch.setattr(module, "change", calls)
            yield calls

    return injected


def command(root, force):
    """Recover and write, as the command does."""
    targets = {root / folder: names for folder, names in TARGETS.items()}
    if "key" in recover(targets).finished:
        return
    with transaction.transaction(targets, force=force, key="key") as staged:
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
    with file.append(0) as opened, tempfile.TemporaryFile(dir=folder) as source:
        source.write(new)
        source.flush()
        opened.allocate(len(new))
        copied = opened.copy(source.fileno(), 0, 3)
        assert copied == 3 * hasattr(os, "copy_file_range")
        opened.write_all(new[copied:])


def contents(root, staging=True):
    """Return the contents of all files, with or without those of staging folders."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and (staging or ".splitjit-" not in str(path))
    }


@pytest.fixture(params=["new", "force"])
def scene(request, tmp_path):
    """Make folders, in which old files exist if new ones may replace them."""
    force = request.param == "force"
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path  # thousands of files
    before = OLD if force else FOREIGN

    def make(name):
        root = Path(folder, name)
        for path, content in before.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        return root

    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield make, force, before


def count_calls(make, force, inject):
    root = make("count")
    with inject() as calls:
        command(root, force)
    assert contents(root) == FOREIGN | NEW
    assert 30 < calls.made < 80  # fewer on Windows, where files have other permissions
    return calls.made


def assert_complete_after_another_run(root, force):
    try:
        command(root, force)
    except FileExistsError:  # the killed process had removed its journal: it was done
        assert not force
    assert contents(root) == FOREIGN | NEW
    assert not [*root.rglob(".splitjit-*")]


def test_an_error_at_each_call(scene, inject):
    make, force, before = scene
    ended = []
    for at in range(1, count_calls(make, force, inject) + 1):
        root = make(str(at))
        try:
            with inject(at, OSError(5, "Input/output error")):
                command(root, force)
        except OSError as error:
            assert "Input/output error" in str(error)
            assert contents(root) == before, at
            ended.append("old")
            assert_complete_after_another_run(root, force)
        else:
            assert contents(root, staging=False) == FOREIGN | NEW, at
            ended.append("new")
            if [*root.rglob(".splitjit-*")]:
                assert_complete_after_another_run(root, force)
    assert ended == sorted(ended, reverse=True)  # old before the commit, then new
    assert len(set(ended)) == 2


def test_a_kill_at_each_call(scene, inject):
    make, force, before = scene
    for at in range(1, count_calls(make, force, inject) + 1):
        root = make(str(at))
        with inject(at, Killed()), pytest.raises(Killed):
            command(root, force)
        held = contents(root).values()
        assert {*before.values()} <= {*held} or {*NEW.values()} <= {*held}
        assert contents(root).items() >= FOREIGN.items()
        assert_complete_after_another_run(root, force)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [Killed(), OSError(5, "Input/output error")], ids=["kill", "error"]
)
def test_a_kill_and_a_failure_of_the_recovery(scene, inject, error):
    make, force, before = scene
    for at in range(1, count_calls(make, force, inject) + 1):
        for again in range(1, 100):
            root = make(f"{at}.{again}")
            with inject(at, Killed()), pytest.raises(Killed):
                command(root, force)
            with inject(again, error) as calls, contextlib.suppress(OSError, Killed):
                recover([root / folder for folder in TARGETS])
            if calls.made < again:
                break
            held = contents(root).values()
            assert {*before.values()} <= {*held} or {*NEW.values()} <= {*held}
            assert_complete_after_another_run(root, force)
            shutil.rmtree(root)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_each_call(scene, inject, number):
    def end(number, frame):
        raise KeyboardInterrupt(number)

    make, force, before = scene
    handler = signal.signal(number, end)
    try:
        for at in range(1, count_calls(make, force, inject) + 1):
            root = make(str(at))
            with inject(at, int(number)), pytest.raises(KeyboardInterrupt) as raised:
                command(root, force)
            complete = transaction.COMPLETE in getattr(raised.value, "__notes__", ())
            assert contents(root) == (FOREIGN | NEW if complete else before)
            assert not [*root.rglob(".splitjit-*")]
            assert signal.getsignal(number) is end
    finally:
        signal.signal(number, handler)


# ---- other users and other processes --------------------------------------------------


def kill(inject, root, name, force):
    """Kill a command at its call of a function."""

    class At(Calls):
        def __call__(self, call, *arguments, **keywords):
            if call.__name__ == name and not self.at:
                self.at = self.made + 1
            return super().__call__(call, *arguments, **keywords)

    with inject(0, Killed()) as calls:
        calls.__class__ = At
        with pytest.raises(Killed):
            command(root, force)


@pytest.mark.parametrize("kind", ["link", "file", "writable"])
def test_what_is_not_ours_is_left_alone(scene, kind):
    make, force, before = scene
    root = make("x")
    mine = root / "mine"
    mine.mkdir()
    (mine / "0.old").write_bytes(b"mine")
    (mine / "moving").write_bytes(
        journal.Journal("key", [(str(root / "o"), "mine")], [(0, "a")]).dump()
    )
    place = root / "o" / ".splitjit-0123456789abcdef"
    if kind == "link":
        place.symlink_to(mine)
    elif kind == "file":
        place.write_bytes(b"mine")
    else:
        shutil.copytree(mine, place)
        place.chmod(0o777)
    before = contents(root)
    command(root, force)
    after = contents(root)
    assert {path: after[path] for path in before if path not in NEW} == {
        path: content for path, content in before.items() if path not in NEW
    }
    assert os.path.lexists(place)


def test_a_file_that_appears_is_not_replaced(scene, inject, monkeypatch):
    make, _, _ = scene
    root = make("x")
    if (root / "o" / "a").exists():
        pytest.skip("a target exists")
    targets = {root / folder: names for folder, names in TARGETS.items()}

    def write():
        with transaction.transaction(targets) as staged:
            for file in staged.values():
                file.write_bytes(b"new")
            (root / "p" / "q" / "c").write_bytes(b"mine")

    with pytest.raises(FileExistsError, match=r"q/c exists: it appeared meanwhile"):
        write()
    assert contents(root) == FOREIGN | {"p/q/c": b"mine"}
    assert not [*root.rglob(".splitjit-*")]


def test_a_file_in_the_place_of_an_old_one_stops_the_recovery(scene, inject):
    make, force, _ = scene
    if not force:
        pytest.skip("there are no old files")
    root = make("x")
    kill(inject, root, "link", force)  # `o/a` is put aside
    assert not (root / "o" / "a").exists()
    (root / "o" / "a").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match=r"a is in the place of .*0\.old"):
        command(root, force)
    assert contents(root)["o/a"] == b"mine"
    (root / "o" / "a").unlink()
    recover([root / "o"])
    assert contents(root) == OLD


@pytest.mark.parametrize("folder", ["o", "p/q"])
def test_any_folder_leads_to_the_journal(scene, inject, folder):
    make, force, before = scene
    root = make("x")
    kill(inject, root, "rename", force)
    recover([root / folder])
    assert contents(root) == before
    assert not [*root.rglob(".splitjit-*")]
    assert not (root / "p" / "q").exists()


def test_a_live_process_is_left_alone(scene):
    make, force, _ = scene
    root = make("x")
    targets = {root / folder: names for folder, names in TARGETS.items()}
    with transaction.transaction(targets, force=force) as staged:
        during = contents(root)
        recover(targets)
        with pytest.raises(FileExistsError, match="another process is writing"):
            command(root, force)
        assert contents(root) == during
        with transaction.transaction({root / "o": ["other"]}) as others:
            others[root / "o" / "other"].write_bytes(b"other")
        for path, file in staged.items():
            file.write_bytes(NEW[path.relative_to(root).as_posix()])
    assert contents(root) == FOREIGN | NEW | {"o/other": b"other"}


def test_without_locks_nothing_is_recovered(scene, inject, monkeypatch):
    make, force, _ = scene
    root = make("x")
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_lock", lambda file: None)
        command(root, force)
        assert contents(root) == FOREIGN | NEW
        root = make("y")
        kill(inject, root, "rename", force)
        with pytest.raises(FileExistsError, match="if none is running"):
            command(root, force)
    assert_complete_after_another_run(root, force)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL], ids=["Linux", "Windows"])
def test_without_links(code, scene, inject, monkeypatch):
    def unsupported(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", unsupported)
    make, force, _ = scene
    for at in range(1, count_calls(make, force, inject) + 1):
        root = make(str(at))
        with inject(at, Killed()), pytest.raises(Killed):
            command(root, force)
        assert_complete_after_another_run(root, force)
    if not force:
        with pytest.raises(FileExistsError, match="exists"):
            command(root, force)


def test_a_folder_below_must_not_be_a_link(scene):
    make, force, _ = scene
    root = make("x")
    (root / "elsewhere").mkdir()
    (root / "o" / "rank-9").symlink_to("../elsewhere")
    before = contents(root)
    with (
        pytest.raises(OSError, match="rank-9"),
        transaction.transaction({root / "o": ["rank-9/a"]}, force=force) as staged,
    ):
        staged[root / "o" / "rank-9" / "a"].write_bytes(b"new")
    assert contents(root) == before
    assert not [*root.rglob(".splitjit-*")]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "blob").write_bytes(b"blob")
    (tmp_path / "a").symlink_to("blob")
    with pytest.raises(FileExistsError), transaction.transaction({tmp_path: ["a"]}):
        pass
    with transaction.transaction({tmp_path: ["a"]}, force=True) as staged:
        staged[tmp_path / "a"].write_bytes(b"new")
    assert not (tmp_path / "a").is_symlink()
    assert contents(tmp_path) == {"a": b"new", "blob": b"blob"}
