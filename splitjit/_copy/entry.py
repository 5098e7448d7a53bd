"""The compiled entry of a recipe: arrays are checked and made in compiled code.

A copy of 10 KB takes 0.2 µs. Checks in Python take 6 µs, because each attribute of an
array is a Python object, and NumPy takes 0.3 µs to make a part. The compiled functions of
`splitjit._kernels.entry` read the fields of arrays and lists in memory, and make arrays by
NumPy's C functions in 0.1 µs. If a given array is not as expected, they copy nothing, and
the checks in Python decide.

Compiled code reads the record of an entry and the layouts by their addresses. While it makes
objects, Python may collect garbage, and a finalizer may drop the recipe. So each compiled call
gets the record as an object, and the record owns all that the call reads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from splitjit._copy import buffers, structs, threads
from splitjit._copy.layout import ALIGNMENT, CopyLayout
from splitjit._copy.loading import jit_disabled, load, loaded
from splitjit._copy.loops import Loops
from splitjit._kernels import table
from splitjit._kernels.table import Expected
from splitjit._plan.plan import Plan

MOST_PARTS = 1 << 12
"""The most parts of an entry."""

_BYTE = np.dtype(np.uint8)

_Code = tuple[Callable[..., Any], ...]


class _Record(np.ndarray):
    """What compiled code expects of arrays, see `Expected`; it keeps alive what the words address.

    Attributes
    ----------
    kept : tuple
    """

    kept: tuple[Any, ...]


class SmallEntry:
    """The copy of small arrays in one compiled call.

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

    __slots__ = ("fresh", "fresh_checked", "into")

    into: Callable[[Any, list[Any]], int]
    fresh: Callable[[Any], list[np.ndarray]]
    fresh_checked: Callable[[np.ndarray], list[np.ndarray]]

    def __init__(self, code: _Code, record: _Record, loops: Loops) -> None:
        into, fresh, _, _ = code
        # No other thread runs while a call has written the addresses of outputs to this layout.
        outputs = loops.layout.record.copy()
        record.kept += (outputs,)
        self.into = functools.partial(into, record, outputs)
        self.fresh = functools.partial(fresh, record, False)
        self.fresh_checked = functools.partial(fresh, record, True)


class LargeEntry:
    """The copy of large arrays; as `SmallEntry`.

    Compiled calls check and make the arrays. Between these calls, the governor chooses the
    number of threads, and the compiled loop copies without the global interpreter lock.
    """

    __slots__ = ("_into", "_layouts", "_loops", "_nbytes", "_parts", "_source")

    def __init__(self, code: _Code, record: _Record, loops: Loops) -> None:
        into, _, parts, source = code
        self._into = functools.partial(into, record)
        self._parts = functools.partial(parts, record)
        self._source = functools.partial(source, record)
        self._loops = loops
        self._nbytes = loops.block.nbytes
        self._layouts: list[CopyLayout] = []
        """Layouts of outputs that no call uses. Threads read the layout of a call, so a call at
        the same time needs another one."""

    def into(self, x: Any, outputs: list[Any]) -> bool:
        """Copy `x` to given arrays if all arrays are as expected; return whether it did."""
        try:
            layout = self._layouts.pop()
        except IndexError:
            layout = self._loops.layout.copy()
        try:
            source = self._into(layout.record, x, outputs)
            return bool(source) and self._loops.copy(source, 0, layout)
        finally:
            self._layouts.append(layout)

    def fresh(self, x: Any) -> list[np.ndarray]:
        """Copy `x` to new parts; return no parts if `x` is not as expected."""
        if not self._source(x):
            return []
        block = buffers.POOL.take(self._nbytes)
        parts: list[np.ndarray] = self._parts(x, block.memory, block.address)
        buffers.POOL.lend(block, parts.pop())
        source = self._source(x)  # again: a finalizer may have changed `x`
        if not source or not self._loops.copy(source, block.address, self._loops.layout):
            return []
        return parts

    fresh_checked = fresh


Entry = SmallEntry | LargeEntry


def entry_of(
    plan: Plan,
    dtype: np.dtype,
    strides: tuple[int, ...],
    bounds: tuple[int, int],
    loops: Loops | None,
    *,
    if_loaded: bool,
) -> Entry | None:
    """Prepare the entry of a recipe.

    Parameters
    ----------
    plan : Plan
    dtype : dtype
        The dtype of all arrays. It holds no objects.
    strides : tuple of int
        The strides of the source, in bytes.
    bounds : (int, int)
        The source lies between these offsets from its first element.
    loops : Loops or None
        Made here if it is None.
    if_loaded : bool
        Whether to prepare the entry only if its code is already loaded.

    Returns
    -------
    SmallEntry, LargeEntry or None
        None if the code is not loaded, or cannot read arrays here, or if there are too many parts.
    """
    if plan._count > MOST_PARTS or not structs.READS_ARRAYS or structs.API is None:
        return None
    code = (loaded if if_loaded else load)(_code)
    if code is None:
        return None
    loops = loops or Loops(plan, dtype.itemsize, strides)
    is_small = threads.is_small(math.prod(plan.shape) * dtype.itemsize)
    loop = load(threads.loop_address, loops.loop_for(loops.layout)) if is_small else 0
    if loop is None:
        return None
    expected = Expected(
        array_type=id(np.ndarray),
        dtype=id(dtype),
        flags=table.C_CONTIGUOUS | table.WRITEABLE,
        rank=len(plan.shape),
        axis=plan.axis,
        count=plan._count,
        start=bounds[0],
        stop=bounds[1],
        stream=loops.stream,
        loop=loop,
        fresh=loops.layout.address,
        nbytes=loops.block.nbytes + (ALIGNMENT if is_small else 0),
        byte=id(_BYTE),
        new_array=structs.API[table.NEW_FROM_DESCR],
        set_base=structs.API[table.SET_BASE_OBJECT],
    )
    record = np.array([*expected, *plan.shape, *strides, *plan.sizes], np.int64).view(_Record)
    record.kept = (dtype, loops.layout)
    return (SmallEntry if is_small else LargeEntry)(code, record, loops)


def load_entries() -> None:
    """Compile the code of entries, or load it from the cache."""
    load(_code, wait=True)
    for loop in table.LOOPS:
        load(threads.loop_address, loop, wait=True)


def _code() -> _Code | None:
    if jit_disabled():
        return None
    from splitjit._kernels import entry

    code: _Code = entry.code()
    return code
