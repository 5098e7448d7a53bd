"""Checkpoints: .safetensors."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from splitjit.errors import SplitError
from splitjit.files.formats.base import FileWriter, Metadata, PlainWriter, Tensor, TensorFile
from splitjit.files.staging import Staged


class Safetensors(TensorFile):
    """A .safetensors file. The safetensors package reads and checks the header.

    The package cannot write a file piece by piece, so `create` writes the header
    itself. https://github.com/huggingface/safetensors specifies the format: the
    length of the header, the header in JSON, then the data of all tensors without
    gaps.
    """

    suffix = ".safetensors"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            import safetensors
        except ModuleNotFoundError as error:
            rule = "needs the safetensors package: pip install safetensors"
            raise SplitError("files", str(path), rule) from error
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            with safetensors.safe_open(path, "numpy"):  # checks the header
                header: dict[str, Any] = json.loads(file.read(length))
        self.metadata = header.pop("__metadata__", None)
        positions = {name: position for position, name in enumerate(header)}
        # Empty tensors share an offset; among them, the header's order decides.
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            shape, dtype, position = tuple(entry["shape"]), entry["dtype"], positions[name]
            offset = 8 + length + entry["data_offsets"][0]
            self.tensors[name] = Tensor(name, shape, dtype, _bits(dtype), offset, position=position)

    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create a file with this metadata, for these tensors in this order.

        The header lists the tensors by position.
        """
        header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
        for tensor in sorted(tensors, key=lambda tensor: tensor.position):
            header[tensor.name] = {"dtype": tensor.dtype, "shape": [*tensor.shape]}
        start = 0
        for tensor in tensors:
            header[tensor.name]["data_offsets"] = [start, start + tensor.nbytes]
            start += tensor.nbytes
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)  # aligns the data
        return PlainWriter(file, len(text).to_bytes(8, "little") + text, start)


def _bits(dtype: str) -> int:
    """Return the size of an element in bits.

    Examples
    --------
    >>> [_bits(dtype) for dtype in ("BOOL", "U8", "F8_E4M3", "BF16", "C64", "F6_E2M3", "F4")]
    [8, 8, 8, 16, 64, 6, 4]
    """
    number = re.match(r"[A-Z]+(\d+)", dtype)
    return int(number[1]) if number else 8
