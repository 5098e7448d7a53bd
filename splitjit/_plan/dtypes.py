"""ONNX names of tensor types, and the NumPy dtypes that they stand for."""

import numpy as np
from numpy.typing import DTypeLike

from splitjit.errors import SplitTypeError, describe, reason

_NUMERIC = {
    "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8,
    "tensor(int16)": np.int16,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(complex64)": np.complex64,
    "tensor(complex128)": np.complex128,
}
_STRING = "tensor(string)"
_BFLOAT16 = "tensor(bfloat16)"

TENSOR_TYPES = (*_NUMERIC, _STRING, _BFLOAT16)
"""The 16 tensor types of ONNX Split, by their ONNX names."""

_NAMES = {np.dtype(scalar): name for name, scalar in _NUMERIC.items()}

NAMES_IN_TORCH = {
    **{f"torch.{dtype.name}": name for dtype, name in _NAMES.items()},
    "torch.bfloat16": _BFLOAT16,
}
"""The ONNX names of tensor types by the names of torch's dtypes."""

# The key is `dtype.num`, which is the same for both byte orders.
_NAMES_BY_NUMBER = {
    np.dtype(code).num: name
    for code in np.typecodes["All"]
    if (name := _STRING if code in "OU" else _NAMES.get(np.dtype(code)))
}


def tensor_dtype(name: str) -> np.dtype:
    """Return the NumPy dtype of an ONNX tensor type.

    Parameters
    ----------
    name : str
        One of `TENSOR_TYPES`, such as ``"tensor(float)"``.

    Returns
    -------
    dtype
        In native byte order. Strings are object; bfloat16 comes from ml_dtypes.

    Raises
    ------
    KeyError
        If the name is not in `TENSOR_TYPES`.
    ImportError
        If bfloat16 is asked for and ml_dtypes is not installed.

    Examples
    --------
    >>> tensor_dtype("tensor(float)")
    dtype('float32')
    """
    if name == _STRING:
        return np.dtype(object)
    if name == _BFLOAT16:
        import ml_dtypes  # an extra: NumPy has no bfloat16

        bfloat16: type = ml_dtypes.bfloat16
        return np.dtype(bfloat16)
    return np.dtype(_NUMERIC[name])


def tensor_type(dtype: np.dtype) -> str | None:
    """Return the ONNX name of a dtype's tensor type.

    Parameters
    ----------
    dtype : dtype
        A dtype of either byte order. Strings are object, 'U' or StringDType.

    Returns
    -------
    str or None
        None if ONNX Split has no such type: 'S', float8 and longdouble, for example.

    Examples
    --------
    >>> tensor_type(np.dtype(">f4")), tensor_type(np.dtype("M8[s]"))
    ('tensor(float)', None)
    """
    return _NAMES_BY_NUMBER.get(dtype.num) or _other_tensor_type(dtype)


def _other_tensor_type(dtype: np.dtype) -> str | None:
    if dtype.kind == "T":
        return _STRING
    # By name, because ml_dtypes may not be installed. `dtype.type` is faster than `dtype.name`.
    return _BFLOAT16 if dtype.type.__name__ == "bfloat16" else None


def as_dtype(dtype: DTypeLike) -> np.dtype:
    """Return a dtype-like object as a dtype of array items.

    Parameters
    ----------
    dtype : dtype-like

    Returns
    -------
    dtype

    Raises
    ------
    SplitTypeError
        If `dtype` is not a dtype, or if its items are arrays.
    """
    try:
        made = np.dtype(dtype)
    except Exception as error:  # TypeError, ValueError, SyntaxError and more
        raise SplitTypeError(
            "split", describe(dtype=dtype), f"must be a dtype: {reason(error)}"
        ) from error
    if made.subdtype is not None:
        raise SplitTypeError("split", describe(dtype=dtype), "items must not be arrays")
    return made
