"""The counterparts of other libraries' calls, and the cases of torch's tests of `tensor_split`.

torch's test_tensor_split_sections and test_tensor_split_indices have the same shapes, axes and
indices. Each case is compared with NumPy and with torch.
"""

import itertools
import math
import re

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, split
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "howto" / "coming_from.md").read_text("utf-8")
ROWS = re.findall(r"^\| `((np|torch|jnp|jax)\..+)` \| `(.+?)`", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    ("theirs", "library", "ours"), [row for row in ROWS if "out=" not in row[0]]
)
def test_counterparts(theirs, library, ours):
    """The rows of the page's tables give the same parts."""
    x = np.arange(36.0, dtype="f4").reshape(2, 6, 3)
    names = {"np": np, "split": split, "splitjit": splitjit, "n": 4, "x": x}
    if "unstack" in theirs and not hasattr(np, "unstack"):
        pytest.skip("NumPy 2.0 has no unstack")
    if library == "torch":
        torch = names["torch"] = pytest.importorskip("torch")
        names["x"] = torch.from_numpy(x)
    elif library != "np":
        jax = names["jax"] = pytest.importorskip("jax")
        names["jnp"] = jax.numpy
    assert_equal(*[[np.asarray(part) for part in eval(call, names)] for call in (ours, theirs)])


SHAPES = [(0,), (10,), (10, 0), (0, 10), (2, 10), (4, 10), (12, 3)]
AXES = [(shape, axis) for shape in SHAPES for axis in range(-len(shape), len(shape))]
INDICES = [(), (0,), (3,), (10,), (-1,), (-10,), (0, 1), (2, -1), (1, 5, 7), (0, 5, 7), (3, 4, 10),
           (0, 5, 7, 10, 12), (0, -1, 0, 10), (1, 5, 2, 8)]  # fmt: skip


def tensor_split(x, sections, axis):
    """Split by torch if it is installed, or else by NumPy, which torch's tests compare with."""
    try:
        import torch
    except ImportError:
        return np.array_split(x, sections, axis)
    return [part.numpy() for part in torch.tensor_split(torch.from_numpy(x), sections, axis)]


def assert_equal(parts, expected):
    for part, right in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(part, right, strict=True)


def assert_as_others(x, sections, axis, **rule):
    """Compare fresh parts and views with NumPy's parts, and with torch's."""
    for copy in (True, False):
        parts = split(x, axis=axis, copy=copy, **rule)
        assert_equal(parts, np.array_split(x, sections, axis))
        assert_equal(parts, tensor_split(x, sections, axis))


@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_sections_of_torch(shape, axis):
    x = np.arange(math.prod(shape)).reshape(shape)
    for count in range(1, max(2 * shape[axis], 3)):
        for given in (count, np.array(count)):
            assert_as_others(x, count, axis, num_sections=given)


@pytest.mark.parametrize("indices", INDICES, ids=str)
@pytest.mark.parametrize(("shape", "axis"), AXES)
def test_indices_of_torch(shape, axis, indices):
    x = np.arange(math.prod(shape)).reshape(shape)
    length = shape[axis]
    cuts = [min(max(i + length if i < 0 else i, 0), length) for i in indices]
    for given in (indices, np.array(indices, np.int64)):
        if any(b < a for a, b in itertools.pairwise(cuts)):
            with pytest.raises(SplitError, match="indices must not descend"):
                split(x, indices=given, axis=axis)
        else:
            assert_as_others(x, indices, axis, indices=given)
