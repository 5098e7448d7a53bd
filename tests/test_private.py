"""Private parts of Numba, llvmlite, NumPy and CPython that the package uses, one test for each.

If a new version takes one of them away, the test that has its name fails. The table says what
uses it, and what happens without it.
"""

import ast
import importlib
import sys
import types
import weakref
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import pytest
from numba import njit

import splitjit
from splitjit._copy import loading


def attribute(path):
    """Return what `module:attribute.attribute` names."""
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


def a_function():
    return 1


def is_reference_with_owner():
    """Return whether Python's table of module locks has weak references to locks with an owner."""
    locks = attribute("importlib:_bootstrap._module_locks")
    lock = attribute("importlib:_bootstrap._get_module_lock")("splitjit.none")
    return isinstance(locks["splitjit.none"], weakref.ref) and lock.owner is None


def has_locks(name):
    return hasattr(vars(type(attribute("numba.core.registry:cpu_target")))[name], "_lock")


CGUTILS = (
    *("alloca_once", "alloca_once_value", "for_range", "for_range_slice"),
    *("get_or_insert_function", "pack_array", "raw_memcpy", "unpack_tuple", "voidptr_t"),
)
MAY_DIFFER = np.intp(0).nbytes != 8 or not getattr(sys, "_is_gil_enabled", lambda: True)()

PRIVATE = {
    # what it is: (who uses it, what happens without it, whether it is there)
    "numba.core.compiler_lock.global_compiler_lock._lock": (
        "_copy.loading", "a split may wait for a thread that compiles",
        lambda: attribute("numba.core.compiler_lock:global_compiler_lock._lock.acquire"),
    ),
    "numba.core.registry.CPUTarget._toplevel_typing_context": (
        "_copy.loading", "two threads that use Numba for the first time may wait for ever",
        lambda: has_locks("_toplevel_typing_context"),
    ),
    "numba.core.registry.CPUTarget._toplevel_target_context": (
        "_copy.loading", "two threads that use Numba for the first time may wait for ever",
        lambda: has_locks("_toplevel_target_context"),
    ),
    "importlib._bootstrap._module_locks": (
        "_copy.loading", "a split may wait for a thread that imports",
        is_reference_with_owner,
    ),
    "numba.core.caching.FunctionCache.cache_path": (
        "_kernels.cached_files", "kernels are compiled in each process",
        lambda: attribute("numba.core.caching:FunctionCache")(a_function).cache_path,
    ),
    "codegen().magic_tuple()": (
        "_kernels.compiling", "splits raise an error",
        lambda: attribute("numba.core.registry:cpu_target")
        .target_context.codegen().magic_tuple(),
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
    "numba.core.dispatcher.Dispatcher.get_overload": (
        "_copy.threads", "splits raise an error",
        lambda: njit("int64()")(a_function).get_overload(()),
    ),
    "numba.np.ufunc.parallel get_num_threads": (
        "_kernels.launch", "splits raise an error",
        lambda: numba.get_num_threads() and llvmlite.binding.address_of_symbol("get_num_threads"),
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
    listed |= {
        "numba.core.compiler_lock.global_compiler_lock",  # its lock is listed
        "numba.core.registry.cpu_target",  # its locks and its codegen are
        "numba.core.caching.FunctionCache",  # its path is
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


# ---- what happens without it -------------------------------------------------------------


def test_without_the_locks_of_numba(monkeypatch):
    """A later Numba may have other locks. Then none is taken, and kernels are loaded."""
    monkeypatch.setattr("numba.core.compiler_lock.global_compiler_lock", object())
    monkeypatch.setattr("numba.core.registry.cpu_target", types.SimpleNamespace())
    assert loading._locks_of_numba() == []
    assert loading.load(lambda: "loaded", wait=True) == "loaded"


def test_without_the_locks_of_modules(monkeypatch):
    monkeypatch.setattr(loading, "_module_locks", {})
    assert loading._importing() == []
