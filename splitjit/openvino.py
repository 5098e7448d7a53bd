"""The OpenVINO operators Split-1 and VariadicSplit-1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, cast, overload

from numpy.typing import ArrayLike, NDArray

from splitjit._core.arguments import Lengths, integers, normalize_axis
from splitjit._core.plan import Part, SupportsSlices
from splitjit._core.rules import LENGTHS, NUM_SPLITS
from splitjit._core.sources import source_of
from splitjit._core.split import split_by_rule
from splitjit._operators import (
    INTEGERS,
    Dim,
    SymbolicShape,
    as_dims,
    count_attribute,
    infer_shapes,
    integer_input,
)
from splitjit.errors import SplitError, describe, shorten

__all__ = ["Split", "VariadicSplit"]


class Split:
    """Split a tensor into equal parts, as OpenVINO Split-1 does.

    Parameters
    ----------
    num_splits : int
        The number of parts, 1 or more. The axis length must be a multiple of it.

    Raises
    ------
    SplitError
        If `num_splits` is not an integer or is less than 1.

    See Also
    --------
    splitjit.split : A function for all rules.

    Notes
    -----
    Specification: https://docs.openvino.ai/latest/openvino_docs_ops_movement_Split_1.html

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> splitjit.openvino.Split(num_splits=3)(np.array(["a", "b", "c"]), 0)
    [array(['a'], dtype='<U1'), array(['b'], dtype='<U1'), array(['c'], dtype='<U1')]
    """

    __slots__ = ("_num_splits",)

    def __init__(self, *, num_splits: SupportsIndex) -> None:
        try:
            self._num_splits = count_attribute("num_splits", num_splits)
        except SplitError as error:
            raise error.named("OpenVINO Split-1") from None

    @overload
    def __call__(self, data: SupportsSlices[Part], axis: SupportsIndex) -> list[Part]: ...
    @overload
    def __call__(self, data: ArrayLike, axis: SupportsIndex) -> list[NDArray[Any]]: ...
    def __call__(self, data: Any, axis: SupportsIndex) -> list[Any]:
        """Split a tensor.

        Parameters
        ----------
        data : array_like
            The tensor to split, of any dtype, strings included.
        axis : int or 0-D integer array
            The axis along which to split, in ``[-rank, rank - 1]``.

        Returns
        -------
        list of array
            New C-contiguous arrays of the kind of the input, see `splitjit.split`,
            that share no memory with `data`.

        Raises
        ------
        SplitError
            If an input breaks a rule of the operator.
        """
        try:
            return split_by_rule(source_of(data), _axis(axis), (NUM_SPLITS, self._num_splits))
        except SplitError as error:
            raise error.named("OpenVINO Split-1", x="data") from None

    def infer_shapes(self, input_shape: Sequence[Dim], axis: SupportsIndex) -> list[SymbolicShape]:
        """Return the shapes of the parts.

        Parameters
        ----------
        input_shape : sequence of int, str or None
            The shape of `data`; a name or None stands for an unknown dim.
        axis : int or 0-D integer array
            The same argument as in a call of the operator.

        Returns
        -------
        list of tuple
            The shape of each part. All dims except the dim of `axis` equal the
            dims of `data`. The dim of `axis` is None if it is unknown.

        Raises
        ------
        SplitError
            If the rule fits no tensor of such a shape.

        Examples
        --------
        >>> import splitjit
        >>> splitjit.openvino.Split(num_splits=3).infer_shapes([6, 12, "H", "W"], 1)
        [(6, 4, 'H', 'W'), (6, 4, 'H', 'W'), (6, 4, 'H', 'W')]
        """
        try:
            shapes = infer_shapes(input_shape, _axis(axis), (NUM_SPLITS, self._num_splits))
        except SplitError as error:
            raise error.named("OpenVINO Split-1") from None
        return cast("list[SymbolicShape]", shapes)


class VariadicSplit:
    """Split a tensor into parts of given lengths, as OpenVINO VariadicSplit-1 does.

    See Also
    --------
    splitjit.split : A function for all rules. It does not accept -1.

    Notes
    -----
    Specification: https://docs.openvino.ai/latest/openvino_docs_ops_movement_VariadicSplit_1.html

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> splitjit.openvino.VariadicSplit()(np.arange(6), 0, [2, -1, 1])
    [array([0, 1]), array([2, 3, 4]), array([5])]
    """

    __slots__ = ()

    @overload
    def __call__(
        self, data: SupportsSlices[Part], axis: SupportsIndex, split_lengths: Lengths
    ) -> list[Part]: ...
    @overload
    def __call__(
        self, data: ArrayLike, axis: SupportsIndex, split_lengths: Lengths
    ) -> list[NDArray[Any]]: ...
    def __call__(self, data: Any, axis: SupportsIndex, split_lengths: Lengths) -> list[Any]:
        """Split a tensor.

        Parameters
        ----------
        data : array_like
            The tensor to split, of any dtype, strings included.
        axis : int or integer array of shape () or (1,)
            The axis along which to split, in ``[-rank, rank - 1]``.
        split_lengths : sequence of int or 1-D integer array
            The length of each part. The lengths sum to the axis length. One
            length may be -1, which stands for the rest of the axis.

        Returns
        -------
        list of array
            New C-contiguous arrays of the kind of the input, see `splitjit.split`,
            that share no memory with `data`.

        Raises
        ------
        SplitError
            If an input breaks a rule of the operator.
        """
        try:
            x = source_of(data)
            axis, lengths = _read(x.array.shape, axis, split_lengths)
            return split_by_rule(x, axis, (LENGTHS, lengths))
        except SplitError as error:
            raise error.named("OpenVINO VariadicSplit-1", x="data", split="split_lengths") from None

    def infer_shapes(
        self, input_shape: Sequence[Dim], axis: SupportsIndex, split_lengths: Lengths
    ) -> list[SymbolicShape]:
        """Return the shapes of the parts.

        Parameters
        ----------
        input_shape : sequence of int, str or None
            The shape of `data`; a name or None stands for an unknown dim.
        axis : int or integer array of shape () or (1,)
            The same argument as in a call of the operator.
        split_lengths : sequence of int or 1-D integer array
            The same argument as in a call of the operator.

        Returns
        -------
        list of tuple
            The shape of each part. All dims except the dim of `axis` equal the
            dims of `data`. The dim of `axis` is None if -1 stands for the rest
            of an axis of unknown length.

        Raises
        ------
        SplitError
            If the rule fits no tensor of such a shape.

        Examples
        --------
        >>> import splitjit
        >>> splitjit.openvino.VariadicSplit().infer_shapes(["N", 5], 0, [2, -1])
        [(2, 5), (None, 5)]
        """
        try:
            dims = as_dims(input_shape)
            axis, lengths = _read(dims, axis, split_lengths)
            if -1 not in lengths:
                shapes = infer_shapes(dims, axis, (LENGTHS, lengths))
            else:  # the rest of an unknown length
                i, index = lengths.index(-1), normalize_axis(axis, dims)
                others = (*lengths[:i], 0, *lengths[i + 1 :])
                shapes = infer_shapes(dims, axis, (LENGTHS, others))
                rest = dims[index] if len(lengths) == 1 else None
                shapes[i] = (*dims[:index], rest, *dims[index + 1 :])
        except SplitError as error:
            raise error.named("OpenVINO VariadicSplit-1", split="split_lengths") from None
        return cast("list[SymbolicShape]", shapes)


def _axis(axis: Any) -> int:
    index: int = integer_input("axis", axis, INTEGERS, (0,))
    return index


def _read(shape: SymbolicShape, axis: Any, split_lengths: Any) -> tuple[int, tuple[int, ...]]:
    """Return the axis and the lengths of VariadicSplit, with -1 replaced if possible."""
    axis = integer_input("axis", axis, INTEGERS, (0, 1))
    if not isinstance(axis, int):
        indices = integers("axis", axis)
        if len(indices) != 1:
            raise SplitError("split", describe(axis=axis), "axis must be a single integer")
        (axis,) = indices
    lengths = integers("split", integer_input("split", split_lengths, INTEGERS, (1,)))
    if -1 in lengths:
        i = lengths.index(-1)
        return axis, (*lengths[:i], _rest(lengths, axis, shape), *lengths[i + 1 :])
    return axis, lengths


def _rest(lengths: tuple[int, ...], axis: int, shape: SymbolicShape) -> int:
    """Return the length that -1 stands for, or -1 if the axis length is unknown."""
    length = shape[normalize_axis(axis, shape)]
    others = sum(lengths) + 1
    if lengths.count(-1) > 1:
        rule = "at most one length may be -1"
    elif min(lengths) < -1:
        rule = f"lengths other than -1 must be at least 0, not {shorten(min(lengths))}"
    elif not isinstance(length, int):
        return -1
    elif others > length:
        rule = (
            f"lengths other than -1 must sum to at most the axis length {shorten(length)}, "
            f"not to {shorten(others)}"
        )
    else:
        return length - others
    raise SplitError("split", describe(split=lengths, axis=axis, shape=shape), rule)
