"""How arrays of one plan, dtype and strides are copied: by NumPy at first, and then by kernels.

For small arrays, checks in Python take much longer than the copy, because each array attribute is
a Python object. The builtin functions of `splitjit._kernels.core.entry` read array and list fields
straight from memory, and make arrays through NumPy's C API. If an array is not as expected, they
copy nothing, and Python decides.

Making objects may start the garbage collector, and a finalizer may drop the copy. So the ``self``
of each builtin function is the record, which owns everything that compiled code reads.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Callable, Sequence
from ctypes import addressof
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from splitjit._abi.calls import EXPECTED, Expected, LayoutRequest
from splitjit._abi.kernels import LARGE, LOOPS
from splitjit._abi.layout_record import ALIGNMENT, HEADER, WORD, most_words
from splitjit._copy import buffers, outputs, slices
from splitjit._copy.buffers import address_of
from splitjit._plan.plan import MOST_PARTS, Plan
from splitjit._runtime import threads
from splitjit._runtime.cores import STREAM_FROM
from splitjit._runtime.loading import LOADER, LOOPS_AT, NATIVE, can_read_arrays, never_compiles
from splitjit._runtime.ways import Ways, ways_of

_RUN = 6e-9  # extra seconds that NumPy takes per run of contiguous bytes
_ITEM = 1e-9  # the same per item of a strided source
_BYTE = 2e-10  # the same per byte, if several threads share the copy

_PART = 1 << 12
"""Bytes of a part from which on kernels copy more than `MOST_PARTS` parts. Nothing is kept of such
a plan, so each call lays out all parts, which takes longer than slicing an array."""

_SECONDS_TO_LOAD = 0.05
"""Seconds that loading kernels takes in a process that has not imported llvmlite."""
_SECONDS_IF_IMPORTED = 0.005
_FEW = 16
"""How many more copies like the current one to expect, so that one large array loads kernels."""

LOST = SimpleNamespace(seconds=0.0)
"""How long copies have taken that kernels make faster."""

_WORD = ctypes.c_int64
_FUNCTION = ctypes.PYFUNCTYPE(_WORD)  # see `splitjit._abi.builtins` for the missing argument


def loading_pays(gain: float) -> bool:
    """Return whether to load kernels for a copy that they make `gain` seconds faster.

    Loading pays once copies without the kernels have taken about as long as loading takes, or if
    a few more copies like this one would take as long.
    """
    if LOADER.loaded:
        return True
    seconds = _SECONDS_IF_IMPORTED if "llvmlite.binding" in sys.modules else _SECONDS_TO_LOAD
    return LOST.seconds + _FEW * gain >= seconds and LOADER.may_load()


def functions_of(kernel: str) -> dict[str, Any] | None:
    """Return the functions of a kernel: a lookup, unless it must be loaded; None if it cannot."""
    return LOADER.loaded.get(kernel) or LOADER.load(kernel)


class CopyLayout:
    """A copy, in as few dims as the strides of both sides allow.

    Attributes
    ----------
    record : ndarray of int64
        The layout record, see `splitjit._abi.layout_record`, which the layouter wrote.
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
        self.loop, self.stream = LOOPS[memory[HEADER.loop]], memory[HEADER.stream]
        self.block = block

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
    if functions_of("core") is None:
        return None
    rank, count = len(plan.shape), len(plan.sizes)
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
    return CopyLayout(record, _FUNCTION(NATIVE.lay_out)(_WORD(addressof(words))))


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
    return buffers.expected(list_type=id(list), none=id(None), loops=addressof(LOOPS_AT))


NEW_SHAPES: Any = SimpleNamespace(fresh=lambda *given: None)
"""Copies small arrays of shapes that were never split before, which have no plan.

``fresh(x, axis, itemsize, *sizes)`` lays out the copy on its stack, copies `x` to new parts in one
block, and returns them in a list. The result is None, and nothing is copied, if it cannot lay out
this copy or if the loop is not loaded.
"""


@functools.cache
def use_builtins() -> bool:
    """Use builtin functions from now on, if they can read arrays here. The core is loaded."""
    if not can_read_arrays():
        return False
    expected = _of_any()._replace(blocks=buffers.POOL.address)
    NEW_SHAPES.fresh = NATIVE.fresh_new(np.array(expected, np.int64))
    buffers.POOL.load()
    return True


def _record(
    plan: Plan, dtype: np.dtype, strides: tuple[int, ...], layout: CopyLayout, loop: int, team: int
) -> _Record:
    """Write what builtin functions expect of arrays. `team` is 0 for small copies."""
    steps = [(n - 1) * stride for n, stride in zip(plan.shape, strides, strict=True)]
    into = layout.copy()
    expected = _of_any()._replace(
        dtype=id(dtype),
        rank=len(plan.shape),
        axis=plan.axis,
        count=len(plan.sizes),
        start=sum([step for step in steps if step < 0]),
        stop=sum([step for step in steps if step > 0]) + dtype.itemsize,
        stream=layout.stream,
        loop=loop,
        fresh=layout.address,
        into=into.address,
        blocks=buffers.POOL.address,
        nbytes=layout.block if team else layout.block + ALIGNMENT,
        team=team,
    )
    record = np.array([*expected, *plan.shape, *strides, *plan.sizes], np.int64).view(_Record)
    shape = record.ctypes.data + WORD * len(expected)
    record[EXPECTED.shape], record[EXPECTED.sizes] = shape, shape + WORD * 2 * len(plan.shape)
    record.kept = (dtype, layout, into)
    return record


class Copy:
    """How arrays of one plan, dtype and strides are copied.

    A process starts with NumPy, and adds up the time that this takes. Once NumPy has taken as long
    as loading kernels takes, copies switch to them. So whether or not a program goes on splitting,
    it loses little more than the time of the switch. A copy does not refer to its plan, which would
    keep both alive until Python collects cycles.

    Attributes
    ----------
    fresh : callable
        ``fresh(x)`` copies `x` to new parts in one block, each aligned to a cache line, and returns
        them in a list. It returns None, and copies nothing, if `x` is not as expected or if
        compiled code is not used yet.
    into : callable
        ``into(x, outputs)`` copies `x` to the arrays of the list `outputs`, and returns whether it
        did. If an array is not as expected, or if two arrays may share memory, it copies nothing.
    nbytes : int
        Bytes of all parts.
    layout : CopyLayout or None
        The layout of the compiled copy to a block of fresh parts; None if NumPy copies.
    ways : Ways or None
        What each of `threads.WAYS` has shown; None for small copies, which are made alone.
    """

    __slots__ = (
        "_gain", "_has_tried", "_why", "fresh", "into", "layout", "nbytes", "ways",
    )  # fmt: skip

    fresh: Callable[[Any], list[np.ndarray] | None]
    into: Callable[[Any, list[Any]], int]

    def __init__(self, plan: Plan, x: np.ndarray) -> None:
        # No dtype is kept: equal dtypes may differ in metadata, or in the class of their items.
        self.nbytes = math.prod(plan.shape) * x.itemsize
        self._why = _why_never(plan, x.dtype, self.nbytes)
        self._gain = 0.0 if self._why else forecast(x, plan.axis, len(plan.sizes))
        self._has_tried = False  # to load kernels
        self.layout: CopyLayout | None = None
        self.ways: Ways | None = None
        self.fresh = lambda x: None
        self.into = _copy_nothing

    # ---- by NumPy ----------------------------------------------------------------------------

    def count(self, seconds: float) -> None:
        """Count a copy by NumPy."""
        if not self._why:
            LOST.seconds += seconds

    def expect_outputs(self, plan: Plan, x: np.ndarray) -> None:
        """Make `into` copy with NumPy from now on."""
        if not self._why and len(plan) <= MOST_PARTS and x.dtype.isbuiltin == 1:
            into = _slices_into(plan, x, self._gain)
            if self.into is _copy_nothing:  # another thread may have loaded kernels meanwhile
                self.into = into

    def why_numpy(self) -> str:
        """Return why NumPy copies, as a key of the reasons that `explain` gives."""
        if self._why:
            return self._why
        if never_compiles():
            return "no compiler"
        return "slices" if LOADER.may_load() and not self._has_tried else "not loaded"

    # ---- by kernels --------------------------------------------------------------------------

    def switch(self, plan: Plan, x: np.ndarray) -> bool:
        """Return whether kernels copy; load them first if that pays now."""
        if self.layout is None and not self._why and loading_pays(self._gain):
            self._has_tried = True
            self._load(plan, x.dtype, x.strides)
        return self.layout is not None

    def _load(self, plan: Plan, dtype: np.dtype, strides: tuple[int, ...]) -> None:
        """Lay out the copy, and use kernels if all that it needs can be loaded now."""
        layout = lay_out(plan, strides, dtype.itemsize)
        functions = None if layout is None else functions_of(layout.loop)
        if layout is None or functions is None:
            return
        loop, is_small = functions[layout.loop], self.nbytes < LARGE
        self.into = _copy_nothing
        if not is_small:
            self.ways = ways_of(threads.ways_here(), loop, self.nbytes.bit_length())
        if len(plan.sizes) <= MOST_PARTS and use_builtins():
            team = 0 if is_small else threads.TEAM.address
            record = _record(plan, dtype, strides, layout, loop, team)
            if is_small:
                self.fresh, self.into = NATIVE.fresh(record), NATIVE.into(record)
            elif not threads.ON_NUMBA:
                large = NATIVE.fresh_large(record), NATIVE.into_large(record)
                self.fresh, self.into = [threads.shared(f, self.nbytes, self.ways) for f in large]
        self.layout = layout

    def fresh_without_gil(self, plan: Plan, x: np.ndarray) -> list[np.ndarray] | None:
        """Copy `x` to new parts while other Python threads run."""
        assert self.layout is not None
        parts, address = buffers.allocate_parts(buffers.block_layout(plan, x.itemsize), x.dtype)
        return parts if self.copy_as(address_of(x), address, self.layout) else None

    def copy_as(self, source: int, target: int, layout: CopyLayout) -> bool:
        """Copy as a layout says, on as many threads as pay.

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
        functions = functions_of(layout.loop)  # some outputs may have gaps
        if functions is None:
            return False
        arguments = layout.stream, target, source, layout.address
        threads.run_loop(functions[layout.loop], self.nbytes, arguments, self.ways)
        return True


def _copy_nothing(x: Any, given: list[Any]) -> int:
    """Do nothing, and say so."""
    return 0


def _slices_into(plan: Plan, x: np.ndarray, gain: float) -> Callable[[Any, list[Any]], int]:
    """Return `Copy.into` for arrays such as `x`, of a builtin dtype, until kernels are loaded."""
    like, indices = (x.dtype, x.shape, x.strides), plan.slices
    forms = [(shape, x.dtype) for shape in plan.output_shapes]  # only to compare

    def into(x: np.ndarray, given: list[Any]) -> int:
        began = perf_counter()
        x = x.view()  # as in `splitjit._copy.decision.split_array`
        if (x.dtype, x.shape, x.strides) != like or loading_pays(gain):
            return 0
        parts = outputs.views_of(given)
        if not outputs.are_plain_and_apart(forms, x, parts):
            return 0
        slices.into(x, indices, parts)
        LOST.seconds += perf_counter() - began
        return 1

    return into


def _why_never(plan: Plan, dtype: np.dtype, nbytes: int) -> str:
    """Return why kernels never make a copy, as `Copy.why_numpy` does, or "" if they may."""
    if dtype.hasobject:
        return "object loop" if slices.suits_object_loop(nbytes) else "slices"
    if not nbytes:
        return "slices"
    count = len(plan.sizes)
    return "small parts" if count > MOST_PARTS and nbytes < count * _PART else ""


def copy_of(plan: Plan, x: np.ndarray) -> Copy:
    """Return how arrays such as `x` are copied; cached in the plan."""
    key = x.dtype, x.strides
    try:
        copy: Copy | None = plan._kept.get(key)
    except Exception:  # a StringDType is hashable only if its na_object is
        copy = None
    if copy is None:
        copy = Copy(plan, x)
        if x.dtype.kind != "T":  # a StringDType owns its array's text, which the plan would keep
            plan._keep(key, copy)
    return copy


def forecast(x: np.ndarray, axis: int, count: int) -> float:
    """Return a lower bound of the seconds that kernels save over NumPy.

    This finds arrays for which compiled code pays at their first split.
    """
    if x.flags.c_contiguous:
        seconds = math.prod(x.shape[:axis]) * count * _RUN
    elif x.strides[-1] == x.itemsize:
        seconds = math.prod(x.shape[:-1]) * count * _RUN
    else:
        seconds = x.size * _ITEM
    return seconds + x.nbytes * _BYTE if x.nbytes >= LARGE else seconds
