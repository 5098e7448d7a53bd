"""ONNX names of the tensor types that dtypes stand for."""

from typing import Any

import numpy as np

_ALIKE = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
_ALIKE += ["float16", "bfloat16", "complex64", "complex128"]
"""Types that NumPy and ONNX call alike."""

_NAMES = {name: f"tensor({name})" for name in _ALIKE}
_NAMES |= {"float32": "tensor(float)", "float64": "tensor(double)"}
"""ONNX's names by the names of NumPy, which are those of torch and other libraries, too."""

_STRING = "tensor(string)"

TENSOR_TYPES = (*_NAMES.values(), _STRING)
"""The 16 tensor types of ONNX Split, by their ONNX names."""

_NAMES_BY_NUMBER = {
    np.dtype(code).num: _STRING if code in "OUT" else _NAMES.get(np.dtype(code).name)
    for code in np.typecodes["All"] + "T"
}
"""The same by `dtype.num`, which is the same for both byte orders, and faster to read."""


def tensor_type(dtype: Any) -> str | None:
    """Return the ONNX name of a dtype's tensor type.

    Parameters
    ----------
    dtype : dtype
        A dtype of either byte order. Strings are object, 'U' or StringDType. Also a dtype of
        torch, or of another library with the Array API.

    Returns
    -------
    str or None
        None if ONNX Split has no such type: 'S', float8 and longdouble, for example.

    Examples
    --------
    >>> tensor_type(np.dtype(">f4")), tensor_type(np.dtype("M8[s]"))
    ('tensor(float)', None)
    """
    number: Any = getattr(dtype, "num", None)
    if name := _NAMES_BY_NUMBER.get(number):
        return name
    # bfloat16 by its name, because ml_dtypes may not be installed
    return _NAMES.get(str(getattr(dtype, "name", dtype)).rpartition(".")[2])
