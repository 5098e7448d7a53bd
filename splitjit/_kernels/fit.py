"""Check that Numba is as the kernels, and calls in users' compiled code, expect it to be.

Numba's private parts may change in any release. If one has, nothing is compiled or linked, and
NumPy copies.
"""

from __future__ import annotations

import importlib

from splitjit._abi.layout_record import WORD
from splitjit._abi.structs import NUMBA

_NAMES = {
    "numba.core.cgutils": "alloca_once alloca_once_value for_range for_range_slice "
    "get_or_insert_function pack_array raw_memcpy unpack_tuple",
    "numba.core.codegen": "AOTCPUCodegen._customize_tm_options AOTCPUCodegen._get_host_cpu_name "
    "AOTCodeLibrary._optimize_final_module CodeLibrary.finalize",
    "numba.core.compiler_lock": "global_compiler_lock.__enter__",
    "numba.core.config": "reload_config",
    "numba.core.datamodel": "default_manager",
    "numba.core.dispatcher": "Dispatcher.add_overload Dispatcher.get_call_template",
    "numba.core.environment": "Environment",
    "numba.core.errors": "TypingError",
    "numba.core.registry": "CPUTarget cpu_target",
    "numba.core.cpu": "CPUContext.environment CPUContext.subtarget",
    "numba.core.runtime": "rtsys.__class__.library _nrt_python.c_helpers",
    "numba.core.runtime.context": "NRTContext.decref",
    "numba.cpython.listobj": "ListInstance.allocate ListInstance.data ListInstance.size",
}
NAMES = [f"{module}:{name}" for module, names in _NAMES.items() for name in names.split()]
"""Numba's private names that splitjit uses, as ``module:attribute.attribute``."""

_ARRAY = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
"""The fields of Numba's C struct `arystruct_t`, in the order of `NUMBA`."""


class Misfit(ImportError):
    """The installed Numba is not as expected. Another import would not change that."""


def check() -> None:
    """Raise a `Misfit` that says what is different in this Numba."""
    import numba

    for path in NAMES:
        module, _, names = path.partition(":")
        try:
            found = importlib.import_module(module)
            for name in names.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError):
            raise Misfit(f"Numba {numba.__version__} has no {path}") from None
    from numba.core.environment import Environment

    if not isinstance(getattr(Environment({}), "consts", None), list):
        raise Misfit(f"Numba {numba.__version__} has other environments")
    if not _has_arrays():
        raise Misfit(f"Numba {numba.__version__} has another struct of arrays")


def _has_arrays() -> bool:
    """Return whether arrays lie in memory as expected: five words, the shape, the strides."""
    from llvmlite import ir
    from numba import types
    from numba.core.datamodel import default_manager

    rank, word = 3, ir.IntType(8 * WORD)
    model = default_manager.lookup(types.Array(types.int32, rank, "A"))
    words = [*NUMBA, NUMBA.shape + 1]
    if model.field_count != len(_ARRAY) or [*map(model.get_field_position, _ARRAY)] != words:
        return False
    *pointers, shape, strides = model.get_value_type().elements
    extents = ir.ArrayType(word, rank)
    return [shape, strides] == [extents, extents] and all(
        kind == word or isinstance(kind, ir.PointerType) for kind in pointers
    )
