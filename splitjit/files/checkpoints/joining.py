"""Join files: plan how the parts of each tensor are put together, and read them as one file.

Parts are joined in the order of their ranks, file by file, by tensor name.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from splitjit._plan.arguments import normalize_axis
from splitjit._plan.rules import CHUNK, LENGTHS, NUM_OUTPUTS, NUM_SECTIONS, Rule
from splitjit.errors import SplitError, param, shorten
from splitjit.files.checkpoints import index, record, sharding
from splitjit.files.file_plan import Chooser, FilePlan, SplitFiles, TensorPlan, plan_tensor
from splitjit.files.formats.base import FileWriter, Metadata, Source, Tensor, TensorFile
from splitjit.files.patterns import Choice
from splitjit.files.staging import Staged
from splitjit.files.tiles import assemble, open_sources


def read_whole(given: Sequence[index.Checkpoint], choose: Chooser, said: bool) -> index.Checkpoint:
    """Return the checkpoint that parts make up, with a `JoinedFile` for each of its files.

    Parameters
    ----------
    given : sequence of index.Checkpoint
        The parts in order. The order does not matter if they have records or numbers.
    choose : callable
        How parts without records were split.
    said : bool
        Whether the user says it.

    Raises
    ------
    SplitError
        If nothing says how the parts were split, or if they do not fit together.
    """
    parts, records = record.order(given)
    first, files = parts[0], []
    if not records and not said:
        named = any(any(file.tensors) for file in first.files)
        rule = "these parts do not say how they were split: give "
        rule += "the patterns or the \0tp_plan\0 of the split, or " if named else ""
        rule += "\0axis=\0, the axis along which each tensor was split"
        raise SplitError("join", str(first.path), rule)
    _check_inputs(parts)
    holders = [
        {_key(file, i, name): file for i, file in enumerate(part.files) for name in file.tensors}
        for part in parts
    ]
    for part, holder in zip(parts, holders, strict=True):
        for key in sorted(holders[0].keys() ^ holder.keys()):
            lacking = part if key in holders[0] else first
            received = f"{lacking.path} without {shorten(key[1])}"
            raise SplitError("join", received, "all parts must hold the same tensors")
    for i, like in enumerate(first.files):
        own = records.get(like)
        tensors = []
        for name in sorted(like.tensors, key=lambda name: like.verbatim(name).position):
            held = [holder[_key(like, i, name)] for holder in holders]
            how = (own.tensors[name], own.rule) if own else (choose(name, like), None)
            tensors.append(_plan_joined(name, held, *how))
        joined = JoinedFile(like, (own and own.file) or like.path.name, tensors)
        joined.metadata = _metadata(joined.inputs, records)
        files.append(joined)
    made_of = next((own.checkpoint for own in records.values()), None)
    indexed = [file for file in files if file.suffix == ".safetensors"]
    contents = [(file.path.name, [*file.tensors.values()]) for file in indexed]
    needs_index = first.is_folder and [name for name, _ in contents] not in ([], [index.SINGLE])
    if contents and first.index:  # a single file needs an index that has entries of its own
        entries = {*first.index, *first.index.get("metadata", ())}
        needs_index |= not entries <= {"metadata", "weight_map", "total_size"}
    content = index.make(first.index, contents) if needs_index else None
    return replace(first, files=tuple(files), index=content, made_of=made_of, parts=tuple(parts))


def plan_whole(whole: index.Checkpoint, options: sharding.Options) -> SplitFiles:
    """Plan the join of parts: each whole file is written as its only part.

    Raises
    ------
    SplitError
        If `out` is not of the kind of the parts, or would replace one of them.
    """
    first, out = whole.parts[0], Path(options.out or "")
    _check_out(first, out)
    plans = []
    for file in whole.files:
        assert isinstance(file, JoinedFile)
        tensors = [TensorPlan(one, file, None, (), 1) for one in file.tensors.values()]
        target = out / file.path.name if first.is_folder else out
        paths = tuple([part.path for part in file.inputs])
        splits = tuple(file.plans.values())
        plans.append(FilePlan(paths, (target,), tuple(tensors), (), file, joined=splits))
    indexes = [(out / whole.index_name, index.dump(whole.index))] if whole.index else []
    return sharding.plan_writes(whole.parts, plans, indexes, options)


def _key(file: TensorFile, position: int, name: str) -> tuple[int, str]:
    """Return what identifies a tensor of a part: the position of its file, and its name.

    The names in .safetensors files are those of a model, whose tensors may be in other
    files in another part.
    """
    return -1 if file.suffix == ".safetensors" else position, name


def _metadata(parts: Sequence[TensorFile], records: Mapping[TensorFile, record.Record]) -> Metadata:
    """Return the metadata of a joined file, which all parts must share."""
    whole = [records[part].detached(part.metadata) if records else part.metadata for part in parts]
    for part, own in zip(parts, whole, strict=True):
        if own != whole[0]:
            raise record.unlike(parts[0], part, "all parts must have the same metadata")
    return whole[0]


def _check_inputs(parts: Sequence[index.Checkpoint]) -> None:
    same: dict[tuple[str, str], TensorFile] = {}
    for part in parts:
        for file in part.files:
            place = os.path.realpath(file.path.parent), file.path.name  # links may share a blob
            if same.setdefault(place, file) is not file:
                raise record.unlike(same[place], file, "a file must not be joined with itself")
            file.fingerprint()  # to know later whether a change of its ctime changed its contents
        if {file.suffix for file in part.files} != {file.suffix for file in parts[0].files}:
            first = parts[0].files[0]
            raise record.unlike(first, part.files[0], "all parts must have the same format")


def _check_out(part: index.Checkpoint, out: Path) -> None:
    suffix = part.files[0].path.suffix
    if part.is_folder:
        if out.exists() and not out.is_dir():
            raise NotADirectoryError(f"{out} is not a folder; parts that are folders need one")
        if out.suffix == suffix:
            rule = "must name a folder, as the parts are folders"
            raise SplitError("join", param(f"out={out}"), rule)
    elif out.suffix != suffix:
        raise SplitError("join", param(f"out={out}"), f"must end in {suffix}, as the parts do")


# ---- files that exist only as parts ------------------------------------------------------


JoinedTensor = tuple[TensorPlan, Sequence[tuple[TensorFile, Tensor]]]
"""The split of a whole tensor that made its parts, and each part with its file."""


class JoinedFile(TensorFile):
    """A file that exists only as parts, which are joined while it is read.

    A join is the plan of this file as one part, and resharding splits it. So resharding puts no
    whole file on disk, and only a few tiles of each tensor are in memory.

    Parameters
    ----------
    like : TensorFile
        The first part of the file. The joined file has its format.
    name : str
        The name of the whole file.
    tensors : sequence of JoinedTensor
        In the order of their data in the joined file.

    Attributes
    ----------
    plans : dict of str to TensorPlan
        The split of each whole tensor that made the parts.
    """

    def __init__(self, like: TensorFile, name: str, tensors: Sequence[JoinedTensor]) -> None:
        self._like = like
        self.path = like.path.with_name(name)
        self.status, self.suffix = like.status, like.suffix
        self.plans = {plan.name: plan for plan, _ in tensors}
        self.tensors = {name: plan.tensor for name, plan in self.plans.items()}
        self._parts = {plan.name: parts for plan, parts in tensors}
        files = [file for _, parts in tensors for file, _ in parts]
        self.inputs = tuple(dict.fromkeys([like, *files]))

    def sources(self, tensors: Sequence[Tensor]) -> Generator[Source]:
        """Open the parts, and yield the data of each tensor."""
        names = [tensor.name for tensor in tensors]
        with open_sources([part for name in names for part in self._parts[name]]) as opened:
            for name in names:
                held = [(file.path, next(opened[file])) for file, _ in self._parts[name]]
                yield Source(assemble(self.plans[name], held))

    def create(self, file: Staged, tensors: Sequence[Tensor], metadata: Metadata) -> FileWriter:
        """Create a file of the format of the parts."""
        return self._like.create(file, tensors, metadata)


def choice_of_parts(name: str, file: TensorFile) -> Choice | None:
    """Return how a tensor of a `JoinedFile` was split, but not into how many parts."""
    assert isinstance(file, JoinedFile)
    choice = file.plans[name].choice
    return choice and replace(choice, pattern=name, lengths=None, planned=True)


# ---- the plan of one tensor --------------------------------------------------------------


def _plan_joined(
    name: str, files: Sequence[TensorFile], choice: Choice | None, rule: Rule | None
) -> JoinedTensor:
    """Plan how the parts of one tensor are joined.

    Parameters
    ----------
    name : str
    files : sequence of TensorFile
        The file of each part.
    choice : Choice or None
        How the tensor is split; None if it is copied.
    rule : Rule or None
        The rule that the parts record. None if they have no record: then `choice` is the user's.

    Raises
    ------
    SplitError
        If the parts do not fit together.
    """
    if choice and rule is None and not choice.applies(files[0], name):
        choice = None
    try:
        tensors = [one.tensor(name) if choice else one.verbatim(name) for one in files]
        first = tensors[0]
        if choice:
            choice = replace(choice, axis=normalize_axis(choice.axis, first.shape))
        for i, tensor in enumerate(tensors):
            _check_alike(first, tensor, choice.axis if choice else None, i)
        plan = TensorPlan(first, files[0], None, (), len(files))
        if choice:
            lengths = [tensor.shape[choice.axis] for tensor in tensors]
            plan = _plan_parts(first, files[0], choice, lengths, rule)
        plan.runs()
    except SplitError as error:
        where = f" {files[0].path}" + (f", {name}" if name else "")
        raise error.named("join", where) from None
    return plan, [*zip(files, tensors, strict=True)]


def _check_alike(first: Tensor, tensor: Tensor, axis: int | None, i: int) -> None:
    """Check that part `i` differs from part 0 at most in its length along the axis."""
    resized = tensor if axis is None else tensor.resized(axis, first.shape[axis])
    alike = len(tensor.shape) == len(first.shape) and resized.shape == first.shape
    if alike and (tensor.dtype, tensor.fortran_order) == (first.dtype, first.fortran_order):
        return
    described = [
        f"part {n} {one.shape} {one.dtype} in {'Fortran' if one.fortran_order else 'C'} order"
        for n, one in ((0, first), (i, tensor))
    ]
    rest = "; no pattern matches it" if axis is None else f", except along axis {axis}"
    rule = f"must have the same dtype, order and shape in all parts{rest}"
    raise SplitError("join", ", ".join(described), rule)


def _plan_parts(
    first: Tensor, file: TensorFile, choice: Choice, lengths: list[int], own: Rule | None
) -> TensorPlan:
    """Return the split of a whole tensor into parts of these lengths."""
    sections = choice.sections or (sum(lengths),)
    whole = first.resized(choice.axis, sum(sections))
    count, refusal = len(lengths), None
    each = tuple([length // len(sections) for length in lengths])
    tried: list[Rule] = [(NUM_OUTPUTS, count), (NUM_SECTIONS, count), (LENGTHS, each)]
    for rule in tried if own is None else [own]:
        kind, value = rule
        chunk = value if isinstance(value, int) and (kind, choice.lengths) == (CHUNK, None) else 0
        if chunk and {-(-length // chunk) for length in sections} != {count}:
            continue  # a stranger's record may ask for more parts than fit in memory
        try:
            plan = plan_tensor(whole, file, choice, rule)
        except SplitError as error:
            refusal = error
            continue
        if [shape[choice.axis] for shape in plan.part_shapes] == lengths:
            return plan
    reason = "no number of equal parts gives these lengths, and the parts record no other rule"
    if sum(lengths) < sum(sections):
        reason = "parts are missing: all parts of the split are needed"
    if own is not None:
        reason = "the record of the parts says otherwise" + (f": {refusal.rule}" if refusal else "")
    elif choice.lengths is not None:
        reason = f"must be {list(choice.lengths)}"
    raise SplitError("join", f"lengths {lengths} of sections {sections}", reason)
