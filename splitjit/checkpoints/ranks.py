"""Read the records of parts, check them like headers, and put parts in the order of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import LENGTHS, MAX_PARTS, PARAMETERS, Rule
from splitjit.checkpoints.index import Checkpoint, is_file_name, parse_json
from splitjit.checkpoints.record import KEY, MANIFEST, OF_A_FILE, VERSION, Record
from splitjit.errors import SplitError, shorten
from splitjit.files.formats.base import TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.splitting import num_parts


def read(one: Checkpoint) -> dict[TensorFile, Record]:
    """Return the records of the files of a part; none, if no file has a record.

    Raises
    ------
    SplitError
        If a record is damaged, if the records of a folder do not agree, or if some of
        its files have no record.
    """
    listed = {}
    if one.path.is_dir() and (one.path / MANIFEST).exists():
        listed = read_manifest(one.path / MANIFEST)
    records = {}
    for file in one.files:
        text = (file.metadata or {}).get(KEY)
        own = None if text is None else _parse(file.path, text)
        known = listed.get(file.path.name)
        if own and known and replace(own, bare=False, outer=None) != known:
            raise _damaged(file.path, f"it contradicts {MANIFEST} beside it")
        record = own or known
        if record is not None:
            if record.tensors.keys() != {*file.names}:
                raise _damaged(file.path, "it names other tensors than the file holds")
            records[file] = record
    for first in [*records][:1]:
        for file in one.files:
            if file not in records:
                raise _damaged(file.path, f"it has none, unlike {first.path}")
            if records[file].split != records[first].split:
                raise _damaged(file.path, f"it is of another rank or split than {first.path}")
    return records


def order(parts: Sequence[Checkpoint]) -> tuple[list[Checkpoint], list[dict[TensorFile, Record]]]:
    """Return the parts in the order of their ranks, with their records.

    Returns
    -------
    list of Checkpoint
        The parts as given, if they have no records.
    list of dict
        The records of each part, or nothing.

    Raises
    ------
    SplitError
        If a rank is missing or given twice, or if the parts are of different splits.
    """
    records = [read(part) for part in parts]
    if not any(records):
        return [*parts], []
    first = [*records[0].values()]
    by_rank: dict[int, int] = {}
    for i, (part, own) in enumerate(zip(parts, records, strict=True)):
        received = f"{parts[0].path} and {part.path}"
        if bool(own) != bool(first):
            raise SplitError("join", received, "only one of them says how it was split")
        if _without_ranks(own) != _without_ranks(records[0]):
            raise SplitError("join", received, "they are parts of two different splits")
        rank = next(iter(own.values())).rank
        if rank in by_rank:
            received = f"{parts[by_rank[rank]].path} and {part.path}"
            raise SplitError("join", received, f"both are rank {rank} of {first[0].count}")
        by_rank[rank] = i
    count = first[0].count
    missing = [str(rank) for rank in range(min(count, len(parts) + 9)) if rank not in by_rank]
    if missing:
        rule = f"{_ranks(missing)} missing; give all parts of the split"
        raise SplitError("join", f"{len(parts)} of {count} ranks", rule)
    ranks = [by_rank[rank] for rank in range(count)]
    return [parts[i] for i in ranks], [records[i] for i in ranks]


def _ranks(missing: list[str]) -> str:
    """Name ranks, as the subject of a sentence.

    Examples
    --------
    >>> _ranks(["1"]), _ranks(["1", "3", "4"])
    ('rank 1 is', 'ranks 1, 3 and 4 are')
    """
    if len(missing) == 1:
        return f"rank {missing[0]} is"
    if len(missing) > 8:
        return f"ranks {', '.join(missing[:8])} and others are"
    return f"ranks {', '.join(missing[:-1])} and {missing[-1]} are"


def _without_ranks(records: dict[TensorFile, Record]) -> list[Record]:
    return [replace(one, rank=0) for one in records.values()]


def _damaged(path: Path, rule: str) -> SplitError:
    return SplitError("files", str(path), f"the record of its split is wrong: {rule}")


_FIELDS = {"version", "checkpoint", "rank", "count", "rule"}
_OF_A_CHOICE = {"axis", "sections", "lengths", "head", "shared"}
"""The fields of records."""


def read_manifest(path: Path) -> dict[str, Record]:
    """Read a manifest: the record of each file in its folder.

    Raises
    ------
    SplitError
        If it is not a manifest.
    """
    content = parse_json(path, "a manifest of parts")
    files = content.get("files")
    if content.keys() != _FIELDS | {"files"} or not isinstance(files, dict) or not files:
        raise _damaged(path, "it has other fields than a manifest")
    made = {}
    for name, held in files.items():
        if not is_file_name(name) or not isinstance(held, dict) or not held.keys() <= {*OF_A_FILE}:
            raise _damaged(path, f"{shorten(name)} is no file of parts")
        made[name] = _record(path, {**content, **held})
    return made


def _parse(path: Path, text: str) -> Record:
    """Parse the record of a file."""
    content = parse_json(path, "a record of a split", text)
    if not content.keys() <= _FIELDS | {"bare", "outer", *OF_A_FILE}:
        raise _damaged(path, "it has fields that no record has")
    return _record(path, content)


def _record(path: Path, content: dict[str, Any]) -> Record:
    """Check all values of a record."""
    version, checkpoint = content.get("version"), content.get("checkpoint")
    rank, count, tensors = content.get("rank"), content.get("count"), content.get("tensors")
    if type(version) is int and version > VERSION:
        raise _damaged(path, f"it has version {shorten(version)}; this splitjit reads {VERSION}")
    whole, outer = content.get("file"), content.get("outer")
    order = _lengths(content["order"]) if "order" in content else None
    if not (
        type(version) is int
        and version == VERSION
        and isinstance(checkpoint, str)
        and len(checkpoint) == 16
        and {*checkpoint} <= {*"0123456789abcdef"}
        and _is_length(rank)
        and _is_length(count)
        and rank < count <= MAX_PARTS
        and isinstance(tensors, dict)
        and (whole is None or is_file_name(whole))
        and type(content.get("bare", False)) is bool
        and (outer is None or isinstance(outer, str))
        and ("order" not in content or sorted(order or ()) == [*range(len(tensors))])
    ):
        raise _damaged(path, "a value is missing, or is not of its kind")
    choices = {name: _choice(path, name, value) for name, value in tensors.items()}
    rule = _rule(path, content.get("rule"))
    rules = [(LENGTHS, choice.lengths) for choice in choices.values() if choice and choice.lengths]
    if any(num_parts(one) not in (None, count) for one in [rule, *rules]):
        raise _damaged(path, f"its rule does not make {count} parts")
    bare = content.get("bare", False)
    return Record(checkpoint, rank, count, rule, choices, whole, bare, outer, order)


def _is_length(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


def _lengths(value: object) -> tuple[int, ...] | None:
    """Return lengths as a tuple, or None if the value is not a list of lengths."""
    good = isinstance(value, list) and all(map(_is_length, value))
    return tuple(value) if good and isinstance(value, list) else None


def _rule(path: Path, value: object) -> Rule:
    if isinstance(value, dict) and len(value) == 1:
        ((name, number),) = value.items()
        numbers = number if isinstance(number, list) else [number]
        if name in PARAMETERS.values() and all(type(one) is int for one in numbers):
            try:
                return rule_of(**{"split": None, name: number})
            except SplitError as error:
                raise _damaged(path, str(error)) from None
    raise _damaged(path, f"{shorten(value)} is no rule")


def _choice(path: Path, name: str, value: object) -> Choice | None:
    """Check how a tensor is divided."""
    if value is None:
        return None
    if isinstance(value, dict) and value.keys() <= _OF_A_CHOICE:
        axis, sections = value.get("axis"), _lengths(value.get("sections"))
        lengths, head = _lengths(value.get("lengths")), value.get("head")
        shared = value.get("shared", False)
        if (
            _is_length(axis)
            and sections
            and (lengths is not None or "lengths" not in value)
            and (head is None or (_is_length(head) and head > 0))
            and type(shared) is bool
        ):
            return Choice(name, axis, sections, lengths, head, shared, planned=True)
    raise _damaged(path, f"{shorten(value)} does not say how {shorten(name)} is divided")
