"""The object file of a kernel has its C functions, and needs only symbols that processes have."""

import struct
import sys

import pytest

import splitjit
from splitjit._abi.kernels import KERNELS, PYTHON_FUNCTIONS
from splitjit._runtime import kernel_files
from tests.conftest import needs_kernels

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
