"""Types for signatures, so that parts get the type of their array's slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

Scalar = TypeVar("Scalar", bound="np.generic")
"""The dtype of an array, as in ``NDArray[Scalar]``."""

Part = TypeVar("Part", covariant=True)


class SupportsSlices(Protocol[Part]):
    """An array of any library. To type checkers, a part has the type of a slice of the array.

    A slice of an ndarray is an ndarray of the same dtype; a slice of a torch
    tensor is a tensor. So the signatures need not name any library.
    """

    def __getitem__(self, key: tuple[slice, ...], /) -> Part:
        """Return a part: ``x[plan.slices[i]]``."""
        ...


class DaskArray(Protocol):
    """A Dask array. Dask does not declare the type of its slices; see `SupportsSlices`."""

    @property
    def numblocks(self) -> Any:
        """The number of chunks along each axis."""
        ...

    def __dask_keys__(self) -> Any:
        """Return the keys of the chunks."""
        ...


Lazy = TypeVar("Lazy", bound=DaskArray)
