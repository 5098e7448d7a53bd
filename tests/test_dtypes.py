"""Tensor types, dtypes and words."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from splitjit.dtypes import TENSOR_TYPES, tensor_dtype, tensor_type, word_width


def test_each_tensor_type_has_its_dtype():
    assert len(TENSOR_TYPES) == len(set(TENSOR_TYPES)) == 16
    for name in TENSOR_TYPES:
        assert tensor_type(tensor_dtype(name)) == name
    with pytest.raises(KeyError):
        tensor_dtype("tensor(float8e5m2)")


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (">f4", "tensor(float)"), (">i8", "tensor(int64)"), ("<c8", "tensor(complex64)"),
        ("?", "tensor(bool)"), ("U7", "tensor(string)"), (">U7", "tensor(string)"),
        (object, "tensor(string)"), ("T", "tensor(string)"),
        (ml_dtypes.bfloat16, "tensor(bfloat16)"),
        ("S7", None), ("V2", None), ("M8[s]", None), ("g", None),
        (ml_dtypes.float8_e5m2, None), (ml_dtypes.int4, None), ([("a", "f4")], None),
    ],
)  # fmt: skip
def test_tensor_type(dtype, name):
    dtype = np.dtype(dtype)
    if dtype == np.dtype("f8") and np.dtype("g") == dtype:
        pytest.skip("longdouble is double here")
    assert tensor_type(dtype) == name


@pytest.mark.parametrize(
    ("dtype", "width"),
    [
        ("?", 1), ("i2", 2), (">f4", 4), ("f8", 8), ("c16", 16), ("g", 16), ("G", 16),
        ("S5", 1), ("S6", 2), ("U1", 4), ("U4", 16), ("M8[s]", 8), ("V3", 1), ("V24", 8),
        (ml_dtypes.bfloat16, 2), (ml_dtypes.int4, 1), ([("a", "u1"), ("b", "f8")], 1),
    ],
)  # fmt: skip
def test_word_width(dtype, width):
    assert word_width(np.dtype(dtype)) == width
    assert np.dtype(dtype).itemsize % width == 0


def test_bfloat16_is_known_without_importing_ml_dtypes():
    code = (
        "import sys, numpy as np\n"
        "from splitjit.dtypes import tensor_type\n"
        "assert tensor_type(np.dtype('f4')) == 'tensor(float)'\n"
        "assert 'ml_dtypes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
