"""Files of one array: .npy."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from splitjit.files.formats.base import FileWriter, Metadata, PlainWriter, Tensor, TensorFile
from splitjit.files.staging import Staged

_MOST = 10_000
"""The most bytes of a header that NumPy reads, unless told to trust the file. It writes more."""

_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
"""What reads a header of each version of the format."""


class Npy(TensorFile):
    """A .npy file: one tensor without a name."""

    suffix = ".npy"
    names = ("",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with open(path, "rb") as file:
            self._tensor = read_header("", file, os.fstat(file.fileno()).st_size)

    def tensor(self, name: str) -> Tensor:
        """Return the description of the only tensor."""
        return self._tensor

    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create a file for one tensor."""
        (tensor,) = tensors
        return PlainWriter(file, make_header(tensor), tensor.nbytes)


def read_header(name: str, file: IO[bytes], size: int) -> Tensor:
    """Read the header of a .npy file, or of a member of an .npz file.

    Parameters
    ----------
    name : str
        Name of the tensor to return.
    file : file object
        The file, at its start.
    size : int
        Size of the whole file in bytes.

    Returns
    -------
    Tensor

    Raises
    ------
    Exception
        Of any class, if these bytes are not a header of an array of plain data, or if
        NumPy could not read the header of a part.
    """
    start = file.read(12)
    length = int.from_bytes(start[8 : 10 if start[6:7] == b"\1" else 12], "little")
    if length > _MOST:
        rest = f"np.load refuses more than {_MOST}, unless max_header_size allows them"
        raise ValueError(f"Header info length ({length}) is large: {rest}")
    tensor = _parse(name, start + file.read(length))
    if tensor.offset + tensor.nbytes > size:
        announced = f"{tensor.offset} bytes of header and {tensor.nbytes} bytes of data"
        raise ValueError(f"truncated: {announced} do not fit in {size} bytes")
    make_header(tensor)
    return tensor


def _parse(name: str, head: bytes) -> Tensor:
    file = io.BytesIO(head)
    version = npy.read_magic(file)
    if version not in _READERS:
        raise ValueError(f"version {version} of the format is unknown, or only for names in UTF-8")
    shape, fortran_order, dtype = _READERS[version](file)
    if dtype.hasobject or dtype.subdtype:
        raise ValueError(f"elements of dtype {dtype} are Python objects or arrays")
    shape = tuple(map(int, shape))  # NumPy accepts bools in a shape
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} has a negative length")
    return Tensor(name, shape, dtype, 8 * dtype.itemsize, file.tell(), fortran_order)


def make_header(tensor: Tensor) -> bytes:
    """Return a .npy header, as NumPy writes it: a joined file equals the original.

    Raises
    ------
    Exception
        Of any class, if NumPy would refuse the header or read another array from it.
    """
    assert isinstance(tensor.dtype, np.dtype)
    descr, file = npy.dtype_to_descr(tensor.dtype), io.BytesIO()
    fields = {"descr": descr, "fortran_order": tensor.fortran_order, "shape": tensor.shape}
    npy.write_array_header_1_0(file, fields)
    header = file.getvalue()
    read = _parse(tensor.name, header)
    if (read.shape, read.dtype) != (tensor.shape, tensor.dtype):
        raise ValueError(f"a .npy header cannot describe dtype {tensor.dtype}")
    return header
