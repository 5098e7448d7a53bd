"""Drawings of plans as text and as SVG: cells are to scale, and fit in the width."""

import itertools
import os
import re
import subprocess
import sys
from fractions import Fraction
from unittest import mock
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitjit import SplitPlan, plan_split
from splitjit._plan import drawing

SVG = "{http://www.w3.org/2000/svg}"
ANCHORS = {"start": 0, "middle": 0.5, "end": 1}

sizes = st.one_of(
    st.lists(st.integers(0, 9), max_size=12),
    st.lists(st.one_of(st.integers(0, 10**4), st.integers(0, 10**30)), max_size=30),
    st.lists(st.sampled_from([0, 1, 10**9, 10**310, 10**4500]), max_size=5),
    st.builds(lambda n, size: [size] * n, st.integers(0, 2000), st.integers(0, 10**12)),
)


@st.composite
def plans(draw):
    lengths = draw(sizes)
    before, after = draw(st.lists(st.integers(0, 10**9), max_size=7)), [3] * draw(st.integers(0, 1))
    return SplitPlan((*before, sum(lengths), *after[: 7 - len(before)]), len(before), lengths)


def in_terminal(columns, plan):
    with mock.patch.dict(os.environ, COLUMNS=str(columns)):
        return str(plan)


def assert_numbers(labels, numbers):
    """Check that each label is its number, or the number rounded to two digits."""
    for label, number in zip(labels, numbers, strict=True):
        if re.fullmatch(r"\d+", label):
            assert label == str(number)
        elif label == ">1e300":
            assert number >= 10**300
        else:
            assert re.fullmatch(r"\d\.\de\+\d+", label)
            assert abs(int(float(label)) - number) <= number * Fraction(6, 100)
            assert number >= 10**8


def assert_drawn(plan, labels, starts, end, widths, room, column):
    """Check the cells of a drawing, read from its output, by the rules of both kinds of drawing."""
    count = len(plan)
    if "…" in labels:
        head = labels.index("…")
        tail = len(labels) - head - 1
        assert 1 <= head <= 4
        assert head - tail in (0, 1)
        assert head + tail < count - 1
        first = [*range(head + 1), *range(count - tail, count)]
    else:
        head = None
        assert len(labels) == count
        first = list(range(count))
    offsets = [*(plan.offsets[i] for i in first), plan.shape[plan.axis]]
    lengths = [b - a for a, b in itertools.pairwise(offsets)]
    assert_numbers([*starts, end], offsets)
    seen = [i for i in range(len(labels)) if i != head]
    assert_numbers([labels[i] for i in seen], [lengths[i] for i in seen])
    # If a cell is wider than its labels need, it is to scale. If there is room, all cells are.
    assert sum(widths) <= room
    least = [
        column * max(len(label) + 3, len(start) + 1)
        for label, start in zip(labels, starts, strict=True)
    ]
    least[-1] = max(least[-1], column * (len(starts[-1]) + 1 + len(end)))
    roomy = sum(widths) + len(widths) < room
    scaled = [i for i, n in enumerate(lengths) if n and (roomy or widths[i] > least[i])]
    if scaled:
        scale = max(Fraction(widths[i], lengths[i]) for i in scaled)
        for width, length, need in zip(widths, lengths, least, strict=True):
            assert need <= width <= max(need, length * scale) < width + 1


@given(plans(), st.integers(1, 200))
def test_text(plan, columns):
    lines = in_terminal(columns, plan).split("\n")
    columns = max(40, min(80, columns))
    assert all(len(line) <= columns for line in lines)
    assert len(lines) <= 40
    if len(plan) == 0:
        assert "┌" not in str(plan)
        return
    *title, top, middle, bottom, below = lines
    words = "".join(title).replace(" ", "")
    words = re.sub(",?nottoscale$", "", words)
    assert words.endswith(f"axis={plan.axis},parts={len(plan)}")
    assert middle[0] + middle[-1] == "││"
    borders = [i for i, character in enumerate(middle) if character == "│"]
    assert [i for i, character in enumerate(top) if character not in "─╌"] == borders
    assert [i for i, character in enumerate(bottom) if character not in "─╌"] == borders
    assert (top[0], top[-1], bottom[0], bottom[-1]) == ("┌", "┐", "└", "┘")
    assert len({*map(len, (top, middle, bottom, below))}) == 1
    labels = [label.strip() for label in middle[1:-1].split("│")]
    assert [{*rule} for rule in top[1:-1].split("┬")] == [
        {"╌" if label == "…" else "─"} for label in labels
    ]
    *starts, end = below.split()
    assert [found.start() for found in re.finditer(r"\S+", below)][:-1] == borders[:-1]
    widths = [b - a for a, b in itertools.pairwise(borders)]
    assert min(widths) > 1
    assert_drawn(plan, labels, starts, end, widths, columns - 1, 1)
    if "…" not in labels:
        says = "nottoscale" in "".join(title).replace(" ", "")
        assert says == any(
            abs(width * sum(plan.sizes) - size * sum(widths)) >= max(1, sum(plan.sizes))
            for width, size in zip(widths, plan.sizes, strict=True)
        )


@given(plans())
def test_svg(plan):
    picture = plan._repr_html_()
    root = ElementTree.fromstring(picture)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert f"axis={plan.axis}, sizes=(" in root.get("aria-label")
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "g", "title", "rect", "text"
    }  # fmt: skip
    assert not any(element.get("id") for element in root.iter())
    groups = root.findall(f"{SVG}g")
    if len(plan) == 0:
        assert not groups
        return
    boxes = [group.find(f"{SVG}rect") for group in groups]
    x, widths = [[int(box.get(name)) for box in boxes] for name in ("x", "width")]
    assert x == [sum(widths[:i]) for i in range(len(widths))]
    labels, starts = [[group.findall(f"{SVG}text")[i].text for group in groups] for i in (0, 1)]
    end = root.findall(f"{SVG}text")[-1]
    assert [box.get("stroke-dasharray") for box in boxes] == [
        "4" if label == "…" else None for label in labels
    ]
    assert int(end.get("x")) == sum(widths)
    assert_drawn(plan, labels, starts, end.text, widths, 640, 8)
    left, top, width, height = map(int, root.get("viewBox").split())
    assert (root.get("width"), root.get("height")) == (str(width), str(height))
    for element in root.iter(f"{SVG}text"):
        across = 8 * len(element.text)
        start = int(element.get("x")) - across * ANCHORS[element.get("text-anchor")]
        assert left <= start <= start + across <= left + width
        assert top + 10 <= int(element.get("y")) <= top + height - 3


def test_tooltips_tell_what_a_call_needs():
    root = ElementTree.fromstring(plan_split((2, 10**5), 1, axis=1)._repr_html_())
    titles = [title.text for title in root.iter(f"{SVG}title")]
    assert len(titles) == 9
    assert titles[1] == "part=1, offset=1, size=1, shape=(2, 1)"
    assert titles[4] == "parts=range(4, 99996), offset=4, size=99992"
    assert titles[-1] == "part=99999, offset=99999, size=1, shape=(2, 1)"


@pytest.mark.parametrize(
    ("plan", "drawn"),
    [
        (SplitPlan((0, 3), 0, []), "shape=(0, 3), axis=0, parts=0"),
        (
            SplitPlan((3,), 0, [3]),
            """
shape=(3,), axis=0, parts=1
┌───┐
│ 3 │
└───┘
0   3""",
        ),
        (
            SplitPlan((6,), 0, [0, 6, 0]),
            """
shape=(6,), axis=0, parts=3,
not to scale
┌───┬───┬───┐
│ 0 │ 6 │ 0 │
└───┴───┴───┘
0   0   6   6""",
        ),
        (
            SplitPlan((10**9,), 0, [1, 10**9 - 1]),
            """
shape=(1000000000,), axis=0, parts=2,
not to scale
┌───┬──────────────────────────────────┐
│ 1 │            999999999             │
└───┴──────────────────────────────────┘
0   1                         1000000000""",
        ),
        (
            plan_split((3 * 123456789,), num_splits=3),
            """
shape=(370370367,), axis=0, parts=3,
not to scale
┌───────────┬───────────┬──────────────┐
│  1.2e+08  │  1.2e+08  │   1.2e+08    │
└───────────┴───────────┴──────────────┘
0           1.2e+08     2.5e+08  3.7e+08""",
        ),
        (
            plan_split((10**5,), 1),
            """
shape=(100000,), axis=0, parts=100000,
not to scale
┌───┬───┬───┬╌╌╌╌╌╌╌╌┬─────┬───────────┐
│ 1 │ 1 │ 1 │   …    │  1  │     1     │
└───┴───┴───┴╌╌╌╌╌╌╌╌┴─────┴───────────┘
0   1   2   3        99998 99999  100000""",
        ),
        (
            SplitPlan((10**30,), 0, [10**30 - 10**9, 10**9]),
            """
shape=(1000000000000000000000000000000,)
, axis=0, parts=2, not to scale
┌───────────────────────┬──────────────┐
│        1.0e+30        │   1.0e+09    │
└───────────────────────┴──────────────┘
0                       1.0e+30  1.0e+30""",
        ),
    ],
)
def test_narrow_drawings(plan, drawn):
    assert in_terminal(40, plan) == drawn.strip()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "shift_jis", "utf-8", "cp437"])
def test_printed_in_any_encoding(encoding):
    code = (
        "from splitjit import plan_split\n"
        "for n in 1, 3, 50: print(plan_split((100,), num_outputs=n))\n"
        "print(plan_split((0,), []))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "48"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, b"")
    lines = ended.stdout.decode(encoding).splitlines()
    if encoding == "utf-8":
        assert sum("┌" in line for line in lines) == 3
        return
    assert all(map(str.isascii, lines))
    assert re.fullmatch(r"\+-+\+", lines[1])
    assert lines[11].startswith("+---+---+---+---+..")
    assert re.fullmatch(r"(\| 2 ){4}\| *\.\.\. *(\| +2 +){4}\|", lines[12])
    widths = [[i for i, c in enumerate(line) if c in "+|"] for line in lines[11:14]]
    assert widths[0] == widths[1] == widths[2]


@pytest.mark.parametrize(
    ("sizes", "to_scale"),
    [([3], True), ([6, 3], True), ([2] * 5, True), ([5, 1], True), ([1, 1000], False),
     ([6, 0], False), ([], True), ([0], True)],
)  # fmt: skip
def test_it_says_when_it_is_not_to_scale(sizes, to_scale):
    plan = SplitPlan((sum(sizes),), 0, sizes)
    assert in_terminal(60, plan).split("\n")[0].endswith(", not to scale") == (not to_scale)
    svg = ElementTree.fromstring(plan._repr_html_())
    assert svg.find(f"{SVG}text").text.endswith(", not to scale") == (not to_scale)


def test_what_is_hostile_is_text():
    class Hostile(int):
        def __repr__(self):
            return "</title><script>alert('\"&')</script>"

        __str__ = __repr__

    one = Hostile(1)
    plan = SplitPlan((1, 1), 0, (1,))
    object.__setattr__(plan, "shape", (one, one))
    object.__setattr__(plan, "sizes", (one,))
    picture = drawing.svg(plan)
    assert "<script" not in picture
    root = ElementTree.fromstring(picture)
    assert repr(one) in root.get("aria-label")
    assert sum(repr(one) in (element.text or "") for element in root.iter()) > 2


def test_only_those_who_look_load_the_drawing():
    code = (
        "import sys, splitjit; plan = splitjit.plan_split((6,), 2); repr(plan)\n"
        "assert 'splitjit._plan.drawing' not in sys.modules; str(plan)\n"
        "assert 'splitjit._plan.drawing' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
