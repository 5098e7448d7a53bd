"""From an object and a request to parts: `decide` and `moves_of` choose one of four ways.

==========  =========================================================================
way         who makes the parts
==========  =========================================================================
views       nobody copies: the parts are views (``copy=False``)
numpy       NumPy's slices, and a loop over Python objects
compiled    compiled loops
library     the library of the object: torch's own operator, or its slices
==========  =========================================================================

Every public function that splits comes in here, `explain` too: it prints the decision. The plan
keeps a `How` for each dtype and strides, so later calls for plain arrays need a single lookup, and
no decision.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from splitjit._copy.how import CopyLayout, How, how_of
from splitjit._copy.outputs import check_memory, check_out
from splitjit._inputs.adapt import adapt, memory
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Copies, Input, Request, by_plan
from splitjit._plan.arguments import check_copy
from splitjit._plan.plan import Plan
from splitjit._runtime.threads import one_thread
from splitjit.errors import SplitError, SplitTypeError, X, kind_of, reason

Result = TypeVar("Result")


class Decision(NamedTuple):
    """How an object will be split. Nothing has been written.

    Attributes
    ----------
    way : str
        ``"views"``, ``"arrays"`` or ``"library"``. `moves_of` checks the memory of arrays, and
        says whether NumPy or compiled loops copy it.
    plan : Plan or None
        None if the library makes the parts of a shape that may have symbols.
    out : list or None
        The objects that the user gave for the parts.
    copies : sequence of tuple
        What NumPy or compiled loops copy, see `splitjit._inputs.input.Copies`.
    views : list or None
        The values that the library writes to `out`. Without them, and with a plan, torch's own
        operator writes the parts.
    """

    way: str
    plan: Plan | None = None
    out: list[Any] | None = None
    copies: Copies = ()
    views: list[Any] | None = None


def run(x: Any, request: Request, out: Any = None, copy: Any = True) -> list[Any]:
    """Split an object, or its adapter; see `splitjit.split`."""
    return decide_and(_carry_out, x, request, out, copy)


def decide_and(
    act: Callable[[Decision, Input, Request], Result], x: Any, request: Request, out: Any, copy: Any
) -> Result:
    """Decide how to split an object, and act on the decision; say what its library refuses."""
    given = adapter_of(x, copy)
    return or_refuse(given, X, lambda: act(decide(given, request, out, copy), given, request))


def or_refuse(given: Input, name: str, call: Callable[[], Result]) -> Result:
    """Call a function; if kernels do not reach an object, say what its library refuses."""
    if given.is_traced():  # a compiler that traces knows no `try`
        return call()
    try:
        return call()
    except Exception as error:
        if isinstance(error, SplitError) or given.array is not None or not given.refused(error):
            raise
        rule = f"{given.library} refuses: {reason(error)}"
        raise SplitTypeError.of(f"{name} of type {kind_of(given.x)}", rule) from error


def adapter_of(x: Any, copy: Any) -> Input:
    """Return the adapter of an object, or refuse it; see `adapt` for `copy`."""
    if type(x) is np.ndarray:
        return Input(x)
    if issubclass(type(x), Input):
        return cast(Input, x)
    if is_dask_array(x):
        from splitjit._copy.lazy import Lazy  # most programs never need it

        return Lazy(x, copy_piece)
    return adapt(x, copy)


def decide(
    given: Input, request: Request, out: Any = None, copy: Any = True, by_operator: bool = True
) -> Decision:
    """Decide how to split an object; refuse arguments that do not fit.

    `by_operator` is whether the library may make the parts though kernels can, too.
    """
    if copy is not True:
        check_copy(out, copy)
        array = given.array
        return Decision("views", None if array is None else request.plan_of(array.shape))
    if by_operator and (found := given.operator(request, out)) is not None:
        return Decision("library", *found)
    array = given.array
    if array is None:
        return _decide_for_library(given, request, out)
    plan = request.plan_of(array.shape)
    copies: Copies = [(x, None) for x in (array, given.mask) if x is not None]
    if out is not None:
        out, copies = given.targets(out)
    return Decision("arrays", plan, out, copies)


def moves_of(plan: Plan, copies: Copies) -> list[tuple[How, np.ndarray, CopyLayout | None, Any]]:
    """Return how each array is copied; refuse outputs that do not fit.

    With the array come the compiled copy, or None if NumPy copies, and the checked arrays for the
    parts, or None for new ones.
    """
    if copies[0][1] is not None:
        copies = [(x, check_out(plan, x, out)) for x, out in copies]
        if len(copies) > 1:  # data and masks must share no memory, either
            written = [part for _, out in copies for part in out]
            for x, _ in copies:
                check_memory(x, written, plan.axis)
    return [(how := how_of(plan, x), x, how.layout_for(plan, x, out), out) for x, out in copies]


def _decide_for_library(given: Input, request: Request, out: Any) -> Decision:
    if out is None:
        return Decision("library")
    found = given.targets_of_library(request, out)
    if found is None:  # NumPy reads the values, or refuses
        return decide(Input(memory(given.x)), request, out)
    targets, views, places = found
    if places:
        *parts, x = places
        check_out(request.plan_of(x.shape), x, parts)
    return Decision("library", out=targets, views=views)


def _carry_out(decision: Decision, given: Input, request: Request) -> list[Any]:
    """Split an object; return its parts, or what the user gave for them."""
    way, plan, out, copies, views = decision
    if way == "views":
        return given.made_by_library(request, False) if plan is None else given.views(plan)
    if way == "library":
        if plan is not None:
            try:
                return given.made_by_operator(plan, out)
            except RuntimeError:  # torch refuses the storage, or has no memory
                decision = decide(given, request, out, by_operator=False)
            return _carry_out(decision, given, request)
        if views is None or out is None:
            return given.made_by_library(request, True)
        for target, view in zip(out, views, strict=True):
            target.copy_(view)
        return out
    assert plan is not None
    (x, parts), *masks = copies
    if parts is not None and not masks and (how := how_of(plan, x)).into(x, parts):
        made = [parts]  # checked by compiled code
    else:
        moves = moves_of(plan, copies)
        how = moves[0][0]
        made = [each.copy(plan, source, layout, to) for each, source, layout, to in moves]
    plan._use(how)
    if out is None:
        return given.wrap(*made)
    given.wrote(out, made)
    return out


def copy_piece(
    chunk: Any, cuts: Sequence[tuple[int, int, int]], axis: int, block_id: tuple[int, ...]
) -> Any:
    """Return a part's piece of a chunk of a Dask array, or the chunk itself if it is whole.

    Dask may run this in another process.
    """
    sizes = before, _, after = cuts[block_id[axis]]
    if not before and not after:
        return chunk
    whole = adapt(chunk)
    piece = adapt(whole.views(_plan_of_chunk(whole.shape, axis, sizes))[1])
    plan = _plan_of_chunk(piece.shape, 0, piece.shape[:1])
    with one_thread():  # Dask runs other tasks on the other cores
        return run(piece, by_plan(plan), None, True)[0]


_plan_of_chunk = functools.lru_cache(256)(Plan)
