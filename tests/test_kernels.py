"""Names of compiled code: the linker takes one name for one piece of code."""

import os
import subprocess
import sys

from numba.core.dispatcher import Dispatcher

from splitjit._kernels import copy as kernels
from tests.conftest import needs_kernels

pytestmark = needs_kernels


def test_no_two_functions_share_a_name():
    compiled = {id(f): f for f in vars(kernels).values() if isinstance(f, Dispatcher)}.values()
    names = [function.py_func.__qualname__ for function in compiled]
    assert len(set(names)) == len(names) > 20
    assert len({name.rsplit("_")[-1] for name in names}) == 1  # the hash of the source


def test_code_that_processes_compiled_in_different_orders_fits_together(tmp_path):
    """Each process numbers what it compiles; the last one loads what two others saved."""
    split = """
import numpy as np, sys, splitjit
from numba import njit
from splitjit._kernels.copy import copy_loop, copy_part

for name in sys.argv[1:]:
    copy_part() if name == "part" else copy_loop(name)

@njit
def compiled(x, sizes):
    return splitjit.split(x, sizes, 1)

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
    for order in (["transpose"], ["part"], ["deal"], ["copy", "part", "transpose", "deal"]):
        subprocess.run([sys.executable, "-c", split, *order], env=environment, check=True)
