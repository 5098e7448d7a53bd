"""The command under strace, which kills it or makes a system call fail."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from splitjit._cli.main import main

CALLS = "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fchmod"


COMMANDS = {
    "split": ["split", "x.npy", "--num-splits", "2"],
    "reshard": ["reshard", "x.0.npy", "x.1.npy", "--num-splits", "3", "--layout=ranks", "--out=o"],
}


def traced(folder, inject, arguments):
    """Run the command under strace; return its exit status, and whether anything was injected."""
    command = [sys.executable, "-B", "-m", "splitjit", *arguments]
    log = folder.with_suffix(".strace")
    strace = ["strace", "-f", "-o", log, "-e", f"trace={CALLS}", "-e", f"inject={inject}"]
    ended = subprocess.run([*strace, *command, "--quiet"], cwd=folder, stderr=subprocess.DEVNULL)
    text = log.read_text()
    return ended.returncode, any(word in text for word in ("INJECTED", "SIGTERM", "SIGKILL"))


def works():
    if shutil.which("strace") is None:
        return False
    command = ["strace", "-qq", "-o", os.devnull, "-e", "inject=mkdir:error=EIO", "true"]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0


def contents(folder):
    """Return the contents of all files but those of staging folders."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".splitjit-" not in str(path)
    }


@pytest.mark.slow
@pytest.mark.skipif(not works(), reason="needs strace, and the right to trace")
@pytest.mark.parametrize("inject", ["signal=KILL", "signal=TERM", "error=EIO"])
@pytest.mark.parametrize(("name", "force"), [("split", False), ("split", True), ("reshard", False)])
def test_every_system_call(tmp_path, monkeypatch, inject, name, force):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(6))
    if name == "reshard":
        assert main([*COMMANDS["split"], "--quiet"]) == 0
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))  # the records of parts depend on it
    old = contents(tmp_path)
    if force:
        old |= {f"x.{i}.npy": b"old" for i in range(2)}
    assert main(COMMANDS[name]) == 0
    new = contents(tmp_path)
    arguments = [*COMMANDS[name], "--force"] if force else COMMANDS[name]
    tried = 0
    for call in CALLS.split(","):
        for when in range(1, 100):
            for path in tmp_path.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for place, content in old.items():
                (tmp_path / place).write_bytes(content)
                os.utime(tmp_path / place, (0, 0))
            status, injected = traced(tmp_path, f"{call}:{inject}:when={when}", arguments)
            clean = contents(tmp_path)
            if "KILL" not in inject:
                assert clean in ([old, new] if status else [new]), (call, when)
            finished = clean == new
            again = main([*arguments, "--quiet"])
            assert again == 0 or finished
            assert contents(tmp_path) == new, (call, when)
            assert not [*tmp_path.rglob(".splitjit-*")]
            tried += injected
            if not injected:
                break
    assert tried > 20
