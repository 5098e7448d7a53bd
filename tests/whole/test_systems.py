"""What Windows and macOS lack or do otherwise, simulated here; see also `nox -s simulated`."""

import errno
import os
import signal
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from splitjit import SplitError
from splitjit.files import staging
from tests.cli.test_command import HALF_WAY, popen

ELSEWHERE = Path(__file__).parents[1] / "elsewhere"


def start_on(system, code, folder):
    """Start Python in a folder, where the modules of splitjit see another system."""
    paths = [str(ELSEWHERE), str(ELSEWHERE.parents[1]), os.environ.get("PYTHONPATH")]
    settings = {"SPLITJIT_SYSTEM": system, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return popen("-c", textwrap.dedent(code), cwd=folder, env={**os.environ, **settings})


def run_on(*arguments):
    """Run Python to its end, and return what it prints to stderr."""
    process = start_on(*arguments)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    return errors


needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="simulates others on Linux only")


@needs_linux
def test_after_warmup_no_kernel_is_missing(tmp_path):
    code = """
        from types import SimpleNamespace
        from splitjit._cli.main import main
        from splitjit._api import warmup
        from splitjit._cli import on_kernels

        loaded, compiled = {}, ["core"]
        warmup.LOADER = SimpleNamespace(load=lambda name, wait: loaded.setdefault(name, True))
        on_kernels.LOADER = SimpleNamespace(loaded=loaded, compiled=compiled)
        assert main(["warmup", "--check"]) == 1
        compiled.clear()
        assert main(["warmup", "--check"]) == 0
    """
    run_on("windows", code, tmp_path)


REFUSED = ["CON", "nul.npy", "com1 .npy", "LPT9", "a:b.npy", "a?.npy", "a.", "a "]


@pytest.mark.parametrize("name", [*REFUSED, "rank-0/aux.npy"])
def test_names_that_windows_takes_for_others_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    with staging.stage([tmp_path / "linux" / name]) as staged:
        for file in staged.values():
            file.write_bytes(b"")
    monkeypatch.setattr(sys, "platform", "win32")
    folder = tmp_path / "windows"
    with pytest.raises(SplitError, match="Windows has no files"):
        staging.stage([folder / "a.npy", folder / name]).__enter__()
    assert not folder.exists()


@pytest.mark.parametrize("has_it", [True, False], ids=["APFS", "network"])
def test_files_reach_the_disk_on_macos(has_it, tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    calls = []

    def full(file, command):
        calls.append(command)
        if not has_it:
            raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full)
    monkeypatch.setattr(os, "fsync", lambda file: calls.append("fsync"))
    monkeypatch.setattr(sys, "platform", "darwin")
    with staging.stage([tmp_path / "a"]) as staged:
        staged[tmp_path / "a"].write_bytes(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert calls
    assert set(calls) == ({51} if has_it else {51, "fsync"})


@needs_linux
def test_ctrl_break_ends_the_command_as_ctrl_c_does(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(4.0))
    with start_on("windows", HALF_WAY, tmp_path) as process:
        assert process.stdout.readline() == "half-way\n"
        process.send_signal(signal.SIGXCPU)  # which is SIGBREAK there
        printed = process.communicate()
    assert printed == ("", "python -m splitjit: interrupted; no file was written\n")
    assert process.returncode == 128 + signal.SIGXCPU
    assert os.listdir(tmp_path) == ["x.npy"]


@needs_linux
def test_a_file_that_is_open_is_kept_on_windows(tmp_path):
    """Windows neither renames nor deletes it. So the command fails, and all old files stay."""
    code = """
        import os
        import numpy as np
        from splitjit._cli.main import main

        command = ["split", "x.npy", "--num-splits", "2", "--quiet"]
        for x, kept in [(np.arange(4), []), (np.arange(4, 8), ["x.0.npy", "x.1.npy"])]:
            np.save("x.npy", x)
            for name in kept:
                with open(name, "rb") as file:
                    before = file.read()
                    assert main([*command, "--force"]) == 2
                    file.seek(0)
                    assert file.read() == before
                    assert sorted(os.listdir()) == ["x.0.npy", "x.1.npy", "x.npy"]
            assert main([*command, "--force"]) == 0
            assert [*np.load("x.0.npy"), *np.load("x.1.npy")] == [*x]
    """
    errors = run_on("windows", code, tmp_path)
    assert errors.count("The process cannot access the file") == 2
