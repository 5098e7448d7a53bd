"""The kernels become machine code for Windows and macOS, and need no symbol that these lack.

LLVM assembles the code of each kernel, as it is optimized here, for systems that are not at
hand. An object file is linked only if every undefined symbol of it is found.
"""

import ctypes
import platform
import re
import struct
import sys
import types

import numba
import pytest

import splitjit
from splitjit._kernels.table import KERNELS
from tests.conftest import needs_kernels

pytestmark = [
    needs_kernels,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="tells Numba's symbols apart on Linux only"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="code may have instructions of ARM"),
]

TARGETS = ["x86_64-pc-windows-msvc", "x86_64-apple-darwin", "arm64-apple-darwin"]

LIBC = {"free", "malloc", "memcpy", "memmove", "memset"}
FRAMES = {"stream", "deinterleave", "transpose", "part"}
"""The loops with a staging buffer of several pages on the stack."""


@pytest.fixture(scope="module")
def kernels():
    """Return the optimized LLVM module of each kernel: name to module."""
    splitjit.warmup(["u1"])  # so that Numba has registered all its symbols
    from splitjit._kernels import build, compiling, launch, wake

    found = {}
    codegen = compiling._Function.targetdescr.target_context.codegen()
    with pytest.MonkeyPatch.context() as patch:
        machine = types.SimpleNamespace(emit_object=lambda module: module.clone())
        patch.setattr(codegen, "_tm", machine)
        # The parallel launcher as on systems other than Linux.
        patch.setattr(wake, "_ON_LINUX", False)
        for helper in ("new_state", "start", "finish"):
            options = {"inline": "always"} if helper == "new_state" else {}
            patch.setattr(launch, helper, compiling.jit(getattr(wake, helper).py_func, **options))
        run_tasks = compiling.jit(launch._run_tasks.py_func, parallel=True)
        patch.setattr(launch, "_run_tasks", run_tasks)
        signature, function = launch.PARALLEL["run_parallel"]
        function = compiling.jit(function.py_func)
        patch.setitem(launch.PARALLEL, "run_parallel", (signature, function))
        for name in KERNELS:
            found[name] = build.compile_kernel(name)
    return found


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


def undefined(data):
    """Return the names that an object file of Windows (COFF) or macOS (Mach-O) refers to only."""
    if data[:4] == b"\xcf\xfa\xed\xfe":
        return undefined_in_macho(data)
    return undefined_in_coff(data)


def undefined_in_coff(data):
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


def is_registered(name):
    """Return whether LLVM knows a symbol that the process does not export: Numba's."""
    from llvmlite import binding

    return binding.address_of_symbol(name) and not hasattr(ctypes.CDLL(None), name)


@pytest.mark.parametrize("target", TARGETS)
def test_all_systems_have_the_symbols(kernels, target):
    frames = set()
    for kernel, module in kernels.items():
        names = undefined(assemble(module, target))
        if "__chkstk" in names:  # LLVM calls it in a function with a frame of more than a page
            frames.add(kernel)
        others = names - LIBC - {"__chkstk"}
        if kernel == "parallel":
            assert "numba_parallel_for" in others
            others.discard("printf")  # from Numba's own code of `prange`
        lacking = [
            name
            for name in others
            if not is_registered(name)
            and not (re.match("_?Py", name) and hasattr(ctypes.pythonapi, name))
        ]
        assert not lacking, kernel
    assert frames == (FRAMES if "windows" in target else set())
