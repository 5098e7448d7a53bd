"""Types for signatures, so that parts get the type of their array's slices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:  # type checkers bring their own typing_extensions
    import numpy as np
    import typing_extensions
    from numpy.typing import NDArray

    Part = typing_extensions.TypeVar("Part", covariant=True, default=NDArray[Any])
else:
    Part = TypeVar("Part", covariant=True)

Scalar = TypeVar("Scalar", bound="np.generic")
"""The dtype of an array, as in ``NDArray[Scalar]``."""


class SupportsSlices(Protocol[Part]):
    """An array of any library. To type checkers, a part has the type of a slice of the array.

    A slice of an ndarray is an ndarray of the same dtype; a slice of a torch
    tensor is a tensor. So the signatures need not name any library.
    """

    def __getitem__(self, key: tuple[slice, ...], /) -> Part:
        """Return a part: ``x[plan.slices[i]]``."""
        ...


class Lists(Protocol):
    """Nested lists or tuples of numbers, whose parts are ndarrays. Text is no such sequence."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Any: ...
    def __contains__(self, value: object, /) -> bool:
        """Return whether there is such an item. Text takes only text here."""
        ...

    def index(self, value: Any, /) -> int:
        """Return where an item is. No array has this method."""
        ...


Source = SupportsSlices[Part] | Lists
"""What is split: an array of any library, or nested lists, whose parts are ndarrays."""


class GiveExactlyOneRule:
    """The type of nothing. Type checkers print this name if a call gives no rule, or several."""


class DaskArray(Protocol):
    """A Dask array. Dask does not declare the type of its slices; see `SupportsSlices`."""

    def __dask_keys__(self) -> Any:
        """Return the keys of the chunks."""
        ...


Lazy = TypeVar("Lazy", bound=DaskArray)
