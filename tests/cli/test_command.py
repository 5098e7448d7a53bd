"""The command line, in this process and as a process of its own."""

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import splitjit
from splitjit._cli import on_files, on_kernels
from splitjit._cli.main import main
from splitjit.files import tiles
from tests.conftest import needs_kernels

SMALL = (
    on_kernels.Workload("strings", (4, 10), "object", 1, {"num_splits": 2}),
    on_kernels.Workload("slices", (16, 6), "float32", 1, {"indices": [1, 1]}),
    on_kernels.Workload("kernels", (1000, 300), "float32", 1, {"num_splits": 3}),
)


def run(*arguments, cwd=None, encoding="utf-8", **variables):
    command = [sys.executable, "-m", "splitjit", *map(str, arguments)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, **variables}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding=encoding)


def popen(*arguments, **options):
    """Start Python, whose output goes to pipes."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *arguments], **pipes, **options)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Run the test in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def x(here):
    x = np.arange(24, dtype="f4").reshape(4, 6)
    np.save("x.npy", x)
    return x


def names(folder="."):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def cli(capsys):
    """Return a function that runs the command in this process, and returns what it prints."""

    def run(line, *arguments, status=0):
        capsys.readouterr()
        try:
            ended = main([*line.split(), *arguments])
        except SystemExit as error:  # raised by argparse
            ended = error.code
        assert ended == status
        return capsys.readouterr()

    return run


def parts_of(stem, count):
    return [np.load(f"{stem}.{i}.npy") for i in range(count)]


# ---- split ----------------------------------------------------------------------------


RULES = [
    *[([f"--num-{name}", "4"], {f"num_{name}": 4}) for name in ("outputs", "sections")],
    (["--num-splits", "3"], {"num_splits": 3}),
    *[(["--split", text], {"split": [2, 4]}) for text in ("2,4", "2, 4")],
    *[(["--split", "4"], {"split": 4}), (["--split", "6,"], {"split": [6]})],
    (["--split", "0,6,0"], {"split": [0, 6, 0]}),
    (["--indices", "2,4"], {"indices": [2, 4]}),
    (["--indices", "5"], {"indices": [5]}),
    (["--indices=-4,99"], {"indices": [-4, 99]}),
]


@pytest.mark.parametrize(("rule", "keyword"), RULES)
@pytest.mark.parametrize("axis", ["1", "-1"])
def test_split(x, cli, rule, keyword, axis):
    out, err = cli(f"split x.npy --axis {axis}", *rule)
    expected = splitjit.split(x, axis=1, **keyword)
    assert names() == sorted(["x.npy", *[f"x.{i}.npy" for i in range(len(expected))]])
    for part, right in zip(parts_of("x", len(expected)), expected, strict=True):
        np.testing.assert_array_equal(part, right, strict=True)
    assert err == ""
    assert out.splitlines()[0] == "x.npy: (4, 6) float32, 96 bytes"
    assert len(out.splitlines()) == 1 + len(expected)


def test_split_as_a_user_runs_it(x, tmp_path):
    ended = run("split", "x.npy", "--num-splits", 2, "--out", "a/b", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[1:] == [
        f"{Path('a/b/x.0.npy')}: (2, 6) float32, 48 bytes",
        f"{Path('a/b/x.1.npy')}: (2, 6) float32, 48 bytes",
    ]
    np.testing.assert_array_equal(np.load("a/b/x.1.npy"), x[2:], strict=True)


def test_dry_run_writes_nothing(x, cli):
    dry = cli("split x.npy --split 3 --out out --dry-run").out
    assert names() == ["x.npy"]
    assert cli("split x.npy --split 3 --out out").out == dry


def test_force(x, cli):
    cli("split x.npy --num-splits 2")
    np.save("x.npy", -x)
    for dry_run in [[], ["--dry-run"]]:
        out, err = cli("split x.npy --num-splits 2", *dry_run, status=2)
        assert "x.0.npy exists; force=True, or --force, overwrites it" in err
        assert out.endswith("x.0.npy exists\nx.1.npy exists\n" if dry_run else "")
        assert ("x.1.npy: (2, " in out) is bool(dry_run)
    np.testing.assert_array_equal(np.load("x.0.npy"), x[:2])
    cli("split x.npy --num-splits 2 --force")
    np.testing.assert_array_equal(np.load("x.0.npy"), -x[:2])


REFUSED = [
    ("split x.npy --split=5,-1", "at most the axis length 4, not to 5"),
    ("split x.npy --split -1", "must be at least 1"),
    ("split none.npy --num-splits 2", "none.npy does not exist"),
    ("split text.npy --num-splits 2", "not a .npy file"),
    ("split cut.npy --num-splits 2", "not a .npy file"),
    ("split long.npy --num-splits 2", "Header info length"),  # NumPy's message has two lines
    ("split objects.npy --num-splits 2", "Python objects"),
    ("split scalar.npy --num-splits 2", "rank 0"),
    ("split x.npy --num-splits 2 --out text.npy", "text.npy"),
    ("split x.npy --indices 2 --num-sections 2", "not allowed with"),
    ("split x.npy --split 2 --num-splits 2", "not allowed with"),
    ("split x.npy --split 2,,2", "must be an integer, or integers"),
    # the words of the command
    ("split x.npy --num-outputs 0", "split x.npy: --num-outputs 0, axis 0, shape (4, 6): "),
    ("split x.npy --num-splits 3", "of 3; --num-sections 3 makes parts whose lengths differ by"),
    ("split x.npy --indices 3,1", "--indices 3,1, axis 0, shape (4, 6): indices must not descend"),
    ("split x.npy --split 1,2", "pass them as --indices in ascending order"),
    ("split x.npy --split 1,5", "to the length of axis 1: pass --axis 1"),
    ("split m.npz --num-splits 2 --tensor a=0:3,2", "m.npz, a: sections (3, 2), axis 0, shape (4"),
    ("split x.npy --split 1 --axis 7", "split x.npy: axis 7, shape (4, 6): axis must be in"),
    ("split x.npy --num-splits 2 --name y.npy", "--name 'y.npy': must contain {rank}, so that"),
    ("split x.npy --tp-plan --split 2", "--tp-plan: needs a number of ranks: give --num-splits"),
    ("split x.npy --tp-plan --num-splits 2", "needs its config.json; --config gives its path"),
    # an option that does not exist
    ("split x.npy --wrong 3", "split: unrecognized argument: --wrong "),
    ("--wrong", "unrecognized argument: --wrong "),
    ("split x.npy --split 2 2", "2; numbers need commas between them, as in --split 2,3"),
    ("split x.npy", "one of the arguments --split --num-outputs "),
    ("join x.npy", "the following arguments are required: --out "),
    ("split x.npy --num-splits two", "argument --num-splits: invalid int value: 'two'"),
    ("split x.npy --num_splits 2", "; did you mean --num-splits? (see --help)\n"),
    ("--vers", "unrecognized argument: --vers; did you mean --version? (see --help)\n"),
    ("jion x.npy", "; did you mean join? (see --help)\n"),
    # patterns
    ("split m.npz --num-splits 2 --tensor none", "pattern 'none'"),
    ("split m.npz --num-splits 2 --tensor *", "split m.npz, norm"),
    ("split m.npz --num-splits 2 --others some", "invalid choice"),
    ("split m.npz --num-splits 2 --tensor a=x", "split: axis 'x' of pattern 'a': must be an int"),
    ("split m.npz --num-splits 2 --tensor b=1", "pattern 'b': must match the name of a tensor"),
    ("split m.npz --num-splits 2 --tensor a=0:1,1@0", "axis '0:1,1@0' of pattern 'a': "),
    ("split x.npy --split -x,2", '"-" needs "=", as in --split=-1,2'),
    # files
    ("info text.txt", "splitjit: text.txt: only .npy, .npz and .safetensors files can be read"),
    ("info m.pt", "splitjit: m.pt: only .npy, .npz and .safetensors files can be read: "),
    ("info no.npy", "splitjit: no.npy does not exist\n"),
    ("info .", "splitjit: .: a folder must hold"),
    *[
        (f"{line} {name}", message)
        for line in ("split --num-splits=2", "info")
        for name, message in {
            **dict.fromkeys(["m.pt", "m.bin", "m.gguf"], "and save them with safetensors"),
            "s3://bucket/m.safetensors": "must be a local path",
        }.items()
    ],
]


@pytest.mark.parametrize(("line", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_refusals_are_one_line_and_write_nothing(x, cli, line, message):
    """They name options of the command, and not parameters of functions."""
    Path("text.npy").write_text("no array\nat all\n")
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:-1])
    Path("long.npy").write_bytes(b"\x93NUMPY\1\0" + (20_000).to_bytes(2, "little") + b" " * 20_000)
    np.save("objects.npy", np.array([{}, "a"], object))
    np.save("scalar.npy", np.float32(1))
    np.savez("m.npz", a=np.ones((4, 6)), norm=np.ones(5))
    for name in ("text.txt", "m.pt", "m.bin", "m.gguf"):
        Path(name).write_text("hello")
    before = names()
    out, err = cli(line, status=2)
    assert message in err
    assert re.fullmatch(r"python -m splitjit[^\n]*\n", err)
    assert not re.search(r"(?<!--)num_|=\d|tp_plan|Errno|files:", err)
    assert out == ""
    assert names() == before


# ---- files of many tensors ------------------------------------------------------------


@pytest.fixture
def checkpoint(here):
    """Make a checkpoint as an .npz archive: the command handles all formats alike."""
    arrays = {
        "0.q": np.arange(24, dtype="f4").reshape(6, 4),
        "0.o": np.arange(24, dtype="f2").reshape(4, 6),
        "norm": np.arange(5, dtype="f4"),
    }
    np.savez("m.npz", **arrays)
    return arrays


SPLIT = "split m.npz --num-splits 2 --tensor *.q --tensor *.o=1"
RANKS = f"{SPLIT} --layout=ranks"


def test_checkpoint(checkpoint, cli):
    printed = cli(SPLIT).out
    held = np.load("m.1.npz")
    assert [held[name].shape for name in checkpoint] == [(3, 4), (4, 3), (5,)]
    assert printed.splitlines() == [
        "m.npz: 2 of 3 tensors split, 1 copied",
        "m.0.npz: 3 tensors, 220 bytes",
        "m.1.npz: 3 tensors, 220 bytes",
        "49% of the bytes are split; each part holds 220 bytes",
    ]
    uneven = cli("split m.npz --split 1,-1 --tensor *.q --out=u").out
    assert "each part holds up to 404 bytes" in uneven


def test_axis_is_that_of_patterns_without_one(checkpoint, cli):
    cli("split m.npz --split 1,3 --axis -1 --tensor *q")
    np.testing.assert_array_equal(np.load("m.0.npz")["0.q"], checkpoint["0.q"][:, :1])


def test_others_are_skipped_on_demand(checkpoint, cli):
    assert "m.npz: 2 of 3 tensors split, 1 left out" in cli(f"{SPLIT} --others skip").out
    assert list(np.load("m.1.npz")) == ["0.q", "0.o"]


@pytest.mark.skipif(sys.platform == "win32", reason="it has no sh")
def test_closed_streams(x):
    line = f"{shlex.quote(sys.executable)} -m splitjit split x.npy --num-splits 2 >&- 2>&-"
    assert subprocess.run(["sh", "-c", line]).returncode == 0
    assert names() == ["x.0.npy", "x.1.npy", "x.npy"]


def test_output_that_is_not_read_to_its_end(checkpoint, tmp_path):
    command = ["-m", "splitjit", *SPLIT.split(), "--others=skip"]
    process = popen(*command, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": ""})
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == ("", 0)
    process.stderr.close()
    assert names() == ["m.0.npz", "m.1.npz", "m.npz"]


def test_names_cannot_steer_a_terminal(here, cli):
    np.savez("m.npz", **{"\x1b[2J\na": np.ones((2, 4)), "名": np.ones(2)})
    printed = cli("split m.npz --num-splits 2 --axis=0 --dry-run").out
    assert printed.splitlines()[1].startswith(r"  \x1b[2J\na: (2, 4)")
    assert r"split m.npz, \x1b[2J a: " in cli("split m.npz --num-splits 3 --axis=0", status=2).err
    ended = run("split", "m.npz", "--num-splits", "2", "--axis=0", "--dry-run", encoding="ascii")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert r"  \u540d: (2,)" in ended.stdout


def test_several_files(x, checkpoint, cli):
    printed = cli("split x.npy m.npz --num-splits 2 --tensor 0.?").out
    assert names() == ["m.0.npz", "m.1.npz", "m.npz", "x.0.npy", "x.1.npy", "x.npy"]
    np.testing.assert_array_equal(np.load("x.1.npy"), x, strict=True)
    assert "x.1.npy: (4, 6) float32, 96 bytes" in printed
    printed = cli(SPLIT.replace("m.npz", "x.npy m.npz"), "--others=skip", "--force").out
    assert "x.npy: 0 of 1 tensor split, 1 left out" in printed


def test_names_with_an_equals_sign(here, cli):
    np.savez("m.npz", **{"a=b": np.ones((2, 4)), "c=1": np.ones((2, 4))})
    cli("split m.npz --num-splits 2 --tensor a=b --tensor c=1=1")
    part = np.load("m.0.npz")
    assert (part["a=b"].shape, part["c=1"].shape) == ((1, 4), (2, 2))


# ---- progress -------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(on_files, "BAR_AFTER", 0)
    monkeypatch.setattr(on_files, "LINE_EVERY", 0)
    monkeypatch.setattr(tiles, "TILE", 48)


LINES = r"(python -m splitjit: \d+% of 96 bytes written in \d+ s\n)+"


def test_a_bar_on_a_terminal(x, at_once, cli, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    cli("split x.npy --num-splits 2")
    said = sys.stderr.getvalue()
    assert "0%|" in said
    assert "B/s" in said
    assert not re.search(LINES, said)


def test_lines_without_tqdm_or_without_a_terminal(x, at_once, cli, monkeypatch):
    assert re.fullmatch(LINES, cli("split x.npy --num-splits 2").err)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "tqdm", None)
    cli("split x.npy --num-splits 2 --force")
    assert re.fullmatch(LINES, sys.stderr.getvalue())
    assert " 100% of" in sys.stderr.getvalue()


def test_lines_that_nobody_reads(x, at_once, cli, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    cli("split x.npy --num-splits 2")
    assert names() == ["x.0.npy", "x.1.npy", "x.npy"]


@pytest.mark.parametrize("terminal", [False, True])
def test_quiet(x, at_once, monkeypatch, cli, terminal):
    if terminal:
        monkeypatch.setattr(sys, "stderr", Terminal())
    assert cli("split x.npy --num-splits 2 --quiet") == ("", "")
    assert not terminal or sys.stderr.getvalue() == ""
    err = cli("split x.npy --num-splits 2 --quiet", status=2).err
    assert "exists" in (sys.stderr.getvalue() if terminal else err)


# ---- interruptions --------------------------------------------------------------------

HALF_WAY = """
    import runpy, sys, time
    from splitjit.files.formats.base import PlainWriter

    write, parts = PlainWriter.write, []

    def waiting(*args):
        if parts:
            print("half-way", flush=True)
            time.sleep(60)
        parts.append(write(*args))

    PlainWriter.write = waiting
    sys.argv = ["__main__.py", "split", "x.npy", "--num-splits", "2", *sys.argv[1:]]
    runpy.run_module("splitjit", run_name="__main__")
"""


@pytest.fixture
def half_way(x, tmp_path):
    """Start a split that waits half-way: one part is written and the other is empty."""
    started = []

    def start(*arguments, **keywords):
        process = popen("-c", textwrap.dedent(HALF_WAY), *arguments, cwd=tmp_path, **keywords)
        started.append(process)
        assert process.stdout.readline() == "half-way\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows lacks these signals")


@POSIX
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_interrupted(half_way, x, name):
    number = getattr(signal, name)
    Path("x.1.npy").write_text("mine")
    # If the tests run under nohup, for example, the process inherits an ignored signal.
    process = half_way("--out", "a/b", preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    assert re.fullmatch(r"\.splitjit-\w+", *names("a/b"))
    process.send_signal(number)
    printed = process.communicate()
    assert printed == ("", "python -m splitjit: interrupted; no file was written\n")
    assert process.returncode == 128 + number
    assert names() == ["x.1.npy", "x.npy"]


@POSIX
def test_nohup_is_obeyed(half_way):
    process = half_way(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM


@POSIX
def test_killed_and_given_again(half_way, x, cli):
    process = half_way()
    process.kill()
    process.communicate()
    assert re.fullmatch(r"\.splitjit-\w+ x\.npy", " ".join(names()))
    left = names()[0]
    cli("split x.npy --num-splits 2")
    assert names() == [left, "x.0.npy", "x.1.npy", "x.npy"]
    np.testing.assert_array_equal(np.load("x.0.npy"), x[:2], strict=True)


@pytest.mark.parametrize("given", [(KeyboardInterrupt, 5), (OSError, 5, "I/O"), (MemoryError,)])
@pytest.mark.parametrize("call", ["_cli.on_files.print_report", "files.disk.sync"])
def test_an_error_after_files_were_moved(x, cli, monkeypatch, given, call):
    kind, *values = given
    status, said = {OSError: (2, "I/O"), MemoryError: (2, "memory")}.get(kind, (133, "interrupted"))
    monkeypatch.setattr(f"splitjit.{call}", Mock(side_effect=kind(*values)))
    note = "each file is complete, old or new; the same call with force=True, or --force, finishes"
    note = note if "sync" in call else "all files are complete"
    assert cli("split x.npy --num-splits 2", status=status).err.endswith(f"{said}; {note}\n")
    assert names() == ["x.0.npy", "x.1.npy", "x.npy"]


# ---- check ----------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(on_kernels, "WORKLOADS", SMALL)
    monkeypatch.setattr(on_kernels, "SECONDS", 0)


@pytest.mark.slow
def test_check_prints_json(small, cli):
    found = json.loads(cli("check --json").out)
    assert found["ok"]
    assert found["seconds"] > 0
    assert found["machine"]["numpy"] == np.__version__
    assert [workload["name"] for workload in found["workloads"]] == ["strings", "slices", "kernels"]
    assert all(workload["seconds"]["fresh"] > 0 for workload in found["workloads"])


@needs_kernels
def test_warmup(cli):
    assert re.fullmatch(r"All kernels are .* this took [\d.]+ s\.\n", cli("warmup").out)


@pytest.mark.parametrize("disabled", [False, True])
def test_warmup_that_loads_nothing(monkeypatch, cli, disabled):
    monkeypatch.setattr(splitjit, "warmup", lambda: None)
    monkeypatch.setattr(on_kernels.LOADER, "loaded", {"core": {}})
    monkeypatch.setattr(on_kernels, "never_compiles", lambda: disabled)
    out, err = cli("warmup --check", status=2)
    reason = "NUMBA_DISABLE_JIT is set" if disabled else "the log says why"
    assert re.search(rf"kernels not loaded: .*plain, .*; {reason}, and NumPy copies", err)
    assert (out, "core" in err) == ("", False)
    assert on_kernels.load()[1] in err


def test_warmup_without_a_compiler():
    ended = run("warmup", NUMBA_DISABLE_JIT="1")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "NUMBA_DISABLE_JIT is set" in ended.stderr


def one_bit(parts):
    parts[-1].view("u1")[-1, -1] ^= 1


def other_dtype(parts):
    parts[-1] = parts[-1].view("i4")


def other_object(parts):
    parts[-1][-1, -1] = "".join(map(str, parts[-1][-1, -1]))  # equal, and not the same


@pytest.mark.parametrize(
    ("dtype", "corrupt", "into_out"),
    [
        ("f4", one_bit, False),
        ("f4", one_bit, True),
        ("f4", other_dtype, False),
        ("f4", list.pop, False),
        ("O", other_object, False),
    ],
)
def test_check_sees_wrong_parts(small, monkeypatch, cli, dtype, corrupt, into_out):
    original = splitjit.split

    def wrong(x, **keywords):
        parts = original(x, **keywords)
        if x.dtype == dtype and ("out" in keywords) == into_out:
            corrupt(parts)
        return parts

    monkeypatch.setattr(splitjit, "split", wrong)
    found = dict(re.findall(r"^(\w+) .* (ok|WRONG) ", cli("check", status=1).out, re.M))
    expected = ["ok", "WRONG"] if dtype == "f4" else ["WRONG", "ok"]
    assert [found["strings"], found["kernels"]] == expected


# ---- info and JSON --------------------------------------------------------------------


def test_info_of_an_array(x, cli):
    assert cli("info x.npy").out.splitlines() == [
        "x.npy: 1 tensor, 96 bytes",
        "    array: (4, 6) float32, 96 bytes",
    ]
    (one,) = json.loads(cli("info x.npy --json").out)["checkpoints"]
    assert one["files"][0]["tensors"][0]["shape"] == [4, 6]
    cli("info no.npy", status=2)


def test_info_of_parts(checkpoint, cli):
    cli(f"{RANKS} --quiet")
    assert cli("info rank-1 rank-0").out.splitlines() == [
        "all 2 parts of one split by --num-splits 2: 3 tensors, 184 bytes",
        "  rank-1: rank 1, 92 bytes",
        "  rank-0: rank 0, 92 bytes",
    ]
    printed = cli("info . --tensors").out
    assert "    0.o: float16, 6 along axis 1: 2 x (4, 3)\n" in printed
    assert re.search(r"    norm: float\d+, a copy in each part: 2 x \(5,\)\n", printed)
    assert "not all parts of one split" in cli("info rank-0 m.npz").err
    found = json.loads(cli("info rank-0 --json").out)
    assert found["complete"] is False
    assert "rank 1 missing" in found["problem"]
    assert found["checkpoints"][0]["split"]["rule"] == {"num_splits": 2}
    np.save("y.npy", checkpoint["0.o"])
    np.save("z.npy", checkpoint["0.q"])
    for i, given in enumerate(["m.npz --tensor=0.q", "m.npz --tensor=0.o", "y.npy z.npy"]):
        cli(f"split {given} --num-splits=2 --layout=ranks --out=o{i} --quiet")
    assert "all" not in cli("info o0/rank-0 o1/rank-1").out
    assert "2 x (2, 6)\n" in cli("info o2 --tensors").out


def test_a_flat_folder_of_parts(x, cli):
    os.mkdir("o")
    cli("split x.npy --split=1 --out=o --quiet")
    assert cli("info o").out.count("1 tensor, 24 bytes") == 4 == len(x)
    cli("join o --axis=0 --out=j.npy --quiet")
    np.testing.assert_array_equal(np.load("j.npy"), x)
    os.rename("o/x.1.npy", "o/x.00.npy")
    assert "with the same number" in cli("join o --axis=0 --out=k.npy", status=2).err
    os.remove("o/x.00.npy")
    refused = cli("join o --axis=0 --out=k.npy", status=2).err
    assert "it holds parts of one file, but not x.1.npy" in refused
    np.save("o/y.0.npy", x)
    assert "a folder must hold" in cli("join o --axis=0 --out=k.npy", status=2).err


@pytest.mark.parametrize("dry_run", [False, True])
def test_json(checkpoint, cli, dry_run):
    more = ["--json", *["--dry-run"] * dry_run]
    planned = json.loads(cli(f"{RANKS} --out=o", *more).out)
    (file,) = planned["files"]
    assert planned["dry_run"] is dry_run
    assert [part["nbytes"] for part in file["parts"]] == [220, 220]
    assert file["tensors"][1]["part_shapes"] == [[4, 3], [4, 3]]
    assert all(Path(part["path"]).exists() is not dry_run for part in file["parts"])
    if dry_run:
        return
    joined = json.loads(cli("join o/rank-1 o/rank-0 --out=j", *more).out)
    assert joined["files"][0]["tensors"][0]["shape"] == [6, 4]
    assert "order of their ranks" in joined["notes"][0]
    assert joined["share_split"] == planned["share_split"]
    resharded = json.loads(cli("reshard o/rank-1 o/rank-0 --num-splits=1 --out=r", *more).out)
    assert resharded["files"][0]["parts"][0]["nbytes"] == 292
    assert "order of their ranks" in resharded["notes"][0]


def test_dry_runs_of_join_and_reshard(checkpoint, cli):
    cli(f"{RANKS} --quiet")
    before = names()
    assert "must name a folder" in cli("join rank-0 rank-1 --out=j.npz", status=2).err
    join = "join rank-0 rank-1 --out=j --dry-run"
    assert "  0.q: (6, 4) float32, 96 bytes, axis 0, from 2 parts" in cli(join).out
    printed = cli("reshard rank-0 rank-1 --num-splits=1 --out=r --dry-run").out
    assert "0.q: (6, 4) float32, axis 0, into 1 x (6, 4)" in printed
    assert names() == before
    Path("j").mkdir()
    Path("j/m.npz").touch()
    cli(join, status=2)


def test_a_file_without_tensors(here, cli):
    np.savez("m.npz")
    assert "m.npz is empty: it holds no tensor" in cli("split m.npz --num-splits=2").err
    np.savez("n.npz")
    line = "join m.npz n.npz --axis=0 --out=o.npz --dry-run"
    assert "o.npz: 0 tensors, 0 bytes of data" in cli(line).out
