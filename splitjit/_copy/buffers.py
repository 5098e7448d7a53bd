"""The memory of fresh parts: one block for each call. Large blocks are reused.

The system zeroes each page of fresh memory at its first touch, which costs more
than the copy. So a large block returns to a pool when its last part is freed, and
a later call takes the block from the pool.
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

from splitjit._copy.addresses import address_of
from splitjit._copy.layout import ALIGNMENT, BlockLayout, block_layout
from splitjit._plan.arguments import integer
from splitjit._plan.cache import PLANS
from splitjit._plan.dtypes import as_dtype
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError, describe

_MAPPED_FROM = 1 << 19
"""Blocks from this size on are mapped, and come from the pool."""
_DEFAULT_LIMIT = 1 << 28


def allocate_parts(block: BlockLayout, dtype: np.dtype) -> tuple[list[np.ndarray], int]:
    """Allocate the parts of a plan in one block.

    Parameters
    ----------
    block : BlockLayout
        The layout of the block, for elements of `dtype`.
    dtype : dtype
        The dtype of the parts; it holds no objects.

    Returns
    -------
    parts : list of ndarray
        New C-contiguous arrays, uninitialized, each aligned to `ALIGNMENT`
        bytes. The block is free when its last part is freed.
    address : int
        The address of the block.

    Raises
    ------
    MemoryError
        If there is not enough memory.
    """
    if block.nbytes < _MAPPED_FROM:
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
            return [np.empty(shape, dtype) for shape in plan._each_shape()]
        return allocate_parts(block_layout(plan, dtype.itemsize), dtype)[0]
    except ValueError as error:  # a rank or an extent beyond NumPy's
        raise SplitError("split", describe(shape=plan.shape), str(error)) from error


def set_buffer_limit(nbytes: int) -> None:
    """Set how much memory splitjit may keep for reuse by later splits.

    splitjit keeps a large block of memory when the last part in the block is
    freed. The limit applies to these blocks. Memory that parts still use does
    not count.

    Parameters
    ----------
    nbytes : int
        The largest number of bytes to keep; 0 keeps no memory. Memory above the limit is
        freed at once. The default is 256 MiB, or the environment variable
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


def clear_caches() -> None:
    """Free all memory that splitjit keeps to make later calls faster.

    This drops the cached plans, with the layouts that they keep, and the blocks of memory
    that no part uses. Compiled code stays. splitjit limits these caches by itself: it keeps
    the plans used last, up to some 1000 (fewer if they have many parts, and none of more than
    4096 parts), and `set_buffer_limit` limits the blocks.

    See Also
    --------
    set_buffer_limit : Limit the memory of kept blocks.

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
        raise SplitError("set_buffer_limit", describe(**{name: value}), "must be at least 0")
    return limit


class _Block:
    """A private memory map, in huge pages if the system has them."""

    __slots__ = ("address", "export", "memory", "nbytes")

    def __init__(self, nbytes: int) -> None:
        import mmap  # most programs that import splitjit never need it, or need it much later

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
        # While this export exists, users cannot close or resize the memory, which they can
        # reach by ``part.base.base``.
        self.export = memoryview(self.memory)
        self.nbytes = nbytes
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def is_unreferenced(self) -> bool:
        """Return whether only this object, its export and this call refer to the memory."""
        return sys.getrefcount(self.memory) == 3


class _Loan(weakref.ref[np.ndarray]):
    """A weak reference to a lease, together with the block under the lease."""

    __slots__ = ("block",)
    block: _Block


class _Pool:
    """The blocks that no part uses, oldest first.

    A *lease* is an array over a whole block, and the base of all parts in the
    block. Python frees the lease after the last part. Then `_give_back` returns
    the block to the pool.

    Python may free a lease at any point, even while this thread runs a method of
    the pool. A lock would then wait for its own holder. So there is no lock, and
    each step is one operation on a list or a dict, which is atomic for other
    threads. `list` makes the copies: before Python 3.12, a slice and `tuple`
    allocate in the middle of the copy, and the garbage collector, which an
    allocation may start, may free a lease there.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.idle: list[_Block] = []
        self.lent: dict[int, _Loan] = {}  # by `id`, since a loan has no hash; keeps loans alive

    def allocate(
        self, nbytes: int, make: Callable[..., list[np.ndarray]], *arguments: Any
    ) -> tuple[list[np.ndarray], int]:
        """Make parts over a block; return them, and the address of the block.

        ``make(*arguments, memory, address)`` returns the parts, and their lease as the last item.
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
        """Lend a block: it returns to the pool when the lease is freed."""
        loan = _Loan(lease, self._give_back)
        loan.block = block
        self.lent[id(loan)] = loan

    def _idle_block(self, nbytes: int) -> _Block | None:
        # The newest block is most likely in the processor's cache.
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
        if self.lent.pop(id(loan), None):  # only once for each loan
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
    """Return the limit that the environment sets; warn if it is not a number of bytes."""
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


POOL = _Pool(_environment_limit())
