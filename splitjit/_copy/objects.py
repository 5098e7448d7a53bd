"""The object-mode path: strings and other Python objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from splitjit._copy.loading import load


def assign(targets: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> bool:
    """Assign each part to its target, by the compiled loop.

    Parameters
    ----------
    targets, parts : sequence of ndarray
        As many targets as parts, of equal shapes and dtypes.

    Returns
    -------
    bool
        False if the loop is not loaded; then nothing has been assigned.
    """
    loop = load(assign_loop)
    if loop is None:
        return False
    loop(zip(targets, parts, strict=True))
    return True


def assign_loop() -> Callable[[Iterator[Any]], None]:
    """Return the object-mode loop; see `splitjit._kernels.assign`."""
    from splitjit._kernels import assign

    loop: Callable[[Iterator[Any]], None] = assign.assign_loop()  # type: ignore[no-untyped-call]
    return loop
