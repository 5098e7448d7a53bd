"""The interface that all file formats share.

A `TensorFile` is a file to split: the names and headers of its tensors, and a `Source`
of the data of each tensor. A `FileWriter` is a file to write, one tensor after the
other. Both go from the first byte to the last and hold only headers in memory.
"""

import contextlib
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np

from splitjit._plan.arguments import Shape
from splitjit.errors import SplitError
from splitjit.files.disk import NewFile
from splitjit.files.staging import Staged

TILE = 1 << 20
"""Bytes in memory at a time. Larger tiles overflow the cache."""

RUN = 1 << 22
"""The most bytes that the system copies at a time. A server of NFS copies no more in one call."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as its file describes it.

    Attributes
    ----------
    name : str
        Empty if the format has no names.
    shape : tuple of int
    dtype : dtype or str
        A name if the format is safetensors, since NumPy lacks some of its dtypes.
    bits : int
        Size of an element. Elements smaller than a byte are packed.
    offset : int, default 0
        Start of the data, in the file or in the member of an archive.
    fortran_order : bool, default False
        Whether the first axis is the contiguous one, instead of the last.
    position : int, default 0
        Position in the header of the file, if the file has one header for all tensors.
        Parts keep the order of the header, so a joined file has that of the original.
    """

    name: str
    shape: Shape
    dtype: np.dtype | str
    bits: int
    offset: int = 0
    fortran_order: bool = False
    position: int = 0

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return math.prod(self.shape) * self.bits // 8

    def resized(self, axis: int, length: int) -> "Tensor":
        """Return the description of a tensor with another length along the axis."""
        return replace(self, shape=(*self.shape[:axis], length, *self.shape[axis + 1 :]))


class Run:
    """Consecutive bytes of an open file, which are read only if the system cannot copy them.

    Parameters
    ----------
    path : Path
        The name of the file, for refusals.
    file : file object
        The open file. All of its runs share its position.
    start, nbytes : int
        The first byte in the file, and the number of bytes.
    """

    def __init__(self, path: Path, file: IO[bytes], start: int, nbytes: int) -> None:
        self._path = path
        self._file = file
        self._start = start
        self.nbytes = nbytes

    def __getitem__(self, bytes_: slice) -> "Run":
        """Return some of the bytes, like a slice of an array."""
        start, stop, _ = bytes_.indices(self.nbytes)
        return Run(self._path, self._file, self._start + start, stop - start)

    def copy_to(self, file: NewFile) -> int:
        """Let the system copy the bytes; return how many it copied, from the first."""
        return file.copy(self._file.fileno(), self._start, self.nbytes)

    def read_into(self, room: memoryview) -> None:
        """Read all bytes into a buffer of this size."""
        self._file.seek(self._start)
        fill(room, self._file, self._path)

    def tiles(self) -> Iterator[np.ndarray]:
        """Read all bytes, tile by tile."""
        self._file.seek(self._start)
        return read_tiles(self._file, self.nbytes, self._path)


Metadata = Mapping[str, str] | None
"""The metadata of a file; None if it has none."""

Data = np.ndarray | Run
"""The next bytes of a tensor: an array of bytes, or a run of a file."""


def arrays(data: Data) -> Iterator[np.ndarray]:
    """Return the next bytes of a tensor as arrays of bytes.

    The arrays of a run share one buffer: use each before you ask for the next.
    """
    return data.tiles() if isinstance(data, Run) else iter([data])


class Source:
    """The bytes of a tensor, taken from first to last.

    Parameters
    ----------
    pieces : iterator of Data
        The bytes, piece by piece. An array is used up before the next piece is made.
    """

    def __init__(self, pieces: Iterator[Data]) -> None:
        self._pieces = pieces
        self._rest: Data = np.empty(0, np.uint8)

    def next(self, nbytes: int) -> Iterator[Data]:
        """Yield the next bytes. Those of a file may still have to be read."""
        while nbytes:
            while not self._rest.nbytes:
                self._rest = next(self._pieces)
            count = min(nbytes, RUN)
            data, self._rest = self._rest[:count], self._rest[count:]
            nbytes -= data.nbytes
            yield data

    def take(self, buffer: np.ndarray) -> np.ndarray:
        """Fill a contiguous array of any dtype with the next bytes, and return it."""
        room = buffer.reshape(-1).view(np.uint8).data
        for data in self.next(len(room)):
            if isinstance(data, Run):
                data.read_into(room[: data.nbytes])
            else:
                room[: data.nbytes] = data.data
            room = room[data.nbytes :]
        return buffer


def fill(room: memoryview, stream: IO[bytes], path: Path) -> None:
    """Read exactly enough bytes to fill a buffer.

    Raises
    ------
    SplitError
        If the stream ends early, or if its checksum or its compressed data are wrong.
    """
    try:
        while room and (count := stream.readinto(room)):  # type: ignore[attr-defined]
            room = room[count:]
    except OSError:
        raise
    except Exception as error:  # zipfile and each decompressor raise their own classes
        raise SplitError("split", str(path), f"damaged: {error}") from error
    if room:
        raise SplitError("split", str(path), f"truncated: {len(room)} bytes are missing")


def read_tiles(stream: IO[bytes], nbytes: int, path: Path) -> Iterator[np.ndarray]:
    """Yield the next bytes of a stream, tile by tile, as arrays that share one buffer."""
    buffer = np.empty(min(nbytes, TILE), np.uint8)
    for start in range(0, nbytes, TILE):
        tile = buffer[: nbytes - start]
        fill(tile.data, stream, path)
        yield tile


class FileWriter:
    """A file to write. It is complete once it is closed."""

    def begin(self, tensor: Tensor) -> None:
        """Begin the next tensor, whose data `write` then appends."""

    def write(self, data: Data) -> None:
        """Append the next bytes of the tensor."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""


class PlainWriter(FileWriter):
    """A header, then the data of all tensors in order.

    The header says where each tensor starts. The file is open only during calls of `write`: there
    may be more parts than a process may have open files.

    Parameters
    ----------
    file : Staged
    header : bytes
    nbytes : int
        Size of the data that follow.
    """

    def __init__(self, file: Staged, header: bytes, nbytes: int) -> None:
        self._file, self._end = file, len(header)
        with file.open() as opened:
            opened.write(header)
            opened.allocate(self._end + nbytes)

    def write(self, data: Data) -> None:
        """Append the next bytes of the tensor. The system copies a run if it can."""
        with self._file.open(self._end) as opened:
            rest = data[data.copy_to(opened) :] if isinstance(data, Run) else data
            for array in arrays(rest):
                opened.write(array.data)
            opened.flush_early(self._end, data.nbytes)
        self._end += data.nbytes


_NUM_SAMPLES, _SAMPLE_NBYTES = 512, 512
"""Roughly how many samples `fingerprint` reads of a file, and the bytes of each."""

_SMALL = 1 << 20
"""The most bytes of a file whose fingerprint is a digest of all of them."""


class TensorFile(ABC):
    """A file of tensors. It is open only while its header or its data are read.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    path : Path
    suffix : str
        Suffix of the names of files in this format.
    tensors : dict of str to Tensor
        The tensors by name, in the order of their data.
    metadata : dict of str to str or None
        The metadata, if the format has metadata.
    status : stat_result
        The status of the file when its header was read.
    inputs : tuple of TensorFile
        The files that are read. A file that exists only as parts has several.
    """

    suffix: str
    metadata: Metadata = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.status = os.stat(path)
        self.tensors: dict[str, Tensor] = {}
        self._fingerprint: str | None = None
        self.inputs: tuple[TensorFile, ...] = (self,)

    def _check_unchanged(self, file: IO[bytes]) -> None:
        """Check that an open file was not replaced or written to since its header was read.

        If only its ctime has changed, the contents may be the same: a `chmod`, or a backup that
        makes hard links, changes it, too. Then the fingerprint decides.
        """
        now, known = os.fstat(file.fileno()), self.status
        same = all(os.path.samestat(now, one) for one in (known, os.stat(self.path)))
        same &= (now.st_size, now.st_mtime_ns) == (known.st_size, known.st_mtime_ns)
        if same and now.st_ctime_ns != known.st_ctime_ns:
            same = self._sample(file) == self._fingerprint
        if not same:
            raise SplitError("files", str(self.path), "must not change while it is read")

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file, and check before and after that it is the file that was described."""
        with open(self.path, "rb", buffering=0) as file:
            self._check_unchanged(file)
            yield file
            self._check_unchanged(file)

    def fingerprint(self) -> str:
        """Return a digest of the header, and of samples of the data of each tensor.

        The digest of a file of at most `_SMALL` bytes is one of all bytes.
        """
        if self._fingerprint is None:
            with self.opened() as file:
                self._fingerprint = self._sample(file)
        return self._fingerprint

    def _extents(self) -> list[tuple[int, int]]:
        """Return where the data of each tensor start in the file, and their bytes."""
        return [(one.offset, one.nbytes) for one in self.tensors.values()]

    def _sample(self, file: IO[bytes]) -> str:
        size, extents = self.status.st_size, sorted(self._extents())
        spots = [(0, size)]
        if size > _SMALL and extents:
            end = max([start + nbytes for start, nbytes in extents])
            spots = [(0, extents[0][0]), (end, min(size - end, _SMALL))]
            count = max(2, min(64, _NUM_SAMPLES // len(extents)))
            for start, nbytes in extents:
                last = max(0, nbytes - _SAMPLE_NBYTES)
                starts = {start + last * i // (count - 1) for i in range(count)}
                spots += [(one, min(_SAMPLE_NBYTES, nbytes)) for one in sorted(starts)]
        import hashlib  # seldom needed

        digest = hashlib.sha256()
        for start, nbytes in spots:
            file.seek(start)
            digest.update(file.read(nbytes))
        return digest.hexdigest()

    def tensor(self, name: str) -> Tensor:
        """Return the description of a tensor that is split. It may be refused."""
        return self.tensors[name]

    def has_axes(self, name: str) -> bool:
        """Return whether a pattern for several tensors may split this one."""
        return bool(self.tensor(name).shape)

    def verbatim(self, name: str) -> Tensor:
        """Return a description for copying the bytes of this name unchanged."""
        return self.tensors[name]

    def sources(self, tensors: Sequence[Tensor]) -> Generator[Source]:
        """Open the file, and yield the data of each tensor."""
        with self.opened() as file:
            for tensor in tensors:
                yield Source(iter([Run(self.path, file, tensor.offset, tensor.nbytes)]))

    @abstractmethod
    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create a file of this format for these tensors, in this order.

        Formats without metadata ignore it.
        """


def refusal(path: Path, suffix: str, error: Exception) -> SplitError:
    """Return the refusal of a file that is not of the format that `suffix` names."""
    return SplitError("files", str(path), f"not a {suffix} file that can be read: {error}")
