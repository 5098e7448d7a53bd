"""ONNX SplitToSequence: versions 11 and 24."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

from splitjit import _operators as operators
from splitjit._api.protocols import Part, Source
from splitjit._operators import Dim, InferredShape, SymbolicShape, Unknown
from splitjit._plan.arguments import Lengths, integer, rule_of
from splitjit._plan.rules import CHUNK, Rule
from splitjit.onnx.versions import ALL, ALL_BUT_BFLOAT16, Version, VersionedOperator

_INTEGERS = frozenset({"tensor(int32)", "tensor(int64)"})


@operators.refusing_as("ONNX SplitToSequence", x="input", num_splits="outputs")
class SplitToSequence(VersionedOperator):
    """Split a tensor into a sequence of tensors, as ONNX SplitToSequence does.

    The constructor takes the attributes of the node, and a call takes its inputs.

    Parameters
    ----------
    opset : int, default 11
        The opset of the model, 11 or later. Versions 11 and 24 exist. Version
        24 adds bfloat16.
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    keepdims : int, default 1
        A call without `split` makes parts of length 1. With 0, it also drops
        the axis from the parts. A call with `split` ignores `keepdims`.

    Raises
    ------
    SplitError
        If the opset has no such operator, or an attribute is out of range.

    See Also
    --------
    splitjit.split : A function for all dtypes, without versions.
    onnx.reference.ReferenceEvaluator : Runs models; see `splitjit.onnx.reference_ops`.

    Notes
    -----
    Specification: https://onnx.ai/onnx/operators/onnx__SplitToSequence.html

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> x = np.arange(5, dtype=np.int64)
    >>> splitjit.onnx.SplitToSequence()(x, 2)
    [array([0, 1]), array([2, 3]), array([4])]
    >>> splitjit.onnx.SplitToSequence()(x, [1, 4])
    [array([0]), array([1, 2, 3, 4])]
    >>> splitjit.onnx.SplitToSequence(axis=1, keepdims=0)(x.reshape(1, 5))[4]
    array([4])
    """

    __slots__ = ("_keepdims",)

    _versions = (
        Version(11, ALL_BUT_BFLOAT16, split_types=_INTEGERS),
        Version(24, ALL, split_types=_INTEGERS),
    )

    def __init__(
        self, *, opset: SupportsIndex = 11, axis: SupportsIndex = 0, keepdims: SupportsIndex = 1
    ) -> None:
        super().__init__(opset)
        self._axis = integer("axis", axis)
        self._keepdims = integer("keepdims", keepdims)
        if self._keepdims not in (0, 1):
            raise self._refusal("keepdims must be 0 or 1", keepdims=keepdims)
        self._rule = CHUNK, 1

    def __call__(self, input: Source[Part], split: Lengths | None = None) -> list[Part]:
        """Split a tensor.

        Parameters
        ----------
        input : array_like
            The tensor to split, of a type that the version takes.
        split : array_like of int32 or int64, optional
            A scalar k >= 1 gives parts of length k, the last one smaller. A
            1-D array or a list gives the length of each part. Without `split`,
            all parts have length 1.

        Returns
        -------
        list of array
            New C-contiguous arrays of the kind of the input, see `splitjit.split`,
            that share no memory with `input`. An axis
            of length 0 gives no arrays, unless a list gives the lengths.

        Raises
        ------
        SplitError
            If an input breaks a rule of the version.
        """
        parts = self._run(input, split)
        if self._keepdims or split is not None:
            return parts
        return [part.squeeze(self._axis) for part in parts]

    def infer_shapes(
        self, input_shape: Sequence[Dim] | Unknown, split: Lengths | Unknown | None = None
    ) -> list[InferredShape]:
        """Return the shapes of the parts.

        Parameters
        ----------
        input_shape : sequence of int, str, tuple or None, or Unknown
            The shape of the input. A name, an interval ``(smallest, largest)`` or None
            stands for an unknown dim, and `Unknown` for a shape of unknown rank.
        split : array_like of int32 or int64, or Unknown, optional
            The input `split`, as in a call. If the node has this input, but its value
            is known only at run time, give `Unknown`.

        Returns
        -------
        list of tuple
            The shape of each part. If the axis length or `split` is unknown, and with
            it the number of parts, ``[shape, ...]``: a shape that fits all parts,
            and an Ellipsis. Parts of an interval have intervals. The shape is None if
            the rank is unknown.

        Raises
        ------
        SplitError
            If the rule fits no tensor of such a shape.

        Examples
        --------
        >>> import splitjit
        >>> splitjit.onnx.SplitToSequence().infer_shapes([5, "N"], 2)
        [(2, 'N'), (2, 'N'), (1, 'N')]
        >>> splitjit.onnx.SplitToSequence(keepdims=0).infer_shapes(["N", 3])
        [(3,), Ellipsis]
        >>> splitjit.onnx.SplitToSequence().infer_shapes([5, "N"], splitjit.onnx.Unknown(2))
        [(None, 'N'), (None, 'N')]
        """
        shapes = self._infer(input_shape, split)
        if self._keepdims or split is not None:
            return shapes
        return [self._squeezed(shape) if isinstance(shape, tuple) else shape for shape in shapes]

    def _squeezed(self, shape: SymbolicShape) -> SymbolicShape:
        axis = self._axis % len(shape)
        return shape[:axis] + shape[axis + 1 :]

    def _rule_of(self, split: Any, kind: str | None) -> Rule:
        return rule_of(operators.integer_input("split", split, self._version.split_types, (0, 1)))
