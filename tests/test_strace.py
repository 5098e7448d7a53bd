"""The command under strace, which kills it or makes a system call fail."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from splitjit._cli.main import main

CALLS = "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fchmod"


def traced(folder, inject, *arguments):
    """Run the command under strace, and return its exit status."""
    command = [sys.executable, "-B", "-m", "splitjit", "split", "x.npy", "--num-splits", "2"]
    strace = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"inject={CALLS}:{inject}"]
    return subprocess.run(
        [*strace, *command, "--quiet", *arguments], cwd=folder, stderr=subprocess.DEVNULL
    ).returncode


def works():
    if shutil.which("strace") is None:
        return False
    command = ["strace", "-qq", "-o", os.devnull, "-e", "inject=mkdir:error=EIO", "true"]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not works(), reason="needs strace, and the right to trace")
@pytest.mark.parametrize("inject", ["signal=KILL", "signal=TERM", "error=EIO"])
@pytest.mark.parametrize("force", [False, True])
def test_every_system_call(tmp_path, monkeypatch, inject, force):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(6))
    old = {"x.npy": (tmp_path / "x.npy").read_bytes()}
    if force:
        old |= {f"x.{i}.npy": b"old" for i in range(2)}
    assert main(["split", "x.npy", "--num-splits", "2"]) == 0
    new = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments = ["--force"] if force else []
    for when in range(1, 100):
        for path in tmp_path.iterdir():
            path.unlink()
        for name, content in old.items():
            (tmp_path / name).write_bytes(content)
        status = traced(tmp_path, f"{inject}:when={when}", *arguments)
        clean = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        if "KILL" not in inject:
            assert clean in ([old, new] if status else [new]), when
        again = main(["split", "x.npy", "--num-splits", "2", *arguments])
        assert again == 0 or clean == new
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == new, when
        if status == 0 and ("KILL" in inject or when > 30):  # there are about 25 such calls
            break
    assert when > 20
