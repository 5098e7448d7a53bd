"""From a plan and an array to parts: choose a route, copy.

========  ============================================================
views     ``copy=False``: NumPy slices, no data moved
slices    small arrays: NumPy's copies, of each slice or of all along axis 0
objects   Python objects and StringDType: the object-mode path
kernels   everything else: the compiled copy loops
========  ============================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from splitjit._core import objects, threads
from splitjit._core.arrays import address_of, check_out
from splitjit._core.buffers import allocate_parts, empty_parts
from splitjit._core.layout import fresh_layout, out_layout
from splitjit._core.plan import SplitPlan
from splitjit._kernels.table import Arguments
from splitjit.errors import SplitError, SplitTypeError, describe

# Measured crossovers between the routes, in bytes of all parts. NumPy copies long
# runs at the speed of memory, too: there the kernels win when threads do.
_SLICES_BELOW = 1 << 14
_SLICES_BELOW_IF_FEW_RUNS = 1 << 19
_FEW_RUNS = 1000
_FEW_ITEMS = 1 << 16  # where each is a run
_OBJECTS_FROM = 1 << 19
STREAM_FROM = 15 << 20


def run(
    plan: SplitPlan, x: np.ndarray, out: Sequence[np.ndarray] | None, copy: bool
) -> list[np.ndarray]:
    if copy is not True:
        return _views(plan, x, out, copy)
    given = None
    if out is not None:
        given, out = check_out(plan, x, out)
    nbytes = x.nbytes
    if nbytes < _SLICES_BELOW:
        parts = _slices(plan, x, out)
    elif x.dtype.hasobject:
        parts = _objects(plan, x, out)
    elif _suits_slices(plan, x, nbytes):
        parts = _slices(plan, x, out)
    else:
        parts = _kernels(plan, x, out)
    return parts if given is None else given


def _suits_slices(plan: SplitPlan, x: np.ndarray, nbytes: int) -> bool:
    if nbytes >= _SLICES_BELOW_IF_FEW_RUNS:
        return False
    axis = plan.axis
    if not x.flags.c_contiguous:
        if x.strides[-1] != x.itemsize and x.size >= _FEW_ITEMS:
            return False
        axis = -1
    return math.prod(plan.shape[:axis]) * len(plan) < _FEW_RUNS


def _views(plan: SplitPlan, x: np.ndarray, out: Any, copy: Any) -> list[np.ndarray]:
    if not isinstance(copy, bool):
        raise SplitTypeError("split", describe(copy=copy), "must be a bool")
    if out is not None:
        raise SplitError("split", "copy=False and out", "views are not written to out")
    return [x[index] for index in plan.slices]


def _slices(plan: SplitPlan, x: np.ndarray, out: list[np.ndarray] | None) -> list[np.ndarray]:
    if x.dtype.names is not None and x.itemsize and not x.dtype.hasobject:
        # NumPy would copy records field by field, and lose the bits between them.
        record, bits = x.dtype, np.dtype((np.void, x.itemsize))
        if out is None:
            return [part.view(record) for part in _slices(plan, x.view(bits), None)]
        _slices(plan, x.view(bits), [part.view(bits) for part in out])
        return out
    if out is None:
        if plan.axis == 0 and not x.dtype.hasobject:  # a part would keep all objects alive
            block = x.copy()
            return [block[index] for index in plan.slices]
        return [x[index].copy() for index in plan.slices]
    for index, part in zip(plan.slices, out, strict=True):
        part[...] = x[index]
    return out


def _objects(plan: SplitPlan, x: np.ndarray, out: list[np.ndarray] | None) -> list[np.ndarray]:
    if x.nbytes < _OBJECTS_FROM:
        return _slices(plan, x, out)
    parts = empty_parts(plan, x.dtype) if out is None else out
    assigned = objects.assign(parts, [x[index] for index in plan.slices])
    return parts if assigned else _slices(plan, x, parts)


def _kernels(plan: SplitPlan, x: np.ndarray, out: list[np.ndarray] | None) -> list[np.ndarray]:
    if out is None:
        parts, target = allocate_parts(plan, x.dtype)
        layout = fresh_layout(plan, x.strides, x.itemsize)
    else:
        parts, target = out, 0
        layout = out_layout(plan, x, out)
    nbytes = x.nbytes
    stream = int(nbytes >= STREAM_FROM)
    arguments = Arguments(stream, target, address_of(x), layout.address)
    return parts if threads.copy(layout.loop, nbytes, arguments) else _slices(plan, x, parts)
