"""How a split would run now, and why: the decision of `run` in words, without copying anything."""

from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

from splitjit._copy.how import is_copied_at_once
from splitjit._copy.run import Decision, decide_and, moves_of
from splitjit._copy.slices import object_loop
from splitjit._inputs.input import Input, Request
from splitjit._runtime import threads
from splitjit._runtime.loading import LOADER

_REASONS = {
    "views": "copy=False: the parts are views of x, and no data is copied",
    "library": "splitjit cannot reach the memory of x, so the library of x makes the parts",
    "torch": "torch's own operator copies: it is as fast as kernels, and keeps gradients",
    "dask": "tasks of Dask split the chunks when the parts are computed",
    "compiled": "a compiled loop copies",
    "object loop": "a compiled loop assigns the objects",
    "objects": "NumPy copies, because references of Python objects must be counted",
    "empty": "NumPy makes the parts: there is nothing to copy",
    "not yet": "NumPy copies until a split of 64 KB or more, or the 500th smaller one, loads "
    "kernels; if they must first be compiled, one of 4 MB, or the 20 000th",
    "first copy": "NumPy makes the first small copy of a shape, which may be the only one",
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
        The bytes that the split reads, but no masks; None if another library decides.
    bytes_written : int or None
        The bytes that it writes, but no masks.
    bytes_allocated : int or None
        The bytes of new parts, but no masks.

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

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes as a dict, for JSON or a table.

        Returns
        -------
        dict of str to object
            The attributes by name: strings, integers, bools and None.
        """
        return asdict(self)

    def __str__(self) -> str:
        bytes_of = (self.bytes_read, self.bytes_written, self.bytes_allocated)
        sizes = zip(bytes_of, ("read", "written", "allocated"), strict=True)
        threads = "unknown" if self.threads is None else self.threads
        return f"""\
strategy  {self.strategy}: {self.reason}
loop      {self.loop or "none"}{", with stores past the cache" * self.past_cache}
threads   {threads}: {self.threads_reason}
bytes     {", ".join([f"{n} {what}" for n, what in sizes if n is not None]) or "unknown"}
parts     {self.parts}"""


def explain_object(x: Any, request: Request, out: Any, copy: Any) -> Explanation:
    """Explain the split of an object."""
    began, loaded, compiled = perf_counter(), len(LOADER.loaded), len(LOADER.compiled)

    def explain(decision: Decision, given: Input, request: Request) -> Explanation:
        way, plan, _, copies, _ = decision
        if given.library == "Dask":
            parts = given.made_by_library(request, way != "views")  # may refuse the chunks
            return Explanation("dask", _REASONS["dask"], len(parts))
        by_torch = way == "library" and plan is not None
        if plan is None:
            plan = request.plan_of(given.shape)

        def by(strategy: str, reason: str, most: int | None, why: str, nbytes: int) -> Explanation:
            sizes = nbytes, nbytes, nbytes if out is None else 0
            return Explanation(strategy, reason, len(plan), None, False, most, why, *sizes)

        if way == "views":
            return by(way, _REASONS[way], 0, "no thread copies", 0)
        if by_torch:
            return by(way, _REASONS["torch"], None, "torch decides", given.x.nbytes)
        if not copies:
            return Explanation(way, _REASONS[way], len(plan))
        how, array, layout, _ = moves_of(plan, copies)[0]
        if layout is None or is_copied_at_once(plan, x, out):
            why = how.why_numpy() if layout is None else "first copy"
            strategy = "slices"
            if why == "objects" and object_loop(array.nbytes):
                why = strategy = "object loop"
            caller = "the thread that calls split copies alone"
            return by(strategy, _REASONS[why], 1, caller, array.nbytes)
        reason = _REASONS["compiled"]
        if len(LOADER.loaded) > loaded:  # as the split itself would have done
            done = "compiled" if len(LOADER.compiled) > compiled else "loaded"
            reason += f"; kernels {done} in {perf_counter() - began:.2f} s"
        made = by("compiled", reason, *threads.explain(array.nbytes), array.nbytes)
        return replace(made, loop=layout.loop, past_cache=bool(layout.stream))

    return decide_and(explain, x, request, out, copy)


Explanation.__module__ = "splitjit"
