"""The case table: the sizes that each rule gives, and the arguments that it refuses."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from splitjit import SplitError, SplitTypeError
from splitjit.errors import describe


@dataclass(frozen=True)
class Case:
    """Arguments of a split, and the sizes of the parts."""

    shape: tuple[int, ...]
    rule: dict[str, Any]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.shape}-{self.rule}"


CASES = [
    # split=[…]: the length of each part
    Case((6,), {"split": [2, 4]}, (2, 4)),
    Case((6,), {"split": (6,)}, (6,)),
    Case((6,), {"split": range(4)}, (0, 1, 2, 3)),
    Case((6,), {"split": [0, 6, 0]}, (0, 6, 0)),
    Case((0,), {"split": []}, ()),
    Case((0,), {"split": [0, 0, 0]}, (0, 0, 0)),
    Case((2, 6), {"split": np.array([2, 4]), "axis": 1}, (2, 4)),
    Case((6,), {"split": [1, -1, 2]}, (1, 3, 2)),
    Case((6,), {"split": [-1]}, (6,)),
    Case((6,), {"split": [2, -1, 4]}, (2, 0, 4)),
    Case((0,), {"split": [-1, 0]}, (0, 0)),
    Case((2, 6), {"split": np.array([-1, 4]), "axis": -1}, (2, 4)),
    Case((2, 6), {"split": np.array([2, 4], np.uint8), "axis": -1}, (2, 4)),
    Case((2, 6), {"split": [np.int64(2), np.int8(4)], "axis": np.int32(1)}, (2, 4)),
    Case((6, 0), {"split": [5, 1]}, (5, 1)),
    # split=k: parts of length k
    Case((7,), {"split": 2}, (2, 2, 2, 1)),
    Case((6,), {"split": 2}, (2, 2, 2)),
    Case((7,), {"split": 10}, (7,)),
    Case((7,), {"split": np.int64(3)}, (3, 3, 1)),
    Case((7,), {"split": np.array(3)}, (3, 3, 1)),
    Case((0,), {"split": 2}, ()),
    # num_outputs=n: ceil(length / n), the last parts clamped
    Case((6,), {"num_outputs": 3}, (2, 2, 2)),
    Case((7,), {"num_outputs": 4}, (2, 2, 2, 1)),
    Case((8,), {"num_outputs": 3}, (3, 3, 2)),
    Case((5,), {"num_outputs": 4}, (2, 2, 1, 0)),
    Case((3,), {"num_outputs": 5}, (1, 1, 1, 0, 0)),
    Case((11,), {"num_outputs": 8}, (2, 2, 2, 2, 2, 1, 0, 0)),
    Case((6,), {"num_outputs": 4}, (2, 2, 2, 0)),
    Case((1,), {"num_outputs": 2}, (1, 0)),
    Case((0,), {"num_outputs": 3}, (0, 0, 0)),
    Case((7, 3), {"num_outputs": 1, "axis": -2}, (7,)),
    # num_splits=n: equal parts
    Case((6, 12, 10, 24), {"num_splits": 3, "axis": 1}, (4, 4, 4)),
    Case((6,), {"num_splits": 1}, (6,)),
    Case((0, 2), {"num_splits": 3}, (0, 0, 0)),
    # indices=[…]: cut before these
    Case((6,), {"indices": [2, 4]}, (2, 2, 2)),
    Case((6,), {"indices": (1,)}, (1, 5)),
    Case((6,), {"indices": []}, (6,)),
    Case((6,), {"indices": range(3)}, (0, 1, 1, 4)),
    Case((6,), {"indices": [2, 2]}, (2, 0, 4)),
    Case((6,), {"indices": [-4, -1]}, (2, 3, 1)),
    Case((6,), {"indices": [1, -2]}, (1, 3, 2)),
    Case((6,), {"indices": [-6, 6]}, (0, 6, 0)),
    Case((6,), {"indices": [-7, 7]}, (0, 6, 0)),
    Case((6,), {"indices": [9, 8, 10]}, (6, 0, 0, 0)),
    Case((6,), {"indices": [-(2**63), 2**63 - 1]}, (0, 6, 0)),
    Case((0,), {"indices": [-1, 0, 1]}, (0, 0, 0, 0)),
    Case((2, 6), {"indices": np.array([2, 4], np.uint8), "axis": -1}, (2, 2, 2)),
    Case((2, 6), {"indices": [np.int64(2), np.int8(-1)], "axis": np.int32(1)}, (2, 3, 1)),
    Case((6, 0), {"indices": [5]}, (5, 1)),
    # num_sections=n: lengths differ by at most one, longer parts first
    Case((6,), {"num_sections": 4}, (2, 2, 1, 1)),
    Case((7,), {"num_sections": 3}, (3, 2, 2)),
    Case((8,), {"num_sections": 3}, (3, 3, 2)),
    Case((6,), {"num_sections": 3}, (2, 2, 2)),
    Case((3,), {"num_sections": 5}, (1, 1, 1, 0, 0)),
    Case((0,), {"num_sections": 2}, (0, 0)),
    Case((7, 3), {"num_sections": np.int8(1), "axis": -2}, (7,)),
]

# One value of each rule, for an axis of length 6.
OF_SIX = {
    "lengths": {"split": [1, 0, 5]},
    "rest": {"split": [1, -1, 2]},
    "chunk": {"split": 4},
    "num_outputs": {"num_outputs": 4},
    "num_splits": {"num_splits": 3},
    "indices": {"indices": [1, -2, 10**30]},
    "num_sections": {"num_sections": 4},
}
# Lengths that need exact integer arithmetic. Arrays of these lengths do not fit in memory.
EXACT = [
    Case((2**24 + 1,), {"num_outputs": 2}, (8388609, 8388608)),
    Case((2**53 + 1,), {"num_outputs": 2}, (2**52 + 1, 2**52)),
    Case((2**62,), {"split": [2**62 - 1, 1]}, (2**62 - 1, 1)),
    Case((2**63 + 5,), {"split": 2**63}, (2**63, 5)),
    Case((2**53 + 1,), {"num_sections": 2}, (2**52 + 1, 2**52)),
    Case((2**63 + 5,), {"num_sections": 3}, (2**63 // 3 + 3, 2**63 // 3 + 2, 2**63 // 3 + 2)),
    Case((2**63 + 5,), {"indices": [-5, 10**30]}, (2**63, 5, 0)),
    Case((2**63 + 5,), {"split": [5, -1]}, (5, 2**63)),
    Case((6,), {"indices": [-(10**30), np.uint64(2**64 - 1), 2**64]}, (0, 6, 0, 0)),
]


@dataclass(frozen=True)
class Refusal:
    """Arguments that a split refuses, and a pattern that the message must match."""

    shape: tuple[int, ...]
    rule: dict[str, Any]
    error: type[SplitError]
    says: str

    def __str__(self) -> str:
        # Without addresses in reprs, so that test ids are equal in each run.
        return re.sub(" at 0x[0-9a-f]+", "", describe(shape=self.shape, **self.rule))


TABLE, FLOATS = np.array([[2, 4]]), np.array([2.0, 4.0])
MUST = "must be an integer, a sequence"
WRONG_KINDS = [
    ({"num_splits": 2, "axis": True}, "axis=True: must be an integer"),
    ({"num_splits": 2, "axis": 0.0}, "axis=0.0: must be an integer"),
    ({"num_splits": 2, "axis": None}, "axis=None: must be an integer"),
    ({"num_splits": 2, "axis": [0]}, r"axis=\[0\]: must be an int"),
    ({"num_splits": True}, "num_splits=True: must be an integer"),
    ({"num_splits": 2.0}, "num_splits=2.0: must be an integer"),
    ({"num_sections": 2.0}, "num_sections=2.0: must be an integer"),
    ({"num_sections": True}, "num_sections=True: must be an integer"),
    ({"indices": 3}, "indices=3: must be a sequence of integers or"),
    ({"indices": [2.0, 4]}, r"indices=\[2.0, 4\]: must be"),
    ({"indices": [True, 5]}, r"indices=\[True, 5\]: must be"),
    ({"indices": [[2, 4]]}, r"indices=\[\[2, 4\]\]: must be"),
    ({"indices": np.array(2)}, "array of int64, shape .* must be a seq"),
    ({"indices": np.array([2.5])}, r"array of float64, \[2\.5\]: must"),
    ({"indices": "24"}, "indices='24': must be a sequence"),
    ({"indices": {2, 4}}, "indices={2, 4}: must be a sequence"),
    ({"num_outputs": "2"}, "num_outputs='2': must be an integer"),
    ({"num_outputs": np.float32(2)}, "num_outputs=.*must be an int"),
    ({"split": 2.0}, "split=2.0: must be an integer, a sequence"),
    ({"split": True}, "split=True: must be an integer, a sequence"),
    ({"split": [2.0, 4]}, r"split=\[2.0, 4\]: must be"),
    ({"split": [True, 5]}, r"split=\[True, 5\]: must be"),
    ({"split": [[2, 4]]}, MUST),
    ({"split": TABLE}, rf"split=array of int64, shape \(1, 2\), \[\[2 4\]\]: {MUST}"),
    ({"split": FLOATS}, rf"split=array of float64, \[2\. 4\.\]: {MUST} of integers"),
    ({"split": np.array([True] * 6)}, "must be an integer, a seq"),
    ({"split": np.array(2.0)}, MUST),
    ({"split": "24"}, "split='24': must be"),
    ({"split": np.ndarray}, "split=<class 'numpy.ndarray'>: must be"),
    ({"split": b"\x02\x04"}, MUST),
    ({"split": {2, 4}}, "split={2, 4}: must be"),
    ({"split": iter([2, 4])}, MUST),
]
REFUSALS = [
    # exactly one rule
    Refusal((6,), {}, SplitError, "no rule: exactly one of"),
    Refusal((6,), {"split": 2, "num_outputs": 3}, SplitError, "split=2, num_outputs=3.*exactly"),
    Refusal((6,), {"split": [3, 3], "indices": []}, SplitError, r"indices=\[\]: exactly one"),
    Refusal((6,), {"indices": [3], "num_sections": 2}, SplitError, "num_sections=2: exactly one"),
    Refusal((0,), {"split": [], "num_splits": 3}, SplitError, r"split=\[\].*exactly one"),
    # lengths
    Refusal((6,), {"split": [2, 3]}, SplitError, r"\(2, 3\).*sum to the axis length 6, not to 5"),
    Refusal((6,), {"split": [8, -2]}, SplitError, r"\(8, -2\).*at least 0, not -2"),
    Refusal((6,), {"split": []}, SplitError, "not to 0"),
    Refusal((6,), {"split": [2**63 - 1, 2**63 - 1, 8]}, SplitError, "not to 18446744073709551622"),
    Refusal((6,), {"split": [2**64, 6 - 2**64]}, SplitError, "at least 0"),
    Refusal((0,), {"split": [1]}, SplitError, "axis length 0, not to 1"),
    # lengths that may be indices, and -1 for the rest
    Refusal((6,), {"split": [2, 5]}, SplitError, "not to 7; if these are indices .* indices= "),
    Refusal((6,), {"split": [5, 2]}, SplitError, "not to 7; .* indices= in ascending order"),
    Refusal((6,), {"split": [2, -2]}, SplitError, "not -2; if these are indices .* indices= "),
    Refusal((6,), {"split": [7, -1]}, SplitError, "than -1 must .* at most .* 6, not to 7$"),
    Refusal((6,), {"split": [4, -1, 3]}, SplitError, "than -1 must .* at most .* 6, not to 7$"),
    Refusal((6,), {"split": [2, -1, -1]}, SplitError, "at most one length may be -1$"),
    Refusal((6,), {"split": [2, -1, -3]}, SplitError, "lengths must be at least 0, not -3"),
    Refusal((6,), {"split": -1}, SplitError, "at least 1; one length of a list may be -1"),
    Refusal((6,), {"split": [0.5, 0.5]}, SplitTypeError, r"pass split=\[int\(0.5 \* n\), -1\]"),
    # indices
    Refusal((6,), {"indices": [4, 2]}, SplitError, r"indices=\(4, 2\).*descend, but 2 cuts before"),
    Refusal((6,), {"indices": [4, -4]}, SplitError, "descend, but -4 cuts before the preceding"),
    Refusal((6,), {"indices": [7, 5]}, SplitError, "descend, but 5 cuts before"),
    Refusal((6,), {"indices": [10**30, 5]}, SplitError, "descend, but 5 cuts before"),
    Refusal((6,), {"indices": [1, -(10**30)]}, SplitError, "descend, but -10000.* cuts before"),
    # counts
    Refusal((6,), {"split": 0}, SplitError, "split=0.*at least 1"),
    Refusal((6,), {"split": -2}, SplitError, "split=-2.*at least 1"),
    Refusal((0,), {"split": 0}, SplitError, "split=0.*at least 1"),
    Refusal((6,), {"num_outputs": 0}, SplitError, "num_outputs=0.*at least 1"),
    Refusal((6,), {"num_outputs": -1}, SplitError, "num_outputs=-1.*at least 1"),
    Refusal((6,), {"num_outputs": 2**31}, SplitError, "2147483648 parts are more than"),
    Refusal((6,), {"num_sections": 0}, SplitError, "num_sections=0.*at least 1"),
    Refusal((6,), {"num_sections": -1}, SplitError, "num_sections=-1.*at least 1"),
    Refusal((6,), {"num_sections": 2**31}, SplitError, "2147483648 parts are more than"),
    Refusal((6,), {"num_splits": 0}, SplitError, "num_splits=0.*at least 1"),
    Refusal((0,), {"num_splits": 2**31}, SplitError, "parts are more than"),
    Refusal((2**31,), {"split": 1}, SplitError, "2147483648 parts are more than"),
    Refusal((7,), {"num_splits": 2}, SplitError, "num_splits=2.*length 7 must be a multiple"),
    Refusal((2,), {"num_splits": 3}, SplitError, "length 2 must be a multiple"),
    Refusal((2,), {"num_splits": 2**31 - 1}, SplitError, "length 2 must be a multiple"),
    Refusal((10**5000,), {"num_splits": 3}, SplitError, "must be a multiple of 3"),
    Refusal((10**5000,), {"split": [1]}, SplitError, "must sum to the axis length .* not to 1"),
    # axis
    Refusal((6,), {"num_splits": 2, "axis": 1}, SplitError, r"axis=1.*\[-1, 0\]"),
    Refusal((6, 2), {"num_splits": 2, "axis": -3}, SplitError, r"axis=-3.*\[-2, 1\]"),
    Refusal((), {"num_splits": 1}, SplitError, "rank 0"),
    # values of the wrong kind
    Refusal((0,), {"split": np.array([])}, SplitTypeError, MUST),
    Refusal((0,), {"split": ""}, SplitTypeError, "split='': must be"),
    *[Refusal((6,), rule, SplitTypeError, says) for rule, says in WRONG_KINDS],
]


RANDOM_CASES = int(os.environ.get("SPLITJIT_RANDOM_CASES", "250"))
"""Cases of each rule, in tests that compare with Python's `split`."""


def random_cases(count: int) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yield `count` random cases of each rule: an array of rank 2, and the rule with its axis.

    The values of a rule have one type each, so that compiled code has one signature. Most axes
    exist. Some values are out of range, and some are extreme.
    """
    rng = np.random.default_rng(13)
    extreme = np.array([-(2**63), -(2**62), 2**62, 2**63 - 1])

    def integers(low: int, high: int, size: int) -> np.ndarray:
        drawn = rng.integers(low, high, size)
        return np.where(rng.random(size) < 0.03, rng.choice(extreme, size), drawn)

    for name in ("split", "chunk", "num_outputs", "num_splits", "indices", "num_sections"):
        for _ in range(count):
            shape = rng.integers(0, 13, 2)
            axis = int(rng.choice([-2, -1, 0, 1], p=[0.2, 0.3, 0.2, 0.3]))
            if rng.random() < 0.03:
                axis = int(rng.choice([-3, 2]))
            length = int(shape[axis % 2])
            if name == "split":
                cuts = np.sort(rng.integers(0, length + 1, rng.integers(0, 5)))
                value: Any = np.diff([0, *cuts, length])
                if rng.random() < 0.4:
                    value = value + integers(-1, 2, len(value))
            elif name == "indices":
                value = integers(-length - 3, length + 4, rng.integers(0, 5))
                if rng.random() < 0.6:
                    value = value[np.argsort(np.where(value < 0, value + length, value))]
            else:
                value = int(integers(-1, 16, 1)[0])
            x = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
            yield x, {"split" if name == "chunk" else name: value, "axis": axis}


def tensor_dtype(name: str) -> np.dtype:
    """Return the NumPy dtype of an ONNX tensor type; strings are object."""
    name = name.removeprefix("tensor(").removesuffix(")")
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype({"float": "float32", "double": "float64", "string": object}.get(name, name))
