"""Check that Numba is as the kernels, and calls in users' compiled code, expect it to be.

Numba's private parts may change in any release. If a name is gone, a kernel that needs it cannot
be compiled, and NumPy copies. If arrays lie in memory in another way, nothing may be compiled.
"""

from __future__ import annotations

from splitjit._abi.layout_record import WORD
from splitjit._abi.structs import NUMBA

_ARRAY = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
"""The fields of Numba's C struct `arystruct_t`, in the order of `NUMBA`."""


class Misfit(ImportError):
    """The installed Numba is not as expected. Another import would not change that."""


def check() -> None:
    """Raise a `Misfit` that says what is different in this Numba."""
    import numba

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
