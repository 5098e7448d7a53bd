"""Explanations: how a split by a plan would run now, and why, without copying anything."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import Any

from splitjit._api.lazy import split_lazily
from splitjit._copy.decision import decide, our_refusals
from splitjit._copy.torch_operator import ONE_WAY, targets_of_operator, ways_of_operator
from splitjit._inputs.adapt import adapt
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Request
from splitjit._inputs.torch.memory import TORCH
from splitjit._runtime import threads
from splitjit._runtime.ways import Ways

_REASONS = {
    "views": "copy=False: the parts are views of x, and no data is copied",
    "library": "splitjit cannot reach the memory of x, so its own library makes the parts",
    "torch": "torch's own operator copies, as fast as kernels, with the gradient if one is asked",
    "dask": "tasks of Dask split the chunks when the parts are computed",
    "compiled": "a compiled loop copies",
    "object loop": "a compiled loop assigns the objects",
    "slices": "NumPy copies until compiled code would have saved the time that it takes to load",
    "small parts": "NumPy copies: laying out so many small parts for kernels would take longer",
    "no compiler": "NumPy copies, because Numba compiles nothing: NUMBA_DISABLE_JIT is set",
    "not loaded": "NumPy copies, because the compiled loop cannot be loaded now",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a split would run now, and why; `explain` returns it; `print` shows it.

    The parameters are also its attributes.

    Parameters
    ----------
    strategy : str
        ``"compiled"``, ``"slices"``, ``"object loop"``, ``"views"``,
        ``"library"`` or ``"dask"``; the reason says what it means.
    reason : str
        Why this strategy.
    parts : int
        The number of parts.
    loop : str or None
        The compiled loop, if one copies.
    past_cache : bool
        Whether the loop writes to memory past the cache, because the array is large.
    threads : int or None
        The number of threads that copy; None if another library decides.
    threads_reason : str
        Why this many threads.
    bytes_read : int or None
        The bytes that the split reads; None if another library decides.
    bytes_written : int or None
        The bytes that it writes.
    bytes_allocated : int or None
        The bytes of new parts.
    ways : tuple of dict
        The ways to make a large copy, which are measured as they run: "name",
        "seconds" from one call to the next (the running mean, or None), "calls",
        and "is_next".

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
    parts: int
    loop: str | None = None
    past_cache: bool = False
    threads: int | None = None
    threads_reason: str = "the library decides"
    bytes_read: int | None = None
    bytes_written: int | None = None
    bytes_allocated: int | None = None
    ways: tuple[dict[str, Any], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict, for JSON or a table.

        Returns
        -------
        dict of str to object
            The attributes by name: strings, integers, bools and None, and the dicts of the ways.
        """
        return asdict(self)

    def __str__(self) -> str:
        bytes_of = (self.bytes_read, self.bytes_written, self.bytes_allocated)
        sizes = zip(bytes_of, ("read", "written", "allocated"), strict=True)
        threads = "unknown" if self.threads is None else self.threads
        ways = "\nways      " * bool(self.ways) + "\n          ".join(map(_line, self.ways))
        return f"""\
strategy  {self.strategy}: {self.reason}
loop      {self.loop or "none"}{", with stores past the cache" * self.past_cache}
threads   {threads}: {self.threads_reason}
bytes     {", ".join([f"{n} {what}" for n, what in sizes if n is not None]) or "unknown"}
parts     {self.parts}{ways}"""


def _line(way: dict[str, Any]) -> str:
    seconds, calls, following = way["seconds"], way["calls"], ", next" * way["is_next"]
    mean = "not measured yet" if seconds is None else f"{seconds * 1e6:.0f} µs from call to call"
    return f"{way['name']}: {mean}, {calls} call{'s' * (calls != 1)}{following}"


def _listed(ways: Ways | None, nbytes: int) -> tuple[dict[str, Any], ...]:
    """Return the ways, for copies of `nbytes` bytes, if there is a choice."""
    if ways is None or len(ways.means) == 1:
        return ()
    seconds = [mean * nbytes or None for mean in ways.means]
    return tuple(
        {"name": name, "seconds": mean, "calls": calls, "is_next": i == ways.way}
        for i, (name, mean, calls) in enumerate(zip(ways.names, seconds, ways.calls, strict=True))
    )


def explain_object(x: Any, request: Request, out: Any, copy: Any) -> Explanation:
    """Explain the split of an object."""
    if is_dask_array(x):
        return Explanation("dask", _REASONS["dask"], len(split_lazily(x, request, out, copy)))
    given = adapt(x, copy)
    measured = None
    if copy is True and TORCH.in_reach(given.x) and given.x.is_cpu:
        planned, nbytes = request.plan_of(given.shape), given.x.nbytes
        with contextlib.suppress(RuntimeError):  # torch refuses an output
            if out is None:
                measured = ways_of_operator(given.x, planned)
            elif targets_of_operator(given.x, planned, out) is not None:
                measured = ONE_WAY
    if measured is not None:
        by_torch = _REASONS["torch"], len(planned), None, False, None, "torch decides"
        allocated = nbytes if out is None else 0
        ways = _listed(measured, nbytes)
        return Explanation("library", *by_torch, nbytes, nbytes, allocated, ways)
    with contextlib.nullcontext() if given.array is not None else our_refusals(given):
        who, plan, copies, *_ = decide(given, request, out, copy)
    parts = len(plan or request.plan_of(given.shape))
    if who == "nobody":
        why = "no thread copies"
        return Explanation("views", _REASONS["views"], parts, None, False, 0, why, 0, 0, 0)
    if not copies:
        return Explanation("library", _REASONS["library"], parts)
    array, copied, layout, _ = copies[0]
    sizes = array.nbytes, array.nbytes, array.nbytes if out is None else 0
    if layout is None:
        reason = copied.why_numpy()
        strategy = "object loop" if reason == "object loop" else "slices"
        why = "NumPy copies on the thread that calls split"
        return Explanation(strategy, _REASONS[reason], parts, None, False, 1, why, *sizes)
    count, why = threads.explain(array.nbytes)
    how = _REASONS["compiled"], parts, layout.loop, bool(layout.stream), count, why
    ways = _listed(copied.ways, array.nbytes) if count > 1 else ()
    return Explanation("compiled", *how, *sizes, ways)


Explanation.__module__ = "splitjit"
