"""The object-mode path: strings and other Python objects.

Their references must be counted, so NumPy assigns them; Numba compiles the
loop over the parts in object mode.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

_log = logging.getLogger(__name__)


def _assign(pairs):  # type: ignore[no-untyped-def]
    for target, part in pairs:
        target[...] = part


@functools.cache
def assign_kernel() -> Any:
    """Compile the loop that assigns each part to an array, or load it from the cache.

    Returns
    -------
    callable
        ``kernel(pairs)``, of an iterator over targets and the parts to assign
        to them. An iterator, because Numba would look into a list, and does
        not know all dtypes.
    """
    from numba import jit, types

    signature = (types.pyobject,)
    options = {"forceobj": True, "looplift": False}
    try:
        return jit(signature, cache=True, **options)(_assign)
    except Exception:  # an unwritable, full or damaged cache, which must not fail a split
        _log.debug("compiling %s without a cache", _assign.__name__, exc_info=True)
        return jit(signature, **options)(_assign)
