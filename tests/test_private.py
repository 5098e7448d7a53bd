"""Private parts of Numba, llvmlite, NumPy and CPython that the package uses, one test for each.

If a new version takes one of them away, the test that has its name fails. The table says what
uses it, and what happens without it.
"""

import ast
import importlib
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import splitjit


def attribute(path):
    """Return what `module:attribute.attribute` names."""
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


CGUTILS = (
    *("alloca_once", "alloca_once_value", "for_range", "for_range_slice"),
    *("get_or_insert_function", "pack_array", "raw_memcpy", "unpack_tuple", "voidptr_t"),
)
CODEGEN = (
    *("AOTCodeLibrary.finalize", "AOTCodeLibrary._optimize_final_module"),
    *("AOTCPUCodegen._customize_tm_options", "JITCPUCodegen._customize_tm_features"),
    *("JITCPUCodegen._get_host_cpu_features", "JITCPUCodegen._get_host_cpu_name"),
)
MAY_DIFFER = np.intp(0).nbytes != 8 or not getattr(sys, "_is_gil_enabled", lambda: True)()

PRIVATE = {
    # what it is: (who uses it, what happens without it, whether it is there)
    "numba.core.codegen": (
        "_kernels.compiling", "NumPy copies",
        lambda: all(attribute(f"numba.core.codegen:{name}") for name in CODEGEN),
    ),
    "numba.core.compiler_lock.global_compiler_lock": (
        "_kernels.compiling", "NumPy copies",
        lambda: attribute("numba.core.compiler_lock:global_compiler_lock.__enter__"),
    ),
    "numba.core.dispatcher.Dispatcher": (
        "_kernels.compiling", "NumPy copies",
        lambda: attribute("numba.core.dispatcher:Dispatcher.add_overload")
        and attribute("numba.core.dispatcher:Dispatcher.get_call_template"),
    ),
    "numba.core.registry": (
        "_kernels.compiling", "NumPy copies",
        lambda: attribute("numba.core.registry:cpu_target.target_context").subtarget
        and attribute("numba.core.registry:CPUTarget"),
    ),
    "numba.core.runtime.rtsys.library": (
        "_kernels.compiling", "NumPy copies",
        lambda: "library" in vars(type(attribute("numba.core.runtime:rtsys"))),
    ),
    "numba.core.cgutils": (
        "_kernels", "splits raise an error",
        lambda: all(attribute(f"numba.core.cgutils:{name}") for name in CGUTILS),
    ),
    "numba.core.errors": (
        "_kernels.llvm, _njit", "splits raise an error",
        lambda: attribute("numba.core.errors:RequireLiteralValue")
        and attribute("numba.core.errors:TypingError"),
    ),
    "numba.cpython.listobj.ListInstance": (
        "_njit.calls", "compiled code of users cannot split",
        lambda: attribute("numba.cpython.listobj:ListInstance.allocate")
        and attribute("numba.cpython.listobj:ListInstance.data"),
    ),
    "the environment of compiled code": (
        "_njit.calls", "compiled code of users cannot split",
        lambda: hasattr(
            attribute("numba.core.registry:cpu_target").target_context, "environment"
        )
        and isinstance(attribute("numba.core.environment:Environment")({}).consts, list),
    ),
    "an OSError while cached code is loaded": (
        "_njit.functions", "code of users that is older than splitjit must be deleted",
        lambda: "OSError" in attribute("numba.core.caching:IndexDataCacheFile.load")
        .__code__.co_names,
    ),
    "NRT_MemInfo_alloc_aligned and NRT_MemInfo_data": (
        "_njit.calls", "compiled code of users cannot split",
        lambda: {"MemInfo_alloc_aligned", "MemInfo_data"}
        <= {*attribute("numba.core.runtime:_nrt_python.c_helpers")},
    ),
    "numba.np.ufunc.parallel._get_num_threads": (
        "_copy.cores", "numba.set_num_threads limits no helpers",
        lambda: numba.get_num_threads()
        == attribute("numba.np.ufunc.parallel:_get_num_threads")(),
    ),
    "numpy._core._multiarray_umath._ARRAY_API": (
        "_copy.structs", "Python checks the arrays, not compiled code",
        lambda: "PyCapsule" in type(attribute("numpy._core._multiarray_umath:_ARRAY_API")).__name__,
    ),
    "the structs of lists and arrays": (
        "_copy.structs", "Python checks the arrays, not compiled code",
        lambda: attribute("splitjit._copy.structs:_reads_arrays")() or MAY_DIFFER,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRIVATE)
def test_it_is_there(name):
    user, otherwise, is_there = PRIVATE[name]
    assert is_there(), f"{name}, which {user} uses, is gone: {otherwise}"


def test_the_table_has_all_private_parts_of_numba():
    """Also the functions of `cgutils`, each by its name."""
    listed = {*PRIVATE, *(f"numba.core.cgutils.{name}" for name in CGUTILS)}
    listed |= {f"numba.core.codegen.{name.partition('.')[0]}" for name in CODEGEN}
    listed |= {
        *("numba.core.registry.CPUTarget", "numba.core.registry.cpu_target"),
        "numba.core.runtime.rtsys",
        "numba.core.errors.RequireLiteralValue",
        "numba.core.errors.TypingError",
    }
    used = set()
    for path in Path(splitjit.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba."):
                used |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "cgutils":
                used.add(f"numba.core.cgutils.{node.attr}")
    public = {name for name in used if name.startswith("numba.extending.")}
    assert used - public <= listed
    assert {name for name in listed if "cgutils" in name} <= used | {"numba.core.cgutils"}
