"""Dask arrays are split lazily: one task copies each piece of a chunk."""

from __future__ import annotations

from typing import SupportsIndex, Unpack

try:
    from dask.array import Array
except ModuleNotFoundError as error:
    raise ImportError("splitjit.dask needs the dask package: pip install dask") from error

from splitjit._api.split import split as any_split
from splitjit._api.split_plan import by_rule
from splitjit._copy.run import run
from splitjit._inputs.arrays import is_dask_array
from splitjit._plan.arguments import Lengths, OtherRules, named_rule
from splitjit.errors import SplitTypeError, X

__all__ = ["split"]


def split(
    x: Array,
    split: Lengths | None = None,
    axis: SupportsIndex = 0,
    *,
    out: None = None,
    copy: bool = True,
    **by: Unpack[OtherRules],
) -> list[Array]:
    """Split a Dask array lazily. `splitjit.split` calls this function for Dask arrays.

    Parameters
    ----------
    x : dask.array.Array
        The array to split. The sizes of its chunks along the axis are known;
        along other axes they may be unknown.
    split, axis
        The lengths of the parts and the axis, see `splitjit.split`.
    num_outputs, num_splits, indices, num_sections
        The other rules, see `splitjit.split`.
    out : None
        Any other value is refused: only `dask.array.store` writes lazy arrays.
    copy : bool, default True
        False returns slices of `x` that Dask makes.

    Returns
    -------
    list of dask.array.Array
        The parts. Along the axis, a chunk ends at each end of a part and at
        each end of a chunk of `x`. A part of length 0 has one chunk of length 0.
        A chunk of `x` that lies entirely in one part is not copied: it is a
        chunk of this part. Each other chunk is a new C-contiguous array that
        shares no memory with other chunks.

    Raises
    ------
    SplitError
        In the same cases as `splitjit.split`; if the sizes of chunks along the
        axis are unknown, if `out` is given, or if Dask's experimental query
        planning is on. Nothing is computed.
    SplitTypeError
        In the same cases as `splitjit.split`; if `x` is not a Dask array, or if its
        chunks are not NumPy arrays.

    See Also
    --------
    splitjit.split : Takes Dask arrays, too.
    dask.array.Array : The type of `x` and of the parts.
    dask.compute : Computes several results in one pass.

    Notes
    -----
    One task on one thread copies each piece of a chunk. The chunk itself is computed once
    for all parts that are computed in one call. If a computed chunk is not the array
    that Dask was told to expect, `splitjit.split` either accepts or refuses it when
    the task runs.

    Examples
    --------
    >>> import dask.array
    >>> import splitjit
    >>> x = dask.array.ones((4, 6), chunks=(2, 4))
    >>> [part.chunks for part in splitjit.split(x, [3, 3], axis=1)]
    [((2, 2), (3,)), ((2, 2), (1, 2))]
    """
    if not is_dask_array(x):
        text, hint = "x must be a dask.array.Array", "splitjit.split takes other arrays"
        raise SplitTypeError.of(f"{X} of type {type(x).__name__}", text, hint)
    return run(x, by_rule(axis, named_rule("split", split, by)), out, copy)


split.__wrapped__ = any_split  # type: ignore[attr-defined]  # `help` lists the rules by name
