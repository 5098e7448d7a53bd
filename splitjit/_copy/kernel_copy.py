"""Copy arrays with compiled code: a loop copies, and builtin functions check and make arrays.

Copying 10 KB takes 0.2 µs. Checks in Python take 6 µs, because each array attribute is a Python
object, and NumPy takes 0.3 µs to make a part. The builtin functions of `splitjit._kernels.entry`
read array and list fields straight from memory, and make arrays through NumPy's C API in 0.1 µs.
If an array is not as expected, they copy nothing, and Python decides.

Making objects may start the garbage collector, and a finalizer may drop the recipe. So the
``self`` of each builtin function is the record, which owns everything that compiled code reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from splitjit._abi import structs
from splitjit._abi.addresses import address_of, offsets_of
from splitjit._abi.builtins import METH_FASTCALL, METH_O, builtin
from splitjit._abi.calls import Expected
from splitjit._abi.layout_record import RUN
from splitjit._abi.structs import C_CONTIGUOUS, NEW_FROM_DESCR, SET_BASE_OBJECT, WRITEABLE
from splitjit._copy import buffers
from splitjit._copy.crossovers import stream_from
from splitjit._copy.layout import ALIGNMENT, CopyLayout, block_layout, fresh_layout
from splitjit._plan.cache import MOST_PARTS
from splitjit._plan.plan import Plan
from splitjit._runtime import threads
from splitjit._runtime.loading import LOADER, can_read_arrays

_BYTE = np.dtype(np.uint8)
_FLAGS = {"fresh": METH_O, "fresh_checked": METH_O, "check": METH_O}


class _Record(np.ndarray):
    """An `Expected` record in memory, which keeps everything that it points to alive.

    Attributes
    ----------
    kept : tuple
    """

    kept: tuple[Any, ...]


class KernelCopy:
    """Copies arrays of one plan, dtype and strides.

    Attributes
    ----------
    block : BlockLayout
        The layout of the block that holds fresh parts.
    layout : CopyLayout
        The layout of the copy to this block.
    fresh : callable
        ``fresh(x)`` copies `x` to new parts in one block, each aligned to a cache line, and
        returns them in a list. If `x` is not as expected, the list is empty.
    fresh_checked : callable
        The same for an array known to have the expected shape and strides, and an equal dtype.
    into : callable
        ``into(x, outputs)`` copies `x` to the arrays of the list `outputs`, and returns
        whether it did. If an array is not as expected, or if two arrays may share memory,
        it copies nothing.
    tensors : tuple of callable or None
        `fresh` and `into` for tensors of torch, once wanted; see `splitjit._api.small_tensors`.
    """

    __slots__ = (
        "_check", "_layouts", "_loop", "_nbytes", "_parts", "_place", "_stream",
        "block", "fresh", "fresh_checked", "into", "layout", "tensors",
    )  # fmt: skip

    fresh: Callable[[Any], list[np.ndarray]]
    fresh_checked: Callable[[np.ndarray], list[np.ndarray]]
    into: Callable[[Any, list[Any]], int]
    tensors: tuple[Callable[[Any], list[Any]], Callable[[Any, list[Any]], int]] | None

    def __init__(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        self._nbytes = math.prod(plan.shape) * dtype.itemsize
        self.block = block_layout(plan, dtype.itemsize)
        self.layout = fresh_layout(plan, strides, dtype.itemsize)
        shortest = int(self.layout.rows[:, RUN].min())
        self._stream = int(self._nbytes >= stream_from(shortest))
        # Threads read a call's layout while it runs, so concurrent calls need one each.
        self._layouts: list[CopyLayout] = []
        self.fresh = lambda x: []
        self.fresh_checked = self.fresh_without_gil
        self.into = lambda x, outputs: 0
        self.tensors = None

    @property
    def is_streamed(self) -> bool:
        """Whether stores of long runs bypass the cache because the array is large."""
        return bool(self._stream)

    def loop_for(self, layout: CopyLayout) -> str:
        """Return the name of the compiled loop for a layout, see `LOOPS`."""
        return "stream" if self._stream and layout.loop == "plain" else layout.loop

    def load(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> bool:
        """Load the loop and the builtin functions; return whether this object can copy."""
        loop = self.loop_for(self.layout)
        functions = LOADER.load(loop)
        if functions is None:
            return False
        reads_arrays = plan._count <= MOST_PARTS and can_read_arrays()
        code = LOADER.load("entry") if reads_arrays else None
        if not threads.TEAM.load():
            return False
        self._loop = functions[loop]
        if code is None:  # if another process is compiling it, a later call tries again
            return not reads_arrays or LOADER.has_failed("entry")
        is_small = threads.is_small(self._nbytes)
        record = self._record(plan, dtype, strides, functions[loop] if is_small else 0)
        made = {
            name: builtin(name, address, _FLAGS.get(name, METH_FASTCALL), record)
            for name, address in code.items()
        }
        if is_small:
            self.fresh, self.fresh_checked = made["fresh"], made["fresh_checked"]
            self.into = made["into"]
        else:
            self._check, self._parts, self._place = made["check"], made["parts"], made["place"]
            self.fresh = self.fresh_checked = self._fresh_large
            self.into = self._into_large
        return True

    def _record(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...], loop: int) -> _Record:
        start, stop = offsets_of(plan.shape, strides, dtype.itemsize)
        outputs = self.layout.copy()
        api: Any = structs.API
        expected = Expected(
            array_type=id(np.ndarray),
            list_type=id(list),
            dtype=id(dtype),
            flags=C_CONTIGUOUS | WRITEABLE,
            rank=len(plan.shape),
            axis=plan.axis,
            count=plan._count,
            start=start,
            stop=stop,
            stream=self._stream,
            loop=loop,
            fresh=self.layout.address,
            into=outputs.address,
            nbytes=self.block.nbytes + (ALIGNMENT if loop else 0),
            byte=id(_BYTE),
            new_array=api[NEW_FROM_DESCR],
            set_base=api[SET_BASE_OBJECT],
        )
        record = np.array([*expected, *plan.shape, *strides, *plan.sizes], np.int64).view(_Record)
        record.kept = (dtype, self.layout, outputs)
        return record

    def _fresh_large(self, x: Any) -> list[np.ndarray]:
        if not self._check(x):
            return []
        parts: list[np.ndarray] = []
        try:
            parts, target = buffers.POOL.allocate(self.block.nbytes, self._parts, x)
            source = self._check(x)  # again: a finalizer may have changed `x`
            if not source:
                return []
            how = self._stream, target, source, self.layout.address
            threads.run_loop(self._loop, self._nbytes, how)
            return parts
        except BaseException as error:
            parts = []
            buffers.release_frames(error)
            raise

    def _into_large(self, x: Any, outputs: list[Any]) -> bool:
        try:
            layout = self._layouts.pop()
        except IndexError:
            layout = self.layout.copy()
        try:
            source = self._place(x, outputs, layout.record)
            return source != 0 and self.run(source, 0, layout)
        finally:
            self._layouts.append(layout)

    def fresh_without_gil(self, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts, as `fresh_checked`, while other Python threads run."""
        parts, address = buffers.allocate_parts(self.block, x.dtype)
        return parts if self.run(address_of(x), address, self.layout) else []

    def run(self, source: int, target: int, layout: CopyLayout) -> bool:
        """Copy on as many threads as pay.

        Parameters
        ----------
        source : int
            The address of the first element of the source.
        target : int
            The address that the layout's target offsets are relative to.
        layout : CopyLayout

        Returns
        -------
        bool
            False, and nothing is copied, if the loop for this layout is not loaded.
        """
        loop = self._loop
        if layout.loop != self.layout.loop:  # some outputs have gaps
            name = self.loop_for(layout)
            functions = LOADER.load(name)
            if functions is None:
                return False
            loop = functions[name]
        threads.run_loop(loop, self._nbytes, (self._stream, target, source, layout.address))
        return True
