"""Pictures that the package draws, and charts of figures that pages show.

``python docs/pictures.py`` writes the pictures of README.md to docs/_static. The build of the site
draws the others from the tables of README.md, so both show the same figures.
"""

from __future__ import annotations

import ast
import re
from html import escape
from pathlib import Path
from xml.etree import ElementTree

import splitjit

ElementTree.register_namespace("", "http://www.w3.org/2000/svg")
ROOT = Path(__file__).parents[1]
STATIC = Path(__file__).with_name("_static")
INKS = {"light": "#1f2328", "dark": "#e6edf3"}
"""The color of lines and text on a light and on a dark page."""

SVG = "{http://www.w3.org/2000/svg}"
WIDTH = 224
"""Pixels of an axis in the pictures of the rules. Three fit side by side, and one on a phone."""

CHARTED = ("splitjit", "NumPy, by hand", "fastest other library", "limit")
"""The columns of the table of costs that the chart shows."""


def picture(ink: str = "currentColor") -> str:
    """Draw the split of the first example of README.md."""
    plan = splitjit.plan_split((512, 6144), [4096, 1024, 1024], axis=1)
    return plan._repr_html_().replace("currentColor", ink) + "\n"


def rules() -> str:
    """Draw each rule of the table of rules by the package, as HTML."""
    figures = []
    for row in table("rules"):
        rule = row["7 into 3 gives"].removeprefix("`").split("`: ")[0]
        keyword, _, value = rule.rpartition("=")
        call = f"split(x, {rule})"
        try:
            plan = splitjit.plan_split((7,), **{keyword or "split": ast.literal_eval(value)})
            shown = stretched(plan._repr_html_(), WIDTH)
        except splitjit.SplitError as error:
            shown = f"<p>{escape(str(error))}</p>"
        figures.append(
            f"<figure><figcaption><code>{escape(call)}</code></figcaption>{shown}</figure>"
        )
    return f'<div class="pictures">{"".join(figures)}</div>'


def stretched(drawing: str, width: int) -> str:
    """Stretch the cells of a drawing, but not its letters, so that drawings can be compared."""
    root = ElementTree.fromstring(drawing)
    cells = root.findall(f".//{SVG}rect")
    factor = width / sum(float(cell.get("width", 0)) for cell in cells)
    for element in root.iterfind(".//*"):
        for name in {"x", "width"}.intersection(element.keys()):
            element.set(name, f"{factor * float(element.get(name, 0)):g}")
    left, top, _, height = root.get("viewBox", "").split()
    across = f"{width + 2}"  # half of each outline lies outside of its box
    root.set("width", across)
    root.set("viewBox", f"{left} {top} {across} {height}")
    return ElementTree.tostring(root, encoding="unicode")


def tutorial() -> dict[str, str]:
    """Draw the splits of the tutorial by the package, as HTML by the name of the section."""
    plans = {
        "qkv": splitjit.plan_split((10, 768), [512, 128, 128], axis=1),
        "gate": splitjit.plan_split((10, 2752), num_splits=2, axis=1),
        "clamped": splitjit.plan_split((5,), num_outputs=4),
        "channels": splitjit.plan_split((480, 640, 3), num_splits=3, axis=2),
        "batches": splitjit.plan_split((1000, 28), 256),
        "weights": splitjit.plan_split((1376, 512), num_splits=4),
    }
    return {name: f"<figure>{plan._repr_html_()}</figure>" for name, plan in plans.items()}


def bar(sizes: list[int]) -> str:
    """Return a bar with a cell for each part, as HTML; the page has the colors."""
    cells = "".join(f'<span style="flex:{size}">{size}</span>' for size in sizes)
    return f'<div class="parts" aria-hidden="true">{cells}</div>'


def table(name: str) -> list[dict[str, str]]:
    """Return the first table between ``<!-- name -->`` and its end in README.md, by column."""
    text = (ROOT / "README.md").read_text("utf-8")
    section = text.split(f"<!-- {name} -->")[1].split(f"<!-- end of {name} -->")[0]
    lines = [line.strip("| \n") for line in section.splitlines() if line.startswith("|")]
    head, _, *rows = [re.split(r"\s*\|\s*", line) for line in lines]
    return [dict(zip(head, [*row, ""], strict=False)) for row in rows]


def milliseconds(cell: str) -> float | None:
    """Return the time at the end of a cell, or None if it has none."""
    found = re.search(r"([\d.]+) (µs|ms)", cell)
    return float(found[1]) * {"µs": 1e-3, "ms": 1.0}[found[2]] if found else None


def chart(most: int = 3) -> str:
    """Return bars of the first splits of the table of costs, as HTML; the page has the colors."""
    groups = []
    for row in [row for row in table("cost") if milliseconds(row["splitjit"])][: most + 1]:
        times = {name: milliseconds(row[name]) for name in CHARTED}
        if times["limit"] is None or times["splitjit"] is None:
            continue
        longest = max(time for time in times.values() if time is not None)
        bars = "".join(
            f'<div class="bar"><span>{escape(_label(name, row[name]))}</span>'
            f'<i class="{"ours" if name == "splitjit" else "limit" if name == "limit" else ""}" '
            f'style="width:{50 * time / longest:.1f}%"></i><b>{time:.3g} ms</b></div>'
            for name, time in times.items()
            if time is not None
        )
        groups.append(f'<div class="case">{escape(row["split"].replace("`", ""))}</div>{bars}')
    return f'<div class="speeds" role="img" aria-label="Times of splits">{"".join(groups)}</div>'


def _label(name: str, cell: str) -> str:
    """Return a short name of a contender: of the other library, its own."""
    if name == "fastest other library":
        return re.sub(r"\s*[\d.]+ (µs|ms).*", "", cell)
    return {"limit": "plain copy in C"}.get(name, name)


def main() -> None:
    """Write the pictures of README.md."""
    for name, ink in INKS.items():
        (STATIC / f"split-{name}.svg").write_text(picture(ink), "utf-8")


if __name__ == "__main__":
    main()
