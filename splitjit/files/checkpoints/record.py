"""Records: what each part of a split says about itself, and the order of parts by rank.

Each .safetensors file has its record in its metadata, under the key ``splitjit``. Each folder
of a rank has a manifest, `MANIFEST`, with the records of all files in it; files of the other
formats have their record only there. A record is JSON:

    {"version": 1, "checkpoint": "0123456789abcdef", "rank": 0, "count": 2,
     "rule": {"num_splits": 2}, "file": "model.safetensors",
     "tensors": {"qkv.weight": {"axis": 0, "sections": [4096, 1024, 1024], "head": 128},
                 "norm.weight": null}}

`checkpoint` is a digest of the sizes and fingerprints of the checkpoint's files.
The sections are the lengths along the axis of the whole tensor. The head is the length of the heads
in all sections, or a list with one for each, 0 without heads. null marks a tensor that each part
holds whole. A file may come from anyone, so a record is checked like a header.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import LENGTHS, MAX_PARTS, PARAMETERS, Rule
from splitjit.errors import SplitError, shorten
from splitjit.files.checkpoints import index
from splitjit.files.checkpoints.index import MANIFEST, Checkpoint
from splitjit.files.file_plan import num_parts
from splitjit.files.formats.base import Metadata, TensorFile
from splitjit.files.patterns import Choice

KEY = "splitjit"
"""The key of a record in the metadata of a .safetensors file."""

VERSION = 1
"""The version of records."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a part of a file says about itself.

    Attributes
    ----------
    checkpoint : str
        A digest that the parts of one checkpoint share.
    rank, count : int
        The number of the part, from 0, and the number of parts.
    rule : Rule
        The rule that divides each section.
    tensors : mapping of str to Choice or None
        How each tensor is divided; None if each part holds a copy.
    file : str or None
        The name of the whole file, or None if the part merges several files.
    bare : bool, default False
        Whether the whole file has no metadata.
    outer : str, optional
        The record of the whole file, if it is itself a part of another split.
    """

    checkpoint: str
    rank: int
    count: int
    rule: Rule
    tensors: Mapping[str, Choice | None]
    file: str | None = None
    bare: bool = False
    outer: str | None = None

    def dump(self) -> dict[str, Any]:
        """Return the record as JSON."""
        tensors = {
            name: choice and {"axis": choice.axis, "sections": choice.sections, **_given(choice)}
            for name, choice in self.tensors.items()
        }
        return {**_dump_split(self), **_given(self), "tensors": tensors}

    def attached(self, metadata: Metadata, rank: int) -> dict[str, str]:
        """Return the metadata of a part, from the metadata of the whole file."""
        whole = metadata or {}
        own = replace(self, rank=rank, bare=metadata is None, outer=whole.get(KEY))
        return {**whole, KEY: json.dumps(own.dump(), separators=(",", ":"))}

    def detached(self, metadata: Metadata) -> Metadata:
        """Return the metadata of the whole file, from the metadata of a part."""
        if self.bare or metadata is None:
            return None
        if self.outer is not None:
            return {**metadata, KEY: self.outer}
        return {key: value for key, value in metadata.items() if key != KEY}


def _dump_split(record: Record) -> dict[str, Any]:
    """Return what the records of all files of one rank share."""
    kind, value = record.rule
    shared = {key: getattr(record, key) for key in ("checkpoint", "rank", "count")}
    return {"version": VERSION, **shared, "rule": {PARAMETERS[kind]: value}}


def _given(one: Record | Choice) -> dict[str, Any]:
    """Return the optional fields that are not None or False."""
    values = {name: getattr(one, name, None) for name in _OPTIONAL}
    return {name: value for name, value in values.items() if value not in (None, False)}


def manifest(records: Mapping[str, Record], rank: int) -> bytes:
    """Return the manifest of a folder, from the records of the files in it."""
    first = next(iter(records.values()))
    content: dict[str, Any] = {**_dump_split(replace(first, rank=rank)), "files": {}}
    for name, record in records.items():
        own = record.dump()
        content["files"][name] = {key: own[key] for key in ("file", "tensors") if key in own}
    return (json.dumps(content, indent=1) + "\n").encode()


# ---- read, and check like a header ---------------------------------------------------


def read(one: Checkpoint) -> dict[TensorFile, Record]:
    """Return the record of each file of a part, or none if no file has one.

    Raises
    ------
    SplitError
        If a record is damaged, if the records of a folder do not agree, or if some of
        its files have no record.
    """
    path = one.folder / MANIFEST
    listed = read_manifest(path) if one.is_folder and path.exists() else {}
    records = {}
    for file in one.files:
        record, text = listed.get(file.path.name), (file.metadata or {}).get(KEY)
        if text is not None:
            own = _record(file.path, index.parse_json(file.path, "a record of a split", text))
            if record and replace(own, bare=False, outer=None) != record:
                raise _damaged(file.path, f"it contradicts {MANIFEST} beside it")
            record = own
        if record and record.tensors.keys() != {*file.tensors}:
            raise _damaged(file.path, "it names other tensors than the file holds")
        if record:
            records[file] = record
    for first in [*records][:1]:
        for file in one.files:
            if file not in records:
                raise _damaged(file.path, f"it has none, unlike {first.path}")
            if _dump_split(records[file]) != _dump_split(records[first]):
                raise _damaged(file.path, f"it is of another rank or split than {first.path}")
    return records


def order(parts: Sequence[Checkpoint]) -> tuple[list[Checkpoint], dict[TensorFile, Record]]:
    """Return the parts in the order of their ranks, with the record of each file.

    If the parts have no records, they are returned in the order of the numbers in their names.

    Raises
    ------
    SplitError
        If a rank is missing or given twice, or if the parts are of different splits.
    """
    records = [read(part) for part in parts]
    if not any(records):
        return index.by_numbers(parts), {}
    known = [bool(own) for own in records]
    if not all(known):
        rule = "only one of them says how it was split"
        raise unlike(parts[known.index(True)], parts[known.index(False)], rule)
    by_rank: dict[int, Checkpoint] = {}
    alike = [[replace(one, rank=0) for one in own.values()] for own in records]
    for part, own, said in zip(parts, records, alike, strict=True):
        if said != alike[0]:
            raise unlike(parts[0], part, "they are parts of two different splits")
        rank, count = next((one.rank, one.count) for one in own.values())
        if (other := by_rank.setdefault(rank, part)) is not part:
            raise unlike(other, part, f"both are rank {rank} of {count}")
    missing = [f"rank {i}" for i in range(min(count, len(parts) + 8)) if i not in by_rank]
    if missing:
        rule = f"{', '.join(missing[:8])} missing; give all parts of the split"
        raise SplitError("join", f"{len(parts)} of {count} ranks", rule)
    by_file = {file: one for own in records for file, one in own.items()}
    return [by_rank[rank] for rank in range(count)], by_file


def unlike(one: Checkpoint | TensorFile, other: Checkpoint | TensorFile, rule: str) -> SplitError:
    """Return the refusal of two parts that do not fit together."""
    return SplitError("join", f"{one.path} and {other.path}", rule)


def _damaged(path: Path, rule: str) -> SplitError:
    return SplitError("files", str(path), f"the record of its split is wrong: {rule}")


def read_manifest(path: Path) -> dict[str, Record]:
    """Read a manifest: the record of each file in its folder."""
    content = index.parse_manifest(path)
    files = content.pop("files")
    return {name: _record(path, {**content, **held}) for name, held in files.items()}


def _is_length(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _are_lengths(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_length, value))


Kinds = Mapping[str, Callable[[Any], object]]
"""For each field, what its value must be."""

_FIELDS: Kinds = {
    "version": lambda value: type(value) is int and value == VERSION,
    "checkpoint": lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value),
    "rank": _is_length,
    "count": lambda value: _is_length(value) and value <= MAX_PARTS,
    "rule": lambda value: isinstance(value, dict),
    "tensors": lambda value: isinstance(value, dict),
    "file": lambda value: value is None or index.is_file_name(value),
    "bare": lambda value: type(value) is bool,
    "outer": lambda value: value is None or isinstance(value, str),
}
_FIELDS_OF_A_TENSOR: Kinds = {
    "axis": _is_length,
    "sections": lambda value: _are_lengths(value) and value,
    "lengths": _are_lengths,
    "head": lambda value: value is None or _are_lengths(value) or (_is_length(value) and value),
    "shared": lambda value: type(value) is bool,
}
_OPTIONAL = ("file", "bare", "outer", "lengths", "head", "shared")
"""The fields that may be missing."""


def _fits(value: Any, kinds: Kinds) -> bool:
    """Return whether a value is an object with these fields, each of its kind."""
    return (
        isinstance(value, dict)
        and kinds.keys() - _OPTIONAL <= value.keys() <= kinds.keys()
        and all(kinds[key](one) for key, one in value.items())
    )


def _record(path: Path, content: dict[str, Any]) -> Record:
    """Check all values of a record."""
    version = content.get("version")
    if type(version) is int and version > VERSION:
        raise _damaged(path, f"it has version {shorten(version)}; this splitjit reads {VERSION}")
    if not _fits(content, _FIELDS) or content["rank"] >= content["count"]:
        raise _damaged(path, "a field is missing, unknown or not of its kind")
    choices = {name: _choice(path, name, value) for name, value in content["tensors"].items()}
    rule, count = _rule(path, content["rule"]), content["count"]
    rules = [(LENGTHS, choice.lengths) for choice in choices.values() if choice and choice.lengths]
    if any(num_parts(one) not in (None, count) for one in [rule, *rules]):
        raise _damaged(path, f"its rule does not make {count} parts")
    del content["version"]
    return Record(**{**content, "rule": rule, "tensors": choices})


def _rule(path: Path, value: dict[str, Any]) -> Rule:
    try:
        return rule_of(**value)
    except (TypeError, ValueError):  # SplitError is a ValueError
        raise _damaged(path, f"{shorten(value)} is no rule") from None


def _choice(path: Path, name: str, value: Any) -> Choice | None:
    """Check how a tensor is divided."""
    if value is None:
        return None
    if not _fits(value, _FIELDS_OF_A_TENSOR):
        raise _damaged(path, f"{shorten(value)} does not say how {shorten(name)} is divided")
    value |= {key: tuple(one) for key, one in value.items() if isinstance(one, list)}
    choice = Choice(name, planned=True, **value)
    if len(choice.heads) != len(choice.sections or ()):
        raise _damaged(path, f"{shorten(name)} has not as many lengths of heads as sections")
    return choice
