"""Conversions between ONNX tensor types and NumPy dtypes."""

import ml_dtypes
import numpy as np
import pytest

from splitjit._tensor_types import TENSOR_TYPES, tensor_type
from tests.cases import tensor_dtype


def test_each_tensor_type_has_its_dtype():
    assert len(TENSOR_TYPES) == len(set(TENSOR_TYPES)) == 16
    for name in TENSOR_TYPES:
        assert tensor_type(tensor_dtype(name)) == name


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
        pytest.skip("longdouble is double on this platform")
    assert tensor_type(dtype) == name
