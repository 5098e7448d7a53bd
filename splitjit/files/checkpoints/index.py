"""Checkpoints of several files: Hugging Face's index, and folders that have one.

An index is a JSON object. Its ``weight_map`` names the file of each tensor, in the same
folder. Its ``metadata`` has the size of all their data, ``total_size``.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splitjit.errors import SplitError, SplitTypeError, shorten
from splitjit.files import formats
from splitjit.files.formats.base import Tensor, TensorFile
from splitjit.files.staging import StrPath

SUFFIX = ".safetensors.index.json"
"""Suffix of index names."""

NAME = f"model{SUFFIX}"
"""The name of an index that splitjit writes for files that have no index."""

SINGLE = NAME.removesuffix(".index.json")
"""The name of the only file of a checkpoint without an index."""

MANIFEST = "splitjit.json"
"""The name of the manifest of a folder of parts, see `splitjit.files.checkpoints.record`."""

_MOST = 100_000_000
"""Size limit of an index. The safetensors package has the same limit for headers."""


Paths = StrPath | Iterable[StrPath]
"""One path, or several, as users give them."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An input: the files that hold its tensors, and the index if there is one.

    Attributes
    ----------
    path : Path
        The path that the user gave: a file, an index or a folder.
    files : tuple of TensorFile
    index : dict, optional
        The content of the index.
    index_name : str
    made_of : str, optional
        The digest of the whole checkpoint, if this one exists only as parts.
    parts : tuple of Checkpoint
        These parts.
    """

    path: Path
    files: tuple[TensorFile, ...]
    index: dict[str, Any] | None = None
    index_name: str = NAME
    made_of: str | None = None
    parts: tuple[Checkpoint, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder that holds the files, or the links to them."""
        return self.path if self.path.is_dir() else self.path.parent

    @property
    def is_folder(self) -> bool:
        """Whether this is a folder, or an index that stands for one."""
        return self.index is not None or self.path.is_dir()


def read(path: Path) -> Checkpoint:
    """Read the headers of a file, of the files of an index, or of a folder with an index.

    Raises
    ------
    SplitError
        If a file is not of its format, or if an index and its files do not agree.
    OSError
        If a file cannot be read.
    """
    found = _main_files(path) if path.is_dir() else [path]
    if len(found) != 1:
        held = ", ".join([one.name for one in found[:3]]) or "no index"
        rule = f"a folder must hold {NAME} or {SINGLE}; this one holds {held}"
        raise SplitError("files", str(path), rule, hint="or name the files")
    (main,) = found
    manifest = main.with_name(MANIFEST)
    whole = path.is_dir() or main.name.endswith(SUFFIX)
    listed = parse_manifest(manifest)["files"] if whole and manifest.exists() else {}
    content, names = None, [] if main == manifest else [main.name]
    if main.name.endswith(SUFFIX):
        content = _parse(main)
        names = sorted({*content["weight_map"].values()})
    # A manifest lists files that an index cannot name, too.
    files = tuple([formats.read(main.with_name(name)) for name in dict.fromkeys([*names, *listed])])
    if content is None:
        return Checkpoint(path, files)
    _check_files(main, content["weight_map"], files[: len(names)])
    return Checkpoint(path, files, content, main.name)


def _main_files(folder: Path) -> list[Path]:
    """Return the files that may say what a folder holds, of the first kind that it has."""
    kinds = (NAME, f"*{SUFFIX}", SINGLE, MANIFEST)
    return next((found for kind in kinds if (found := sorted(folder.glob(kind)))), [])


_PART = re.compile(r"(.+)\.(\d+)(\.npy|\.npz|\.safetensors)", re.DOTALL)
"""The name of a part: the file of which it is a part, its number, and the suffix."""


def as_paths(paths: Paths) -> list[Path]:
    """Return paths as a list; one path is a list of one."""
    given: list[Any] = [paths]
    if isinstance(paths, Iterable) and not isinstance(paths, (str, bytes, os.PathLike)):
        given = [*paths]
    for path in given:
        if not isinstance(path, (str, os.PathLike)):
            raise SplitTypeError("files", shorten(path), "must be a path: a string or a Path")
        if "\0" in str(path):
            raise SplitError("files", shorten(str(path)), "a path must not hold a null character")
        if isinstance(path, str) and re.match(r"[a-z][a-z0-9+.-]+://", path):
            rule = "must be a local path; fetch the file first, with the tool of its storage"
            raise SplitError("files", shorten(path), rule)
    if not given:
        raise SplitError("files", "paths=[]", "must name a file")
    return [Path(path) for path in given]


def read_parts(paths: Paths) -> list[Checkpoint]:
    """Read files, indexes and folders, of which some hold the parts of a split."""
    return [read(part) for path in as_paths(paths) for part in _parts_in(path)]


def _parts_in(path: Path) -> list[Path]:
    """Return the folders of ranks in a folder, or the parts of one file, in their order.

    Any other path stands for itself.
    """
    if not path.is_dir() or _main_files(path):
        return [path]
    ranks = [one for one in path.iterdir() if one.is_dir() and _main_files(one)]
    parts = [found for one in path.iterdir() if (found := _PART.fullmatch(one.name))]
    if ranks and parts:
        rule = f"it holds folders such as {ranks[0].name} and parts such as {parts[0][0]}: name "
        raise SplitError("files", str(path), rule + "those to read")
    return sorted(ranks, key=_numbers) or _parts_of_a_file(path, parts) or [path]


def _parts_of_a_file(folder: Path, names: list[re.Match[str]]) -> list[Path]:
    """Return the parts in a folder in their order, if their names say that they are of one file."""
    if len({(name[1], name[3]) for name in names}) != 1:
        return []
    parts = {int(name[2]): folder / name[0] for name in names}
    if len(parts) != len(names):
        raise SplitError("files", str(folder), "it holds parts of one file with the same number")
    for number in range(max(parts)):
        if number not in parts:
            name = f"{names[0][1]}.{number}{names[0][3]}"
            raise SplitError("files", str(folder), f"it holds parts of one file, but not {name}")
    return [parts[number] for number in sorted(parts)]


def _numbers(path: Path) -> list[tuple[str, int]]:
    """Return a key that sorts rank-2 before rank-10."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", str(path))]


def by_numbers(parts: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return parts in the order of their numbers, or as given if their names differ otherwise."""
    keys = [_numbers(part.path.absolute()) for part in parts]
    alike = len({tuple([text for text, _ in key]) for key in keys}) == 1
    return [parts[i] for i in sorted(range(len(parts)), key=keys.__getitem__ if alike else None)]


def parse_json(path: Path, what: str, text: str | bytes | None = None) -> dict[str, Any]:
    """Parse a JSON object, from a file or from a text in it.

    Parameters
    ----------
    path : Path
    what : str
        What the file or the text should be, for the refusal.
    text : str or bytes, optional
        By default, the content of the file.

    Raises
    ------
    SplitError
        If this is not a JSON object.
    """
    if text is None:
        formats.check_regular(path)
        with open(path, "rb") as file:
            text = file.read(_MOST + 1)
    if len(text) > _MOST:
        raise _refusal(path, what, f"it has more than {_MOST} bytes")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refusal(path, what, str(error)) from error
    if not isinstance(content, dict):
        raise _refusal(path, what, "it must be an object")
    return content


def _refusal(path: Path, what: str, rule: str) -> SplitError:
    return SplitError("files", str(path), f"not {what}: {rule}")


def _parse(path: Path) -> dict[str, Any]:
    """Read an index, and check what needs no other file."""
    what = "an index of .safetensors files"
    content = parse_json(path, what)
    if not isinstance(content.get("metadata", {}), dict):
        raise _refusal(path, what, "its metadata must be an object")
    weights = content.get("weight_map")
    if not isinstance(weights, dict) or not weights:
        raise _refusal(path, what, "it has no weight_map")
    for tensor, name in weights.items():
        if not is_file_name(name, ".safetensors"):
            where = f"{shorten(name)}, the file of {shorten(tensor)}"
            rest = f"{where}, must be the name of a .safetensors file beside the index"
            raise _refusal(path, what, rest)
    return content


def parse_manifest(path: Path) -> dict[str, Any]:
    """Read a manifest, and check that it lists files beside it."""
    if path.is_file() and not path.stat().st_size:
        rule = "a split did not finish here: the same command with force=True, or --force, does"
        raise SplitError("files", str(path), f"empty, as {rule}")
    content = parse_json(path, "a manifest of parts")
    files = content.get("files")
    if not isinstance(files, dict) or not files or not all(map(is_file_name, files)):
        raise _refusal(path, "a manifest of parts", "its files must be names of files beside it")
    if not all(isinstance(held, dict) for held in files.values()):
        raise _refusal(path, "a manifest of parts", "its files must be objects")
    return content


def is_file_name(name: object, suffix: str = "") -> bool:
    """Return whether a value from a file is the name of a file, and not a path elsewhere."""
    if not isinstance(name, str) or any(c in "/\\:\0" for c in name):
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # no file has this name
        return False
    return name.endswith(suffix) and name not in ("", ".", "..", suffix)


def _check_files(path: Path, weights: dict[str, str], files: Sequence[TensorFile]) -> None:
    """Check that each file holds exactly the tensors that the index says."""
    for file in files:
        listed = {tensor for tensor, name in weights.items() if name == file.path.name}
        for tensor in sorted(listed ^ file.tensors.keys()):
            what = "lacks this tensor" if tensor in listed else "holds it, unlike the index"
            raise SplitError("files", f"{path}: {shorten(tensor)}", f"{file.path.name} {what}")


def digest(files: Iterable[TensorFile]) -> str:
    """Return a digest of the contents of a checkpoint's files: their sizes and fingerprints."""
    import hashlib

    known = [(read.status.st_size, read.fingerprint()) for one in files for read in one.inputs]
    return hashlib.sha256(repr(known).encode()).hexdigest()[:16]


def make(like: dict[str, Any] | None, files: list[tuple[str, list[Tensor]]]) -> dict[str, Any]:
    """Return the content of an index.

    Parameters
    ----------
    like : dict or None
        An index whose tensor order and other entries the new index keeps, such as the
        ``total_parameters`` of the whole model. Tensors that it does not name follow.
    files : list of (str, list of Tensor)
        The name of each file, with its tensors.
    """
    weights: dict[str, str] = {}
    for name, tensors in files:
        for tensor in tensors:
            if tensor.name in weights:
                received = f"{shorten(tensor.name)} in {weights[tensor.name]} and {name}"
                raise SplitError("files", received, "only one file of a rank may hold a tensor")
            weights[tensor.name] = name
    total = sum(tensor.nbytes for _, tensors in files for tensor in tensors)
    like = like or {"metadata": {}, "weight_map": sorted(weights)}
    metadata = {**like.get("metadata", {}), "total_size": total}
    held = {name: weights[name] for name in [*like["weight_map"], *weights] if name in weights}
    return {**like, "metadata": metadata, "weight_map": held}


def dump(content: dict[str, Any]) -> bytes:
    """Format an index as transformers does."""
    return (json.dumps(content, indent=2) + "\n").encode()
