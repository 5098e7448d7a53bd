"""Memory for fresh parts: one block per call. Large blocks are reused.

The system zeroes each page of fresh memory on first touch, which costs more than
the copy. So a large block returns to a pool when its last part is freed, and a
later call reuses it. Users' compiled code shares the pool.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import DTypeLike

from splitjit._abi import structs
from splitjit._abi.builtins import keep_forever
from splitjit._abi.calls import BLOCKS, SLOTS, Expected
from splitjit._abi.kernels import LARGE
from splitjit._abi.layout_record import ALIGNMENT, aligned
from splitjit._abi.structs import NEW_FROM_DESCR, SET_BASE_OBJECT
from splitjit._inputs.arrays import as_dtype
from splitjit._plan.arguments import integer
from splitjit._plan.plan import PLANS, Plan, shape_of_part
from splitjit._runtime.loading import NATIVE
from splitjit.errors import SplitError, pairs

_BYTE = np.dtype(np.uint8)
_NO_MEMORY = "splitjit: not enough memory for the parts"
_DEFAULT_LIMIT = 1 << 28

_Made = TypeVar("_Made")


addressof: Any = ctypes.addressof
from_buffer: Any = ctypes.c_char.from_buffer
"""Fails unless the array is writeable and C-contiguous, and buffers support its dtype."""


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    try:  # faster than `array.ctypes.data`
        address: int = addressof(from_buffer(array))
        return address
    except (TypeError, ValueError, BufferError):  # read-only, strided, empty or foreign dtype
        return array.ctypes.data


def span(array: np.ndarray) -> tuple[int, int]:
    """Return the start and stop of the address range that an array occupies."""
    if not array.flags.c_contiguous:
        return byte_bounds(array)
    start = address_of(array)
    return start, start + array.nbytes


def expected(**fields: int) -> Expected:
    """Return the record of builtin functions that make arrays; other fields than these are 0."""
    api: Any = structs.API
    return Expected(*[0] * len(Expected._fields))._replace(
        array_type=id(np.ndarray),
        byte=id(_BYTE),
        new_array=api[NEW_FROM_DESCR],
        set_base=api[SET_BASE_OBJECT],
        error=id(MemoryError),
        message=id(_NO_MEMORY),
        **fields,
    )


def retry(make: Callable[..., _Made], *arguments: Any) -> _Made:
    """Call a function; if it runs out of memory, free the idle blocks and call it once more."""
    try:
        return make(*arguments)
    except MemoryError:
        POOL.clear()
    return make(*arguments)  # outside of the handler, whose traceback keeps unfinished parts


class BlockLayout(NamedTuple):
    """The positions of a plan's parts in their block of memory.

    Attributes
    ----------
    nbytes : int
        The length of the block.
    places : tuple of (tuple of int, int)
        The shape and the position of each part.
    """

    nbytes: int
    places: tuple[tuple[tuple[int, ...], int], ...]

    def parts(self, memory: np.ndarray, dtype: np.dtype, start: int) -> list[np.ndarray]:
        """Make the parts in a byte array, where the block starts at byte `start`."""
        parts: list[np.ndarray] = []  # without comprehensions, as in `slices.views`
        for shape, at in self.places:
            parts.append(np.ndarray(shape, dtype, memory, start + at))
        return parts


def block_layout(plan: Plan, itemsize: int) -> BlockLayout:
    """Lay out a plan's parts in a block, each aligned; cached in the plan."""
    key = "block", itemsize
    layout: BlockLayout | None = plan._kept.get(key)
    if layout is None:
        inner = math.prod(plan.shape[: plan.axis] + plan.shape[plan.axis + 1 :]) * itemsize
        nbytes, places = 0, []
        for length in plan.sizes:
            places.append((shape_of_part(plan, length), nbytes))
            nbytes += aligned(length * inner)
        layout = BlockLayout(nbytes, tuple(places))
        plan._keep(key, layout)
    return layout


def allocate_parts(block: BlockLayout, dtype: np.dtype) -> tuple[list[np.ndarray], int]:
    """Allocate the parts of a plan in one block.

    Parameters
    ----------
    block : BlockLayout
        The layout of the block, for elements of `dtype`.
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
    if block.nbytes >= LARGE and POOL.lease is not None:
        memory = POOL.lease(block.nbytes)
    else:
        memory = retry(np.empty, block.nbytes + ALIGNMENT, np.uint8)
    address = address_of(memory)
    start = -address % ALIGNMENT
    return block.parts(memory, dtype, start), address + start


def empty_parts(plan: Plan, dtype: DTypeLike) -> list[np.ndarray]:
    """Allocate the parts of a plan, uninitialized; see `SplitPlan.empty`."""
    dtype = as_dtype(dtype)
    try:
        if dtype.hasobject or dtype.itemsize == 0:
            return [retry(np.empty, shape, dtype) for shape in plan.output_shapes]
        return allocate_parts(block_layout(plan, dtype.itemsize), dtype)[0]
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
    POOL.set_limit(_limit("nbytes", nbytes))


def clear_caches() -> None:
    """Free all memory that splitjit keeps to make later calls faster.

    This drops cached plans with their layouts, and memory blocks that no part uses. Compiled
    code stays loaded. Both caches are bounded anyway: up to about 1000 recently used plans are
    kept (fewer if they have many parts, and none of more than 4096 parts), and
    `set_buffer_limit` limits the blocks.

    See Also
    --------
    set_buffer_limit : Limit the memory kept for reuse.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.clear_caches()
    """
    PLANS.clear()
    POOL.clear()


def _limit(name: str, value: Any) -> int:
    try:
        limit = integer(name, value)
    except SplitError as error:
        raise error.named("set_buffer_limit") from None
    if limit < 0:
        raise SplitError("set_buffer_limit", pairs(**{name: value}), "must be at least 0")
    return limit


def release_frames(error: BaseException) -> None:
    """Drop the local variables of the splitjit functions through which an error has passed.

    IPython and many other programs keep the traceback of an error. Its frames must not keep
    unfinished parts alive. Functions that are still running keep their variables.
    """
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if str(frame.f_globals.get("__name__")).startswith("splitjit."):
            with contextlib.suppress(RuntimeError):  # the function is still running
                frame.clear()
        traceback = traceback.tb_next


def _environment_limit() -> int:
    """Return the limit set in the environment; warn if it is not a number of bytes."""
    value = os.environ.get("SPLITJIT_BUFFER_LIMIT")
    if value is None:
        return _DEFAULT_LIMIT
    try:
        return _limit("SPLITJIT_BUFFER_LIMIT", int(value))
    except ValueError:  # also a SplitError
        warnings.warn(
            f"SPLITJIT_BUFFER_LIMIT={value[:40]!r} must be a number of bytes, at least 0; "
            f"the default is used, {_DEFAULT_LIMIT}",
            RuntimeWarning,
            stacklevel=2,
        )
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

    def load(self) -> None:
        """Lend blocks from now on. The core is loaded, and compiled code may make arrays."""
        if self.lease is None:
            self.lease = NATIVE.lease(np.array(expected(blocks=self.address), np.int64))

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
