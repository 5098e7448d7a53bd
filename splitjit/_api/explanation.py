"""Explanations: how a split by a plan would run now, and why, without copying anything."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from splitjit._api.lazy import split_by_plan
from splitjit._copy import recipe, threads
from splitjit._copy.layout import strided_layout
from splitjit._copy.loading import never_compiles
from splitjit._copy.loops import Loops
from splitjit._copy.outputs import Targets, check_apart, check_out, check_source
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Input
from splitjit._plan.arguments import check_views
from splitjit._plan.plan import Plan
from splitjit.errors import SplitError

_REASONS = {
    "views": "copy=False: the parts are views of x, and no data is copied",
    "library": "splitjit cannot reach the memory of x, so its own library makes the parts",
    "dask": "tasks of Dask split the chunks when the parts are computed",
    "entry": "one compiled call checks the arrays, makes the parts and copies",
    "loops": "a compiled loop copies",
    "object loop": "a compiled loop assigns the objects",
    "slices": "NumPy copies arrays of this size and layout as fast, and needs no compiled code",
}
_NO_BYTES = "NumPy copies, because there are no bytes to copy"
_OBJECTS = "NumPy copies, because x has few objects"
_NO_KERNELS = "NumPy copies, because Numba compiles nothing: NUMBA_DISABLE_JIT is set"
_ONE_BY_NUMPY = "NumPy copies on the thread that calls split"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a split would run now, and why; `explain` returns it, and `print` shows it.

    The parameters are also its attributes.

    Parameters
    ----------
    strategy : str
        ``"entry"``, ``"loops"``, ``"slices"``, ``"object loop"``, ``"views"``,
        ``"library"`` or ``"dask"``; the reason says what it means.
    reason : str
        Why this strategy.
    loop : str or None
        The compiled loop, if one copies.
    past_cache : bool
        Whether the loop writes to memory past the cache, because the array is large.
    threads : int or None
        The number of threads that copy; None if another library decides.
    threads_reason : str
        Why as many threads.
    parts : int
        The number of parts.
    bytes_read : int or None
        The bytes that the split reads; None if another library decides.
    bytes_written : int or None
        The bytes that it writes.
    bytes_allocated : int or None
        The bytes of new parts.

    See Also
    --------
    explain : Explain a split.
    SplitPlan.explain : Explain a split by a plan.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> splitjit.explain(np.zeros(6), 2, copy=False).parts
    3
    """

    strategy: str
    reason: str
    loop: str | None
    past_cache: bool
    threads: int | None
    threads_reason: str
    parts: int
    bytes_read: int | None
    bytes_written: int | None
    bytes_allocated: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict, for JSON or a table.

        Returns
        -------
        dict of str to object
            The attributes by name: strings, integers, bools and None.
        """
        return asdict(self)

    def __str__(self) -> str:
        loop = self.loop or "none"
        count = "unknown" if self.threads is None else self.threads
        sizes = {
            "read": self.bytes_read,
            "written": self.bytes_written,
            "allocated": self.bytes_allocated,
        }
        known = [f"{size} {what}" for what, size in sizes.items() if size is not None]
        return "\n".join(
            [
                f"strategy  {self.strategy}: {self.reason}",
                f"loop      {loop}{', with stores past the cache' * self.past_cache}",
                f"threads   {count}: {self.threads_reason}",
                f"bytes     {', '.join(known) or 'unknown'}",
                f"parts     {self.parts}",
            ]
        )


def explain_plan(plan: Plan, x: Any, out: Any, copy: Any) -> Explanation:
    """Explain the split of an object by a plan of its shape; see `SplitPlan.explain`."""
    with named_explain():
        if is_dask_array(x):
            return by_dask(split_by_plan(plan, x, out, copy))
        given = adapt(x)
        recipe.check_shape(plan, given.shape)
        return explain_input(plan, given, out, copy)


def explain_input(plan: Plan, given: Input, out: Any, copy: Any) -> Explanation:
    """Explain the split of any object but a Dask array."""
    if copy is not True:
        check_views(out, copy)
        return _nothing_copied(plan)
    array = given.array
    if array is None:
        return _by_library(len(plan), "library")
    targets = _targets(plan, array, out) if type(given) is Input else None
    return _of_array(plan, array, targets, given=out is not None)


def by_dask(parts: list[Any]) -> Explanation:
    """Explain the parts of a Dask array, which are lazy: nothing is computed."""
    return _by_library(len(parts), "dask")


@contextlib.contextmanager
def named_explain() -> Iterator[None]:
    """Let refusals of the block name the operator explain."""
    try:
        yield
    except SplitError as error:
        refusal = error.named("explain")
        refusal.hint = error.hint  # the parameters have the same names
        raise refusal from None


def _nothing_copied(plan: Plan) -> Explanation:
    reason = _REASONS["views"]
    return Explanation("views", reason, None, False, 0, "no thread copies", len(plan), 0, 0, 0)


def _by_library(parts: int, strategy: str) -> Explanation:
    reason, why = _REASONS[strategy], "the library decides"
    return Explanation(strategy, reason, None, False, None, why, parts, None, None, None)


def _targets(plan: Plan, array: np.ndarray, out: Any) -> Targets | None:
    """Check `out` as a split does; return None if the parts are new."""
    if out is None:
        return None
    targets = check_out(plan, array.dtype, out)
    check_apart(targets.parts)
    check_source(array, targets.parts)
    return targets


def _of_array(plan: Plan, array: np.ndarray, targets: Targets | None, given: bool) -> Explanation:
    """Explain the copy of an array to new parts, or to targets."""
    nbytes = math.prod(plan.shape) * array.dtype.itemsize
    contiguous = targets is None or targets.addresses is not None
    strategy = recipe.strategy(plan, array, given, contiguous)
    reason = _REASONS[strategy]
    if strategy == "slices" and not nbytes:
        reason = _NO_BYTES
    elif strategy == "slices" and array.dtype.hasobject:
        reason = _OBJECTS
    elif strategy in ("entry", "loops") and never_compiles():
        strategy, reason = "slices", _NO_KERNELS
    loop, past_cache, count, why = None, False, 1, _ONE_BY_NUMPY
    if strategy in ("entry", "loops"):
        loops = Loops(plan, array.itemsize, array.strides)
        layout = loops.layout
        if targets is not None and not contiguous:
            layout = strided_layout(plan, array.strides, array.itemsize, targets.parts)
        loop, past_cache = layout.loop, bool(loops.stream)
        count, why = threads.explain(loops.loop_for(layout), nbytes)
    allocated = 0 if given else nbytes
    return Explanation(
        strategy, reason, loop, past_cache, count, why, len(plan), nbytes, nbytes, allocated
    )


Explanation.__module__ = "splitjit"
