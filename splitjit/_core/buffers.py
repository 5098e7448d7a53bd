"""Memory for fresh parts: one aligned block a call, large blocks kept for reuse.

Fresh memory costs more than the copy, since the system zeroes each page at its
first touch. So large blocks are mapped here, lent to the parts of one call
and, once all of these are gone, kept for another.

A block is lent as an array, the *lease*, which is the base of its parts. NumPy,
memoryviews, DLPack and whoever else refers to a part's memory keep the part and
so the lease alive; only when the lease dies does the block come back.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from splitjit._core.arguments import integer
from splitjit._core.arrays import address_of
from splitjit._core.dtypes import as_dtype
from splitjit._core.layout import ALIGNMENT, block_layout
from splitjit._core.plan import SplitPlan
from splitjit.errors import SplitError, describe

_MAPPED_FROM = 1 << 20


def allocate_parts(plan: SplitPlan, dtype: np.dtype) -> tuple[list[np.ndarray], int]:
    """Allocate the parts of a plan in one block.

    Parameters
    ----------
    plan : SplitPlan
        The plan whose parts are wanted.
    dtype : dtype
        Their dtype; it holds no objects.

    Returns
    -------
    parts : list of ndarray
        New C-contiguous arrays, uninitialized, each aligned to `ALIGNMENT`
        bytes. The block is free once all of them are gone.
    address : int
        Where the block starts.

    Raises
    ------
    MemoryError
        If there is not enough memory.
    """
    positions, nbytes, shape, strides = block_layout(plan, dtype.itemsize)
    if nbytes >= _MAPPED_FROM:
        lease, address = _POOL.lend(nbytes)
        start = 0  # of a page
    else:
        lease = np.empty(nbytes + ALIGNMENT, np.uint8)
        address = address_of(lease)
        start = -address % ALIGNMENT
    parts = list(np.ndarray(shape, dtype, lease, start, strides)) if shape[0] else []
    for i in range(len(parts), len(plan)):
        parts.append(np.ndarray(plan.output_shapes[i], dtype, lease, start + positions[i]))
    return parts, address + start


def empty_parts(plan: SplitPlan, dtype: DTypeLike) -> list[np.ndarray]:
    """Allocate the parts of a plan, uninitialized; see `SplitPlan.empty`."""
    dtype = as_dtype(dtype)
    try:
        if dtype.hasobject or dtype.itemsize == 0:
            return [np.empty(shape, dtype) for shape in plan.output_shapes]
        return allocate_parts(plan, dtype)[0]
    except ValueError as error:  # a rank or an extent beyond NumPy's
        raise SplitError("split", describe(shape=plan.shape), str(error)) from error


def set_buffer_limit(nbytes: int) -> None:
    """Set how much memory may be kept for reuse by later splits.

    Large blocks of memory are kept once every part in them is gone. This
    limits those; memory that parts still use does not count.

    Parameters
    ----------
    nbytes : int
        Bytes to keep at most; 0 keeps none. What is kept beyond is freed now.
        The default is 256 MiB, or the environment variable
        ``SPLITJIT_BUFFER_LIMIT``, in bytes.

    Raises
    ------
    SplitError, SplitTypeError
        If `nbytes` is negative or no integer.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.set_buffer_limit(2**30)
    """
    _POOL.limit = _limit("nbytes", nbytes)
    _POOL.trim()


def _limit(name: str, value: Any) -> int:
    try:
        limit = integer(name, value)
    except SplitError as error:
        raise error.named("set_buffer_limit") from None
    if limit < 0:
        raise SplitError("set_buffer_limit", describe(**{name: value}), "must be at least 0")
    return limit


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Mapped memory, how much, and where."""

    memory: mmap.mmap
    nbytes: int
    address: int


class _Loan(weakref.ref[np.ndarray]):
    """A lease that says, when it dies, whose block it was."""

    __slots__ = ("block",)
    block: _Block


class _Pool:
    """The blocks that nobody uses, oldest first.

    Leases die anywhere, even while this very code runs, so that a lock could
    be waited for by its own holder. Instead, each step is a single operation
    on a list or a dict, which other threads see done or not done. Copies are
    made by `list`: before Python 3.12, a slice and `tuple` allocate midway, and
    the collector may find a lease just then.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.idle: list[_Block] = []
        self.lent: dict[int, _Loan] = {}  # keeps the loans alive, which cannot be hashed

    def lend(self, nbytes: int) -> tuple[np.ndarray, int]:
        """Return the memory of a block, as an array, and its address."""
        block = self._take(nbytes)
        if block is None:
            self._recover()
            block = self._take(nbytes) or _map(nbytes)
        lease = np.frombuffer(block.memory, np.uint8)
        loan = _Loan(lease, self._give_back)
        loan.block = block
        self.lent[id(loan)] = loan
        return lease, block.address

    def _take(self, nbytes: int) -> _Block | None:
        # The newest is most likely in the processor's cache.
        for block in reversed(list(self.idle)):
            if nbytes <= block.nbytes <= 2 * nbytes:
                try:
                    self.idle.remove(block)
                except ValueError:  # another thread took it
                    continue
                if _is_ours_alone(block):
                    return block
                self.idle.append(block)
        return None

    def _give_back(self, loan: _Loan) -> None:
        if self.lent.pop(id(loan), None):  # once
            self.idle.append(loan.block)
            self.trim()

    def _recover(self) -> None:
        """Give back what was not, since Ctrl-C arrived just when the lease died."""
        for loan in list(self.lent.values()):
            if loan() is None:
                self._give_back(loan)

    def trim(self) -> None:
        """Free the oldest blocks until the rest is within the limit."""
        while self.idle and sum([block.nbytes for block in self.idle]) > self.limit:
            with contextlib.suppress(IndexError):  # another thread freed the last one
                self.idle.pop(0)


def _is_ours_alone(block: _Block) -> bool:
    """Return whether nobody went past the lease, by ``part.base.base``, to the memory."""
    try:
        intact = len(block.memory) == block.nbytes
    except ValueError:  # closed
        return False
    return intact and sys.getrefcount(block.memory) == 2  # the block's, and the call's


def _map(nbytes: int) -> _Block:
    """Map fresh memory, of this process alone, in huge pages where there are any."""
    private = (
        {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    )
    try:
        memory = mmap.mmap(-1, nbytes, **private)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"splitjit: {nbytes} bytes for the parts: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return _Block(memory, nbytes, ctypes.addressof(ctypes.c_char.from_buffer(memory)))


def _environment_limit() -> int:
    value: int | str = os.environ.get("SPLITJIT_BUFFER_LIMIT", str(1 << 28))
    with contextlib.suppress(ValueError):  # left as it is, it will be refused
        value = int(value)
    return _limit("SPLITJIT_BUFFER_LIMIT", value)


_POOL = _Pool(_environment_limit())
