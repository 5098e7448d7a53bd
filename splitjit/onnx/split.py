"""ONNX Split, in its versions 1, 2, 11, 13 and 18, and SplitToSequence, in 11 and 24."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from splitjit import _operators as operators
from splitjit._api.protocols import Part, Source
from splitjit._operators import Dim, InferredShape, SymbolicShape, Unknown
from splitjit._plan.arguments import Lengths, integer, integers, rule_of, sequence
from splitjit._plan.rules import CHUNK, LENGTHS, NUM_OUTPUTS, NUM_SPLITS, Rule
from splitjit._planes import without_axis
from splitjit.errors import SplitError, describe, pairs
from splitjit.onnx import versions
from splitjit.onnx.versions import ALL, ALL_BUT_BFLOAT16, FLOATS, Version, VersionedOperator

_Lengths = Lengths | Sequence[float] | NDArray[np.floating[Any]]
"""The type of the input `split`. In Split-1, it holds floats."""

_INT64 = frozenset({"tensor(int64)"})
_INT32_OR_64 = _INT64 | {"tensor(int32)"}

_FLOATS = float, np.float16, np.float32, np.float64


@operators.refusing_as("ONNX Split", x="input", num_splits="outputs")
class Split(VersionedOperator):
    """Split a tensor into the outputs of a node, as ONNX Split does.

    The constructor takes the attributes of the node, and a call takes its
    inputs. An attribute or input that the version does not have is refused.

    Parameters
    ----------
    opset : int, default 18
        The opset of the model. Versions 1, 2, 11, 13 and 18 exist. The newest
        version that is not newer than the opset is in force.
    axis : int, default 0
        The axis along which to split, in ``[-rank, rank - 1]``.
    split : sequence of int, optional
        Versions 1, 2 and 11: the length of each output. Later versions have
        an input instead.
    num_outputs : int, optional
        Version 18: split into n = `num_outputs` parts of ceil(length / n). The
        last parts are clamped to the rest of the axis. Give either this
        attribute or the input `split`.
    outputs : int, optional
        The number of outputs that the node declares. Versions before 18 split
        into this many equal parts if `split` is not given. Version 18 drops
        the parts beyond this number if `num_outputs` is larger.

    Raises
    ------
    SplitError
        If the attributes contradict the version or each other.

    See Also
    --------
    splitjit.split : A function for all dtypes, without versions.
    onnx.reference.ReferenceEvaluator : Runs models; see `splitjit.onnx.reference_ops`.

    Notes
    -----
    Specification: https://onnx.ai/onnx/operators/onnx__Split.html

    Examples
    --------
    >>> import numpy as np
    >>> import splitjit
    >>> x = np.arange(7, dtype=np.float32)
    >>> splitjit.onnx.Split(num_outputs=3)(x)
    [array([0., 1., 2.], dtype=float32), array([3., 4., 5.], dtype=float32), \
array([6.], dtype=float32)]
    >>> splitjit.onnx.Split(opset=13, outputs=2)(x, np.array([2, 5]))
    [array([0., 1.], dtype=float32), array([2., 3., 4., 5., 6.], dtype=float32)]
    >>> splitjit.onnx.Split(opset=13, outputs=2)(x)
    Traceback (most recent call last):
        ...
    splitjit.errors.SplitError: ONNX Split-13: outputs=2, axis=0, shape=(7,): \
the axis length 7 must be a multiple of 2
    """

    __slots__ = ("_num_outputs", "_outputs", "_split")

    _versions = (
        Version(1, FLOATS, split_attribute=True, split_types=FLOATS),
        Version(2, ALL_BUT_BFLOAT16, split_attribute=True),
        Version(11, ALL_BUT_BFLOAT16, split_attribute=True),
        Version(13, ALL, split_types=_INT64),
        Version(18, ALL, split_types=_INT64, num_outputs=True),
    )

    def __init__(
        self,
        *,
        opset: SupportsIndex = 18,
        axis: SupportsIndex | None = None,
        split: Sequence[SupportsIndex] | None = None,
        num_outputs: SupportsIndex | None = None,
        outputs: SupportsIndex | None = None,
    ) -> None:
        super().__init__(opset)
        version = self._version
        if split is not None and not version.split_attribute:
            rule = "split is an input since Split-13, not an attribute"
            raise SplitError(self._name, pairs(split=split), rule, hint="pass split to the call")
        if num_outputs is not None and not version.num_outputs:
            rule = "only Split-18 and later have num_outputs"
            raise SplitError(self._name, pairs(num_outputs=num_outputs), rule, hint="pass outputs")
        self._axis = 0 if axis is None else integer("axis", axis)
        self._split = None if split is None else integers("split", split)
        self._num_outputs = _count("num_outputs", num_outputs)
        self._outputs = _count("outputs", outputs)
        self._rule = None
        if self._split is not None:
            self._rule = versions.without_negatives(self._by_lengths(self._split))
            self._outputs = len(self._split)
        elif self._num_outputs is not None:
            if self._outputs is not None and self._num_outputs < self._outputs:
                received = pairs(num_outputs=self._num_outputs, outputs=self._outputs)
                raise SplitError.of(received, "num_outputs must not be less than outputs")
            self._rule = NUM_OUTPUTS, self._num_outputs
        elif self._outputs is not None and not version.num_outputs:
            self._rule = NUM_SPLITS, self._outputs
        if not version.split_types:  # then the attributes must give the rule
            self._rule_given(None, None)

    def __call__(self, input: Source[Part], split: _Lengths | None = None) -> list[Part]:
        """Split a tensor.

        Parameters
        ----------
        input : array_like
            The tensor to split, of a type that the version takes.
        split : array_like of shape (outputs,), optional
            The length of each output: of int64 in versions 13 and 18, of the
            type of `input` in version 1. A list of Python numbers is accepted, too.

        Returns
        -------
        list of array
            New C-contiguous arrays of the kind of the input, see `splitjit.split`,
            that share no memory with `input`.

        Raises
        ------
        SplitError
            If an input breaks a rule of the version.
        """
        return self._run(input, split)[: self._outputs]

    def infer_shapes(
        self, input_shape: Sequence[Dim] | Unknown, split: _Lengths | Unknown | None = None
    ) -> list[InferredShape]:
        """Return the shapes of the outputs.

        Parameters
        ----------
        input_shape : sequence of int, str, tuple or None, or Unknown
            The shape of the input. A name, an interval ``(smallest, largest)`` or None
            stands for an unknown dim, and `Unknown` for a shape of unknown rank.
        split : array_like of shape (outputs,) or Unknown, optional
            The input `split`, as in a call. If the node has this input, but its value
            is known only at run time, give `Unknown`.

        Returns
        -------
        list of tuple
            The shape of each output. All dims except the dim of `axis` equal
            the dims of the input. The dim of `axis` is None if it is unknown, and an
            interval if it depends on an interval. The shape is None if the rank is
            unknown. If the number of outputs is unknown, ``[shape, ...]``: a shape that
            fits all outputs, and an Ellipsis.

        Raises
        ------
        SplitError
            If the rule fits no tensor of such a shape.

        Examples
        --------
        >>> import splitjit
        >>> splitjit.onnx.Split(axis=1, num_outputs=4).infer_shapes(["N", 5])
        [('N', 2), ('N', 2), ('N', 1), ('N', 0)]
        >>> splitjit.onnx.Split(num_outputs=3).infer_shapes([(9, 10)])
        [((3, 4),), ((3, 4),), ((2, 3),)]
        >>> from splitjit.onnx import Unknown
        >>> splitjit.onnx.Split(axis=1, outputs=2).infer_shapes(["N", 5], Unknown())
        [('N', None), ('N', None)]
        """
        return self._infer(input_shape, split)[: self._outputs]

    def _rule_of(self, split: Any, kind: str | None) -> Any:
        types = self._version.split_types
        if not types:
            rule = "split is an attribute in Split-2 and Split-11"
            raise SplitError.of(pairs(split=split), rule)
        if self._num_outputs is not None:
            received = pairs(split=split, num_outputs=self._num_outputs)
            raise SplitError.of(received, "only one of the two may be given")
        if type(split) is Unknown and kind is None:
            count = self._outputs if split.length is None else split.length
            if count is not None:
                self._check_count(split, count)
            return LENGTHS, self._split or Unknown(count)
        if not self._version.split_attribute:
            return self._by_lengths(operators.integer_input("split", split, types, (1,)))
        lengths = _float_lengths(split, {kind} if kind else types)
        if self._split not in (None, lengths):
            received = f"{describe(split=lengths)}, attribute {describe(split=self._split)}"
            raise SplitError.of(received, "the input and the attribute must be equal")
        return self._by_lengths(lengths)

    def _by_lengths(self, lengths: Sequence[int]) -> Rule:
        self._check_count(lengths, len(lengths))
        return rule_of(lengths)

    def _check_count(self, lengths: Any, count: int) -> None:
        if count == 0 or (self._outputs is not None and count != self._outputs):
            rule = "there must be one length per output, and at least one output"
            raise SplitError.of(pairs(split=lengths, outputs=self._outputs), rule)


def _count(name: str, value: Any) -> int | None:
    return None if value is None else operators.count_attribute(name, value)


def _float_lengths(split: Any, types: Set[str]) -> tuple[int, ...]:
    """Return the lengths of Split-1, in which whole floats become integers."""
    given = sequence(split) if issubclass(type(split), (list, tuple)) else None
    if given is None:
        given = operators.array_input("split", split, types, (1,))
    whole = [int(n) if type(n) in _FLOATS and n.is_integer() else n for n in given]
    return integers("split", whole, "must be finite whole numbers")


# ---- SplitToSequence ----------------------------------------------------------------------


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
        Version(11, ALL_BUT_BFLOAT16, split_types=_INT32_OR_64),
        Version(24, ALL, split_types=_INT32_OR_64),
    )

    def __init__(
        self, *, opset: SupportsIndex = 11, axis: SupportsIndex = 0, keepdims: SupportsIndex = 1
    ) -> None:
        super().__init__(opset)
        self._axis = integer("axis", axis)
        self._keepdims = integer("keepdims", keepdims)
        if self._keepdims not in (0, 1):
            raise SplitError.of(pairs(keepdims=keepdims), "keepdims must be 0 or 1")
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
        return without_axis(parts, self._axis)

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

    def _rule_of(self, split: Any, kind: str | None) -> Any:
        if type(split) is Unknown and kind is None:
            return LENGTHS, split
        return rule_of(operators.integer_input("split", split, self._version.split_types, (0, 1)))
