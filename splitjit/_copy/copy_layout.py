"""Lay out the copies that kernels make, by the compiled layouter."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof
from typing import Any

import numpy as np

from splitjit._abi.addresses import address_of
from splitjit._abi.calls import LayoutRequest
from splitjit._abi.kernels import LOOPS
from splitjit._abi.layout_record import (
    COUNT,
    DIMS,
    FIXED,
    HEADER,
    LOOP,
    STREAM,
    WORD,
    most_words,
)
from splitjit._plan.plan import Plan
from splitjit._runtime.cores import STREAM_FROM
from splitjit._runtime.loading import LOADER, NATIVE

_WORD = ctypes.c_int64
_FUNCTION = ctypes.PYFUNCTYPE(_WORD, ctypes.c_ssize_t)


class CopyLayout:
    """A copy, in as few dims as the strides of both sides allow.

    Attributes
    ----------
    record : ndarray of int64
        The layout record, see `splitjit._abi.layout_record`; `splitjit._kernels.layouter` wrote it.
    address : int
        The address of the record, valid while this object exists.
    loop : str
        The loop that copies, one of `splitjit._abi.kernels.LOOPS`.
    stream : int
        1 if stores of full cache lines bypass the cache, because the array is large.
    block : int
        The bytes of a block for the parts.
    """

    __slots__ = ("address", "block", "loop", "record", "stream")

    def __init__(self, memory: Any, block: int) -> None:
        self.record: np.ndarray = np.frombuffer(memory, np.int64)
        self.address = addressof(memory)
        self.loop, self.stream, self.block = LOOPS[memory[LOOP]], memory[STREAM], block

    @property
    def source_strides(self) -> np.ndarray:
        """The source strides in bytes, a view of shape (dims,); outermost dim first."""
        return self.record[HEADER : HEADER + self.record[DIMS]]

    @property
    def rows(self) -> np.ndarray:
        """The rows of the non-empty parts, a view of shape (n, 4 + 2 * dims)."""
        dims, count = int(self.record[DIMS]), int(self.record[COUNT])
        words = FIXED + 2 * dims
        return self.record[HEADER + dims :][: count * words].reshape(count, words)

    def copy(self) -> CopyLayout:
        """Return an equal layout with its own record."""
        return CopyLayout((_WORD * self.record.size).from_buffer_copy(self.record.data), self.block)


def lay_out(
    plan: Plan,
    strides: tuple[int, ...],
    itemsize: int,
    parts: Sequence[np.ndarray] | None = None,
) -> CopyLayout | None:
    """Lay out the copy of an array that has elements.

    Parameters
    ----------
    plan : Plan
        A plan of the source's shape.
    strides : tuple of int
        The source's strides in bytes.
    itemsize : int
        Bytes of an element.
    parts : sequence of ndarray, optional
        The arrays for the parts, already accepted by `check_out`; target offsets are addresses.
        By default, parts lie in a block, see `splitjit._copy.buffers.block_layout`, and target
        offsets are relative to its start.

    Returns
    -------
    CopyLayout or None
        None if compiled code cannot be loaded now.
    """
    if LOADER.load("core") is None:
        return None
    rank, count = len(plan.shape), len(plan)
    record = (_WORD * most_words(rank, count))()
    given = [*plan.shape, *strides, *plan.sizes]
    for part in parts or ():
        given += [address_of(part), *part.shape, *part.strides]
    tables = (_WORD * len(given))(*given)
    shape = addressof(tables)
    sizes = shape + WORD * 2 * rank
    request = LayoutRequest(
        rank, plan.axis, count, itemsize, shape, sizes,
        0 if parts is None else sizes + WORD * count, WORD * (1 + 2 * rank),
        *STREAM_FROM, addressof(record),
    )  # fmt: skip
    words = (_WORD * len(request))(*request)
    return CopyLayout(record, _FUNCTION(NATIVE.lay_out)(addressof(words)))
