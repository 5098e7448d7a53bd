"""What is in a file of tensors, and the files of its parts: .npy, .npz, .safetensors.

A file is a `Source`: names, a header for each tensor, and streams of the data,
from the first byte to the last. A file to write is a `Part`: tensor after tensor,
likewise from the first byte to the last. Neither needs more memory than a header.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import struct
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.lib import format as npy

from splitjit._core.arguments import Shape
from splitjit.errors import SplitError

HEAD = 1 << 16
"""Bytes looked at for a .npy header; NumPy refuses those above 10 000."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as its file describes it.

    Attributes
    ----------
    name : str
        Empty where the format has no names.
    shape : tuple of int
    dtype : dtype or str
        As the format has it: of safetensors a name, since NumPy lacks some.
    bits : int
        Of an element. Those of less than a byte are packed.
    offset : int, default 0
        Where the data starts, in the file or in the member of an archive.
    fortran_order : bool, default False
        Whether the first axis, not the last, is contiguous.
    version : tuple of int, optional
        That of the .npy format, where the tensor has such a header.
    """

    name: str
    shape: Shape
    dtype: np.dtype | str
    bits: int
    offset: int = 0
    fortran_order: bool = False
    version: tuple[int, int] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * self.bits // 8


class Part(ABC):
    """A file to write; a context in which it is complete once left without error."""

    @abstractmethod
    def begin(self, tensor: Tensor) -> None:
        """Begin the next tensor: its data follows."""

    @abstractmethod
    def write(self, data: np.ndarray) -> None:
        """Append contiguous data of any dtype."""

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...


class Source(ABC):
    """A file of tensors, open only while `streams` reads it.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    path : Path
    suffix : str
        Of the names of such files, and of those of their parts.
    identity : tuple of int
        Changes with the file.
    names : tuple of str
        Those of its tensors, in the order in which parts hold them.
    """

    suffix: str
    names: tuple[str, ...]

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = identity(path)

    @abstractmethod
    def tensor(self, name: str) -> Tensor:
        """Return what the file says of a tensor."""

    def verbatim(self, name: str) -> Tensor:
        """Return a tensor, or whatever else is under its name, to be copied as it is."""
        return self.tensor(name)

    def streams(self, tensors: Sequence[Tensor]) -> Generator[IO[bytes]]:
        """Open the file and go from tensor to tensor, each time to its first byte."""
        with open(self.path, "rb") as file:
            for tensor in tensors:
                file.seek(tensor.offset)
                yield file

    @abstractmethod
    def create(self, path: Path, tensors: Sequence[Tensor]) -> Part:
        """Create a file of this format that is to hold these tensors, in this order."""


def identity(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is replaced or written to."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read(path: Path) -> Source:
    """Read what is in a file, by its suffix; one without a known one is taken for a .npy file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Source

    Raises
    ------
    SplitError
        If it is no such file, is cut short, or its format needs a package that
        is not installed.
    OSError
        If it cannot be read.
    """
    kind = {source.suffix: source for source in (Npz, Safetensors)}.get(path.suffix, Npy)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    try:
        return kind(path)
    except (MemoryError, SplitError):
        raise
    except Exception as error:  # whatever it takes to parse bytes that may be anything
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise _refusal(path, kind.suffix, error) from error


def fill(buffer: np.ndarray, stream: IO[bytes], path: Path) -> np.ndarray:
    """Read exactly as many bytes as a buffer has.

    Parameters
    ----------
    buffer : ndarray
        Of bytes, contiguous.
    stream : file object
    path : Path
        The file to name where it has fewer.

    Returns
    -------
    ndarray
        The buffer.

    Raises
    ------
    SplitError
        If the file has fewer, or bytes that its archive did not hold.
    """
    room = buffer.data
    try:
        while room and (count := stream.readinto(room)):  # type: ignore[attr-defined]
            room = room[count:]
    except OSError:
        raise
    except Exception as error:  # of the archive, and of its ways to compress
        raise SplitError("split", str(path), f"damaged: {error}") from error
    if room:
        raise SplitError("split", str(path), f"cut short: {len(room)} bytes are missing")
    return buffer


def _refusal(path: Path, suffix: str, error: Exception) -> SplitError:
    return SplitError("split", str(path), f"no {suffix} file to split: {error}")


class _FilePart(Part):
    """A header, then data; open only while something is written.

    There may be more parts than files that a process may have open.
    """

    def __init__(self, path: Path, header: bytes) -> None:
        self._path = path
        path.write_bytes(header)

    def begin(self, tensor: Tensor) -> None:
        pass  # its place follows from the header

    def write(self, data: np.ndarray) -> None:
        with open(self._path, "ab") as file:
            file.write(data.data)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            _flush(self._path)


def _flush(path: Path) -> None:
    """Wait until a file is on its disk: some tell only then that they are full."""
    with open(path, "ab") as file:
        os.fsync(file.fileno())


class Npy(Source):
    """A .npy file: one tensor without a name."""

    suffix = ".npy"
    names = ("",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with open(path, "rb") as file:
            self._tensor = _parse_npy("", file.read(HEAD), os.fstat(file.fileno()).st_size)

    def tensor(self, name: str) -> Tensor:
        """Return what the file says of a tensor."""
        return self._tensor

    def create(self, path: Path, tensors: Sequence[Tensor]) -> Part:
        """Create a file of this format that is to hold these tensors, in this order."""
        (tensor,) = tensors
        return _FilePart(path, _npy_header(tensor))


def _parse_npy(name: str, head: bytes, size: int) -> Tensor:
    """Parse the header of a .npy file of so many bytes, by its first ones."""
    file = io.BytesIO(head)
    version = npy.read_magic(file)
    if version == (1, 0):
        shape, fortran_order, dtype = npy.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran_order, dtype = npy.read_array_header_2_0(file)
    elif version == (3, 0):
        # As 2.0, but UTF-8, for which NumPy has no public function: escape it.
        (length,) = struct.unpack("<I", file.read(4))
        text = file.read(length).decode().encode("ascii", "backslashreplace")
        escaped = io.BytesIO(struct.pack("<I", len(text)) + text)
        shape, fortran_order, dtype = npy.read_array_header_2_0(escaped)
    else:
        raise ValueError(f"version {version} of the format is unknown")
    if dtype.hasobject or dtype.subdtype:
        raise ValueError(f"items of dtype {dtype} are Python objects or arrays themselves")
    shape = tuple(map(int, shape))  # which may be bools
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} is negative")
    bits, offset = 8 * dtype.itemsize, file.tell()
    tensor = Tensor(name, shape, dtype, bits, offset, fortran_order, version)
    if tensor.offset + tensor.nbytes > size:
        raise ValueError(f"cut short: {tensor.nbytes} bytes of data announced, {size} in all")
    return tensor


def _npy_header(tensor: Tensor) -> bytes:
    """Return the header of a .npy file, of the tensor's version of the format.

    As https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    has it; NumPy's own functions write no 3.0.
    """
    assert isinstance(tensor.dtype, np.dtype)
    assert tensor.version is not None
    fields = {
        "descr": npy.dtype_to_descr(tensor.dtype),
        "fortran_order": tensor.fortran_order,
        "shape": tensor.shape,
    }
    text = repr(fields).encode("utf-8" if tensor.version == (3, 0) else "latin-1")
    magic, length = npy.magic(*tensor.version), "<H" if tensor.version == (1, 0) else "<I"
    text += b" " * (-(len(magic) + struct.calcsize(length) + len(text) + 1) % npy.ARRAY_ALIGN)
    return magic + struct.pack(length, len(text) + 1) + text + b"\n"


class Npz(Source):
    """An .npz file: a zip archive of .npy files, and possibly of others."""

    suffix = ".npz"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._tensors: dict[str, Tensor | Exception] = {}
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(Npy.suffix)
                if name in self._infos:
                    raise ValueError(f"two members are named {name!r}")
                self._infos[name] = info
                with archive.open(info) as member:
                    head = member.read(HEAD)
                try:
                    self._tensors[name] = _parse_npy(name, head, info.file_size)
                except Exception as error:  # no matter, unless this one is to be split
                    self._tensors[name] = error
        self.names = tuple(self._infos)

    def tensor(self, name: str) -> Tensor:
        """Return what the file says of a tensor."""
        tensor = self._tensors[name]
        if isinstance(tensor, Tensor):
            return tensor
        raise _refusal(self.path / self._infos[name].filename, Npy.suffix, tensor) from tensor

    def verbatim(self, name: str) -> Tensor:
        """Return a tensor, or whatever else is under its name, to be copied as it is."""
        return Tensor(name, (self._infos[name].file_size,), "bytes", 8)

    def streams(self, tensors: Sequence[Tensor]) -> Generator[IO[bytes]]:
        """Open the file and go from tensor to tensor, each time to its first byte."""
        with zipfile.ZipFile(self.path) as archive:
            for tensor in tensors:
                with archive.open(self._infos[tensor.name]) as member:
                    member.read(tensor.offset)  # after a seek, no checksum is compared
                    yield member

    def create(self, path: Path, tensors: Sequence[Tensor]) -> Part:
        """Create a file of this format that is to hold these tensors, in this order."""
        return _ZipPart(path, self._infos)


class _ZipPart(Part):
    def __init__(self, path: Path, infos: dict[str, zipfile.ZipInfo]) -> None:
        self._path = path
        self._infos = infos
        self._archive = zipfile.ZipFile(path, "w")
        self._member: IO[bytes] | None = None

    def begin(self, tensor: Tensor) -> None:
        if self._member is not None:
            self._member.close()
        theirs = self._infos[tensor.name]
        info = zipfile.ZipInfo(theirs.filename, theirs.date_time)
        info.compress_type = theirs.compress_type
        info.external_attr = theirs.external_attr
        self._member = self._archive.open(info, "w", force_zip64=True)
        if tensor.version is not None:
            self._member.write(_npy_header(tensor))

    def write(self, data: np.ndarray) -> None:
        assert self._member is not None
        self._member.write(data.data)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._member is not None:
                self._member.close()
        finally:
            self._archive.close()
        if kind is None:
            _flush(self._path)


class Safetensors(Source):
    """A .safetensors file, whose header the safetensors package reads and checks.

    It does not write files piece by piece; https://github.com/huggingface/safetensors
    says what is in one: the length of a header in JSON, the header, the data of
    each tensor right after that of the one before.
    """

    suffix = ".safetensors"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import safetensors
        except ModuleNotFoundError as error:
            rule = "needs the safetensors package: pip install splitjit[safetensors]"
            raise SplitError("split", str(path), rule) from error
        self._tensors: dict[str, Tensor] = {}
        with open(path, "rb") as file:
            offset = 8 + int.from_bytes(file.read(8), "little")
        with safetensors.safe_open(path, "numpy") as opened:
            self._metadata: dict[str, str] | None = opened.metadata()
            for name in opened.offset_keys():
                described = opened.get_slice(name)
                dtype = described.get_dtype()
                tensor = Tensor(name, tuple(described.get_shape()), dtype, _bits(dtype), offset)
                self._tensors[name] = tensor
                offset += tensor.nbytes
        # Wide elements first, as in files of the package, or parts might not be aligned.
        self.names = tuple(sorted(self._tensors, key=lambda name: -self._tensors[name].bits))

    def tensor(self, name: str) -> Tensor:
        """Return what the file says of a tensor."""
        return self._tensors[name]

    def create(self, path: Path, tensors: Sequence[Tensor]) -> Part:
        """Create a file of this format that is to hold these tensors, in this order."""
        header: dict[str, Any] = {} if self._metadata is None else {"__metadata__": self._metadata}
        start = 0
        for tensor in tensors:
            stop = start + tensor.nbytes
            shape = list(tensor.shape)
            header[tensor.name] = {
                "dtype": tensor.dtype,
                "shape": shape,
                "data_offsets": [start, stop],
            }
            start = stop
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # so that the data is aligned
        return _FilePart(path, struct.pack("<Q", len(text)) + text)


def _bits(dtype: str) -> int:
    """Return the bits of an element: 8 for BOOL and F8_E4M3, 16 for BF16.

    Examples
    --------
    >>> [_bits(dtype) for dtype in ("BOOL", "U8", "F8_E4M3", "BF16", "C64", "F6_E2M3", "F4")]
    [8, 8, 8, 16, 64, 6, 4]
    """
    number = re.match(r"[A-Z]+(\d+)", dtype)
    return int(number[1]) if number else 8
