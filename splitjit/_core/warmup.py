"""Compile ahead of time, or load from the cache, what later splits need."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import DTypeLike

from splitjit._core.dtypes import as_dtype
from splitjit._core.loading import load
from splitjit._core.objects import assign_loop
from splitjit._core.threads import load_kernels
from splitjit.errors import SplitTypeError, describe


def warmup(dtypes: Iterable[DTypeLike] | None = None) -> None:
    """Compile what splits of the given dtypes need, or load it from the cache.

    The first splits do so otherwise. After this call, no split of these dtypes
    compiles anything, whatever its shape and layout.

    Parameters
    ----------
    dtypes : iterable of dtype-like, optional
        By default all that there are.

    Raises
    ------
    SplitTypeError
        If one of them is no dtype.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.warmup(["float32"])
    """
    if dtypes is None:
        dtypes = [np.void, np.object_]
    if isinstance(dtypes, str) or not isinstance(dtypes, Iterable):
        raise SplitTypeError("warmup", describe(dtypes=dtypes), "must be an iterable of dtypes")
    try:
        kinds = [as_dtype(dtype) for dtype in dtypes]
    except SplitTypeError as error:
        raise error.named("warmup") from None
    if any(dtype.hasobject for dtype in kinds):
        load(assign_loop, wait=True)
    if not all(dtype.hasobject for dtype in kinds):
        load_kernels()
