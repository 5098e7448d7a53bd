"""The file formats: each is a subclass of `TensorFile`.

To add a format, write its subclass of `TensorFile` and list the class in `FORMATS`.
"""

import stat
from pathlib import Path

from splitjit.errors import SplitError
from splitjit.files.formats.base import TensorFile, refusal
from splitjit.files.formats.npy import Npy, Npz
from splitjit.files.formats.safetensors import Safetensors

FORMATS: tuple[type[TensorFile], ...] = (Npy, Npz, Safetensors)


def read(path: Path) -> TensorFile:
    """Read the header of a file, in the format that its suffix names.

    A .npy file may have any suffix that is not one of another format.

    Parameters
    ----------
    path : Path

    Returns
    -------
    TensorFile

    Raises
    ------
    SplitError
        If the file does not have this format or is truncated, or if the format
        needs a package that is not installed.
    OSError
        If the file cannot be read.
    """
    check_regular(path)
    kind = {kind.suffix: kind for kind in FORMATS}.get(path.suffix, Npy)
    with open(path, "rb") as file:
        is_named = kind.suffix == path.suffix or file.read(6) == b"\x93NUMPY"
    if not is_named:
        rule = "only .npy, .npz and .safetensors files can be read: load tensors of other formats "
        rule += "with their own package, as by torch.load(path, weights_only=True), and save them "
        rule += "with safetensors"
        raise SplitError("files", str(path), rule)
    try:
        return kind(path)
    except (MemoryError, SplitError):
        raise
    except Exception as error:  # a parser may raise anything on arbitrary bytes
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise refusal(path, kind.suffix, error) from error


def check_regular(path: Path) -> None:
    """Check that a path is a regular file: reading a pipe would wait for a writer.

    Raises
    ------
    OSError
        If the file does not exist, or if it is not a regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is not a regular file")
