"""Names of parts: ``FILE.0.npy``, ``rank-0/FILE.npy``, or a name that the user gives."""

from __future__ import annotations

import re
import string
from pathlib import Path

from splitjit.errors import SplitError, shorten
from splitjit.files.checkpoint import Checkpoint
from splitjit.files.formats.base import TensorFile
from splitjit.files.splitting import Namer

_FIELDS = {"rank", "part", "stem"}


def namer(name: str | None, layout: str, out: Path | None) -> Namer:
    """Return a function that gives the path of each part.

    Parameters
    ----------
    name : str or None
        A name with fields, or None for the name that the layout gives.
    layout : {"files", "ranks"}
    out : Path or None
        The folder of the parts. By default, the folder of each file.

    Returns
    -------
    callable

    Raises
    ------
    SplitError
        If the name has unknown fields, or gives all parts the same name.
    """
    if name is not None:
        _check_template(name, layout)
    template = name or ("{stem}{suffix}" if layout == "ranks" else "{stem}.{rank}{suffix}")

    def name_part(one: Checkpoint, file: TensorFile, rank: int) -> Path:
        fields = {
            "rank": rank,
            "part": one.files.index(file),
            "stem": file.path.name.removesuffix(file.suffix),
            "suffix": file.suffix,
        }
        made = template.format(**fields)
        if name is not None and not made.endswith(file.suffix):
            rule = f"the parts of {file.path} must have a name that ends in {file.suffix}"
            raise SplitError("files", f"name={name!r}", rule)
        folder = one.folder if out is None else out
        return folder / f"rank-{rank}" / made if layout == "ranks" else folder / made

    return name_part


def _check_template(name: str, layout: str) -> None:
    """Check that a name has only known fields, and that it gives parts different names."""
    try:
        parsed = [*string.Formatter().parse(name)]
    except (ValueError, TypeError):
        parsed = [("", "", "", "")]
    names = {field for _, field, _, _ in parsed if field is not None}
    plain = all(re.fullmatch("(0?[1-9]d?)?", spec or "") for _, _, spec, _ in parsed)
    plain = plain and not any(field == "stem" and "d" in (s or "") for _, field, s, _ in parsed)
    plain = plain and not any(conversion for _, _, _, conversion in parsed)
    if not plain or not names <= _FIELDS or any(c in "/\\" for c in name):
        rule = "must be a file name with the fields {rank}, {part} or {stem}, and no others"
    elif layout == "files" and "rank" not in names:
        rule = "must contain {rank}, so that parts have different names"
    else:
        return
    raise SplitError("files", f"name={shorten(name)}", rule)
