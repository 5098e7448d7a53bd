"""Memory for fresh parts: one block per call. Large blocks are reused.

The system zeroes each page of fresh memory on first touch, which costs more than
the copy. So a large block returns to a pool when its last part is freed, and a
later call reuses it. Users' compiled code shares the pool.
"""

import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from splitjit._abi import structs
from splitjit._abi.calls import ALIGNMENT, BLOCKS, SLOTS, Expected, aligned, keep_forever
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._inputs.arrays import as_dtype
from splitjit._plan.arguments import integer
from splitjit._plan.plan import Plan
from splitjit._runtime.events import warn_of_variable
from splitjit._runtime.loading import NATIVE
from splitjit.errors import SplitError, pairs

_BYTE = np.dtype(np.uint8)
_NO_MEMORY = (
    "splitjit: not enough memory for the parts, or for an array of them; "
    "out= writes to existing arrays, such as memory maps"
)
_DEFAULT_LIMIT = 1 << 28

_Made = TypeVar("_Made")


def words_of(arrays: Iterable[np.ndarray]) -> list[int]:
    """Return the address, the shape and the strides of each array: a table for compiled code."""
    return [n for array in arrays for n in (array.ctypes.data, *array.shape, *array.strides)]


def retry(make: Callable[..., _Made], *arguments: Any) -> _Made:
    """Call a function; if it runs out of memory, free the idle blocks and call it once more."""
    try:
        return make(*arguments)
    except MemoryError:
        POOL.clear()
    return make(*arguments)  # outside of the handler, whose traceback keeps unfinished parts


def allocate_parts(plan: Plan, dtype: np.dtype) -> tuple[list[np.ndarray], int]:
    """Allocate the parts of a plan in one block.

    Parameters
    ----------
    plan : Plan
    dtype : dtype
        The dtype of the parts; it must not contain objects.

    Returns
    -------
    parts : list of ndarray
        New C-contiguous arrays, uninitialized, each aligned to `ALIGNMENT`
        bytes. The block is released with its last part.
    address : int
        The address of the block.

    Raises
    ------
    MemoryError
        If there is not enough memory.
    """
    row = math.prod(plan.shape[: plan.axis] + plan.shape[plan.axis + 1 :]) * dtype.itemsize
    places = list(accumulate([aligned(size * row) for size in plan.sizes], initial=0))
    memory, start = _block(places.pop())
    pairs = zip(plan.output_shapes, places, strict=True)
    parts = [np.ndarray(shape, dtype, memory, start + at) for shape, at in pairs]
    return parts, memory.ctypes.data + start


def _block(nbytes: int) -> tuple[np.ndarray, int]:
    """Allocate a block; return the memory, and where the block starts in it."""
    if nbytes >= THRESHOLDS.large and POOL.lease is not None:
        memory = POOL.lease(nbytes)
    else:
        memory = retry(np.empty, nbytes + ALIGNMENT, np.uint8)
    return memory, -memory.ctypes.data % ALIGNMENT


def allocate_whole(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate one C-contiguous array, uninitialized; a large one in a block."""
    nbytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or nbytes < THRESHOLDS.large:
        return retry(np.ndarray, shape, dtype)  # torch.compile would trace `empty`
    memory, start = _block(nbytes)
    return np.ndarray(shape, dtype, memory, start)


def empty_parts(plan: Plan, dtype: DTypeLike) -> list[np.ndarray]:
    """Allocate the parts of a plan, uninitialized; see `SplitPlan.empty`."""
    dtype = as_dtype(dtype)
    try:
        if dtype.hasobject or dtype.itemsize == 0:
            return [retry(np.empty, shape, dtype) for shape in plan.output_shapes]
        return allocate_parts(plan, dtype)[0]
    except ValueError as error:  # a rank or an extent that NumPy does not allow
        raise SplitError.of(pairs(shape=plan.shape), str(error)) from error


def set_buffer_limit(nbytes: int) -> None:
    """Set how much memory splitjit may keep for reuse by later splits.

    When the last part in a large block of memory is freed, splitjit keeps the
    block for later splits. The limit applies to these idle blocks, not to memory
    that parts still use.

    Parameters
    ----------
    nbytes : int
        The most bytes to keep; 0 keeps nothing. Memory above the limit is freed
        immediately. The default is 256 MiB, or the environment variable
        ``SPLITJIT_BUFFER_LIMIT``, in bytes.

    Raises
    ------
    SplitError
        If `nbytes` is negative.
    SplitTypeError
        If `nbytes` is not an integer.

    See Also
    --------
    clear_caches : Free all blocks now.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.set_buffer_limit(2**30)
    """
    try:
        limit = integer("nbytes", nbytes)
    except SplitError as error:
        raise error.named("set_buffer_limit") from None
    if limit < 0:
        raise SplitError("set_buffer_limit", pairs(nbytes=nbytes), "must be at least 0")
    POOL.set_limit(limit)


def _environment_limit() -> int:
    """Return the limit set in the environment; warn if it is not a number of bytes."""
    value = os.environ.get("SPLITJIT_BUFFER_LIMIT", str(_DEFAULT_LIMIT))
    with contextlib.suppress(ValueError):
        if int(value) >= 0:
            return int(value)
    rule = f"a number of bytes, at least 0; the default is used, {_DEFAULT_LIMIT}"
    warn_of_variable("SPLITJIT_BUFFER_LIMIT", value, rule)
    return _DEFAULT_LIMIT


class _Pool:
    """The large blocks that no part uses, kept for reuse; see `splitjit._kernels.core.blocks`.

    Parameters
    ----------
    limit : int
        The most bytes to keep.

    Attributes
    ----------
    address : int
        The address of the block record.
    lease : callable or None
        ``lease(nbytes)`` returns a byte array over a block, the base of all parts in it. The block
        comes back when the array is freed. None until `load` is called.
    """

    def __init__(self, limit: int) -> None:
        words = ctypes.c_int64 * (BLOCKS.slots + SLOTS)
        self._record = keep_forever(words())  # parts may outlive this object
        self.address = ctypes.addressof(self._record)
        self.lease: Any = None
        self.set_limit(limit)

    @property
    def kept(self) -> int:
        """How many bytes are kept."""
        return int(self._record[BLOCKS.kept])

    def load(self) -> Expected:
        """Lend blocks from now on; return what all builtin functions that make arrays expect.

        The core is loaded, and compiled code may make arrays. Other fields of the record are 0.
        """
        api: Any = structs.API
        shared = Expected(*[0] * len(Expected._fields))._replace(
            array_type=id(np.ndarray),
            list_type=id(list),
            blocks=self.address,
            byte=id(_BYTE),
            new_array=api[structs.NEW_FROM_DESCR],
            set_base=api[structs.SET_BASE_OBJECT],
            none=id(None),
            error=id(MemoryError),
            message=id(_NO_MEMORY),
        )
        if self.lease is None:
            self.lease = NATIVE.lease(np.array(shared, np.int64))
        return shared

    def set_limit(self, nbytes: int) -> None:
        """Set how many bytes to keep; free all blocks if more are kept."""
        self._record[BLOCKS.limit] = min(nbytes, sys.maxsize)
        if self.kept > nbytes:
            self.clear()

    def clear(self) -> None:
        """Free all blocks; there are none before the core is loaded."""
        if vars(NATIVE):
            ctypes.CFUNCTYPE(None)(NATIVE.clear)(ctypes.c_ssize_t(self.address))


POOL = _Pool(_environment_limit())
