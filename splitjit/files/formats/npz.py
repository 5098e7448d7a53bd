"""Archives of arrays: .npz."""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from splitjit.errors import SplitError
from splitjit.files.formats import base
from splitjit.files.formats.base import Data, FileWriter, Metadata, Source, Tensor, TensorFile
from splitjit.files.formats.npy import Npy, make_header, read_header
from splitjit.files.staging import Staged

if TYPE_CHECKING:
    import zipfile


class Npz(TensorFile):
    """An .npz file: a zip archive of .npy files, and possibly of other files."""

    suffix = ".npz"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._tensors: dict[str, Tensor | Exception] = {}
        import zipfile  # only for this format

        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                name = info.filename.removesuffix(Npy.suffix)
                if name in self._infos:
                    raise ValueError(f"two members are named {name!r}")
                self._infos[name] = info
                with archive.open(info) as member:
                    try:
                        self._tensors[name] = read_header(name, member, info.file_size)
                    except Exception as error:  # `tensor` raises it if this member is to be split
                        self._tensors[name] = error
        self.names = tuple(self._infos)

    def tensor(self, name: str) -> Tensor:
        """Return the description of a tensor."""
        tensor = self._tensors[name]
        if isinstance(tensor, Tensor):
            return tensor
        raise base.refusal(self.path / self._infos[name].filename, Npy.suffix, tensor) from tensor

    def has_axes(self, name: str) -> bool:
        """Return whether a member has axes; it has none if it is not even named like an array."""
        is_named = self._infos[name].filename.endswith(Npy.suffix)
        return (is_named or isinstance(self._tensors[name], Tensor)) and super().has_axes(name)

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
                    yield Source(self._read(member, tensor.nbytes))
                    try:  # the checksum is checked at the end of the member
                        while member.read(base.TILE):
                            pass
                    except zipfile.BadZipFile as error:
                        raise SplitError("split", str(self.path), f"damaged: {error}") from error

    def _read(self, member: IO[bytes], nbytes: int) -> Iterator[np.ndarray]:
        buffer = np.empty(min(nbytes, base.TILE), np.uint8)
        for start in range(0, nbytes, base.TILE):
            piece = buffer[: nbytes - start]
            base.fill(piece.data, member, self.path)
            yield piece

    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create an archive whose members have the attributes of this archive's members."""
        return _ZipWriter(file, self._infos)


class _ZipWriter(FileWriter):
    def __init__(self, file: Staged, infos: dict[str, zipfile.ZipInfo]) -> None:
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
