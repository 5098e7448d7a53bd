"""NumPy's functions that split and join, with contiguous parts instead of views.

Port a program with one import: ``from splitjit import numpy as snp``, then ``snp.split`` for
``np.split``. Signatures, results and errors are NumPy's. Sequences, such as nested lists, become
arrays first. NumPy itself splits what `splitjit.split` refuses, and arrays of every class but
ndarray; their parts are then copied by their own ``copy()``, if they have one.

The parts differ from NumPy's in one more way: they are copies, so parts of a broadcast array
(``np.broadcast_to``) take the memory of their full shape. A new ndarray that `concatenate` or
`stack` makes is C-contiguous, where NumPy's may have the order of the parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike

import splitjit._api.join as joins
import splitjit._api.split as api
from splitjit._api.protocols import Part, Source, SupportsSlices
from splitjit._plan.arguments import Indices
from splitjit._planes import split_planes
from splitjit.errors import SplitError

__all__ = ["array_split", "dsplit", "hsplit", "split", "unstack", "vsplit"]
__all__ += ["concat", "concatenate", "stack"]

_Sections = SupportsIndex | Indices

_ORIGINALS: dict[str, Any] = {name: getattr(np, name, None) for name in __all__}
"""NumPy's own functions; a program may replace ``np.split``. NumPy 2.0 has no `unstack`."""


def split(ary: Any, indices_or_sections: _Sections, axis: SupportsIndex = 0) -> list[Any]:
    """Split an array into equal parts, or before indices; see ``numpy.split``.

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

    Raises
    ------
    ValueError
        In the same cases as NumPy's function.

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
    return _parts("split", "num_splits", axis, ary, indices_or_sections, axis)


def array_split(ary: Any, indices_or_sections: _Sections, axis: SupportsIndex = 0) -> list[Any]:
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

    Raises
    ------
    ValueError
        In the same cases as NumPy's function.

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
    return _parts("array_split", "num_sections", axis, ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: _Sections) -> list[Any]:
    """Split an array along its second axis, or its only one; see ``numpy.hsplit``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of parts, or the indices before which to cut.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    Raises
    ------
    ValueError
        In the same cases as NumPy's function.

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
    ary = _array(ary)
    axis = 0 if type(ary) is np.ndarray and ary.ndim == 1 else 1
    return _parts("hsplit", "num_splits", axis, ary, indices_or_sections)


def vsplit(ary: Any, indices_or_sections: _Sections) -> list[Any]:
    """Split an array of two or more dimensions along the first; see ``numpy.vsplit``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of parts, or the indices before which to cut.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    Raises
    ------
    ValueError
        In the same cases as NumPy's function.

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
    ary = _array(ary)
    axis = 0 if type(ary) is np.ndarray and ary.ndim >= 2 else None
    return _parts("vsplit", "num_splits", axis, ary, indices_or_sections)


def dsplit(ary: Any, indices_or_sections: _Sections) -> list[Any]:
    """Split an array of three or more dimensions along the third; see ``numpy.dsplit``.

    Parameters
    ----------
    ary : array_like
        The array to split.
    indices_or_sections : int or 1-D array
        The number of parts, or the indices before which to cut.

    Returns
    -------
    list of ndarray
        Contiguous arrays that share no memory with `ary`.

    Raises
    ------
    ValueError
        In the same cases as NumPy's function.

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
    return _parts("dsplit", "num_splits", 2, ary, indices_or_sections)


@overload
def unstack(
    x: Source[Part], /, *, axis: SupportsIndex = 0, out: None = None
) -> tuple[Part, ...]: ...
@overload
def unstack(
    x: ArrayLike | SupportsSlices[Any],
    /,
    *,
    axis: SupportsIndex = 0,
    out: Sequence[SupportsSlices[Part]] | SupportsSlices[Part],
) -> tuple[Part, ...]: ...
def unstack(x: Any, /, *, axis: SupportsIndex = 0, out: Any = None) -> tuple[Any, ...]:
    """Split an array into arrays of one dimension less; see ``numpy.unstack``.

    Parameters
    ----------
    x : array_like
        The array to split.
    axis : int, default 0
        The axis that the parts do not have.
    out : sequence of ndarray, or ndarray, optional
        The arrays to write the parts to, see `splitjit.unstack`. NumPy's function has no
        such parameter.

    Returns
    -------
    tuple of ndarray
        Contiguous arrays that share no memory with `x`, or the arrays of `out`, or views of
        the one array.

    Raises
    ------
    ValueError
        If `x` has rank 0, or no such axis, or if `out` does not fit.

    See Also
    --------
    splitjit.unstack : The function of splitjit, also for arrays of other libraries.

    Examples
    --------
    The planes of an image:

    >>> import numpy as np
    >>> import splitjit
    >>> red, green, blue = splitjit.numpy.unstack(np.zeros((4, 6, 3), np.uint8), axis=-1)
    >>> red.shape, red.flags.c_contiguous
    ((4, 6), True)
    """
    x = _array(x)
    if out is not None:
        return tuple(split_planes("unstack", x, axis, out))
    if isinstance(x, np.ndarray) and x.ndim == 1:
        x = x.copy()  # the parts are scalars
    elif type(x) is np.ndarray and x.ndim > 1:
        try:
            return tuple(split_planes("unstack", x, axis, None))
        except SplitError:
            pass
    parts: tuple[Any, ...] = (_ORIGINALS["unstack"] or _unstack)(x, axis=axis)
    copies: tuple[Any, ...] = parts if getattr(x, "ndim", 0) == 1 else _copies(parts)
    return copies


def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Join arrays along an axis; see ``numpy.concatenate`` and `splitjit.join`.

    Parameters
    ----------
    arrays : sequence of array_like
        NumPy itself joins arrays of several dtypes, flat arrays (``axis=None``), and what is no
        array; with `dtype`, it converts.
    axis, out, dtype, casting
        As in NumPy's function.

    Returns
    -------
    ndarray
        A new C-contiguous array, or `out`. If NumPy joins, its order and class are NumPy's.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> splitjit.numpy.concatenate([np.zeros((2, 1)), np.ones((2, 2))], axis=1)
    array([[0., 1., 1.],
           [0., 1., 1.]])
    """
    return _joined("concatenate", arrays, axis, out, dtype=dtype, casting=casting)


concat = concatenate  # NumPy has both names, too


def stack(
    arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Join arrays along a new axis; see ``numpy.stack`` and `splitjit.stack`.

    Parameters
    ----------
    arrays, axis, out, dtype, casting
        As in NumPy's function, see `concatenate`.

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> splitjit.numpy.stack([np.zeros((4, 6)), np.ones((4, 6))], axis=-1).shape
    (4, 6, 2)
    """
    return _joined("stack", arrays, axis, out, dtype=dtype, casting=casting)


def _joined(name: str, arrays: Any, axis: Any, out: Any, **conversion: Any) -> Any:
    """Join ndarrays by splitjit if it takes the arguments, and otherwise by NumPy."""
    # By `is`, because NumPy calls `np.dtype(float)` equal to None.
    is_default = conversion["dtype"] is None and conversion["casting"] == "same_kind"
    are_plain = type(arrays) in (list, tuple) and {*map(type, arrays)} == {np.ndarray}
    if are_plain and axis is not None and is_default:
        dtype = arrays[0].dtype
        if dtype.isnative and not dtype.fields:  # NumPy swaps bytes, and packs records
            with contextlib.suppress(SplitError):
                return (joins.stack if name == "stack" else joins.join)(arrays, axis, out=out)
    given = {} if is_default else conversion  # Dask takes neither these nor out
    given = given if out is None else {"out": out, **given}
    joined = _ORIGINALS[name](arrays, axis=axis, **given)
    is_new = out is None and type(joined) is np.ndarray
    return np.ascontiguousarray(joined) if is_new else joined  # NumPy keeps the order of the parts


def _unstack(x: Any, axis: SupportsIndex) -> tuple[Any, ...]:
    """Return what ``numpy.unstack`` returns, for NumPy 2.0."""
    return tuple(np.moveaxis(x, axis, 0))


def _parts(name: str, count: str, axis: Any, ary: Any, *arguments: Any) -> list[Any]:
    """Split by `splitjit.split` if it takes the arguments, and otherwise by NumPy.

    Parameters
    ----------
    name : str
        The name of NumPy's function. It refuses, or makes parts that `splitjit.split` does not
        make, such as those between descending indices.
    count : str
        The parameter of `splitjit.split` for a number of parts.
    axis : int or None
        The axis of the split; None if NumPy refuses the array.
    ary, *arguments
        The arguments of NumPy's function.
    """
    ary = _array(ary)
    if type(ary) is np.ndarray and axis is not None:
        rule = "indices" if hasattr(arguments[0], "__len__") else count
        try:
            return api.split(ary, axis=axis, **{rule: arguments[0]})
        except SplitError:
            pass
    parts: list[Any] = _copies(_ORIGINALS[name](ary, *arguments))
    return parts


def _array(x: Any) -> Any:
    """Return a sequence as an array: for NumPy's functions, each axis has the length of axis 0."""
    return x if hasattr(x, "shape") or hasattr(x, "__array_function__") else np.asanyarray(x)


def _copies(parts: Any) -> Any:
    """Copy a list or tuple of parts; return anything else as the array's class made it."""
    if type(parts) is not list and type(parts) is not tuple:
        return parts
    return type(parts)([_copy(part) for part in parts])


def _copy(part: Any) -> Any:
    """Copy a part by its own method, or return it if it has none."""
    copy = getattr(part, "copy", None) or getattr(part, "clone", None)  # torch has clone
    made = copy() if callable(copy) else part
    return made.contiguous() if hasattr(made, "contiguous") else made  # clone keeps the strides
