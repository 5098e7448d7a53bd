"""The command, as users run it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit import check, threads
from splitjit.__main__ import main

SMALL = (
    check.Workload("strings", (4, 10), "object", 1, {"num_splits": 2}, 2),
    check.Workload("slices", (16, 6), "float32", 1, {"split": [1, 0, 5]}, [1, 1]),
    check.Workload("kernels", (1000, 300), "float32", 1, {"num_splits": 3}, 3),
)


def run(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "splitjit", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


@pytest.fixture
def x(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.arange(24, dtype="f4").reshape(4, 6)
    np.save("x.npy", x)
    return x


def names(folder="."):
    return sorted(path.name for path in Path(folder).iterdir())


# ---- split ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "keyword"),
    [
        (["--num-outputs", "4"], {"num_outputs": 4}),
        (["--num-splits", "3"], {"num_splits": 3}),
        (["--split", "2,4"], {"split": [2, 4]}),
        (["--split", "2, 4"], {"split": [2, 4]}),
        (["--split", "4"], {"split": 4}),
        (["--split", "6,"], {"split": [6]}),
        (["--split", "0,6,0"], {"split": [0, 6, 0]}),
    ],
)
@pytest.mark.parametrize("axis", ["1", "-1"])
def test_split(x, capsys, rule, keyword, axis):
    assert main(["split", "x.npy", "--axis", axis, *rule]) == 0
    expected = splitjit.split(x, axis=1, **keyword)
    assert names() == sorted(["x.npy", *[f"x.{i}.npy" for i in range(len(expected))]])
    for i, part in enumerate(expected):
        np.testing.assert_array_equal(np.load(f"x.{i}.npy"), part, strict=True)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.splitlines()[0] == "x.npy: (4, 6) float32, 96 bytes"
    assert len(printed.out.splitlines()) == 1 + len(expected)


def test_split_as_a_user_runs_it(x, tmp_path):
    ended = run("split", "x.npy", "--num-splits", 2, "--out", "a/b", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[1:] == [
        f"{Path('a/b/x.0.npy')}: (2, 6) float32, 48 bytes",
        f"{Path('a/b/x.1.npy')}: (2, 6) float32, 48 bytes",
    ]
    np.testing.assert_array_equal(np.load("a/b/x.1.npy"), x[2:], strict=True)


def test_dry_run_writes_nothing(x, capsys):
    main(["split", "x.npy", "--split", "3", "--out", "out", "--dry-run"])
    dry = capsys.readouterr().out
    assert names() == ["x.npy"]
    main(["split", "x.npy", "--split", "3", "--out", "out"])
    assert capsys.readouterr().out == dry


def test_force(x, capsys):
    assert main(["split", "x.npy", "--num-splits", "2"]) == 0
    np.save("x.npy", -x)
    for dry_run in [[], ["--dry-run"]]:
        assert main(["split", "x.npy", "--num-splits", "2", *dry_run]) == 2
        assert "x.0.npy exists; --force overwrites it" in capsys.readouterr().err
    np.testing.assert_array_equal(np.load("x.0.npy"), x[:2])
    assert main(["split", "x.npy", "--num-splits", "2", "--force"]) == 0
    np.testing.assert_array_equal(np.load("x.0.npy"), -x[:2])


REFUSED = [
    (["x.npy", "--num-splits", "3"], "must be a multiple of 3"),
    (["x.npy", "--num-outputs", "0"], "must be at least 1"),
    (["x.npy", "--split", "1,2"], "must sum to the axis length 4"),
    (["x.npy", "--split=5,-1"], "must be at least 0"),
    (["x.npy", "--split", "-1"], "must be at least 1"),
    (["x.npy", "--axis", "2", "--num-splits", "2"], "axis must be in"),
    (["none.npy", "--num-splits", "2"], "No such file"),
    (["text.npy", "--num-splits", "2"], "no .npy file"),
    (["cut.npy", "--num-splits", "2"], "no .npy file"),
    (["long.npy", "--num-splits", "2"], "Header info length"),  # two lines by NumPy
    (["objects.npy", "--num-splits", "2"], "Python objects"),
    (["scalar.npy", "--num-splits", "2"], "rank 0"),
    (["x.npy", "--num-splits", "2", "--out", "text.npy"], "text.npy"),
    (["x.npy"], "required"),
    (["x.npy", "--split", "2", "--num-splits", "2"], "not allowed with"),
    (["x.npy", "--split", "two"], "neither a length nor lengths"),
    (["x.npy", "--split", "2,,2"], "neither a length nor lengths"),
    (["x.npy", "--split", "2.0"], "neither a length nor lengths"),
    (["x.npy", "--split", ","], "neither a length nor lengths"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_are_one_line_and_write_nothing(x, capsys, arguments, message):
    Path("text.npy").write_text("no array\nat all\n")
    Path("cut.npy").write_bytes(Path("x.npy").read_bytes()[:-1])
    Path("long.npy").write_bytes(b"\x93NUMPY\1\0" + (20_000).to_bytes(2, "little") + b" " * 20_000)
    np.save("objects.npy", np.array([{}, "a"], object))
    np.save("scalar.npy", np.float32(1))
    before = names()
    try:
        status = main(["split", *arguments])
    except SystemExit as ended:  # argparse's own
        status = ended.code
    printed = capsys.readouterr()
    assert status == 2
    assert message in printed.err
    assert re.fullmatch(r"python -m splitjit[^\n]*\n", printed.err)
    assert printed.out == ""
    assert names() == before


@pytest.mark.parametrize("arguments", [["x.npy", "--split", "9,"], ["no.npy", "--split", "9"], []])
def test_refusals_as_a_user_meets_them(x, tmp_path, arguments):
    ended = run("split", *arguments, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert re.fullmatch(r"python -m splitjit[^\n]*\n", ended.stderr)
    assert names() == ["x.npy"]


@pytest.mark.parametrize("arguments", [["--help"], ["split", "--help"], ["check", "--help"]])
def test_help(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    assert "usage: python -m splitjit" in capsys.readouterr().out


# ---- check ----------------------------------------------------------------------------


def test_check_as_a_user_runs_it():
    ended = run("check")
    assert (ended.returncode, ended.stderr) == (0, "")
    rows = ended.stdout.split("\n\n")[0].splitlines()[1:]
    assert [row[:28].strip() for row in rows] == [w.name for w in check.WORKLOADS]
    for row in rows:
        number = r"[\d.]+"
        assert re.search(
            rf" ok +{number} [mu]s +{number} [mu]s +({number}|-) +{number} +(\d+%|-)$", row
        )
    for name in ["splitjit", "numba", "numpy", "python", "CPU", "threading layer", "threads"]:
        assert re.search(rf"^{name} +\S", ended.stdout, re.MULTILINE)
    assert re.search(r"^first compile +[\d.]+ s, (compiled|from the cache)$", ended.stdout, re.M)
    assert re.search(r"^kernel cache +\S", ended.stdout, re.M)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(check, "WORKLOADS", SMALL)
    monkeypatch.setattr(check, "SECONDS", 0)


def test_check_passes(small, capsys):
    assert main(["check"]) == 0
    assert "Every part equals" in capsys.readouterr().out


def test_check_sees_a_wrong_kernel(small, monkeypatch, capsys):
    copy = threads.copy

    def shifted(loop, nbytes, arguments):
        stream, target, source, *layout = arguments
        return copy(loop, nbytes, (stream, target, source + 1, *layout))

    monkeypatch.setattr(threads, "copy", shifted)
    assert main(["check"]) == 1
    printed = capsys.readouterr().out
    assert re.findall(r"^(\w+) .* (ok|WRONG) ", printed, re.M) == [
        ("strings", "ok"),
        ("slices", "ok"),
        ("kernels", "WRONG"),
    ]


def one_bit(parts):
    parts[-1].view("u1")[-1, -1] ^= 1


def other_dtype(parts):
    parts[-1] = parts[-1].view("i4")


def too_few(parts):
    del parts[-1]


@pytest.mark.parametrize(
    ("corrupt", "into_out"),
    [(one_bit, False), (one_bit, True), (other_dtype, False), (too_few, False)],
)
def test_check_sees_wrong_parts(small, monkeypatch, corrupt, into_out):
    original = splitjit.split

    def wrong(x, **keywords):
        parts = original(x, **keywords)
        if x.dtype == "f4" and ("out" in keywords) == into_out:
            corrupt(parts)
        return parts

    monkeypatch.setattr(splitjit, "split", wrong)
    assert main(["check"]) == 1


def test_check_wants_the_same_objects():
    one, other = "".join(["a", "b"]), "".join(["a", "b"])
    assert one is not other
    assert check._same(np.array([one], object), np.array([one], object))
    assert not check._same(np.array([one], object), np.array([other], object))
