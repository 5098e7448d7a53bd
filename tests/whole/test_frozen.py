"""A program frozen by PyInstaller splits, also in compiled code and by lazy submodules."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PROGRAM = """
import numba
import numpy as np
import splitjit

@numba.njit
def split(x):
    return splitjit.split(x, num_splits=2, axis=1)

x = np.arange(2.0**18).reshape(512, -1)
for parts in (split(x), splitjit.split(x, num_splits=2, axis=1)):
    assert [part.tobytes() for part in parts] == [x[:, :256].tobytes(), x[:, 256:].tobytes()]
assert splitjit.openvino.Split(num_splits=2)(x, 1)[0].shape == (512, 256)
assert splitjit.files.__name__ == "splitjit.files"
"""


def test_pyinstaller_finds_the_hook():
    hooks = entry_points(group="pyinstaller40", name="hook-dirs")
    (found,) = hooks.select(module="splitjit._pyinstaller")
    (folder,) = found.load()()
    assert (Path(folder) / "hook-splitjit.py").is_file()


@pytest.mark.long
def test_a_frozen_program(tmp_path):
    pytest.importorskip("PyInstaller")
    (tmp_path / "program.py").write_text(PROGRAM)
    build = [sys.executable, "-m", "PyInstaller", "--log-level", "WARN"]
    exclude = [f"--exclude-module={name}" for name in ("setuptools", "pkg_resources")]  # faster
    subprocess.run([*build, *exclude, "program.py"], cwd=tmp_path, check=True)
    program = tmp_path / "dist" / "program" / "program"
    result = subprocess.run([program], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
