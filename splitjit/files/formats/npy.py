"""NumPy's formats: .npy, files of one array, and .npz, archives of them."""

import io
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from splitjit.files.formats import base
from splitjit.files.formats.base import Data, FileWriter, Metadata, Source, Tensor, TensorFile
from splitjit.files.staging import Staged

_MOST = 10_000
"""The most bytes of a header that NumPy reads, unless told to trust the file. It writes more."""

_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
"""What reads a header of each version of the format."""


class Npy(TensorFile):
    """A .npy file: one tensor without a name."""

    suffix = ".npy"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with open(path, "rb") as file:
            self.tensors = {"": read_header("", file, self.status.st_size)}

    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create a file for one tensor."""
        (tensor,) = tensors
        return base.PlainWriter(file, make_header(tensor), tensor.nbytes)


class Npz(TensorFile):
    """An .npz file: a zip archive of .npy files, and possibly of other files."""

    suffix = ".npz"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        import zipfile  # only for this format

        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._errors: dict[str, Exception] = {}
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(Npy.suffix)
                if name in self._infos:
                    raise ValueError(f"two members are named {name!r}")
                self._infos[name] = info
                with archive.open(info) as member:
                    try:
                        self.tensors[name] = read_header(name, member, info.file_size)
                    except Exception as error:  # `tensor` raises it if this member is to be split
                        self.tensors[name], self._errors[name] = self.verbatim(name), error

    def tensor(self, name: str) -> Tensor:
        """Return the description of a tensor."""
        if error := self._errors.get(name):
            raise base.refusal(self.path / self._infos[name].filename, Npy.suffix, error) from error
        return self.tensors[name]

    def has_axes(self, name: str) -> bool:
        """Return whether a member has axes; it has none if it is not even named like an array."""
        is_array = name not in self._errors or self._infos[name].filename.endswith(Npy.suffix)
        return is_array and super().has_axes(name)

    def verbatim(self, name: str) -> Tensor:
        """Describe a whole member, .npy header included, as bytes."""
        return Tensor(name, (self._infos[name].file_size,), "bytes", 8)

    def _extents(self) -> list[tuple[int, int]]:
        """Return where the members lie. The directory with their checksums follows them."""
        return [(one.header_offset, one.compress_size) for one in self._infos.values()]

    def sources(self, tensors: Sequence[Tensor]) -> Generator[Source]:
        """Open the archive, and yield the data of each tensor."""
        import zipfile

        with self.opened() as file, zipfile.ZipFile(file) as archive:
            for tensor in tensors:
                with archive.open(self._infos[tensor.name]) as member:
                    member.read(tensor.offset)  # in newer Pythons, a seek would skip the CRC check
                    # Its data end with the member, where zipfile checks the checksum.
                    yield Source(base.read_tiles(member, tensor.nbytes, self.path))

    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create an archive whose members have the attributes of this archive's members."""
        return _ZipWriter(file, self._infos)


class _ZipWriter(FileWriter):
    def __init__(self, file: Staged, infos: dict[str, Any]) -> None:
        import zipfile

        self._infos = infos
        self._opened = file.open()
        self._archive = zipfile.ZipFile(self._opened, "w")
        self._member: IO[bytes] = io.BytesIO()  # before the first member, nothing is open

    def begin(self, tensor: Tensor) -> None:
        self._member.close()
        original = self._infos[tensor.name]
        info = type(original)(original.filename, original.date_time)
        info.compress_type = original.compress_type
        info.external_attr = original.external_attr
        self._member = self._archive.open(info, "w", force_zip64=True)
        if isinstance(tensor.dtype, np.dtype):  # it is not copied as bytes
            self._member.write(make_header(tensor))

    def write(self, data: Data) -> None:
        for array in base.arrays(data):
            self._member.write(array.data)

    def close(self) -> None:
        with self._opened, self._archive:
            self._member.close()


# ---- headers -----------------------------------------------------------------------------


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
    if tensor.offset + tensor.nbytes < size:
        raise ValueError("bytes follow the array, perhaps another array: save each to its own file")
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
