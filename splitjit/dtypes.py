"""Tensor types, NumPy dtypes, and the words that dtypes ride on.

ONNX names tensor types, as in ``tensor(float)``; arrays carry dtypes; kernels
move words, unsigned integers of some width.
"""

import functools

import numpy as np

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
_WIDTHS = (16, 8, 4, 2)


def tensor_dtype(name: str) -> np.dtype:
    """Return the NumPy dtype of an ONNX tensor type.

    Parameters
    ----------
    name : str
        One of `TENSOR_TYPES`, such as ``"tensor(float)"``.

    Returns
    -------
    dtype
        In native byte order; object for strings; ml_dtypes' for bfloat16.

    Raises
    ------
    KeyError
        If the name is none of `TENSOR_TYPES`.
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


@functools.lru_cache(maxsize=256)
def tensor_type(dtype: np.dtype) -> str | None:
    """Return the ONNX name of a dtype's tensor type.

    Parameters
    ----------
    dtype : dtype
        Of either byte order. Strings are object, 'U' or StringDType.

    Returns
    -------
    str or None
        None where ONNX Split has no such type, as for 'S', float8 or longdouble.

    Examples
    --------
    >>> tensor_type(np.dtype(">f4")), tensor_type(np.dtype("M8[s]"))
    ('tensor(float)', None)
    """
    if dtype.kind in "OUT":
        return _STRING
    if dtype.name == "bfloat16":  # ml_dtypes', which need not be installed
        return _BFLOAT16
    return _NAMES.get(dtype.newbyteorder("="))


def word_width(dtype: np.dtype) -> int:
    """Return the width of the word that a dtype rides on.

    Parameters
    ----------
    dtype : dtype
        Any dtype that holds no objects.

    Returns
    -------
    int
        1, 2, 4, 8 or 16 bytes: the widest that divides the item size.

    Examples
    --------
    >>> word_width(np.dtype("f4")), word_width(np.dtype("U3")), word_width(np.dtype("V7"))
    (4, 4, 1)
    """
    return next((width for width in _WIDTHS if dtype.itemsize % width == 0), 1)
