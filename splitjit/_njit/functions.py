"""The table of functions that users' compiled code calls, behind an LLVM symbol.

The addresses differ between processes, but Numba caches compiled code. So compiled code refers to
the table by name, and each process fills its own table before such code can run: when Numba
compiles a call of `split`, or loads code with such a call from its cache.
"""

import ctypes

import llvmlite.binding as llvm
import numba
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python

from splitjit._abi.calls import FUNCTIONS_AT, WORD, Functions, keep_forever
from splitjit._abi.kernels import KERNELS
from splitjit._abi.structs import MEM_INFO, WORKS_WITH
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy.buffers import POOL
from splitjit._plan.arguments import MOST_IN_MEMORY
from splitjit._runtime import kernel_files
from splitjit._runtime.loading import LOADER, LOOP_ADDRESSES
from splitjit._runtime.threads import TEAM

SYMBOL = "splitjit_functions"

TABLE = keep_forever((ctypes.c_int64 * len(FUNCTIONS_AT))())

# LLVM crashes or aborts if code has an undefined symbol. Not in `init`: if splitjit is imported
# without being installed, Numba does not call it, but still loads code from its cache.
llvm.add_symbol(SYMBOL, ctypes.addressof(TABLE))


_FIND_SYMBOL = llvm.ffi.lib._lib.LLVMPY_SearchAddressOfSymbol
"""LLVM's function behind `llvmlite.binding.address_of_symbol`."""

_NUMBA_LIMIT = ctypes.create_string_buffer(b"get_num_threads")


def _new_mem_info():
    """Return the address of Numba's `MemInfo_alloc_dtor`; refuse a Numba with another `MemInfo`."""
    word, helpers = ctypes.c_int64, _nrt_python.c_helpers
    kind = ctypes.CFUNCTYPE(word, word, word)
    addresses = [helpers.get(f"MemInfo_{name}") for name in ("alloc_dtor", "data", "release")]
    if None not in addresses:
        new, data, release = map(kind, addresses)
        memory = new(WORD, 0)
        if [word.from_address(memory + WORD * i).value for i in MEM_INFO] == [1, data(memory, 0)]:
            release(memory, 0)
            return addresses[0]
    raise TypingError(f"Numba {numba.__version__} has another struct MemInfo. {WORKS_WITH}")


def fill_table():
    """Load the functions, or compile them. The calling thread may hold Numba's lock."""
    if TABLE[FUNCTIONS_AT.measure]:
        return
    functions = {}
    for kernel in KERNELS.keys() - {"join"}:
        functions |= LOADER.load_here(kernel)
    TEAM.read_limits()
    TABLE[:] = Functions(
        **{name: at for name, at in functions.items() if name in Functions._fields},
        loops=ctypes.addressof(LOOP_ADDRESSES),
        blocks=POOL.address,
        find_symbol=ctypes.cast(_FIND_SYMBOL, ctypes.c_void_p).value,
        numba_limit=ctypes.addressof(_NUMBA_LIMIT),
        new_mem_info=_new_mem_info(),
        team=TEAM.address,
        stream_short_runs=THRESHOLDS.stream_from[0],
        stream_long_runs=THRESHOLDS.stream_from[1],
        large=THRESHOLDS.large,
        most_parts=MOST_IN_MEMORY,
    )


class Needed:
    """A note in compiled code that it needs the functions of this version.

    Numba pickles it into its cache with the code. Unpickling it fills the table. If splitjit has
    changed, and so the name of the object file, it raises an OSError instead, upon which Numba
    compiles the code again.
    """

    def __reduce__(self):
        return _load_needed, (kernel_files.file_name("njit_split"),)


def _load_needed(needed):
    if needed != kernel_files.file_name("njit_split"):
        raise OSError("splitjit has changed since this code was compiled")
    fill_table()
    return Needed()
