"""Transactions: a failure, a kill or a signal at each call that changes a file.

`disk.change` makes all of these calls, so the tests replace it. A killed process is one whose
n-th call and all later calls do nothing but raise: no cleanup can change a file any more.
"""

import contextlib
import os
import shutil
import signal

import pytest

from splitjit._files import disk, transaction, work
from splitjit._files.transaction import recover

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
        if call is os.fsync:
            return None
        return call(*arguments, **keywords)


@pytest.fixture
def inject(monkeypatch):
    modules = [disk, work, transaction]

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
            file.write_bytes(NEW[path.relative_to(root).as_posix()])
            file.protect(os.stat(root / "p"))


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
    before = OLD if force else FOREIGN

    def make(name):
        root = tmp_path / name
        for path, content in before.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        return root

    return make, force, before


def count_calls(make, force, inject):
    root = make("count")
    with inject() as calls:
        command(root, force)
    assert contents(root) == FOREIGN | NEW
    assert 40 < calls.made < 80
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
            with inject(at, int(number)), pytest.raises(KeyboardInterrupt):
                command(root, force)
            assert contents(root) in (before, FOREIGN | NEW)
            assert not [*root.rglob(".splitjit-*")]
            assert signal.getsignal(number) is end
    finally:
        signal.signal(number, handler)
