"""The object files of kernels need only symbols that processes have, also on Windows and macOS."""

import importlib
import platform
import runpy
import struct
import sys
import types

import numba
import pytest

from splitjit._abi.kernels import KERNELS
from splitjit._runtime import kernel_files
from tests.conftest import needs_kernels

pytestmark = [
    needs_kernels,
    pytest.mark.skipif(sys.platform != "linux", reason="reads object files of Linux"),
    pytest.mark.usefixtures("warm"),  # so Numba has registered all its symbols, too
]

PYTHON = {
    *("PyCapsule_GetPointer", "PyCapsule_New", "PyErr_Clear", "PyErr_SetObject"),
    *("PyEval_RestoreThread", "PyEval_SaveThread", "PyList_New", "PyList_SetItem"),
    *("PyLong_AsSsize_t", "PyLong_FromSsize_t", "Py_DecRef", "Py_IncRef", "PyThread_acquire_lock"),
    *("PyThread_allocate_lock", "PyThread_release_lock", "PyThread_start_new_thread"),
}
"""The functions of CPython's C API that `core` calls."""

LIBC = {"free", "malloc", "memcpy", "memmove", "memset"}
POSIX = {"clock_gettime", "sched_yield", "usleep", "pthread_sigmask", "sigdelset", "sigfillset"}
LINUX = {
    *POSIX,
    *("__sched_cpucount", "getpid", "sched_getaffinity", "sched_getcpu", "sched_setaffinity"),
    *("madvise", "mmap", "munmap"),
}
"""What the kernel `core` calls on Linux."""

TARGETS = {
    # what it calls elsewhere
    "x86_64-pc-windows-msvc": {"GetSystemTimePreciseAsFileTime", "Sleep"},
    "x86_64-apple-darwin": POSIX,
    "arm64-apple-darwin": POSIX,
}
FRAMES = {"stream", "join"}
"""The loops with more than a page on the stack."""


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


@pytest.mark.parametrize("kernel", KERNELS)
def test_symbols(kernel):
    """The linker would find others, such as those of Numba, only in some processes."""
    defined, needed = symbols(kernel_files.read(kernel))
    assert defined == set().union(*KERNELS[kernel].values())
    assert needed <= LIBC | (PYTHON | LINUX if kernel == "core" else set())
    assert kernel != "core" or needed >= PYTHON


# ---- other systems -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernels():
    """Return a function that compiles a kernel for a system to an optimized LLVM module."""
    from splitjit._kernels import compiling

    found = {}
    codegen = compiling._Function.targetdescr.target_context.codegen()

    def compiled(kernel, target):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(codegen._tm, "emit_object", lambda module: module.clone())
            if kernel == "core":
                patch.setattr(sys, "platform", "win32" if "windows" in target else "darwin")
                code = {}
                for name in ("core.c_api", *reversed(KERNELS["core"])):
                    module = importlib.import_module(f"splitjit._kernels.{name}")
                    other = runpy.run_path(module.__file__)
                    twin = types.ModuleType(module.__name__)
                    vars(twin).update(other)
                    patch.setitem(sys.modules, module.__name__, twin)
                    patch.setattr(module.__name__, twin)
                    code |= other
                patch.undo()
                patch.setattr(codegen._tm, "emit_object", lambda module: module.clone())
                patch.setattr(platform, "machine", lambda: target.partition("-")[0])
                exported = [name for names in KERNELS["core"].values() for name in names]
                return compiling.object_code([code[name] for name in exported])
            if kernel not in found:
                found[kernel] = compiling.compile_kernel(kernel)
            return found[kernel]

    return compiled


def assemble(module, target):
    """Return the object file of an LLVM module for a generic processor of a target."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    level = numba.config.OPT if "windows" in target else 0  # the frames are those of Numba's level
    machine = binding.Target.from_triple(target).create_target_machine(opt=level)
    module = module.clone()
    module.triple, module.data_layout = target, str(machine.target_data)
    return machine.emit_object(module)


def undefined_in_coff(data):
    """Return the names that an object file of Windows (COFF) refers to only."""
    _, _, _, table, count = struct.unpack_from("<HHIII", data)
    strings = table + 18 * count
    names, i = set(), 0
    while i < count:
        at = table + 18 * i
        name, value, section, _, storage, more = struct.unpack_from("<8sIhHBB", data, at)
        if name[:4] == bytes(4):  # a long name, in the table of strings
            start = strings + int.from_bytes(name[4:], "little")
            name = data[start : data.index(b"\0", start)]
        if storage == 2 and section == value == 0:  # external, in no section
            names.add(name.rstrip(b"\0").decode())
        i += 1 + more
    return names


def undefined_in_macho(data):
    """Return the names that an object file of macOS (Mach-O) refers to only."""
    commands, at = struct.unpack_from("<I", data, 16)[0], 32
    names = set()
    for _ in range(commands):
        command, size, table, count, strings, _ = struct.unpack_from("<6I", data, at)
        for i in range(count if command == 2 else 0):  # LC_SYMTAB
            name, kind, _, _, value = struct.unpack_from("<IBBHQ", data, table + 16 * i)
            if kind & 0x0F == 1 and value == 0:  # external, in no section
                start = strings + name + 1  # names begin with an underscore
                names.add(data[start : data.index(b"\0", start)].decode())
        at += size
    return names


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="code may have instructions of ARM")
@pytest.mark.parametrize("target", TARGETS)
def test_all_systems_have_the_symbols(kernels, target):
    frames = set()
    undefined = undefined_in_coff if "windows" in target else undefined_in_macho
    for kernel in KERNELS:
        names = undefined(assemble(kernels(kernel, target), target))
        if "__chkstk" in names:  # LLVM calls it in a function with a frame of more than a page
            frames.add(kernel)
        others = {name.removeprefix("_") if "apple" in target else name for name in names}
        others -= LIBC | {"__chkstk"}
        if kernel == "core":
            assert TARGETS[target] <= others
            others -= TARGETS[target]
        assert others <= PYTHON, kernel
    assert frames == (FRAMES if "windows" in target else set())
