"""The object file of a kernel has its C functions, and needs only symbols that processes have."""

import shutil
import struct
import sys
from pathlib import Path

import pytest

import splitjit
from splitjit._abi.kernels import KERNELS, PYTHON_FUNCTIONS
from splitjit._runtime import kernel_files
from tests.conftest import needs_kernels
from tests.processes import python

pytestmark = needs_kernels

LIBC = {"free", "malloc", "memcpy", "memmove", "memset"}
SYSTEM = {
    *("clock_gettime", "usleep", "pthread_sigmask", "sigdelset", "sigfillset"),
    *("sched_getaffinity", "sched_getcpu", "sched_setaffinity"),
    *("madvise", "mmap", "munmap"),
}
"""What `splitjit._kernels.core.team` and `blocks` call on Linux."""


def symbols(data):
    """Return the names that an object file of Linux (ELF) defines, and those that it needs."""
    defined, needed = set(), set()
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQI", data, start + size * i) for i in range(count)]
    for _, kind, _, _, offset, length, link in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        for entry in range(offset + 24, offset + length, 24):
            name, info, _, section = struct.unpack_from("<IBBH", data, entry)
            name += sections[link][4]
            if info >> 4:  # not local
                found = defined if section else needed
                found.add(data[name : data.index(b"\0", name)].decode())
    return defined, needed


@pytest.mark.skipif(sys.platform != "linux", reason="reads object files of Linux")
@pytest.mark.parametrize("kernel", KERNELS)
def test_symbols(kernel):
    """The linker would find others, such as those of Numba, only in some processes."""
    splitjit.warmup(["u1"])
    defined, needed = symbols(kernel_files.read(kernel))
    assert defined == set().union(*KERNELS[kernel].values())
    known = LIBC | {*PYTHON_FUNCTIONS}
    if kernel == "core":
        known |= SYSTEM
    assert needed <= known


@pytest.mark.skipif(sys.platform != "linux", reason="reads object files of Linux")
def test_kernels_need_all_symbols_of_the_tables():
    splitjit.warmup(["u1"])
    needed = set().union(*[symbols(kernel_files.read(kernel))[1] for kernel in KERNELS])
    assert {*PYTHON_FUNCTIONS} <= needed


@pytest.mark.slow
def test_a_kind_added_to_the_table_works(tmp_path):
    """The layout chooses the loop, and the loop chooses its code, from the same table."""
    source = Path(splitjit.__file__).parent
    folder = shutil.copytree(
        source, tmp_path / source.name, ignore=shutil.ignore_patterns("__pycache__")
    )
    table = folder / "_abi" / "kernels.py"
    text = table.read_text()
    changed = text.replace("for parts in (2, 3, 4, 8)", "for parts in (2, 3, 4, 5, 8)")
    assert changed != text
    table.write_text(changed)
    code = """
import numpy as np, splitjit
from splitjit._copy import copy
from splitjit._copy.copy import lay_out

splitjit.warmup(["u1"])

splitjit.SplitPlan._kept = property(lambda plan: {}, lambda plan, kept: None)  # keep no copies
splitjit.SplitPlan._copy = property(lambda plan: None, lambda plan, compiled: None)
for stream_from in (0, 1 << 62):
    copy.STREAM_FROM = (stream_from, stream_from)
    for itemsize in (1, 2, 4):
        x = np.random.default_rng(0).integers(0, 256, (9973, 5 * itemsize), np.uint8)
        x = x.view(f"V{itemsize}")
        plan = splitjit.plan_split(x.shape, num_splits=5, axis=1)
        assert lay_out(plan, x.strides, x.itemsize).loop == "deinterleave"
        for part, index in zip(plan(x), plan.slices, strict=True):
            assert part.tobytes() == x[index].tobytes()
"""
    python("-c", code, cwd=tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
