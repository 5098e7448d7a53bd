"""`explain`: how a split would run now, and why, without copying anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, Unpack

from splitjit._api.split_plan import by_rule
from splitjit._copy.explanation import Explanation, explain_object
from splitjit._plan.arguments import Lengths, OtherRules, named_rule


def explain(
    x: Any,
    split: Lengths | None = None,
    axis: SupportsIndex = 0,
    *,
    out: Sequence[Any] | None = None,
    copy: bool = True,
    **by: Unpack[OtherRules],
) -> Explanation:
    """Say how `split` would split an array now: strategy, loop, threads, bytes, and why.

    The function takes the arguments of `split`, and copies nothing. It may load or
    compile kernels, as the split would. The answer holds for this moment: it depends
    on the cores that this process may use now, and on the code that it has loaded.

    Parameters
    ----------
    x : array_like
        The array to split, see `split`.
    split : sequence of int, 1-D integer array, int or 0-D integer array, optional
        The length of each part, or one length for all parts; see `split`.
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    out : sequence of array, optional
        The arrays to write the parts to, see `split`.
    copy : bool, default True
        False explains views.
    **by
        The other rules by name, see `split`. Exactly one rule is given.

    Returns
    -------
    Explanation
        Print it, or read its attributes, or call ``.as_dict()``.

    Raises
    ------
    SplitError, SplitTypeError
        If `split` would refuse the same arguments.

    See Also
    --------
    split : Split the array.
    SplitPlan.explain : The same for a plan.
    plan_split : Where the parts start and how long they are.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> print(splitjit.explain(np.zeros((4, 6)), 2, copy=False))
    strategy  views: copy=False: the parts are views of x, and no data is copied
    loop      none
    threads   0: no thread copies
    bytes     0 read, 0 written, 0 allocated
    parts     2
    >>> splitjit.explain(np.zeros((4, 6)), 2, copy=False).as_dict()["strategy"]
    'views'
    """
    return explain_object(x, by_rule(axis, named_rule("explain", split, by)), out, copy)
