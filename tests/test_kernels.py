"""Names of compiled functions are unique: the linker treats equal names as the same code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

import splitjit
from splitjit._kernels import copy, deinterleave, part, records, rows, runs, tiles, transpose
from tests.conftest import needs_kernels

pytestmark = needs_kernels


def test_no_two_functions_share_a_name():
    modules = (copy, deinterleave, part, records, rows, runs, tiles, transpose)
    values = [value for module in modules for value in vars(module).values()]
    compiled = {id(f): f for f in values if isinstance(f, Dispatcher)}.values()
    names = [function.py_func.__qualname__ for function in compiled]
    assert len(set(names)) == len(names) > 30
    assert len({name.rsplit("_")[-1] for name in names}) == 1  # the hash of the source


@pytest.mark.long
def test_code_that_processes_compiled_in_different_orders_fits_together(tmp_path):
    """Each process numbers the functions it compiles; the last one loads code saved by others."""
    split = """
import numpy as np, sys, splitjit
from numba import njit
from splitjit._kernels.launch import copy_loop
from splitjit._kernels.part import copy_part

for name in sys.argv[1:]:
    copy_part() if name == "part" else copy_loop(name)

@njit
def compiled(x, sizes):
    return splitjit.split(x, sizes, axis=1)

x = np.random.default_rng(0).integers(0, 256, (5000, 200), np.uint8)
if len(sys.argv) > 3:
    for sizes in ([n, 200 - n] for n in (1, 2, 3, 5, 9, 17, 33, 65)):
        for parts in (splitjit.split(x, sizes, axis=1), compiled(x, np.array(sizes))):
            for part, right in zip(parts, np.split(x, sizes[:1], 1), strict=True):
                assert np.array_equal(part, right)
        y = x[:200].T
        for part, right in zip(splitjit.split(y, sizes), np.split(y, sizes[:1]), strict=True):
            assert np.array_equal(part, right)
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for order in (
        ["transpose"],
        ["part"],
        ["deinterleave"],
        ["copy", "part", "transpose", "deinterleave"],
    ):
        subprocess.run([sys.executable, "-c", split, *order], env=environment, check=True)


@pytest.mark.long
def test_a_kind_added_to_the_table_works(tmp_path):
    """The layout chooses the loop, and the loop chooses its code, from the same table."""
    source = Path(splitjit.__file__).parent
    folder = shutil.copytree(
        source, tmp_path / source.name, ignore=shutil.ignore_patterns("__pycache__")
    )
    table = folder / "_kernels" / "table.py"
    text = table.read_text()
    changed = text.replace("for parts in (2, 3, 4, 8)", "for parts in (2, 3, 4, 5, 8)")
    assert changed != text
    table.write_text(changed)
    code = """
import numpy as np, splitjit
from splitjit._copy import crossovers
from splitjit._copy.layout import fresh_layout

splitjit.SplitPlan._kept = property(lambda plan: {}, lambda plan, kept: None)  # keep no recipes
splitjit.SplitPlan._compiled = property(lambda plan: None, lambda plan, compiled: None)
for stream_from in (0, 1 << 62):
    crossovers._STREAM_FROM = stream_from
    for itemsize in (1, 2, 4):
        x = np.random.default_rng(0).integers(0, 256, (9973, 5 * itemsize), np.uint8)
        x = x.view(f"V{itemsize}")
        plan = splitjit.plan_split(x.shape, num_splits=5, axis=1)
        assert fresh_layout(plan, x.strides, x.itemsize).loop == "deinterleave"
        for part, index in zip(plan(x), plan.slices, strict=True):
            assert part.tobytes() == x[index].tobytes()
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
