"""Known copies: arrays like those of an earlier call are checked and made in compiled code.

A copy of 10 KB takes 0.2 µs. Checks in Python take 6 µs, because each attribute of an
array is a Python object, and NumPy takes 0.3 µs to make a part. The compiled functions of
`splitjit._kernels.known` read the fields of arrays and lists in memory, and make arrays by
NumPy's C functions in 0.1 µs. If a given array is not as expected, they copy nothing, and
the checks in Python decide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from splitjit._copy import buffers, structs, threads
from splitjit._copy.addresses import address_of
from splitjit._copy.layout import ALIGNMENT, CopyLayout, block_layout, fresh_layout
from splitjit._copy.loading import jit_disabled, load, loaded
from splitjit._kernels import table
from splitjit._kernels.table import Expected
from splitjit._plan.plan import Plan

_MOST_PARTS = 64
"""The compiled check of small arrays compares each output with all outputs before it."""

_BYTE = np.dtype(np.uint8)

_Code = tuple[Callable[..., Any], ...]


class SmallCopy:
    """The copy of small arrays of one shape, dtype and strides, in one compiled call.

    Attributes
    ----------
    into : callable
        ``into(x, outputs)`` copies `x` to the arrays of the list `outputs`, and returns
        whether it did. If an array is not as expected, or if two arrays may share memory,
        it copies nothing.
    fresh : callable
        ``fresh(x)`` copies `x` to new parts in one block, each aligned to a cache line, and
        returns them in a list. If `x` is not as expected, the list is empty.
    fresh_checked : callable
        The same for an array of the expected shape and strides, and of an equal dtype.
    """

    __slots__ = ("_kept", "fresh", "fresh_checked", "into")

    into: Callable[[Any, list[Any]], int]
    fresh: Callable[[Any], list[np.ndarray]]
    fresh_checked: Callable[[np.ndarray], list[np.ndarray]]

    def __init__(self, code: _Code, record: np.ndarray, kept: tuple[Any, ...]) -> None:
        into, fresh = code
        address = address_of(record)
        self.into = functools.partial(into, address)
        self.fresh = functools.partial(fresh, address, False)
        self.fresh_checked = functools.partial(fresh, address, True)
        self._kept = (*kept, record)  # their addresses are in use during a call

    def to(self, layout: CopyLayout | None) -> SmallCopy:
        """Return the copy to known outputs: this one, which takes any outputs."""
        return self


class LargeCopy:
    """The copy of large arrays of one shape, dtype and strides; as `SmallCopy`.

    Compiled calls check and make the arrays, and `threads.copy` copies. `into` copies only
    to known outputs, see `to`: no layout may change while threads read it.
    """

    __slots__ = (
        "_code", "_expected", "_extents", "_kept", "_loop", "_nbytes", "_parts", "_source",
        "_source_and_outputs",
    )  # fmt: skip

    def __init__(
        self,
        code: _Code,
        expected: Expected,
        extents: list[int],
        kept: tuple[Any, ...],
        loop: str,
        nbytes: int,
    ) -> None:
        self._code, self._expected, self._extents = code, expected, extents
        record = _record(expected, extents)
        address = address_of(record)
        self._source, self._source_and_outputs, self._parts = [
            functools.partial(function, address) for function in code
        ]
        self._kept = (*kept, record)
        self._loop, self._nbytes = loop, nbytes

    def to(self, layout: CopyLayout | None) -> LargeCopy:
        """Return the copy to known outputs: to contiguous targets of a layout."""
        assert layout is not None
        expected = self._expected._replace(outputs=layout.address)
        kept = (*self._kept, layout)
        return LargeCopy(self._code, expected, self._extents, kept, self._loop, self._nbytes)

    def into(self, x: Any, outputs: list[Any]) -> bool:
        """Copy `x` to the known outputs if all arrays are as expected; return whether it did."""
        source = self._source_and_outputs(x, outputs)
        if not source:
            return False
        arguments = self._expected.stream, 0, source, self._expected.outputs
        return threads.copy(self._loop, self._nbytes, arguments)

    def fresh(self, x: Any) -> list[np.ndarray]:
        """Copy `x` to new parts; return no parts if `x` is not as expected."""
        source = self._source(x)
        if not source:
            return []
        block = buffers.POOL.take(self._expected.nbytes)
        parts: list[np.ndarray] = self._parts(x, block.memory, block.address)
        buffers.POOL.lend(block, parts.pop())
        arguments = self._expected.stream, block.address, source, self._expected.fresh
        return parts if threads.copy(self._loop, self._nbytes, arguments) else []

    fresh_checked = fresh


def known_copy(
    plan: Plan,
    dtype: np.dtype,
    strides: tuple[int, ...],
    bounds: tuple[int, int],
    stream: int,
    if_loaded: bool,
) -> SmallCopy | LargeCopy | None:
    """Prepare the copy of arrays like one that was split.

    Parameters
    ----------
    plan : Plan
    dtype : dtype
        The dtype of all arrays. It holds no objects.
    strides : tuple of int
        The strides of the source, in bytes.
    bounds : (int, int)
        The source lies between these offsets from its first element.
    stream : int
        See `splitjit._kernels.table.Arguments`.
    if_loaded : bool
        Whether to prepare the copy only if its code is already loaded.

    Returns
    -------
    SmallCopy, LargeCopy or None
        None if the code is not loaded, or cannot read arrays here, or if there are too many parts.
    """
    if len(plan) > _MOST_PARTS or not structs.READS_ARRAYS or structs.API is None:
        return None
    nbytes = math.prod(plan.shape) * dtype.itemsize
    is_small = threads.is_small(nbytes)
    code = (loaded if if_loaded else load)(_code, is_small)
    if code is None:
        return None
    layout = fresh_layout(plan, strides, dtype.itemsize)
    loop = load(threads.loop_address, layout.loop)
    if loop is None:
        return None
    block = block_layout(plan, dtype.itemsize)
    outputs = layout.record.copy()
    expected = Expected(
        array_type=id(np.ndarray),
        dtype=id(dtype),
        flags=table.C_CONTIGUOUS | table.WRITEABLE,
        rank=len(plan.shape),
        axis=plan.axis,
        count=len(plan),
        start=bounds[0],
        stop=bounds[1],
        stream=stream,
        loop=loop,
        fresh=layout.address,
        outputs=address_of(outputs) if is_small else 0,
        nbytes=block.nbytes + ALIGNMENT if is_small else block.nbytes,
        byte=id(_BYTE),
        new_array=structs.API[table.NEW_FROM_DESCR],
        set_base=structs.API[table.SET_BASE_OBJECT],
    )
    extents = [*plan.shape, *strides, *plan.sizes]
    if is_small:
        return SmallCopy(code, _record(expected, extents), (dtype, layout, outputs))
    return LargeCopy(code, expected, extents, (dtype, layout), layout.loop, nbytes)


def _record(expected: Expected, extents: list[int]) -> np.ndarray:
    return np.array([*expected, *extents], np.int64)


def load_known() -> None:
    """Compile the code of known copies, or load it from the cache."""
    for is_small in (True, False):
        load(_code, is_small, wait=True)
    for loop in table.LOOPS:
        load(threads.loop_address, loop, wait=True)


def _code(is_small: bool) -> _Code | None:
    if jit_disabled():
        return None
    from splitjit._kernels import known

    code: _Code = known.small_code() if is_small else known.large_code()
    return code
