"""Pictures of splits by the package, and charts of figures that pages show.

``python docs/tools/pictures.py`` writes the picture of README.md to docs/_static. The build of the
site draws the others from the tables of README.md, so both show the same figures.
"""

from __future__ import annotations

import ast
import re
from html import escape
from pathlib import Path

import splitjit

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "docs" / "_static"
SCHEMES = (
    "svg { color: #1f2328; background: #ffffff } "
    "@media (prefers-color-scheme: dark) { svg { color: #e6edf3; background: #14181e } }"
)
"""A style sheet for SVG files, the same as in ``benchmarks/harness.py``."""

WIDTH = 224
"""Pixels of an axis in the pictures of the rules. Three fit side by side, and one on a phone."""

LEAST = 32
"""Pixels of the cell of an empty part."""

CHARTED = ("splitjit", "NumPy, by hand", "fastest other library", "limit")
"""The columns of the table of costs that the chart shows."""


def picture() -> str:
    """Draw the split of the first example of README.md."""
    return svg(splitjit.plan_split((512, 6144), [4096, 1024, 1024], axis=1))


def file_of(drawing: str) -> str:
    """Return the contents of a file for a drawing, which on a page has the colors of the page."""
    return drawing.replace("><", f"><style>{SCHEMES}</style><", 1) + "\n"


def svg(plan: splitjit.SplitPlan, across: int = 432) -> str:
    """Draw a plan as an SVG element, its parts to scale, with their sizes and where they start."""
    title, about = str(plan).partition("\n")[0], repr(plan)
    drawn, x, length = f'<text y="11">{title}</text>', 0, plan.shape[plan.axis]
    for i, (offset, size) in enumerate(plan):
        width = across * size // length or LEAST
        drawn += (
            f'<rect x="{x}" y="18" width="{width}" height="40" fill="steelblue" '
            f'fill-opacity="{0.3 if i % 2 else 0.6}" stroke="currentColor" />'
            f'<text x="{x + width // 2}" y="42" text-anchor="middle">{size}</text>'
            f'<text x="{x}" y="73">{offset}</text>'
        )
        x += width
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{about}" width="{x + 2}" '
        f'height="78" viewBox="-1 -1 {x + 2} 78" style="max-width: 100%; height: auto" '
        f'font-family="monospace" font-size="12" fill="currentColor">{drawn}'
        f'<text x="{x}" y="73" text-anchor="end">{length}</text></svg>'
    )


def rules() -> str:
    """Draw each rule of the table of rules, as HTML."""
    figures = []
    for row in table("rules"):
        rule = row["7 into 3 gives"].removeprefix("`").split("`: ")[0]
        keyword, _, value = rule.rpartition("=")
        call = f"split(x, {rule})"
        try:
            plan = splitjit.plan_split((7,), **{keyword or "split": ast.literal_eval(value)})
            shown = svg(plan, WIDTH)
        except splitjit.SplitError as error:
            shown = f"<p>{escape(str(error))}</p>"
        figures.append(
            f"<figure><figcaption><code>{escape(call)}</code></figcaption>{shown}</figure>"
        )
    return f'<div class="pictures">{"".join(figures)}</div>'


def tutorial() -> dict[str, str]:
    """Draw the splits of the tutorial, as HTML by the name of the section."""
    plans = {
        "qkv": splitjit.plan_split((10, 768), [512, 128, 128], axis=1),
        "gate": splitjit.plan_split((10, 2752), num_splits=2, axis=1),
        "clamped": splitjit.plan_split((5,), num_outputs=4),
        "channels": splitjit.plan_split((480, 640, 3), num_splits=3, axis=2),
        "batches": splitjit.plan_split((1000, 28), 256),
        "weights": splitjit.plan_split((1376, 512), num_splits=4),
    }
    return {name: f"<figure>{svg(plan)}</figure>" for name, plan in plans.items()}


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
    """Write the picture of README.md."""
    (STATIC / "split.svg").write_text(file_of(picture()), "utf-8")


if __name__ == "__main__":
    main()
