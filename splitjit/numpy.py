"""NumPy's functions that split, with contiguous parts instead of views.

Move a program by one import: ``from splitjit import numpy as snp``, then ``snp.split`` for
``np.split``. Signatures, results and errors are those of NumPy. What `splitjit.split` refuses, and
arrays of subclasses, NumPy splits itself; the parts are copies then, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

import splitjit._api.split as api
from splitjit._plan.arguments import Indices
from splitjit.errors import SplitError

__all__ = ["array_split", "dsplit", "hsplit", "split", "unstack", "vsplit"]

_ORIGINALS = {name: getattr(np, name) for name in __all__ if name != "unstack"}
"""NumPy's own functions; a program may replace ``np.split``."""


def split(
    ary: Any, indices_or_sections: SupportsIndex | Indices, axis: SupportsIndex = 0
) -> list[Any]:
    """Split an array into equal parts, or before indices; see ``numpy.split``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of equal parts, or the indices before which to cut.
    axis : int, default 0
        The axis along which to split.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    Raises
    ------
    ValueError
        If the axis cannot be split equally.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> [part.tolist() for part in splitjit.numpy.split(np.arange(6), [2, 3])]
    [[0, 1], [2], [3, 4, 5]]
    """
    return _parts(_ORIGINALS["split"], "num_splits", ary, indices_or_sections, axis)


def array_split(
    ary: Any, indices_or_sections: SupportsIndex | Indices, axis: SupportsIndex = 0
) -> list[Any]:
    """Split an array into parts that differ by one, or before indices; see ``numpy.array_split``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of parts, or the indices before which to cut.
    axis : int, default 0
        The axis along which to split.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> [part.tolist() for part in splitjit.numpy.array_split(np.arange(5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    return _parts(_ORIGINALS["array_split"], "num_sections", ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: SupportsIndex | Indices) -> list[Any]:
    """Split an array along its second axis, or its only one; see ``numpy.hsplit``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of equal parts, or the indices before which to cut.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> [part.tolist() for part in splitjit.numpy.hsplit(np.arange(6).reshape(2, 3), [1])]
    [[[0], [3]], [[1, 2], [4, 5]]]
    """
    axis = 0 if np.ndim(ary) == 1 else 1
    return _parts(_ORIGINALS["hsplit"], "num_splits", ary, indices_or_sections, axis, False)


def vsplit(ary: Any, indices_or_sections: SupportsIndex | Indices) -> list[Any]:
    """Split an array of two or more dimensions along the first; see ``numpy.vsplit``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of equal parts, or the indices before which to cut.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> [part.tolist() for part in splitjit.numpy.vsplit(np.arange(4).reshape(2, 2), 2)]
    [[[0, 1]], [[2, 3]]]
    """
    axis = 0 if np.ndim(ary) >= 2 else None
    return _parts(_ORIGINALS["vsplit"], "num_splits", ary, indices_or_sections, axis, False)


def dsplit(ary: Any, indices_or_sections: SupportsIndex | Indices) -> list[Any]:
    """Split an array of three or more dimensions along the third; see ``numpy.dsplit``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of equal parts, or the indices before which to cut.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> [part.shape for part in splitjit.numpy.dsplit(np.zeros((2, 2, 4)), 2)]
    [(2, 2, 2), (2, 2, 2)]
    """
    return _parts(_ORIGINALS["dsplit"], "num_splits", ary, indices_or_sections, 2, False)


def unstack(x: Any, /, *, axis: SupportsIndex = 0) -> tuple[Any, ...]:
    """Split an array into arrays of one dimension less; see ``numpy.unstack``.

    Parameters
    ----------
    x : array_like
        The array to split.
    axis : int, default 0
        The axis that the parts do not have.

    Returns
    -------
    tuple of ndarray
        Contiguous arrays that share no memory with `x`.

    Raises
    ------
    ValueError
        If `x` has rank 0, or no such axis.

    See Also
    --------
    splitjit.split : The function of splitjit, for all rules.

    Examples
    --------
    The planes of an image:

    >>> import numpy as np
    >>> import splitjit
    >>> red, green, blue = splitjit.numpy.unstack(np.zeros((4, 6, 3), np.uint8), axis=-1)
    >>> red.shape, red.flags.c_contiguous
    ((4, 6), True)
    """
    if type(x) is np.ndarray and x.ndim > 1:
        try:
            whole = api.split(x, 1, axis=axis)
        except SplitError:
            pass
        else:
            index = int(axis) % x.ndim
            shape = x.shape[:index] + x.shape[index + 1 :]
            return tuple([part.reshape(shape) for part in whole])
    if x.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    parts = tuple(np.moveaxis(x, axis, 0))
    return parts if x.ndim == 1 else tuple(_copies(parts))  # NumPy's scalars are no views


def _parts(
    original: Callable[..., list[Any]],
    count: str,
    ary: Any,
    indices_or_sections: Any,
    axis: Any,
    takes_axis: bool = True,
) -> list[Any]:
    """Split by `splitjit.split` if it takes the arguments, and otherwise by NumPy.

    Parameters
    ----------
    original : callable
        The function of NumPy. It refuses, or makes parts that `splitjit.split` does not make,
        such as those between descending indices.
    count : str
        The parameter of `splitjit.split` for a number of parts.
    ary, indices_or_sections, axis
        The arguments.
    takes_axis : bool
        Whether `original` has the parameter `axis`.
    """
    if type(ary) is np.ndarray and axis is not None:
        rule = "indices" if hasattr(indices_or_sections, "__len__") else count
        try:
            return api.split(ary, axis=axis, **{rule: indices_or_sections})
        except SplitError:
            pass
    if takes_axis:
        return _copies(original(ary, indices_or_sections, axis))
    return _copies(original(ary, indices_or_sections))


def _copies(views: Sequence[Any]) -> list[Any]:
    """Copy views of any class, in C order."""
    return [np.array(view, order="C", subok=True) for view in views]
