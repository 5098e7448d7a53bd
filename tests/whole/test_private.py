"""Private parts of Numba, llvmlite, NumPy and CPython: what happens if one is gone."""

import ctypes
import functools
import importlib
import sys

import numba
import numpy as np
import pytest
from numba import types
from numba.core.datamodel import default_manager, models
from numba.core.errors import TypingError

import splitjit
from splitjit import _njit
from splitjit._abi import structs
from splitjit._copy import how
from splitjit._njit import functions
from splitjit._runtime import loading
from tests.processes import run


def attribute(path):
    """Return what `module:attribute.attribute` names."""
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in filter(None, names.split(".")):
        found = getattr(found, name)
    return found


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def address_of(symbol):
    """Return an address as compiled code of users asks LLVM for it."""
    find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)
    return find(address(functions._FIND_SYMBOL))(symbol.encode())


MAY_DIFFER = np.intp(0).nbytes != 8 or not getattr(sys, "_is_gil_enabled", lambda: True)()

PRIVATE = {
    # what it is: (who uses it, what happens without it, whether it is there)
    "an OSError while cached code is loaded": (
        "_njit.functions", "code of users that is older than splitjit must be deleted",
        lambda: "OSError" in attribute("numba.core.caching:IndexDataCacheFile.load")
        .__code__.co_names,
    ),
    "Environment.consts": (
        "_njit.calls", "compiled code of users cannot split",
        lambda: attribute("numba.core.environment:Environment")({}).consts == [],
    ),
    "NRT_MemInfo_alloc_dtor and others": (
        "_njit.functions", "compiled code of users cannot split",
        lambda: {f"MemInfo_{name}" for name in ("alloc_dtor", "data", "release")}
        <= {*attribute("numba.core.runtime:_nrt_python.c_helpers")},
    ),
    "llvmlite.binding.ffi.lib._lib.LLVMPY_SearchAddressOfSymbol": (
        "_njit.functions", "compiled code of users cannot split",
        lambda: numba.get_num_threads() and address_of("get_num_threads")
        == address(attribute("numba.np.ufunc.parallel:_get_num_threads")),
    ),
    "numba.np.ufunc.parallel._get_num_threads": (
        "_runtime.threads", "numba.set_num_threads limits no helpers",
        lambda: numba.get_num_threads()
        == attribute("numba.np.ufunc.parallel:_get_num_threads")(),
    ),
    "numpy._core._multiarray_umath._ARRAY_API": (
        "_abi.structs", "Python checks the arrays, not compiled code",
        lambda: "PyCapsule" in type(attribute("numpy._core._multiarray_umath:_ARRAY_API")).__name__,
    ),
    "the structs of lists and arrays": (
        "_abi.structs", "Python checks the arrays, not compiled code",
        lambda: structs.READS_ARRAYS or MAY_DIFFER,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRIVATE)
def test_it_is_there(name):
    user, otherwise, is_there = PRIVATE[name]
    assert is_there(), f"{name}, which {user} uses, is gone: {otherwise}"


@pytest.mark.parametrize(
    "fields",
    [
        lambda fields: [*fields[:2], fields[3], fields[2], *fields[4:]],  # in another order
        lambda fields: [*fields[:4], ("flags", types.int64), *fields[4:]],
        lambda fields: [fields[0], ("parent", types.int32), *fields[2:]],
        lambda fields: [*fields[:5], ("shape", types.UniTuple(types.int32, 3)), fields[6]],
    ],
)
def test_a_numba_with_another_struct_of_arrays_does_not_fit(fields, monkeypatch):
    model = default_manager.lookup(types.Array(types.int32, 3, "A"))
    pairs = [*zip(model._fields, model._members, strict=True)]
    other = models.StructModel(default_manager, model.fe_type, fields(pairs))
    monkeypatch.setattr(type(default_manager), "lookup", lambda manager, kind: other)
    with pytest.raises(RuntimeError, match="another struct of arrays"):
        structs.check_numba()


def test_nothing_is_compiled_for_big_endian_processors(monkeypatch):
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(RuntimeError, match="little-endian"):
        structs.check_numba()


@pytest.mark.parametrize("swapped", [(0, 1), (0, 2), (0, 3), (0, 4), (1, 3), (2, 3), (3, 4)])
def test_a_numba_with_another_struct_of_memory_does_not_fit(swapped, monkeypatch):
    """The struct has references, two words for Numba alone, the data, and its bytes."""
    helpers, word = attribute("numba.core.runtime:_nrt_python.c_helpers"), ctypes.c_int64
    kind = ctypes.CFUNCTYPE(word, word, word)
    allocate, data_of = (kind(helpers[f"MemInfo_{name}"]) for name in ("alloc_dtor", "data"))
    (i, j), data = swapped, []

    @kind
    def allocate_other(nbytes, free):
        memory = allocate(nbytes, free)
        data.append(data_of(memory, 0))
        words = (word * 5).from_address(memory)
        words[i], words[j] = words[j], words[i]
        return memory

    data_of_other = kind(lambda memory, _: data[-1])
    monkeypatch.setitem(helpers, "MemInfo_alloc_dtor", address(allocate_other))
    monkeypatch.setitem(helpers, "MemInfo_data", address(data_of_other))
    monkeypatch.setattr(functions, "TABLE", [0] * len(functions.TABLE))  # not filled yet
    x = np.zeros((4, *[1] * (6 + 6 * i + j)))  # Numba types a call of `split` once for a rank
    with pytest.raises(TypingError, match="has another struct MemInfo. splitjit works with"):
        numba.njit(lambda x: splitjit.split(x, 2))(x)
    monkeypatch.delitem(helpers, "MemInfo_alloc_dtor")
    with pytest.raises(TypingError):
        functions._new_mem_info()


MISFIT = """
import logging
import numba
import numpy as np
import splitjit
from numba.core import cgutils
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._runtime.loading import LOADER

THRESHOLDS.stream_from = 0, 0  # the plain loop, for arrays that fit the cache, needs no such name

class Messages(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.WARNING:
            said.append(record.getMessage())

said = []
logging.getLogger("splitjit").addHandler(Messages())
del cgutils.raw_memcpy
x = np.arange(2**22).reshape(1024, -1)
for _ in range(3):
    for order in "CF":
        parts = splitjit.split(np.asarray(x, order=order), num_splits=4, axis=1)
        assert all(map(np.array_equal, parts, np.split(x, 4, 1)))
assert not {"stream", "transpose"} & {*LOADER.loaded}
(message,) = said
assert "Numba 0.61 to " in message and "raw_memcpy" in message, message
"""


@pytest.mark.long
def test_numpy_copies_beside_a_numba_that_does_not_fit(tmp_path):
    """One warning names the releases that work, and the kernels that need the name are missing."""
    run(tmp_path, MISFIT, NUMBA_CACHE_DIR="cache")


def test_compiled_code_beside_a_numba_that_does_not_fit(monkeypatch, caplog):
    monkeypatch.setattr(structs, "_NAMES", structs._NAMES[::-1])
    monkeypatch.setitem(sys.modules, "splitjit._njit.overloads", None)  # an import would fail
    monkeypatch.setattr(loading.LOADER, "_not_before", {})
    _njit.init()
    _njit.init()
    (record,) = caplog.records
    assert "another struct of arrays" in record.getMessage()
    assert record.getMessage().endswith(structs.WORKS_WITH)


def test_arrays_that_do_not_fit_are_logged_once(monkeypatch, caplog):
    shared_fields = functools.cache(how.shared_fields.__wrapped__)
    monkeypatch.setattr(structs, "READS_ARRAYS", False)
    assert shared_fields() is None
    assert shared_fields() is None
    (record,) = caplog.records
    assert record.name == "splitjit"
    assert f"NumPy {np.__version__}, so small splits take longer" in record.getMessage()
    assert "CPython 3.11 to " in record.getMessage()
