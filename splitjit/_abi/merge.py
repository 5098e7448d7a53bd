"""Which dims of a copy merge into one: Python and compiled code call these functions.

A copy has as few dims as the strides of both sides allow. Dims are merged if the source and all
parts step through them evenly, and those that are contiguous on both sides make up a run::

    a slice x[:, :768] of a float32 array of shape (8, 16, 2304), and its part:
        strides of the source    147456  9216  4
        strides of the part       49152  3072  4
        dims                          (1)   run      8 * 16 runs of 3072 bytes

In Python, all sequences are lists or arrays. In compiled code, they are pointers, and
`splitjit._kernels.overload_copy` has its own `is_even` and `has_one_item`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Dim(NamedTuple):
    """A dim of a copy. The arrays have an element for each part."""

    extents: np.ndarray
    source_stride: int
    target_strides: np.ndarray


def is_even(dims: Any, d: int, inner: int) -> bool:
    """Return whether dim `d` steps evenly over dim `inner`, in the source and in all parts."""
    inside = dims[inner]
    return bool(
        np.all(
            (dims[d].source_stride == inside.extents * inside.source_stride)
            & (dims[d].target_strides == inside.extents * inside.target_strides)
        )
    )


def has_one_item(dims: Any, d: int) -> bool:
    """Return whether dim `d` has extent 1 in all parts."""
    return not np.any(dims[d].extents != 1)


def order_dims(rank: int, strides: Any, order: Any) -> None:
    """Put the dims in the order of the strides of a part, the outermost first; equal ones stay."""
    for d in range(rank):
        k = d
        while k > 0 and abs(strides[order[k - 1]]) < abs(strides[d]):
            order[k] = order[k - 1]
            k -= 1
        order[k] = d


def merge(dims: Any, rank: int, order: Any, groups: Any, inners: Any) -> int:
    """Put each dim in a group; return the number of groups besides the run.

    Dim -1 of `dims` stands for an item.

    Parameters
    ----------
    dims
        What `is_even` and `has_one_item` read.
    rank : int
    order : sequence of int
        The dims, the outermost first.
    groups : sequence of int
        Gets the group of each dim: 0 is the run, 1 the innermost dim of the copy. Dims of
        extent 1 have no group, but -1: their strides do not matter.
    inners : sequence of int
        Gets the innermost dim of each group but the run, starting with group 1.
    """
    count, inner = 0, -1
    for k in range(rank - 1, -1, -1):
        d = order[k]
        groups[d] = -1
        if not has_one_item(dims, d):
            if not is_even(dims, d, inner):
                inners[count] = d
                count += 1
            groups[d] = count
            inner = d
    return count
