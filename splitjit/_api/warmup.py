"""Compile the kernels that later splits and joins need, or load them from the cache."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import DTypeLike

from splitjit._abi.kernels import KERNELS
from splitjit._copy.how import shared_fields
from splitjit._copy.slices import assign_loop
from splitjit._inputs.arrays import as_dtype
from splitjit._runtime import kernel_files, threads
from splitjit._runtime.loading import LOADER, NATIVE
from splitjit.errors import SplitTypeError, pairs


def warmup(dtypes: Iterable[DTypeLike] | None = None) -> None:
    """Compile the kernels for splits and joins of given dtypes, or load them from the cache.

    Without this call, the first splits do this work. After it, no split or join of
    these dtypes compiles anything, whatever its shape and layout.

    Parameters
    ----------
    dtypes : iterable of dtype-like, optional
        The dtypes of later splits. By default, all dtypes.

    Raises
    ------
    SplitTypeError
        If `dtypes` is not iterable, or one of its items is not a dtype.

    See Also
    --------
    numba.jit : Compiles the loop over Python objects.

    Examples
    --------
    >>> import splitjit
    >>> splitjit.warmup(["float32"])
    """
    if dtypes is None:
        dtypes = [np.void, np.object_]
    if isinstance(dtypes, str) or not isinstance(dtypes, Iterable):
        rule = 'must be an iterable of dtypes, such as ["float32"]'
        raise SplitTypeError("warmup", pairs(dtypes=dtypes), rule)
    try:
        kinds = [as_dtype(dtype) for dtype in dtypes]
    except SplitTypeError as error:
        raise error.named("warmup") from None
    if any(dtype.hasobject for dtype in kinds):
        assign_loop()
    if not all(dtype.hasobject for dtype in kinds):
        loaded = [LOADER.load(name, wait=True) for name in KERNELS]
        if any(loaded):  # else a fork may have left llvmlite half imported
            kernel_files.remove(older=True)
        if vars(NATIVE):  # what the first split would do
            threads.TEAM.read_limits()
            shared_fields()
