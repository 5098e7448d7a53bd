"""All new files or none: a failure, a kill or a signal at each call that changes a file.

`disk.change` makes all of these calls, so the tests replace it. A killed process is one whose
n-th call and all later calls do nothing but raise: no cleanup can change a file any more.
"""

import contextlib
import errno
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit._files import disk, staging, staging_folder

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
    modules = [disk, staging, staging_folder]

    @contextlib.contextmanager
    def injected(at=0, error=None):
        calls = Calls(at, error)
        with monkeypatch.context() as patch:
            for module in modules:
                patch.setattr(module, "change", calls)
            yield calls

    return injected


def command(root, force):
    """Write all files, as the command does."""
    targets = {root / folder: names for folder, names in TARGETS.items()}

    def body(staged):
        for path, file in staged.items():
            new = NEW[path.relative_to(root).as_posix()]
            if path.name == "c":
                go_on(file, new, root)
            else:
                file.write_bytes(new)
            file.protect(os.stat(root / "p"))

    staging.write(targets, body, force=force)


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


def contents(root, all_files=True):
    """Return the contents of all files, also or not those of staging folders."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and (all_files or ".splitjit-" not in str(path))
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
    assert 20 < calls.made < 80  # fewer on Windows, where files have other permissions
    return calls.made


def assert_complete_after_force(root):
    """The same command with force finishes what a killed process began."""
    command(root, force=True)
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
            assert contents(root, all_files=False) == before, at
            ended.append("old")
        else:
            assert contents(root, all_files=False) == FOREIGN | NEW, at
            ended.append("new")
        assert_complete_after_force(root)
    assert ended == sorted(ended, reverse=True)  # old before the last move, then new
    assert len(set(ended)) == 2


def test_a_kill_at_each_call(scene, inject):
    make, force, before = scene
    for at in range(1, count_calls(make, force, inject) + 1):
        root = make(str(at))
        with inject(at, Killed()), pytest.raises(Killed):
            command(root, force)
        for path, held in contents(root, all_files=False).items():  # complete, old or new
            assert held in (before.get(path), NEW.get(path)), (at, path)
        assert contents(root).keys() >= before.keys()
        if not force:
            with contextlib.suppress(FileExistsError):
                command(root, force)
            assert not [*root.rglob(".splitjit-*")], at
        assert_complete_after_force(root)


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Killed(), id="kill"),
        pytest.param(OSError(5, "Input/output error"), id="error", marks=pytest.mark.long),
    ],
)
def test_a_kill_and_a_failure_of_the_next_command(scene, inject, error):
    make, force, before = scene
    for at in range(1, count_calls(make, force, inject) + 1):
        for again in range(1, 100):
            root = make(f"{at}.{again}")
            with inject(at, Killed()), pytest.raises(Killed):
                command(root, force)
            with inject(again, error) as calls, contextlib.suppress(OSError, Killed):
                command(root, force)
            if calls.made < again:
                break
            for path, held in contents(root, all_files=False).items():
                assert held in (before.get(path), NEW.get(path)), (at, again, path)
            assert_complete_after_force(root)
            shutil.rmtree(root)


def test_a_failure_while_another_one_is_undone(scene, inject):
    make, force, _ = scene
    root = make("x")
    failing = OSError(5, "Input/output error")

    def fails(self):
        raise failing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk.Folder, "sync", fails)  # after the moves
        patch.setattr(disk.Folder, "unlink" if not force else "replace", refuse_some(force))
        with pytest.raises(OSError, match="Input/output error") as raised:
            command(root, force)
    assert any("is new" in note for note in raised.value.__notes__)
    assert_complete_after_force(root)


def refuse_some(force):
    """Replace a method: it refuses to put a file back, or to remove it."""
    original = disk.Folder.replace if force else disk.Folder.unlink

    def method(self, name, *others):
        if name == ("1.old" if force else "b"):
            raise OSError(13, "Permission denied")
        return original(self, name, *others)

    return method


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
            complete = staging.COMPLETE in getattr(raised.value, "__notes__", ())
            assert contents(root) == (FOREIGN | NEW if complete else before)
            assert not [*root.rglob(".splitjit-*")]
            assert signal.getsignal(number) is end
    finally:
        signal.signal(number, handler)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_signal_at_each_change_of_a_handler(tmp_path, monkeypatch, late):
    """Every other handler that is put back raises, too."""

    def interrupt(number, frame):
        raise KeyboardInterrupt(number)

    names = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGALRM")
    raising = [getattr(signal, name) for name in names if hasattr(signal, name)]
    original = {number: signal.signal(number, interrupt) for number in raising}
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    change, np_path, left = signal.signal, tmp_path / "x.npy", 0
    np.save(np_path, np.arange(6))

    def signalled(number, handler):
        nonlocal left
        left -= 1
        if left == 0 and not late:
            signal.raise_signal(signal.SIGTERM)
        changed = change(number, handler)
        if left == 0 and late:
            signal.raise_signal(signal.SIGINT)
        return changed

    try:
        for at in range(1, 100):
            left = at
            with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
                patch.setattr(signal, "signal", signalled)
                splitjit.files.split_files(np_path, num_splits=2, force=True)
            after = {number: signal.getsignal(number) for number in signal.valid_signals()}
            assert after == before, at
            assert not [*tmp_path.glob(".splitjit-*")]
            if left > 0:
                break
    finally:
        for number, handler in original.items():
            signal.signal(number, handler)
    assert 4 <= at < 99


def test_a_handler_that_does_not_raise_runs_while_files_are_written(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(24).reshape(4, 6))
    counted = []
    handler = signal.signal(signal.SIGTERM, lambda number, frame: counted.append(number))
    try:
        split = splitjit.files.split_files
        signalled = lambda *_: signal.raise_signal(signal.SIGTERM)  # noqa: E731
        split(tmp_path / "x.npy", num_splits=2, progress=signalled)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert len(counted) == 2
    assert (tmp_path / "x.1.npy").exists()


STORM = """
import gc, os, random, signal, subprocess, sys, threading, time
import numpy as np
import splitjit

class Interrupted(BaseException):
    pass

def interrupt(number, frame):
    if armed:
        raise KeyboardInterrupt if number == signal.SIGINT else Interrupted

def count(number, frame):
    global counted
    counted += 1

armed, counted, interrupted, calls = False, 0, 0, int(sys.argv[1])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
    signal.signal(number, interrupt)
signal.signal(signal.SIGUSR1, count)
numbers = [number for number in signal.valid_signals() if callable(signal.getsignal(number))]
before = {number: signal.getsignal(number) for number in numbers}
np.save("x.npy", np.arange(24).reshape(4, 6))
splitjit.files.split_files("x.npy", num_splits=2)
parts, kept = ["x.0.npy", "x.1.npy"], sorted(os.listdir())
threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()  # it may get signals, too
sender = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(os.getpid())])
verbs = [
    lambda: splitjit.files.split_files("x.npy", num_splits=2, axis=1, out="s", force=True),
    lambda: splitjit.files.join_files(parts, "j.npy", force=True),
    lambda: splitjit.files.reshard_files(parts, num_splits=4, out="r", force=True),
]

def call(i):
    global armed, interrupted
    signal.setitimer(signal.ITIMER_REAL, random.random() * 0.03)
    try:
        armed = True
        verbs[i % 3]()
        armed = False
    except (KeyboardInterrupt, Interrupted):
        armed = False
        interrupted += 1

def check(i):
    assert {number: signal.getsignal(number) for number in numbers} == before, i
    for folder in (".", "s", "r"):
        assert not os.path.isdir(folder) or not any(".splitjit" in n for n in os.listdir(folder)), i

for verb in verbs:  # imports what they need
    verb()
descriptors = len(os.listdir("/proc/self/fd"))
for i in range(calls):
    call(i)
    check(i)
sender.kill()
sender.wait()
gc.collect()
assert len(os.listdir("/proc/self/fd")) <= descriptors, os.listdir("/proc/self/fd")
assert interrupted > calls // 50 and counted, (interrupted, counted)
print(interrupted, "of", calls, "calls were interrupted;", counted, "signals were counted")
os._exit(0)
"""

SENDER = """
import os, random, signal, sys, time
pid = int(sys.argv[1])
while True:
    time.sleep(random.random() * 0.04)
    os.kill(pid, random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors")
@pytest.mark.parametrize("calls", [300, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_storm_of_signals(tmp_path, calls):
    """Real timers, at any point: all handlers are back, no folder and no descriptor is left."""
    calls = int(os.environ.get("SPLITJIT_STORM", calls))
    command = [sys.executable, "-c", STORM, str(calls), SENDER]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]


# ---- other users and other processes --------------------------------------------------


def test_a_file_that_appears_is_not_replaced(scene, inject, monkeypatch):
    make, _, _ = scene
    root = make("x")
    if (root / "o" / "a").exists():
        pytest.skip("a target exists")
    targets = {root / folder: names for folder, names in TARGETS.items()}

    def write():
        with staging.stage(targets) as staged:
            for file in staged.values():
                file.write_bytes(b"new")
            (root / "p" / "q" / "c").write_bytes(b"mine")

    with pytest.raises(FileExistsError, match=r"q/c exists: it appeared meanwhile"):
        write()
    assert contents(root) == FOREIGN | {"p/q/c": b"mine"}
    assert not [*root.rglob(".splitjit-*")]


def test_only_own_files_are_taken_back(tmp_path, monkeypatch):
    """Another process replaces a file that is in place, before the move of the next one fails."""
    original = disk.Folder.link

    def link(self, name, folder, target):
        if target == "b":
            (tmp_path / "other").write_bytes(b"mine")
            os.replace(tmp_path / "other", tmp_path / "a")
            raise OSError(5, "Input/output error")
        return original(self, name, folder, target)

    def write():
        with staging.stage({tmp_path: ["a", "b"]}) as staged:
            for file in staged.values():
                file.write_bytes(b"new")

    monkeypatch.setattr(disk.Folder, "link", link)
    with pytest.raises(OSError, match="Input/output error"):
        write()
    assert contents(tmp_path) == {"a": b"mine"}


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_second_writer_keeps_its_file(tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(disk.Folder, "link", lambda *_: False)
    np.save(tmp_path / "x.npy", np.arange(6))
    there = tmp_path / "shards" / "rank-1" / "x.npy"

    def meanwhile(*_):
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(b"mine")

    with pytest.raises(FileExistsError, match="exists"):
        splitjit.files.split_files(
            tmp_path / "x.npy",
            num_splits=2,
            layout="ranks",
            out=tmp_path / "shards",
            progress=meanwhile,
        )
    assert there.read_bytes() == b"mine"
    assert contents(tmp_path).keys() == {"x.npy", "shards/rank-1/x.npy"}


def test_a_live_process_is_left_alone(scene):
    make, force, _ = scene
    root = make("x")
    targets = {root / folder: names for folder, names in TARGETS.items()}
    with staging.stage(targets, force=force) as staged:
        for path, file in staged.items():
            file.write_bytes(NEW[path.relative_to(root).as_posix()])
        during = contents(root)
        with staging.stage({root / "o": ["other"]}) as others:
            others[root / "o" / "other"].write_bytes(b"other")
        assert contents(root) == during | {"o/other": b"other"}
    assert contents(root) == FOREIGN | NEW | {"o/other": b"other"}


def test_of_two_that_write_the_same_files(scene):
    make, force, _ = scene
    root = make("x")
    targets = {root / folder: names for folder, names in TARGETS.items()}
    with contextlib.suppress(FileExistsError), staging.stage(targets, force=force) as staged:
        for path, file in staged.items():
            file.write_bytes(b"late " + NEW[path.relative_to(root).as_posix()])
        command(root, force)
    late = {path: b"late " + new for path, new in NEW.items()}
    assert contents(root) == FOREIGN | (late if force else NEW)


@pytest.mark.skipif(not hasattr(os, "O_DIRECTORY"), reason="Windows cannot remove an open file")
def test_a_lock_is_held_until_it_is_unlinked(tmp_path, monkeypatch):
    """Otherwise, another process that has just made this folder locks it, and then loses it."""
    original, free = disk.Folder.unlink, []

    def unlink(self, name):
        if name == "lock":
            file = self.open(name, os.O_RDWR)
            free.append(disk.lock(file))
            os.close(file)
        original(self, name)

    monkeypatch.setattr(disk.Folder, "unlink", unlink)
    with staging.stage({tmp_path: ["a"]}) as staged:
        staged[tmp_path / "a"].write_bytes(b"new")
    assert free == [False]


def test_an_empty_folder_that_another_process_has_just_locked_is_kept(tmp_path, monkeypatch):
    """The other process makes its lock after this one found the folder empty."""
    there = tmp_path / ".splitjit-0123456789abcdef"
    there.mkdir(0o700)
    original = staging_folder.StagingFolder.is_left

    def is_left(self):
        left = original(self)
        (there / "lock").write_bytes(b"")
        return left

    monkeypatch.setattr(staging_folder.StagingFolder, "is_left", is_left)
    with staging.stage({tmp_path: ["a"]}) as staged:
        staged[tmp_path / "a"].write_bytes(b"new")
    assert (there / "lock").exists()


def test_without_locks_nothing_is_removed(scene, inject, monkeypatch):
    make, force, _ = scene
    monkeypatch.setattr(staging_folder, "lock", lambda file: None)
    root = make("x")
    command(root, force)
    assert contents(root) == FOREIGN | NEW
    root = make("y")
    with inject(9, Killed()), pytest.raises(Killed):
        command(root, force)
    left = [*root.rglob(".splitjit-*")]
    assert left
    command(root, force=True)
    assert [*root.rglob(".splitjit-*")] == left
    assert contents(root, all_files=False) == FOREIGN | NEW


@pytest.mark.parametrize("code", [errno.EPERM, errno.EINVAL], ids=["Linux", "Windows"])
def test_without_links(code, scene, inject, monkeypatch):
    def unsupported(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", unsupported)
    make, force, before = scene
    for at in range(1, count_calls(make, force, inject) + 1):
        for error in (Killed(), OSError(5, "Input/output error")):
            root = make(f"{at} {type(error).__name__}")
            with inject(at, error), contextlib.suppress(Killed, OSError):
                command(root, force)
            for path, held in contents(root, all_files=False).items():
                assert held in (before.get(path), NEW.get(path)), (at, path)
            assert contents(root).keys() >= before.keys()
            assert_complete_after_force(root)
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
        staging.stage({root / "o": ["rank-9/a"]}, force=force) as staged,
    ):
        staged[root / "o" / "rank-9" / "a"].write_bytes(b"new")
    assert contents(root) == before
    assert not [*root.rglob(".splitjit-*")]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "blob").write_bytes(b"blob")
    (tmp_path / "a").symlink_to("blob")
    with pytest.raises(FileExistsError), staging.stage({tmp_path: ["a"]}):
        pass
    with staging.stage({tmp_path: ["a"]}, force=True) as staged:
        staged[tmp_path / "a"].write_bytes(b"new")
    assert not (tmp_path / "a").is_symlink()
    assert contents(tmp_path) == {"a": b"new", "blob": b"blob"}


# ---- folders from strangers -----------------------------------------------------------

JOURNAL = (
    b'{"key": "", "homes": [["a", "a"]], "moves": [[0, "../../thesis"], [0, "../../bashrc"]],'
    b' "made": ["../../empty"]}'
)


def mark(folder):
    """Return the mark of a staging folder, as a stranger who knows the inode would write it."""
    return f"splitjit {folder.stat().st_ino}".encode()


def files(**contents):
    def plant(folder, root):
        for name, content in contents.items():
            path = folder / name.replace("_", ".")
            path.write_bytes(mark(folder) if content == "mark" else content)

    return plant


def both(*plants):
    def plant(folder, root):
        for one in plants:
            one(folder, root)

    return plant


def symlink(name, to):
    return lambda folder, root: (folder / name).symlink_to(to.format(root=root))


def hard(name):
    return lambda folder, root: os.link(root / "thesis", folder / name)


def inner(name):
    def plant(folder, root):
        (folder / name).mkdir()
        (folder / name / "mine").write_bytes(b"mine")

    return plant


def fifo(name):
    return lambda folder, root: os.mkfifo(folder / name)


def unix_socket(name):
    def plant(folder, root):
        here = os.getcwd()
        os.chdir(folder)  # the path of a socket is short
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.bind(name)
        finally:
            os.chdir(here)

    return plant


def device(name):
    def plant(folder, root):
        try:
            os.mknod(folder / name, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("only root makes device files")

    return plant


def another_owner(folder, root):
    files(lock="mark", **{"0_new": b"mine"})(folder, root)
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(folder, 12345, -1)


def a_file_of_another_owner(folder, root):
    files(lock="mark", **{"0_new": b"mine"})(folder, root)
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(folder / "0.new", 12345, -1)


def writeable(folder, root):
    files(lock="mark", **{"0_old": b"mine"})(folder, root)
    folder.chmod(0o777)


def many(folder, root):
    files(lock="mark")(folder, root)
    for i in range(2000):
        (folder / f"{i}.txt").write_bytes(b"mine")


MARKED = files(lock="mark")
PLANTED = {
    "an old journal that moves": files(moving=JOURNAL, **{"0_old": b"evil", "1_old": b"evil"}),
    "an old journal that is committed": files(committed=JOURNAL, lock=b"", **{"0_old": b"evil"}),
    "an old journal, open": files(journal=JOURNAL, **{"0_new": b"evil"}),
    "a pointer to a journal": files(primary=b'["../..", "thesis"]', lock=b""),
    "an absolute pointer": both(files(lock=b""), symlink("primary", "{root}/thesis")),
    "files without a lock": files(**{"0_new": b"mine", "0_old": b"mine"}),
    "the mark of another folder": files(lock=b"splitjit 12345", **{"0_new": b"mine"}),
    "a mark without a number": files(lock=b"splitjit", **{"0_new": b"mine"}),
    "a long lock": files(lock=b"splitjit " + b"9" * 100_000, **{"0_new": b"mine"}),
    "an empty lock beside files": files(lock=b"", **{"0_new": b"mine"}),
    "names that we do not give": both(MARKED, files(thesis_txt=b"mine")),
    "a name that is nearly ours": both(MARKED, files(**{"0_new_": b"mine"})),
    "a lock that is a link": both(files(**{"0_new": b"mine"}), symlink("lock", "{root}/thesis")),
    "a lock that is a hard link": both(files(**{"0_new": b"mine"}), hard("lock")),
    "a new file that is a link": both(MARKED, symlink("0.new", "../../thesis")),
    "an old file that is an absolute link": both(MARKED, symlink("0.old", "{root}/thesis")),
    "a link to a folder": both(MARKED, symlink("0.old", "..")),
    "a hard link": both(MARKED, hard("0.old")),
    "a folder": both(MARKED, inner("0.new")),
    "a folder named lock": both(files(**{"0_new": b"mine"}), inner("lock")),
    "a pipe": both(MARKED, fifo("0.new")),
    "a lock that is a pipe": both(files(**{"0_new": b"mine"}), fifo("lock")),
    "a socket": both(MARKED, unix_socket("0.new")),
    "a device": both(MARKED, device("0.new")),
    "a lock that is a device": device("lock"),
    "another owner": another_owner,
    "a file of another owner": a_file_of_another_owner,
    "writeable for all": writeable,
    "many files": many,
    "a name with a newline": both(MARKED, files(**{"0_new\n": b"mine"})),
}
REMOVED = {"a hard link"}
"""Folders that look exactly like those of a killed process, so that nothing is lost with them."""


def tree(root):
    """Return all paths below a folder, with what `lstat` says about each one, and the contents."""
    found = {}
    for path in [root, *root.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        name = path.relative_to(root).as_posix()
        found[name] = status.st_ino, status.st_mode, status.st_uid, content
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="plants what only POSIX systems have")
@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("force", [False, True])
def test_a_planted_folder_changes_nothing(tmp_path, kind, force):
    model = tmp_path / "deep" / "model"
    model.mkdir(parents=True)
    for name in ("bashrc", "thesis", "deep/notes"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "empty").mkdir()
    np.save(model / "x.npy", np.arange(6))
    folder = model / ".splitjit-0123456789abcdef"
    folder.mkdir(mode=0o700)
    PLANTED[kind](folder, tmp_path)
    before = tree(tmp_path)
    splitjit.files.split_files(model / "x.npy", num_splits=2, force=force)
    if kind in REMOVED:
        before = {path: held for path, held in before.items() if ".splitjit-" not in path}
    after = tree(tmp_path)
    new = {f"deep/model/x.{i}.npy" for i in range(2)}
    assert {path: held for path, held in after.items() if path not in new} == before
    assert new <= after.keys()
    np.testing.assert_array_equal(np.load(model / "x.1.npy"), np.arange(3, 6))


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_no_folder_is_left_alone(tmp_path, kind):
    np.save(tmp_path / "x.npy", np.arange(6))
    place = tmp_path / ".splitjit-0123456789abcdef"
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    files(lock="mark", **{"0_new": b"mine"})(mine, tmp_path)
    if kind == "file":
        place.write_bytes(b"mine")
    else:
        place.symlink_to("mine" if kind == "link" else "nowhere")
    before = tree(mine)
    splitjit.files.split_files(tmp_path / "x.npy", num_splits=2)
    assert tree(mine) == before
    assert os.path.lexists(place)
