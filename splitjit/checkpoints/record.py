"""Records: what each part of a split says about itself.

Each .safetensors file has its record in its metadata, under the key ``splitjit``. Each folder
of a rank has a manifest, `MANIFEST`, with the records of all files in it; files of the other
formats have their record only there. A record is JSON:

    {"version": 1, "checkpoint": "0123456789abcdef", "rank": 0, "count": 2,
     "rule": {"num_splits": 2}, "file": "model.safetensors",
     "tensors": {"qkv.weight": {"axis": 0, "sections": [4096, 1024, 1024], "head": 128},
                 "norm.weight": null}}

The digest `checkpoint` tells checkpoints apart by names, sizes, times and contents of their files.
The sections are the lengths along the axis of the whole tensor; null is a tensor of which
each part holds a copy. A file may come from anyone, so a record is checked like a header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from splitjit._plan.rules import PARAMETERS, Rule
from splitjit.files.patterns import Choice

KEY = "splitjit"
"""The key of a record in the metadata of a .safetensors file."""

MANIFEST = "splitjit.json"
"""The name of the manifest of a folder."""

VERSION = 1
"""The version of records."""

OF_A_FILE = ("file", "order", "tensors")
"""What a manifest says of each file."""


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
        The name of the whole file, or None if the part has the tensors of several files.
    bare : bool, default False
        Whether the whole file has no metadata.
    outer : str, optional
        The record of the whole file, if it is itself a part of another split.
    order : tuple of int, optional
        The positions of the tensors in the header, in the order of their data, if the
        header of the whole file has another order than its data.
    """

    checkpoint: str
    rank: int
    count: int
    rule: Rule
    tensors: Mapping[str, Choice | None]
    file: str | None
    bare: bool = False
    outer: str | None = None
    order: tuple[int, ...] | None = None

    def dump(self) -> dict[str, Any]:
        """Return the record as JSON."""
        more = {"file": self.file, "bare": self.bare, "outer": self.outer, "order": self.order}
        return {
            **_dump_split(self),
            **{key: value for key, value in more.items() if value},
            "tensors": {name: _dump_choice(choice) for name, choice in self.tensors.items()},
        }

    def attached(self, metadata: Mapping[str, str] | None, rank: int) -> dict[str, str]:
        """Return the metadata of a part, from the metadata of the whole file."""
        own = replace(
            self, rank=rank, bare=metadata is None, outer=(metadata or {}).get(KEY)
        ).dump()
        return {**(metadata or {}), KEY: json.dumps(own, separators=(",", ":"))}

    def detached(self, metadata: Mapping[str, str] | None) -> dict[str, str] | None:
        """Return the metadata of the whole file, from the metadata of a part."""
        if self.bare or metadata is None:
            return None
        whole = {key: value for key, value in metadata.items() if key != KEY or self.outer}
        return {**whole, KEY: self.outer} if self.outer else whole

    @property
    def split(self) -> tuple[object, ...]:
        """What all files of one rank share."""
        return self.checkpoint, self.rank, self.count, self.rule


def _dump_split(record: Record) -> dict[str, Any]:
    kind, value = record.rule
    return {
        "version": VERSION,
        "checkpoint": record.checkpoint,
        "rank": record.rank,
        "count": record.count,
        "rule": {PARAMETERS[kind]: value},
    }


def _dump_choice(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    more = {"lengths": choice.lengths, "head": choice.head, "shared": choice.shared}
    given = {key: value for key, value in more.items() if value}
    return {"axis": choice.axis, "sections": choice.sections, **given}


def manifest(records: Mapping[str, Record], rank: int) -> bytes:
    """Return the manifest of a folder, from the records of the files in it."""
    first = next(iter(records.values()))
    content: dict[str, Any] = {**_dump_split(replace(first, rank=rank)), "files": {}}
    for name, record in records.items():
        listed = record.dump()
        content["files"][name] = {key: listed[key] for key in OF_A_FILE if key in listed}
    return (json.dumps(content, indent=1) + "\n").encode()
