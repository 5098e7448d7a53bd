"""The published versions of an ONNX operator, and the code that all versions share."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, SupportsIndex

import numpy as np

from splitjit import _operators as operators
from splitjit._api.split_plan import by_rule
from splitjit._copy.run import run
from splitjit._inputs.adapt import adapt
from splitjit._inputs.torch.foreign import surely
from splitjit._operators import Dim, InferredShape, Unknown
from splitjit._plan.arguments import integer
from splitjit._plan.rules import LENGTHS, Rule
from splitjit._tensor_types import TENSOR_TYPES, tensor_type
from splitjit.errors import SplitError, SplitTypeError, pairs, shorten

FLOATS = frozenset({"tensor(float16)", "tensor(float)", "tensor(double)"})
ALL = frozenset(TENSOR_TYPES)
ALL_BUT_BFLOAT16 = ALL - {"tensor(bfloat16)"}


class Version(NamedTuple):
    """One published version of an operator: what sets it apart from others.

    Parameters
    ----------
    since : int
        The first opset in which the version is in force.
    types : frozenset of str
        The tensor types of the input and the outputs, T in the specification.
    split_attribute : bool, default False
        Whether the version has the attribute `split`.
    split_types : frozenset of str, default empty
        The tensor types of the input `split`, empty if there is no such input.
    num_outputs : bool, default False
        Whether the version has the attribute `num_outputs`.
    """

    since: int
    types: frozenset[str]
    split_attribute: bool = False
    split_types: frozenset[str] = frozenset()
    num_outputs: bool = False


class VersionedOperator:
    """An ONNX operator in the version that an opset uses.

    Subclasses read the attributes of a node in `__init__`, and set `_axis` and `_rule`.

    Parameters
    ----------
    opset : int
        The opset of a model.
    """

    __slots__ = ("__weakref__", "_axis", "_name", "_rule", "_version")

    _versions: ClassVar[tuple[Version, ...]]
    """The published versions, the oldest first."""

    _axis: int
    _rule: Rule | None
    """The rule of a call without the input `split`, or None if the input is required."""

    def __init__(self, opset: SupportsIndex) -> None:
        number, first = integer("opset", opset), self._versions[0].since
        if number < first:
            raise SplitError.of(pairs(opset=number), f"opset must be at least {first}")
        self._version = [each for each in self._versions if each.since <= number][-1]
        self._name = f"ONNX {type(self).__name__}-{self._version.since}"

    def __repr__(self) -> str:
        return f"<{self._name}>"

    @property
    def since_version(self) -> int:
        """The version in force, as the number of the opset that introduced it."""
        return self._version.since

    def _rule_of(self, split: Any, kind: str | None) -> Any:
        """Return the rule that the input `split` gives; its value may be `Unknown`.

        `kind` is the tensor type of the tensor to split, or None if the type is unknown, as in
        `infer_shapes`. A call refuses `Unknown`.
        """
        raise NotImplementedError

    def _rule_given(self, split: Any, kind: str | None) -> Any:
        """Return the rule that the input `split` gives, or the attributes if it is None."""
        rule = self._rule if split is None else without_negatives(self._rule_of(split, kind))
        if rule is None:
            other = "num_outputs" if self._version.num_outputs else "outputs"
            raise SplitError.of(pairs(split=None, **{other: None}), "one of the two must be given")
        return rule

    def _run(self, input: Any, split: Any) -> list[Any]:
        x = adapt(input)
        kind = tensor_type(x.dtype)
        if kind not in self._version.types:
            raise self._type_refused(x.dtype, kind)
        return run(x, by_rule(self._axis, self._rule_given(split, kind)))

    def _infer(self, input_shape: Sequence[Dim] | Unknown, split: Any) -> list[InferredShape]:
        return operators.infer_shapes(input_shape, self._axis, self._rule_given(split, None))

    def _type_refused(self, dtype: np.dtype, kind: str | None) -> SplitTypeError:
        operator = type(self).__name__
        later = [version.since for version in self._versions if kind in version.types]
        received = f"input of dtype {dtype}" + (f", {kind}" if kind else "")
        rule, hint = f"no version of {operator} takes this type", "use splitjit.split"
        if later:
            rule = f"only {operator}-{later[0]} and later take this type"
            hint = f"pass opset={later[0]}"
        return SplitTypeError(self._name, received, rule, hint=hint)


def without_negatives(rule: Rule) -> Rule:
    """Refuse lengths below 0, also -1, which `splitjit.split` reads as the rest of the axis."""
    kind, value = rule
    negative = [n for n in value if surely(n < 0)] if isinstance(value, tuple) else []
    if kind == LENGTHS and negative:
        text = f"lengths must be at least 0, not {shorten(min(negative))}"
        text += "; ONNX has no length for the rest of an axis" * (-1 in negative)
        raise SplitError.of(pairs(split=value), text)
    return rule
