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
    """Run the command under strace; return its exit status, and whether anything was injected."""
    command = [sys.executable, "-B", "-m", "splitjit", "split", "x.npy", "--num-splits", "2"]
    log = folder.with_suffix(".strace")
    strace = ["strace", "-f", "-o", log, "-e", f"trace={CALLS}", "-e", f"inject={inject}"]
    ended = subprocess.run(
        [*strace, *command, "--quiet", *arguments], cwd=folder, stderr=subprocess.DEVNULL
    )
    text = log.read_text()
    return ended.returncode, any(word in text for word in ("INJECTED", "SIGTERM", "SIGKILL"))


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
    tried = 0
    for call in CALLS.split(","):
        for when in range(1, 100):
            for path in tmp_path.iterdir():
                path.unlink()
            for name, content in old.items():
                (tmp_path / name).write_bytes(content)
            status, injected = traced(tmp_path, f"{call}:{inject}:when={when}", *arguments)
            clean = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
            if "KILL" not in inject:
                assert clean in ([old, new] if status else [new]), (call, when)
            again = main(["split", "x.npy", "--num-splits", "2", "--quiet", *arguments])
            assert again == 0 or clean == new
            held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
            assert held == new, (call, when)
            tried += injected
            if not injected:
                break
    assert tried > 20
