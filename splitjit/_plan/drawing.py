"""Drawings of plans: text for the terminal and SVG for notebooks, from one layout.

Each cell is a part, drawn to scale, with its size inside the cell and its offset below.
Cells that are too narrow for their labels are widened, and the drawing says that it is not to
scale. If there is no room for all cells, one dashed cell stands for the parts in the middle.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from splitjit._plan.plan import Plan
from splitjit.errors import describe

_NARROWEST, _WIDEST = 40, 80
"""Limits on a drawing's width in columns. A first, a dashed and a last cell fit in the lower."""

_FEW = 8
"""The most parts drawn if there is no room for all."""

_COLUMN, _LINE, _BAR = 8, 18, 40
"""Pixels in an SVG: width and height of a character with some space, height of a cell."""

_BOX = "┌┬┐└┴┘│─╌"
_ASCII = str.maketrans(_BOX, "++++++|-.")
"""Box characters, and their ASCII replacements for an output that cannot encode them."""


class _Cell(NamedTuple):
    """The cell of one part, or of the parts in the middle that are left out."""

    size: int
    label: str
    start: str
    end: str
    columns: int  # needed by the labels
    left_out: bool
    about: str


def text(plan: Plan) -> str:
    """Draw a plan in box characters, as wide as the terminal but at most 80 columns.

    If the encoding of standard output lacks these characters, the drawing is in ASCII.

    Parameters
    ----------
    plan : Plan
        The plan to draw.

    Returns
    -------
    str
        A few lines, for any number of parts.
    """
    columns = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns))
    cells = _cells(plan, columns)
    widths = _widths(cells, columns - 1)
    lines = _title(plan, columns, _is_to_scale(cells, widths))
    if cells:
        drawn = list(zip(cells, widths, strict=True))
        rules = [("╌" if cell.left_out else "─") * (width - 1) for cell, width in drawn]
        labels = [cell.label.center(width - 1) for cell, width in drawn]
        starts = "".join([cell.start.ljust(width) for cell, width in drawn])
        end = cells[-1].end
        lines += [
            f"┌{'┬'.join(rules)}┐",
            f"│{'│'.join(labels)}│",
            f"└{'┴'.join(rules)}┘",
            starts[: len(starts) + 1 - len(end)] + end,
        ]
    drawing = "\n".join(lines)
    if _can_print(_BOX + "…"):
        return drawing
    return drawing.replace(" … ", "...").translate(_ASCII)


def _can_print(characters: str) -> bool:
    """Return whether the encoding of standard output has these characters."""
    try:
        characters.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (LookupError, UnicodeError):
        return False
    return True


def svg(plan: Plan) -> str:
    """Draw a plan as an SVG element that takes the text color of its page.

    Parameters
    ----------
    plan : Plan
        The plan to draw.

    Returns
    -------
    str
        One element, without ids or styles that could clash with other elements.
    """
    cells = _cells(plan, _WIDEST)
    widths = _widths(cells, _WIDEST * _COLUMN, _COLUMN)
    lines = _title(plan, _WIDEST, _is_to_scale(cells, widths))
    across = max(sum(widths), _COLUMN * max(map(len, lines))) + 2
    bar = _LINE * len(lines)
    down = bar + (_BAR + _LINE if cells else 0) + 2
    drawing = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "role": "img",
            "aria-label": describe(shape=plan.shape, axis=plan.axis, sizes=plan.sizes),
            "width": str(across),
            "height": str(down),
            "viewBox": f"-1 -1 {across} {down}",  # half of an outline lies outside of its box
            "style": "max-width: 100%; height: auto",
            "font-family": "monospace",
            "font-size": "12",
            "fill": "currentColor",
        },
    )
    for i, line in enumerate(lines):
        _write(drawing, line, 0, _LINE * i + 11, "start")
    starts = itertools.accumulate(widths, initial=0)
    for i, (cell, x, width) in enumerate(zip(cells, starts, widths, strict=False)):
        _draw(drawing, cell, x, bar, width, "0.3" if i % 2 else "0.6")
    if cells:
        _write(drawing, cells[-1].end, sum(widths), bar + _BAR + 15, "end")
    return tostring(drawing, encoding="unicode")


def _draw(parent: Element, cell: _Cell, x: int, y: int, width: int, opacity: str) -> None:
    group = SubElement(parent, "g")
    SubElement(group, "title").text = cell.about
    box = {"x": str(x), "y": str(y), "width": str(width), "height": str(_BAR)}
    look = {"fill": "steelblue", "fill-opacity": opacity}
    if cell.left_out:
        look = {"fill-opacity": "0", "stroke-dasharray": "4"}
    SubElement(group, "rect", box | look | {"stroke": "currentColor"})
    _write(group, cell.label, x + width // 2, y + _BAR // 2 + 4, "middle")
    _write(group, cell.start, x, y + _BAR + 15, "start")


def _write(parent: Element, words: str, x: int, y: int, anchor: str) -> None:
    SubElement(parent, "text", {"x": str(x), "y": str(y), "text-anchor": anchor}).text = words


def _title(plan: Plan, columns: int, to_scale: bool) -> list[str]:
    words = describe(shape=plan.shape, axis=plan.axis, parts=len(plan))
    if not to_scale:
        words += ", not\xa0to\xa0scale"  # in one line
    return [line.replace("\xa0", " ") for line in textwrap.wrap(words, columns)]


def _cells(plan: Plan, columns: int) -> list[_Cell]:
    """Return the cells to draw: all parts, or as many first and last parts as fit."""
    room = columns - 1  # the last column is a border
    digits = (room - 7) // 4  # three cells with labels of this length fit, so the search ends
    drawings = (
        [_cell(plan, parts, most) for parts in choice]
        for choice in _choices(len(plan), columns // 4)
        for most in (columns, digits)
    )
    return next(cells for cells in drawings if sum([cell.columns for cell in cells]) <= room)


def _choices(count: int, most: int) -> Iterator[list[range]]:
    """Yield lists of cells as ranges of parts, from many cells to few."""
    if count <= most:
        yield [range(i, i + 1) for i in range(count)]
    for shown in range(min(_FEW, count - 2), 1, -1):
        bounds = [*range((shown + 1) // 2 + 1), *range(count - shown // 2, count + 1)]
        yield [range(*pair) for pair in itertools.pairwise(bounds)]


def _cell(plan: Plan, parts: range, digits: int) -> _Cell:
    """Return the cell of one part, or of several parts that are left out."""
    is_last = parts.stop == len(plan)
    start = plan.offsets[parts.start]
    end = plan.shape[plan.axis] if is_last else plan.offsets[parts.stop]
    size = end - start
    left_out = len(parts) > 1
    if left_out:
        label = "…"
        about = describe(parts=parts, offset=start, size=size)
    else:
        label = _label(size, digits)
        shape = (*plan.shape[: plan.axis], size, *plan.shape[plan.axis + 1 :])
        about = describe(part=parts.start, offset=start, size=size, shape=shape)
    below = _label(start, digits), _label(end, digits)
    columns = max(len(label) + 3, len(below[0]) + 1 + (len(below[1]) if is_last else 0))
    return _Cell(size, label, *below, columns, left_out, about)


def _label(number: int, digits: int) -> str:
    """Return a number as text, rounded to two digits if there is no room for all digits."""
    if number < 10**digits:
        return str(number)
    return f"{number:.1e}" if number < 10**300 else ">1e300"


def _widths(cells: list[_Cell], room: int, unit: int = 1) -> list[int]:
    """Return the widths of the cells: in proportion to size, but wide enough for the labels.

    Each cell has a column for its content, even if the part is empty. The drawing is not
    wider than the narrowest drawing to scale in which all labels fit.
    """
    sizes = [cell.size for cell in cells]
    least = [cell.columns * unit for cell in cells]
    to_scale = [-(-sum(sizes) * n // size) for size, n in zip(sizes, least, strict=True) if size]
    empty = [n for size, n in zip(sizes, least, strict=True) if not size]
    room = min(room, max(to_scale, default=0) + sum(empty))

    scaled, total = set(range(len(cells))), sum(sizes)
    while short := {i for i in scaled if sizes[i] * room <= least[i] * total}:
        scaled -= short
        room -= sum([least[i] for i in short])
        total -= sum([sizes[i] for i in short])
    return [sizes[i] * room // total if i in scaled else least[i] for i in range(len(cells))]


def _is_to_scale(cells: list[_Cell], widths: list[int]) -> bool:
    """Return whether each width differs from its share by less than one column or pixel."""
    total, across = sum([cell.size for cell in cells]), sum(widths)
    return all(
        abs(width * total - cell.size * across) < max(total, 1)
        for cell, width in zip(cells, widths, strict=True)
    )
