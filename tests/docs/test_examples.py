"""Run every script of examples/ as users do; each script checks its own results."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT, long
from tests.processes import python

EXAMPLES = ROOT / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="needs examples/ beside tests/"),
]

# A pattern that one line of the output must match, and the packages that the script needs.
SAYS = {
    "audio_chunks": (r"strides of a channel: \(2,\) instead of \(4,\)", []),
    "checkpoint_ranks": (r"joined: \d+ bytes, the same as before", ["safetensors"]),
    "dask_array": (r"scores \(8192,\) mean of the values \(768,\)", ["dask.array"]),
    "data_loader": (r"1000 samples from 2 workers", ["torch"]),
    "inside_njit": (r"refused: split: split.*: lengths must sum to .*", []),
    "out_loop": (r"10 frames, mean of red, green and blue: .*", []),
    "photo_planes": (r"stacked \(3, 600, 512\)", ["matplotlib"]),
    "qkv_cache": (r"attention of shape \(8, 256, 128\) is the same in steps and in one pass", []),
    "reference_evaluator": (r"output \(.*\) equals that of (PyTorch|ONNX Runtime)", ["onnx"]),
    "swiglu": (r"step 2: \(64, 1376\) into gate and up \(64, 688\).*", []),
    "table_sets": (r"folds of \[201, 201, 201, 200, 200\] rows", []),
    "torch_module": (r"gradient of the weight \(96, 64\) equals that of torch\.split", ["torch"]),
}

LONG = ["dask_array", "data_loader", "inside_njit", "reference_evaluator", "torch_module"]


def run(script, folder):
    """Run a copy of a script, so that its caches go with the folder; return the printed lines."""
    shutil.copy(script, folder)
    environment = {**os.environ, "PYTHONUTF8": "1", "MPLBACKEND": "agg"}  # show no window
    result = subprocess.run(
        [sys.executable, script.name], cwd=folder, env=environment,
        capture_output=True, text=True, encoding="utf-8", timeout=250,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("name", long(*SAYS, if_not=SAYS.keys() - LONG))
def test_prints_what_it_checked(name, tmp_path):
    line, packages = SAYS[name]
    for package in packages:
        pytest.importorskip(package)
    printed = run(EXAMPLES / f"{name}.py", tmp_path)
    assert any(re.fullmatch(line, text) for text in printed), printed


@pytest.mark.long
def test_the_notebook_shows_what_it_prints():
    for package in ("nbclient", "ipykernel", "matplotlib", "torch"):
        pytest.importorskip(package)
    python(EXAMPLES.parent / "docs" / "tools" / "notebook.py", timeout=250)
