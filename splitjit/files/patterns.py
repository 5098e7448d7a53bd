"""Which tensors are split, and how: the patterns of `tensors`.

========================  ==========================================================
``PATTERN``               split along the default axis
``PATTERN=AXIS``          split along this axis
``PATTERN=AXIS:8,2,2``    sections of lengths 8, 2 and 2 along the axis; the rule
                          splits each section, and part i holds piece i of each one
``PATTERN=AXIS:8,2,2@2``  the same, but no cut goes through a head of length 2. If a
                          section has fewer heads than there are parts, several parts
                          hold the same head. ``AXIS:8,6@3,2@2`` gives each section its own
``PATTERN=AXIS/3,5``      parts of lengths 3 and 5, instead of the rule; one may be -1, the rest
========================  ==========================================================
"""

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

from splitjit.errors import SplitError, SplitTypeError, shorten
from splitjit.files.formats.base import TensorFile

_LENGTH = " *-?[0-9]{1,18} *"
_SECTION = " *[0-9]{1,18} *(?:@[1-9][0-9]{0,17})?"
_AXIS = re.compile(
    f"=(-?[0-9]{{1,18}})(?:/({_LENGTH}(?:,{_LENGTH})*)|:({_SECTION}(?:,{_SECTION})*))?$"
)


@dataclass(frozen=True, slots=True)
class Choice:
    """How to split the tensors whose names match a pattern.

    Attributes
    ----------
    pattern : str
        An `fnmatch` pattern.
    axis : int
    sections : tuple of int, optional
        Lengths of the sections along the axis. By default, one section.
    lengths : tuple of int, optional
        Lengths of the parts. By default, the rule gives them.
    head : int or tuple of int, optional
        Length of a head along the axis, or one for each section, 0 if it has no heads. No cut
        goes through a head.
    shared : bool, default False
        Whether several parts may hold the same head, if there are fewer heads than parts.
    planned : bool, default False
        Whether this comes from a model's plan or a record, not a pattern.
    block : str, optional
        For refusals: what a cut through a head would break, the blocks of a quantised
        weight.
    """

    pattern: str
    axis: int
    sections: tuple[int, ...] | None = None
    lengths: tuple[int, ...] | None = None
    head: int | tuple[int, ...] | None = None
    shared: bool = False
    planned: bool = False
    block: str | None = None

    @property
    def heads(self) -> tuple[int, ...]:
        """Length of the heads of each section, 0 if it has none."""
        if isinstance(self.head, tuple):
            return self.head
        return (self.head or 0,) * len(self.sections or (0,))

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches a name."""
        return fnmatch.fnmatchcase(name, self.pattern)

    def text(self) -> str:
        """Return the text of this choice after a pattern, which `parse` reads."""
        if self.lengths is not None:
            return f"={self.axis}/{','.join(map(str, self.lengths))}"
        sections = self.sections or ()
        if not self.head and len(sections) < 2:
            return f"={self.axis}"
        heads = (*[0] * (len(sections) - 1), self.head or 0)  # one at the end stands for all
        pairs = zip(sections, self.head if isinstance(self.head, tuple) else heads, strict=True)
        items = [f"{length}" + f"@{head}" * bool(head) for length, head in pairs]
        return f"={self.axis}:{','.join(items)}"

    def applies(self, file: TensorFile, name: str) -> bool:
        """Return whether a tensor that the pattern matches is split.

        A 0-D tensor, or a member that is no array, is copied, unless the pattern is its full name.
        """
        return name in ("", self.pattern) or file.has_axes(name)


def parse(text: str, axis: int) -> Choice:
    """Parse a pattern. What is no axis with lengths is part of the name; see `check_matches`.

    Parameters
    ----------
    text : str
    axis : int
        The axis, if the text has none.

    Returns
    -------
    Choice

    Raises
    ------
    SplitTypeError
        If `text` is not a string.

    Examples
    --------
    >>> parse("*.qkv_proj.weight=0:4096,1024,1024", 0).sections
    (4096, 1024, 1024)
    >>> parse("*.qkv_proj.weight=0:4096,1024,1024@128", 0).head
    128
    >>> parse("*.qkv_proj.weight=0:768,96@24,64@16", 0).head
    (0, 24, 16)
    >>> parse("*.norm[0]", -1).axis
    -1
    """
    if not isinstance(text, str):
        raise SplitTypeError("files", f"tensors[...]={shorten(text)}", "must be a string")
    found = _AXIS.search(text)
    if not found:
        return Choice(text, axis)
    pattern, axis = text[: found.start()], int(found[1])
    if not found[3]:
        lengths = tuple(map(int, found[2].split(","))) if found[2] else None
        return Choice(pattern, axis, None, lengths)
    items = [item.partition("@") for item in found[3].split(",")]
    sections = tuple([int(length) for length, _, _ in items])
    heads = tuple([int(head or 0) for _, _, head in items])
    head = heads if any(heads[:-1]) else heads[-1] or None  # one at the end stands for all
    return Choice(pattern, axis, sections, None, head, shared=head is not None)


def check_matches(choices: Iterable[Choice], names: list[str]) -> None:
    """Check that each pattern matches the name of a tensor.

    Raises
    ------
    SplitError
        If a pattern matches no name.
    """
    for choice in choices:
        if not any(choice.matches(name) for name in names):
            pattern, equals, axis = choice.pattern.rpartition("=")
            if equals and fnmatch.filter(names, pattern):
                rule = "must be an integer, with :SECTIONS, :SECTIONS@HEAD or /LENGTHS if needed, "
                rule += "of at most 18 digits each"
                raise SplitError("split", f"axis {shorten(axis)} of pattern {pattern!r}", rule)
            rule = f"must match the name of a tensor; {_nearest(choice.pattern, names)}"
            raise SplitError("split", f"pattern {choice.pattern!r}", rule)


def _nearest(pattern: str, names: list[str]) -> str:
    """Say which names are nearest a pattern, and how many others there are."""
    import difflib

    known = list(dict.fromkeys(filter(None, names)))
    if not known:
        return "the tensor of a .npy file has no name"
    some = difflib.get_close_matches(pattern.replace("*", ""), known[:1000], 5, cutoff=0)
    more = f", and {len(known) - len(some)} more" if len(known) > len(some) else ""
    return f"these files hold {', '.join(map(shorten, some))}{more}"
