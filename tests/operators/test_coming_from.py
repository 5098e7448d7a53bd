"""The tests of NumPy's and torch's split functions, by the rules of splitjit.

The tables hold the cases of numpy/lib/tests/test_shape_base.py and of test_tensor_split_sections,
test_tensor_split_indices, test_tensor_split_errors and test_chunk in torch's own tests. Sections
and indices are compared with both libraries.
"""

import importlib.util
import itertools
import math

import numpy as np
import pytest

import splitjit
from splitjit import SplitError, plan_split, split
from tests.processes import python

EQUAL = [
    # function of NumPy, shape, its arguments, the rule
    (np.split, (10,), (2,), {"num_splits": 2}),
    (np.hsplit, (4,), (2,), {"num_splits": 2, "axis": 0}),
    (np.hsplit, (2, 4), (2,), {"num_splits": 2, "axis": 1}),
    (np.vsplit, (2, 4), (2,), {"num_splits": 2, "axis": 0}),
    (np.dsplit, (2, 2, 4), (2,), {"num_splits": 2, "axis": 2}),
]


@pytest.mark.parametrize(("function", "shape", "arguments", "rule"), EQUAL)
@pytest.mark.parametrize("copy", [True, False])
def test_cases_of_numpy(function, shape, arguments, rule, copy):
    x = np.arange(math.prod(shape)).reshape(shape)
    assert_equal(split(x, **rule, copy=copy), function(x, *arguments))


@pytest.mark.skipif(np.iinfo(np.intp).max < 2**32, reason="needs 64-bit addresses")
def test_a_length_beyond_32_bits():
    parts = split(np.broadcast_to([0], (2**32, 2)), num_sections=4, copy=False)
    assert [part.shape for part in parts] == [(2**30, 2)] * 4


@pytest.mark.parametrize(
    ("function", "shape", "argument", "rule", "says"),
    [
        (np.array_split, (10,), 0, {"num_sections": 0}, "at least 1"),
        (np.array_split, (10,), -1, {"num_sections": -1}, "at least 1"),
        (np.split, (10,), 3, {"num_splits": 3}, "must be a multiple of 3"),
        (np.hsplit, (), 2, {"num_splits": 2, "axis": 1}, "rank 0"),
        (np.vsplit, (), 2, {"num_splits": 2, "axis": 0}, "rank 0"),
        (np.dsplit, (), 2, {"num_splits": 2, "axis": 2}, "rank 0"),
        (np.dsplit, (4,), 2, {"num_splits": 2, "axis": 2}, "axis must be in"),
        (np.dsplit, (2, 4), 2, {"num_splits": 2, "axis": 2}, "axis must be in"),
        # torch's own
        (None, (10,), None, {"num_sections": 10, "axis": 1}, "axis must be in"),
        (None, (), None, {"num_sections": 10}, "rank 0"),
        (None, (10,), None, {"indices": (10,), "axis": 1}, "axis must be in"),
        (None, (), None, {"indices": (10,)}, "rank 0"),
    ],
)
def test_refusals(function, shape, argument, rule, says):
    x = np.zeros(shape)
    if function is not None:
        with pytest.raises(ValueError, match="."):
            function(x, argument)
    with pytest.raises(SplitError, match=says):
        split(x, **rule)


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


@pytest.mark.parametrize(
    ("shape", "count", "axis", "sizes"),
    [
        ((4, 7), 3, 1, (3, 3, 1)),
        ((4, 7), 3, -1, (3, 3, 1)),
        ((5,), 4, 0, (2, 2, 1)),  # fewer chunks than asked for
        ((6,), 4, 0, (2, 2, 2)),
        ((3,), 5, 0, (1, 1, 1)),
    ],
)
def test_chunk_of_torch(shape, count, axis, sizes):
    chunk = -(-shape[axis] // count)
    assert plan_split(shape, chunk, axis=axis).sizes == sizes
    with_empty_ones = plan_split(shape, num_outputs=count, axis=axis).sizes
    assert tuple(size for size in with_empty_ones if size) == sizes
    torch = pytest.importorskip("torch")
    x = np.arange(math.prod(shape)).reshape(shape)
    expected = torch.chunk(torch.from_numpy(x), count, axis)
    assert_equal(split(x, chunk, axis=axis), [part.numpy() for part in expected])


def test_counterparts_of_other_calls(torch):
    """Rows of docs/howto/coming_from.md that no table above covers."""
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    t = torch.from_numpy(x)
    columns = [part.squeeze(1) for part in split(x, 1, axis=1)]
    assert_equal(columns, np.unstack(x, axis=1) if hasattr(np, "unstack") else x.T)
    assert_equal(columns, [part.numpy() for part in torch.unbind(t, dim=1)])
    lengths = split(x, [2, 4], axis=1)
    assert_equal(lengths, [part.numpy() for part in torch.split(t, [2, 4], dim=1)])
    assert_equal(lengths, [part.numpy() for part in torch.split_with_sizes(t, [2, 4], dim=1)])
    assert_equal(split(x, 4, axis=1), [part.numpy() for part in torch.split(t, 4, dim=1)])
    assert_equal(splitjit.openvino.VariadicSplit()(x, 1, [2, -1]), lengths)


JAX = """
import numpy as np, jax, jax.numpy as jnp
from splitjit import split
x = np.arange(12, dtype=np.float32).reshape(2, 6)
for parts, expected in [
    (split(x, [2, 4], axis=1), jax.lax.split(x, [2, 4], axis=1)),
    (split(x, num_splits=3, axis=1), jnp.split(x, 3, axis=1)),
    (split(x, indices=[2, 5], axis=1), jnp.split(x, [2, 5], axis=1)),
    (split(x, num_sections=4, axis=1), jnp.array_split(x, 4, axis=1)),
]:
    for part, right in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(part, right, strict=True)
"""


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="needs JAX")
def test_counterparts_of_jax():
    """In a process of its own, because JAX warns if a process that has imported it forks."""
    python("-c", JAX)
