"""From an object and a request to parts: `decide` which of four ways makes them, and `run` it.

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
from typing import Any, NamedTuple, TypeVar

import numpy as np

from splitjit._copy.how import CopyLayout, How, how_of
from splitjit._copy.outputs import check_memory, check_out
from splitjit._inputs.adapt import adapt, memory
from splitjit._inputs.arrays import is_dask_array
from splitjit._inputs.input import Input, Request, by_plan
from splitjit._plan.arguments import check_views
from splitjit._plan.plan import Plan
from splitjit._runtime.threads import one_thread
from splitjit.errors import SplitError, SplitTypeError, X, kind_of, reason

Result = TypeVar("Result")

Move = tuple[np.ndarray, How, CopyLayout | None, list[np.ndarray] | None]
"""An array to copy, which is the memory of the object or the mask of a masked array; how; the
compiled copy, or None if NumPy copies; the checked arrays for the parts, or None for new ones."""


class Decision(NamedTuple):
    """How an object will be split. All checks have passed, and nothing has been written.

    Attributes
    ----------
    way : str
        ``"views"``, ``"numpy"``, ``"compiled"`` or ``"library"``.
    plan : Plan or None
        None if the library makes the parts of a shape that may have symbols.
    moves : sequence of Move
        What NumPy or compiled loops copy.
    out : list or None
        The objects that the user gave for the parts.
    views : list or None
        The values that the library writes to `out`. Without them, and with a plan, torch's own
        operator writes the parts.
    """

    way: str
    plan: Plan | None = None
    moves: Sequence[Move] = ()
    out: list[Any] | None = None
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
        given: Input = x
        return given
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
        check_views(out, copy)
        array = given.array
        return Decision("views", None if array is None else request.plan_of(array.shape))
    if by_operator and (found := given.operator(request, out)) is not None:
        plan, targets = found
        return Decision("library", plan, (), targets)
    array = given.array
    if array is None:
        return _decide_for_library(given, request, out)
    plan = request.plan_of(array.shape)
    pairs: list[tuple[Any, Any]] = [(x, None) for x in (array, given.mask) if x is not None]
    if out is not None:
        out, targets_of = given.targets(out)
        pairs = [(x, check_out(plan, x, parts)) for x, parts in targets_of]
        if len(pairs) > 1:  # data and masks must share no memory, either
            written = [part for _, parts in pairs for part in parts]
            for x, _ in pairs:
                check_memory(x, written, plan.axis)
    moves = []
    for x, parts in pairs:
        how = how_of(plan, x)
        moves.append((x, how, how.layout_for(plan, x, parts), parts))
    return Decision("numpy" if moves[0][2] is None else "compiled", plan, moves, out)


def _decide_for_library(given: Input, request: Request, out: Any) -> Decision:
    if out is None:
        return Decision("library")
    found = given.targets_of_library(request, out)
    if found is None:  # NumPy reads the values, or refuses
        return decide(Input(memory(given.x)), request, out)
    targets, views, places = found
    if places:
        *parts, x = places
        plan = request.plan_of(x.shape)
        check_out(plan, x, parts)
    return Decision("library", out=targets, views=views)


def _carry_out(decision: Decision, given: Input, request: Request) -> list[Any]:
    """Split an object; return its parts, or what the user gave for them."""
    way, plan, moves, out, views = decision
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
    made = [how.copy(plan, x, layout, parts) for x, how, layout, parts in moves]
    plan._use(moves[0][1])
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
