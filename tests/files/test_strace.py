"""The command under strace, which kills it or makes a system call fail."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from splitjit._cli.main import main
from tests.files.folders import contents

CALLS = "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fchmod,"
CALLS += "copy_file_range,fallocate,write,fchown"
PARTS = ["x.0.npy", "x.1.npy", "--axis=0"]
COMMANDS = {
    "split": ["split", "x.npy", "--num-splits", "2"],
    "join": ["join", *PARTS, "--out=y.npy"],
    "reshard": ["reshard", *PARTS, "--num-splits", "3", "--layout=ranks", "--out=o"],
}
FIRST = ("split", True, "signal=KILL")
CASES = [
    pytest.param(*command, inject, marks=[pytest.mark.long] * ((*command, inject) != FIRST))
    for command in [*itertools.product(["split", "join"], [True, False]), ("reshard", False)]
    for inject in ["signal=KILL", "signal=TERM", "error=EIO", "error=ENOSPC"]
]


def traced(folder, arguments, inject=None):
    """Run the command under strace; return its exit status, and the names of its calls."""
    command = [sys.executable, "-B", "-m", "splitjit", *arguments]
    log = folder.with_suffix(".strace")
    strace = ["strace", "-f", "-o", log, "-e", f"trace={CALLS}"]
    strace += ["-e", f"inject={inject}"] if inject else []
    ended = subprocess.run([*strace, *command, "--quiet"], cwd=folder, stderr=subprocess.DEVNULL)
    text = log.read_text()
    assert bool(re.search("INJECTED|SIGTERM|SIGKILL", text)) == bool(inject)
    return ended.returncode, Counter(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))


def works():
    command = ["strace", "-qq", "-o", os.devnull, "-e", "inject=mkdir:error=EIO", "true"]
    return shutil.which("strace") and not subprocess.call(command, stderr=subprocess.DEVNULL)


@pytest.mark.long
@pytest.mark.skipif(not works(), reason="needs strace, and the right to trace")
@pytest.mark.parametrize(("name", "force", "inject"), CASES)
def test_every_system_call(tmp_path, monkeypatch, name, force, inject):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(120_000))  # large enough for space to be reserved
    if name != "split":
        assert main([*COMMANDS["split"], "--quiet"]) == 0
    for path in tmp_path.iterdir():
        os.utime(path, (0, 0))  # the records of parts depend on it
    old = contents(tmp_path, all_files=False)
    if force:
        old |= dict.fromkeys(["x.0.npy", "x.1.npy"] if name == "split" else ["y.npy"], b"old")
    assert main(COMMANDS[name]) == 0
    new = contents(tmp_path, all_files=False)
    arguments = [*COMMANDS[name], "--force"] if force else COMMANDS[name]

    def prepare():
        for path in tmp_path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for place, content in old.items():
            (tmp_path / place).write_bytes(content)
            os.utime(tmp_path / place, (0, 0))

    prepare()
    status, calls = traced(tmp_path, arguments)
    assert status == 0
    assert calls["copy_file_range"] >= (1 if name == "join" else 2)
    for call, count in calls.items():
        for when in range(1, count + 1):
            prepare()
            status, _ = traced(tmp_path, arguments, f"{call}:{inject}:when={when}")
            clean = contents(tmp_path, all_files=False)
            if not status:
                assert clean == new, (call, when)
            for place, held in clean.items():  # complete, old or new
                assert held in (old.get(place), new.get(place)), (call, when, place)
            assert clean.keys() >= old.keys()
            assert main([*arguments, "--quiet", "--force"]) == 0
            assert contents(tmp_path, all_files=False) == new, (call, when)
