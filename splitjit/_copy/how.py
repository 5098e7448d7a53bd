"""How arrays of one plan, dtype and strides are copied: by NumPy at first, and then by kernels.

For small arrays, checks in Python take much longer than the copy, because each array attribute is
a Python object. The builtin functions of `splitjit._kernels.core.entry` read array and list fields
straight from memory, and make arrays through NumPy's C API. If an array is not as expected, they
copy nothing, and Python decides.

Making objects may start the garbage collector, and a finalizer may drop the `How`. So the ``self``
of each builtin function is its record, which owns everything that compiled code reads.
"""

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from splitjit._abi import structs
from splitjit._abi.calls import ALIGNMENT, HEADER, WORD, Expected, LayoutRequest, call, most_words
from splitjit._abi.kernels import LOOPS
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy import buffers, slices
from splitjit._plan.plan import MOST_PARTS, Plan
from splitjit._runtime import threads
from splitjit._runtime.events import warn
from splitjit._runtime.loading import LOADER, LOOP_ADDRESSES, NATIVE, never_compiles

_WORD = ctypes.c_int64


class CopyLayout:
    """A copy, in as few dims as the strides of both sides allow.

    Attributes
    ----------
    record : ndarray of int64
        The layout record, see `splitjit._abi.calls`, which the layouter wrote.
    address : int
        The address of the record, valid while this object exists.
    loop : str
        The loop that copies, one of `splitjit._abi.kernels.LOOPS`.
    stream : int
        1 if stores of full cache lines bypass the cache, because the array is large.
    tables : ctypes array
        The source's shape and strides, and the length of each part; for given parts, also their
        addresses, shapes and strides.
    block : int
        The bytes of a block for the parts.
    """

    __slots__ = ("address", "block", "loop", "record", "stream", "tables")

    def __init__(self, memory: Any, tables: Any, block: int) -> None:
        self.record: np.ndarray = np.frombuffer(memory, np.int64)
        self.address = ctypes.addressof(memory)
        self.loop, self.stream = LOOPS[memory[HEADER.loop]], memory[HEADER.stream]
        self.tables, self.block = tables, block


def lay_out(
    plan: Plan, strides: tuple[int, ...], itemsize: int, parts: Sequence[np.ndarray] | None = None
) -> CopyLayout:
    """Lay out the copy of an array that has elements. The core is loaded.

    Parameters
    ----------
    plan : Plan
        A plan of the source's shape.
    strides : tuple of int
        The source's strides in bytes.
    itemsize : int
        Bytes of an element.
    parts : sequence of ndarray, optional
        The arrays for the parts, already checked; target offsets are addresses. By default,
        parts lie in a block, see `splitjit._copy.buffers.allocate_parts`, and target offsets are
        relative to its start.
    """
    rank, count = len(plan.shape), len(plan.sizes)
    record = (_WORD * most_words(rank, count))()
    given = [*plan.shape, *strides, *plan.sizes, *(buffers.words_of(parts) if parts else ())]
    tables = (_WORD * len(given))(*given)
    shape = ctypes.addressof(tables)
    sizes = shape + WORD * 2 * rank
    request = LayoutRequest(
        rank, plan.axis, count, itemsize, shape, sizes,
        0 if parts is None else sizes + WORD * count, WORD * (1 + 2 * rank),
        *THRESHOLDS.stream_from, ctypes.addressof(record), False,
    )  # fmt: skip
    return CopyLayout(record, tables, call(NATIVE.lay_out, request))


# ---- the record of the builtin functions -------------------------------------------------------


@functools.cache
def shared_fields() -> Expected | None:
    """Return a record with the fields that all records share, and lend blocks from now on.

    None if builtin functions cannot read and make arrays here; then the log says so. The core is
    loaded.
    """
    if structs.READS_ARRAYS:
        return buffers.POOL.load()
    python = f"{sys.implementation.name} {sys.version.split()[0]}"
    message = "compiled code cannot read arrays of %s and NumPy %s, so small splits take longer. %s"
    warn(message, python, np.__version__, structs.WORKS_WITH)
    return None


def _record(
    shared: Expected, plan: Plan, x: np.ndarray, layout: CopyLayout, joins: bool
) -> np.ndarray:
    """Write what builtin functions expect of arrays such as `x`; what it points to stays alive."""
    steps = [(n - 1) * stride for n, stride in zip(plan.shape, x.strides, strict=True)]
    is_large, into = x.nbytes >= THRESHOLDS.large, layout.record.copy()
    shape = ctypes.addressof(layout.tables)
    expected = shared._replace(
        dtype=id(x.dtype),
        rank=len(plan.shape),
        axis=plan.axis,
        count=len(plan.sizes),
        itemsize=x.itemsize,
        start=sum([step for step in steps if step < 0]),
        stop=sum([step for step in steps if step > 0]) + x.itemsize,
        joins=joins,
        loops=ctypes.addressof(LOOP_ADDRESSES) + WORD * len(LOOPS) * joins,
        stream_short_runs=THRESHOLDS.stream_from[0],
        stream_long_runs=THRESHOLDS.stream_from[1],
        fresh=layout.address,
        into=into.ctypes.data,
        nbytes=layout.block if is_large else layout.block + ALIGNMENT,
        shape=shape,
        sizes=shape + WORD * 2 * len(plan.shape),
        team=threads.TEAM.address if is_large else 0,
        releases_gil=is_large or _may_wait(x),
    )
    memory: Any = (_WORD * len(expected))(*expected)
    memory.kept = x.dtype, layout, into
    return np.frombuffer(memory, np.int64)


def _may_wait(x: np.ndarray) -> bool:
    """Return whether reading an array may wait for a disk, because it is a memory map."""
    return issubclass(type(x.base), np.memmap)  # `isinstance` asks a foreign base for its class


# ---- how arrays are copied -----------------------------------------------------------------


class How:
    """How arrays of one plan, dtype and strides are copied.

    NumPy copies until kernels are loaded; see `splitjit._runtime.loading`. A `How` does not refer
    to its plan, which would keep both alive until Python collects cycles.

    Parameters
    ----------
    nbytes : int
    why : str
        Why kernels never make this copy, or an empty string.
    joins : bool
        Whether arrays are joined: copied from the parts.

    Attributes
    ----------
    fresh : callable
        ``fresh(x)`` copies `x` to new parts in one block, each aligned to a cache line, and returns
        them in a list. It returns None, and copies nothing, if `x` is not as expected or if NumPy
        copies.
    into : callable
        ``into(x, outputs)`` copies `x` to the arrays of the list `outputs`, and returns whether it
        did. If an array is not as expected, or if two arrays may share memory, it copies nothing.
    nbytes : int
        Bytes of all parts.
    layout : CopyLayout or None
        The layout of the compiled copy to a block of fresh parts; None if NumPy copies.
    """

    __slots__ = ("_joins", "_needs", "_why", "fresh", "into", "layout", "nbytes")

    def __init__(self, nbytes: int, why: str, joins: bool = False) -> None:
        # No dtype is a field: equal dtypes may differ in metadata, or in the class of their items.
        self.nbytes, self._why, self._joins = nbytes, why, joins
        self._needs = "core"  # the kernel to load next: the core, which lays out, and then the loop
        self.layout: CopyLayout | None = None
        self.fresh: Callable[[Any], list[np.ndarray] | None] = _not_yet
        self.into: Callable[[Any, list[Any]], int | None] = _not_yet

    def at_once(self, plan: Plan, x: Any, out: Any) -> list[Any] | None:
        """Copy an object if it and the arrays of `out` are as expected; else return None."""
        if out is None:
            return self.fresh(x)
        if type(out) is not list and type(out) is not tuple:
            return None
        given = list(out)  # nobody else changes this list
        return given if self.into(x, given) else None

    def why_numpy(self) -> str:
        """Return why NumPy copies, as a key of the reasons that `explain` gives."""
        if self._why:
            return self._why
        if never_compiles():
            return "no compiler"
        return "not loaded" if LOADER.pays(self._needs, self.nbytes) else "not yet"

    def layout_for(
        self, plan: Plan, x: np.ndarray, parts: list[np.ndarray] | None
    ) -> CopyLayout | None:
        """Return the compiled copy to new parts, or to checked ones; None if NumPy copies.

        Kernels are loaded first if it is time.
        """
        if self.layout is None and not self._why and self._functions():
            layout = lay_out(plan, x.strides, x.itemsize)
            if self._loop(layout):
                self._make_builtins(plan, x, layout)
                self.layout = layout
        if self.layout is None or parts is None:
            return self.layout
        layout = lay_out(plan, x.strides, x.itemsize, parts)
        return layout if self._loop(layout) else None  # some outputs have gaps

    def _loop(self, layout: CopyLayout) -> int:
        """Return the address of the loop that copies, or 0; load it first if it is time."""
        self._needs = "join" if self._joins else layout.loop
        index = LOOPS.index(layout.loop) + len(LOOPS) * self._joins
        return LOOP_ADDRESSES[index] if self._functions() else 0

    def _functions(self) -> dict[str, Any] | None:
        """Return the functions of the kernel that is needed next; load it if it is time."""
        return LOADER.loaded.get(self._needs) or LOADER.load(self._needs, nbytes=self.nbytes)

    def _make_builtins(self, plan: Plan, x: np.ndarray, layout: CopyLayout) -> None:
        """Make the builtin functions that later calls try first."""
        if not threads.ON_NUMBA and (shared := shared_fields()) and len(plan.sizes) <= MOST_PARTS:
            record = _record(shared, plan, x, layout, self._joins)
            made = NATIVE.fresh(record), NATIVE.into(record)
            self.fresh, self.into = map(_limited, made) if x.nbytes >= THRESHOLDS.large else made

    def copy(
        self, plan: Plan, x: np.ndarray, layout: CopyLayout | None, parts: list[np.ndarray] | None
    ) -> list[np.ndarray]:
        """Copy an array to new parts, or to arrays that have passed all checks; return them.

        If this `How` joins, the parts are copied to the array.

        Parameters
        ----------
        plan : Plan
        x : ndarray
        layout : CopyLayout or None
            The compiled copy to these parts; None if NumPy copies.
        parts : list of ndarray or None
        """
        if layout is None:
            LOADER.splits += not self._why
            if parts is None:
                return buffers.retry(slices.fresh, x, plan.axis, plan.sizes)
            slices.into(x, plan.slices, parts, self._joins)
            return parts
        target = 0
        if parts is None:
            if (made := self.fresh(x)) is not None:
                return made
            parts, target = buffers.allocate_parts(plan, x.dtype)
        arguments = layout.stream, target, x.ctypes.data, layout.address
        threads.run_loop(self._loop(layout), self.nbytes, arguments)
        return parts


def _limited(copy: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that reads the limits on threads before it makes a large copy."""

    def copy_large(*arguments: Any) -> Any:
        numba = sys.modules.get(threads.NUMBA_THREADS)  # its limit counts as soon as it is set
        if perf_counter() >= threads.TEAM.limits_until or hasattr(numba, "_get_num_threads"):
            threads.TEAM.read_limits()
        return copy(*arguments)

    return copy_large


def _not_yet(*given: Any) -> None:
    """Copy nothing, because NumPy copies."""


def _why_never(plan: Plan, x: np.ndarray) -> str:
    """Return why kernels never make a copy, as `How.why_numpy` does, or "" if they may."""
    if x.dtype.hasobject:
        return "objects"
    if not x.nbytes:
        return "empty"
    count = len(plan.sizes)
    return "small parts" if count > MOST_PARTS and x.nbytes < count * THRESHOLDS.part else ""


def is_copied_at_once(plan: Plan, x: Any, out: Any) -> bool:
    """Return whether NumPy copies a small array at once: the first of a shape, or a very early one.

    The first one may be the only one. The early ones come before it is time to load kernels.
    """
    is_plain = out is None and type(x) is np.ndarray and x.shape == plan.shape
    is_time = plan._how is not None and (LOADER.loaded or LOADER.pays("core", 0))
    return is_plain and not is_time and bool(x.nbytes < THRESHOLDS.load_from)


def _copy_at_once(plan: Plan, x: Any, out: Any) -> list[Any] | None:
    """Copy a small array, which takes less time than to decide how; else return None."""
    if type(x) is np.ndarray:
        x = x.view()  # another thread or a finalizer may change the shape of the caller's array
    if not is_copied_at_once(plan, x, out):
        return None
    LOADER.splits += not _why_never(plan, x)
    plan._use(FIRST)  # which copies no second array once kernels are loaded
    return slices.fresh(x, plan.axis, plan.sizes)


FIRST = SimpleNamespace(at_once=_copy_at_once)
"""How the first array of a plan is copied, and small ones before kernels are loaded."""


def how_of(plan: Plan, x: np.ndarray, joins: bool = False) -> How:
    """Return how arrays such as `x` are copied, or joined to; cached in the plan."""
    key = x.dtype, x.strides, _may_wait(x), joins
    try:
        how: How | None = plan._hows.get(key)
        is_kept = x.dtype.kind != "T"  # it owns its array's text, which the plan would keep
    except TypeError:  # a dtype with titles that have no hash
        how, is_kept = None, False
    if how is None:
        how = How(x.nbytes, _why_never(plan, x), joins)
        if is_kept:
            plan._keep(key, how)
    return how
