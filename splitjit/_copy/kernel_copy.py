"""Copy arrays with compiled code: a loop copies, and builtin functions check and make arrays.

Copying 10 KB takes 0.2 µs. Checks in Python take 6 µs, because each array attribute is a Python
object, and NumPy takes 0.3 µs to make a part. The builtin functions of `splitjit._kernels.entry`
read array and list fields straight from memory, and make arrays through NumPy's C API in 0.1 µs.
If an array is not as expected, they copy nothing, and Python decides.

Making objects may start the garbage collector, and a finalizer may drop the recipe. So the
``self`` of each builtin function is the record, which owns everything that compiled code reads.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from splitjit._abi.addresses import address_of
from splitjit._abi.builtins import METH_FASTCALL, METH_O, builtin
from splitjit._abi.calls import EXPECTED, Expected
from splitjit._abi.kernels import LOOPS
from splitjit._abi.layout_record import ALIGNMENT, WORD
from splitjit._copy import buffers
from splitjit._copy.copy_layout import CopyLayout, lay_out
from splitjit._copy.layout import block_layout
from splitjit._plan.cache import MOST_PARTS
from splitjit._plan.plan import Plan
from splitjit._runtime import threads
from splitjit._runtime.loading import LOADER, can_read_arrays
from splitjit._runtime.ways import ways_of

_FLAGS = {"fresh": METH_O, "fresh_checked": METH_O, "check": METH_O}


class _Record(np.ndarray):
    """An `Expected` record in memory, which keeps everything that it points to alive.

    Attributes
    ----------
    kept : tuple
    """

    kept: tuple[Any, ...]


@functools.cache
def _of_any() -> Expected:
    """Return the fields that are the same for all plans, dtypes and strides; others are 0."""
    nothing = Expected(*[0] * len(Expected._fields))
    return nothing._replace(list_type=id(list), blocks=buffers.POOL.address, **buffers.makers())


class _NewShapes:
    """Copies small arrays of shapes that were never split before, which have no plan.

    Attributes
    ----------
    fresh : callable
        ``fresh(x, axis, itemsize, *sizes)`` lays out the copy on its stack, copies `x` to new
        parts in one block, and returns them in a list. The list is empty, and nothing is copied,
        if it cannot lay out this copy or if the loop is not loaded.
    """

    def __init__(self) -> None:
        self._record: _Record | None = None
        self.fresh: Callable[..., list[np.ndarray]] = lambda x, axis, itemsize, *sizes: []

    def use(self, loop: str, address: int, code: dict[str, int]) -> None:
        """Use a loaded loop, and the functions of the kernel "entry"."""
        if self._record is None:
            lay_out = LOADER.load("layouter")
            if lay_out is None:
                return
            words = [*_of_any(), lay_out["lay_out"], *[0] * len(LOOPS)]
            self._record = np.array(words, np.int64).view(_Record)
            self._record[EXPECTED.functions] = self._record.ctypes.data + WORD * len(EXPECTED)
            self.fresh = builtin("fresh_new", code["fresh_new"], METH_FASTCALL, self._record)
        self._record[len(EXPECTED) + 1 + LOOPS.index(loop)] = address


NEW_SHAPES = _NewShapes()


WAYS = "with helpers", "alone", "with few helpers"
"""The ways to make a large copy."""


class KernelCopy:
    """Copies arrays of one plan, dtype and strides.

    Attributes
    ----------
    layout : CopyLayout
        The layout of the copy to a block of fresh parts.
    fresh : callable
        ``fresh(x)`` copies `x` to new parts in one block, each aligned to a cache line, and
        returns them in a list. If `x` is not as expected, the list is empty.
    fresh_checked : callable
        The same for an array known to have the expected shape and strides, and an equal dtype;
        the list is empty if no builtin function can copy this array.
    into : callable
        ``into(x, outputs)`` copies `x` to the arrays of the list `outputs`, and returns
        whether it did. If an array is not as expected, or if two arrays may share memory,
        it copies nothing.
    ways : Ways or None
        What each of `WAYS` has shown; None for small copies, which are made alone.
    """

    __slots__ = (
        "_check",
        "_loop",
        "_nbytes",
        "_parts",
        "_place",
        "fresh",
        "fresh_checked",
        "into",
        "layout",
        "ways",
    )  # fmt: skip

    fresh: Callable[[Any], list[np.ndarray]]
    fresh_checked: Callable[[np.ndarray], list[np.ndarray]]
    into: Callable[[Any, list[Any]], int]

    def __init__(self, nbytes: int, layout: CopyLayout, loop: int) -> None:
        self._nbytes, self.layout, self._loop = nbytes, layout, loop
        self.ways = None
        if not threads.is_small(nbytes):
            self.ways = ways_of(threads.count_ways(), loop, nbytes.bit_length())
        self.fresh = self.fresh_checked = lambda x: []
        self.into = lambda x, outputs: 0

    @classmethod
    def load(cls, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> KernelCopy | None:
        """Lay out the copy, and load what it needs; return None if that is not possible now."""
        layout = lay_out(plan, strides, dtype.itemsize)
        functions = None if layout is None else LOADER.load(layout.loop)
        if layout is None or functions is None or not threads.TEAM.load():
            return None
        nbytes = math.prod(plan.shape) * dtype.itemsize
        made = cls(nbytes, layout, functions[layout.loop])
        if plan._count > MOST_PARTS or not can_read_arrays():
            return made
        code = LOADER.load("entry")
        if code is not None and (threads.is_small(nbytes) or buffers.POOL.load()):
            made._use(code, plan, dtype, strides)
            NEW_SHAPES.use(layout.loop, functions[layout.loop], code)
            return made
        # If another process is compiling one, a later call tries again.
        return made if LOADER.has_failed("entry") or LOADER.has_failed("blocks") else None

    def _use(
        self, code: dict[str, int], plan: Plan, dtype: np.dtype, strides: tuple[int, ...]
    ) -> None:
        """Make the builtin functions that check arrays, and copy small ones."""
        is_small = threads.is_small(self._nbytes)
        record = self._record(plan, dtype, strides, self._loop if is_small else 0)

        def made(name: str) -> Any:
            return builtin(name, code[name], _FLAGS.get(name, METH_FASTCALL), record)

        if is_small:
            self.fresh, self.fresh_checked = made("fresh"), made("fresh_checked")
            self.into = made("into")
        else:
            self._check, self._parts, self._place = made("check"), made("parts"), made("place")
            self.fresh = self.fresh_checked = self._fresh_large
            self.into = self._into_large

    def _record(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...], loop: int) -> _Record:
        steps = [(n - 1) * stride for n, stride in zip(plan.shape, strides, strict=True)]
        outputs = self.layout.copy() if loop else self.layout  # large copies have one each
        expected = _of_any()._replace(
            dtype=id(dtype),
            rank=len(plan.shape),
            axis=plan.axis,
            count=plan._count,
            start=sum([step for step in steps if step < 0]),
            stop=sum([step for step in steps if step > 0]) + dtype.itemsize,
            stream=self.layout.stream,
            loop=loop,
            fresh=self.layout.address,
            into=outputs.address,
            nbytes=self.layout.block + ALIGNMENT if loop else 0,  # large parts lie in a block
        )
        record = np.array([*expected, *plan.shape, *strides, *plan.sizes], np.int64).view(_Record)
        shape = record.ctypes.data + WORD * len(expected)
        record[EXPECTED.shape], record[EXPECTED.sizes] = shape, shape + WORD * 2 * len(plan.shape)
        record.kept = (dtype, self.layout, outputs)
        return record

    def _fresh_large(self, x: Any) -> list[np.ndarray]:
        if not self._check(x):
            return []
        parts: list[np.ndarray] = []
        try:
            parts = self._parts(x, buffers.POOL.lease(self.layout.block))
            target: Any = parts.pop()
            source = self._check(x)  # again: a finalizer may have changed `x`
            if not source:
                return []
            self._run_loop(self._loop, target, source, self.layout.stream, self.layout.address)
            return parts
        except BaseException as error:
            parts = []
            buffers.release_frames(error)
            raise

    def _into_large(self, x: Any, outputs: list[Any]) -> bool:
        record = self.layout.record.copy()  # concurrent calls need one each
        source: int = self._place(x, outputs, record)
        if source:
            self._run_loop(self._loop, 0, source, self.layout.stream, address_of(record))
        return source != 0

    def fresh_without_gil(self, plan: Plan, x: np.ndarray) -> list[np.ndarray]:
        """Copy `x` to new parts, as `fresh_checked`, while other Python threads run."""
        parts, address = buffers.allocate_parts(block_layout(plan, x.itemsize), x.dtype)
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
        functions = LOADER.load(layout.loop)  # some outputs may have gaps
        if functions is None:
            return False
        self._run_loop(functions[layout.loop], target, source, layout.stream, layout.address)
        return True

    def _run_loop(self, loop: int, target: int, source: int, stream: int, layout: int) -> None:
        threads.run_loop(loop, self._nbytes, (stream, target, source, layout), self.ways)
