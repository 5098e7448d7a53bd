"""Memory for fresh parts: one block per call. Large blocks are reused.

The system zeroes each page of fresh memory on first touch, which costs more than
the copy. So a large block returns to a pool when its last part is freed, and a
later call reuses it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from splitjit._abi.addresses import address_of
from splitjit._abi.builtins import keep_forever
from splitjit._abi.layout_record import ALIGNMENT
from splitjit._abi.shared import BLOCKS_KEPT, BLOCKS_LIMIT, MAPPED_FROM, SLOTS, SLOTS_AT
from splitjit._copy.layout import BlockLayout, block_layout
from splitjit._plan.arguments import integer
from splitjit._plan.cache import PLANS
from splitjit._plan.dtypes import as_dtype
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError, describe

_DEFAULT_LIMIT = 1 << 28


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
    if block.nbytes < MAPPED_FROM:
        memory = np.empty(block.nbytes + ALIGNMENT, np.uint8)
        address = address_of(memory)
        start = -address % ALIGNMENT
        return block.parts(memory, dtype, start)[1], address + start
    mapped = POOL.take(block.nbytes)
    lease, parts = block.parts(mapped.memory, dtype, 0)
    POOL.lend(mapped, lease)
    return parts, mapped.address


def empty_parts(plan: Plan, dtype: DTypeLike) -> list[np.ndarray]:
    """Allocate the parts of a plan, uninitialized; see `SplitPlan.empty`."""
    dtype = as_dtype(dtype)
    try:
        if dtype.hasobject or dtype.itemsize == 0:
            return [np.empty(shape, dtype) for shape in plan.output_shapes]
        return allocate_parts(block_layout(plan, dtype.itemsize), dtype)[0]
    except ValueError as error:  # a rank or an extent that NumPy does not allow
        raise SplitError("split", describe(shape=plan.shape), str(error)) from error


def set_buffer_limit(nbytes: int) -> None:
    """Set how much memory splitjit may keep for reuse by later splits.

    When the last part in a large block of memory is freed, splitjit keeps the
    block for later splits. The limit applies to these idle blocks, not to memory
    that parts still use.

    Parameters
    ----------
    nbytes : int
        The most bytes to keep; 0 keeps nothing. Memory above the limit is freed
        immediately. Users' compiled code keeps as much again, for its own parts.
        The default is 256 MiB, or the environment variable
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
    POOL.limit = _limit("nbytes", nbytes)
    POOL.trim()
    COMPILED_BLOCKS.set_limit(POOL.limit)


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
    COMPILED_BLOCKS.clear()


def _limit(name: str, value: Any) -> int:
    try:
        limit = integer(name, value)
    except SplitError as error:
        raise error.named("set_buffer_limit") from None
    if limit < 0:
        raise SplitError("set_buffer_limit", describe(**{name: value}), "must be at least 0")
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


class _Block:
    """A private memory map, in huge pages if the system has them."""

    __slots__ = ("address", "export", "memory", "nbytes")

    def __init__(self, nbytes: int) -> None:
        import mmap  # here, because most programs need it late or never

        try:
            if sys.platform == "win32":
                self.memory = mmap.mmap(-1, nbytes)
            else:
                self.memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise MemoryError(f"splitjit: {nbytes} bytes for the parts: {error}") from error
        if sys.platform == "linux":
            with contextlib.suppress(AttributeError, OSError):  # a system without huge pages
                self.memory.madvise(mmap.MADV_HUGEPAGE)
        # While this export exists, users cannot close or resize the memory through
        # ``part.base.base``.
        self.export = memoryview(self.memory)
        self.nbytes = nbytes
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def is_unreferenced(self) -> bool:
        """Return whether only this object, its export and this call refer to the memory."""
        return sys.getrefcount(self.memory) == 3


class _Loan(weakref.ref[np.ndarray]):
    """A weak reference to a lease, with the block that it covers."""

    __slots__ = ("block",)
    block: _Block


class _Pool:
    """Idle blocks, oldest first.

    A *lease* is an array over a whole block and the base of all parts in it.
    Python frees the lease after the last part, and `_give_back` then returns the
    block to the pool.

    Python may free a lease at any point, even while this thread is inside a
    method of the pool, where a lock would deadlock. So there is no lock, and each
    step is one list or dict operation, which is atomic for other threads. Copies
    are made with `list`: before Python 3.12, slices and `tuple` allocate in the
    middle of the copy, which may start the garbage collector and free a lease.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.idle: list[_Block] = []
        self.lent: dict[int, _Loan] = {}  # by `id`, since loans are unhashable; keeps them alive

    def allocate(
        self, nbytes: int, make: Callable[..., list[np.ndarray]], *arguments: Any
    ) -> tuple[list[np.ndarray], int]:
        """Make parts in a block; return them and the block's address.

        ``make(*arguments, memory, address)`` returns the parts, followed by their lease.
        """
        block = self.take(nbytes)
        parts = make(*arguments, block.memory, block.address)
        self.lend(block, parts.pop())
        return parts, block.address

    def take(self, nbytes: int) -> _Block:
        """Return a block of at least `nbytes` that no array refers to."""
        block = self._idle_block(nbytes)
        if block is None:
            self._recover()
            block = self._idle_block(nbytes) or _Block(nbytes)
        return block

    def lend(self, block: _Block, lease: np.ndarray) -> None:
        """Lend a block until the lease is freed."""
        loan = _Loan(lease, self._give_back)
        loan.block = block
        self.lent[id(loan)] = loan

    def _idle_block(self, nbytes: int) -> _Block | None:
        # The newest block is the most likely to be in cache.
        for block in reversed(list(self.idle)):
            if nbytes <= block.nbytes <= 2 * nbytes:
                try:
                    self.idle.remove(block)
                except ValueError:  # another thread took it
                    continue
                if block.is_unreferenced():
                    return block
                self.idle.append(block)
        return None

    def _give_back(self, loan: _Loan) -> None:
        if self.lent.pop(id(loan), None):  # once per loan
            self.idle.append(loan.block)
            self.trim()

    def _recover(self) -> None:
        """Reclaim blocks whose return was lost because Ctrl-C arrived as the lease was freed."""
        for loan in list(self.lent.values()):
            if loan() is None:
                self._give_back(loan)

    def clear(self) -> None:
        """Free all blocks."""
        self._recover()
        self.idle.clear()

    def trim(self) -> None:
        """Free the oldest blocks until the rest is within the limit."""
        while self.idle and sum([block.nbytes for block in self.idle]) > self.limit:
            with contextlib.suppress(IndexError):  # another thread freed the last one
                self.idle.pop(0)


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


class _CompiledBlocks:
    """The blocks that users' compiled code keeps; see `splitjit._kernels.blocks`."""

    def __init__(self, limit: int) -> None:
        self._record = (ctypes.c_int64 * (SLOTS_AT + SLOTS))()
        self._clear: Callable[[int], None] = lambda record: None
        self.set_limit(limit)

    def use(self, functions: dict[str, int]) -> int:
        """Use loaded functions; return the record's address, or 0 if there are none."""
        if not functions["clear"]:
            return 0
        self._clear = ctypes.CFUNCTYPE(None, ctypes.c_ssize_t)(functions["clear"])
        return ctypes.addressof(self._record)

    def set_limit(self, nbytes: int) -> None:
        """Set how many bytes to keep; free all blocks if more are kept."""
        self._record[BLOCKS_LIMIT] = min(nbytes, sys.maxsize)
        if self._record[BLOCKS_KEPT] > nbytes:
            self.clear()

    def clear(self) -> None:
        """Free all kept blocks."""
        self._clear(ctypes.addressof(self._record))


POOL = _Pool(_environment_limit())
COMPILED_BLOCKS = keep_forever(_CompiledBlocks(POOL.limit))  # compiled code may free very late
