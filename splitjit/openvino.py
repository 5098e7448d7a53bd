"""The OpenVINO operators Split-1 and VariadicSplit-1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex

from splitjit import _operators as operators
from splitjit._api.protocols import Part, Source
from splitjit._api.split_plan import by_rule
from splitjit._copy.run import run
from splitjit._inputs.adapt import adapt
from splitjit._operators import INTEGERS, Dim, InferredShape, Unknown
from splitjit._plan.arguments import Lengths
from splitjit._plan.rules import LENGTHS, NUM_SPLITS
from splitjit.errors import SplitError, pairs

__all__ = ["Split", "Unknown", "VariadicSplit"]


class _PartialShape(Protocol):
    """An ``openvino.PartialShape``."""

    @property
    def rank(self) -> Any: ...


_Axis = SupportsIndex | Unknown
_Shape = Sequence[Dim] | Unknown | _PartialShape


@operators.refusing_as("OpenVINO Split-1", x="data")
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

    __slots__ = ("__weakref__", "_num_splits")

    def __init__(self, *, num_splits: SupportsIndex) -> None:
        self._num_splits = operators.count_attribute("num_splits", num_splits)

    def __call__(self, data: Source[Part], axis: SupportsIndex) -> list[Part]:
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
        return run(adapt(data), by_rule(_axis(axis, 0), (NUM_SPLITS, self._num_splits)))

    def infer_shapes(self, input_shape: _Shape, axis: _Axis) -> list[InferredShape]:
        """Return the shapes of the parts.

        Parameters
        ----------
        input_shape : sequence of int, str, tuple or None, or Unknown, or PartialShape
            The shape of `data`. A name, an interval ``(smallest, largest)`` or None
            stands for an unknown dim, and `Unknown` for a shape of unknown rank. -1
            stands for no largest extent. An ``openvino.PartialShape`` is accepted, too.
        axis : int, 0-D integer array or Unknown
            The input `axis`, as in a call. If its value is known only at run time,
            give `Unknown`.

        Returns
        -------
        list of tuple
            The shape of each part. All dims except the dim of `axis` equal the
            dims of `data`. The dim of `axis` is None if it is unknown. If it has an
            interval, the parts have one, for the multiples of `num_splits` in it. If the
            axis is unknown, all dims are None. The shape is None if the rank is unknown.

        Raises
        ------
        SplitError
            If the rule fits no tensor of such a shape.

        Examples
        --------
        >>> import splitjit
        >>> from splitjit.openvino import Unknown
        >>> split = splitjit.openvino.Split(num_splits=3)
        >>> split.infer_shapes([6, 12, "H", "W"], 1)
        [(6, 4, 'H', 'W'), (6, 4, 'H', 'W'), (6, 4, 'H', 'W')]
        >>> split.infer_shapes([(6, 20), "W"], 0)
        [((2, 6), 'W'), ((2, 6), 'W'), ((2, 6), 'W')]
        >>> split.infer_shapes([6, 12], Unknown())
        [(None, None), (None, None), (None, None)]
        """
        return operators.infer_shapes(input_shape, _axis(axis, 0), (NUM_SPLITS, self._num_splits))


@operators.refusing_as("OpenVINO VariadicSplit-1", x="data", split="split_lengths")
class VariadicSplit:
    """Split a tensor into parts of given lengths, as OpenVINO VariadicSplit-1 does.

    See Also
    --------
    splitjit.split : A function for all rules.

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

    __slots__ = ("__weakref__",)

    def __init__(self) -> None:
        """Take no attributes."""

    def __call__(
        self, data: Source[Part], axis: SupportsIndex, split_lengths: Lengths
    ) -> list[Part]:
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
        return run(adapt(data), by_rule(_axis(axis, 0, 1), (LENGTHS, _lengths(split_lengths))))

    def infer_shapes(
        self, input_shape: _Shape, axis: _Axis, split_lengths: Lengths | Unknown
    ) -> list[InferredShape]:
        """Return the shapes of the parts.

        Parameters
        ----------
        input_shape : sequence of int, str, tuple or None, or Unknown, or PartialShape
            The shape of `data`. A name, an interval ``(smallest, largest)`` or None
            stands for an unknown dim, and `Unknown` for a shape of unknown rank. -1
            stands for no largest extent. An ``openvino.PartialShape`` is accepted, too.
        axis : int, integer array of shape () or (1,), or Unknown
            The input `axis`, as in a call. If its value is known only at run time,
            give `Unknown`.
        split_lengths : sequence of int, 1-D integer array or Unknown
            The input `split_lengths`, as in a call. If its value is known only at run
            time, give `Unknown` with the number of lengths, if that is known.

        Returns
        -------
        list of tuple
            The shape of each part. All dims except the dim of `axis` equal the
            dims of `data`. The dim of `axis` is None if the lengths are unknown, or if
            -1 stands for the rest of an axis of unknown length. The rest of an interval
            is an interval. If the axis is unknown, all dims are None. The shape is None if
            the rank is unknown. If the number of lengths is unknown, ``[shape, ...]``: a
            shape that fits all parts, and an Ellipsis.

        Raises
        ------
        SplitError
            If the rule fits no tensor of such a shape.

        Examples
        --------
        >>> import splitjit
        >>> from splitjit.openvino import Unknown
        >>> splitjit.openvino.VariadicSplit().infer_shapes(["N", 5], 0, [2, -1])
        [(2, 5), (None, 5)]
        >>> splitjit.openvino.VariadicSplit().infer_shapes([(4, 9), 5], 0, [2, -1])
        [(2, 5), ((2, 7), 5)]
        >>> splitjit.openvino.VariadicSplit().infer_shapes(["N", 5], 0, Unknown(2))
        [(None, 5), (None, 5)]
        >>> splitjit.openvino.VariadicSplit().infer_shapes(["N", 5], 0, Unknown())
        [(None, 5), Ellipsis]
        """
        lengths: Any = split_lengths if type(split_lengths) is Unknown else _lengths(split_lengths)
        return operators.infer_shapes(input_shape, _axis(axis, 0, 1), (LENGTHS, lengths))


def _axis(axis: Any, *ranks: int) -> Any:
    """Return an axis given by an array of one of these ranks as an integer, or `Unknown`."""
    if type(axis) is Unknown:
        return axis
    axis = operators.integer_input("axis", axis, INTEGERS, ranks)
    if isinstance(axis, int):
        return axis
    if len(axis) != 1:
        raise SplitError.of(pairs(axis=axis), "axis must be a single integer")
    return axis[0]


def _lengths(split_lengths: Any) -> tuple[int, ...]:
    return tuple(operators.integer_input("split", split_lengths, INTEGERS, (1,)))
