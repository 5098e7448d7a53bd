"""Save a figure as SVG, once for light and once for dark pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

INKS = {"light": "#1f2328", "dark": "#e6edf3"}
"""The color of lines and text on a light and on a dark page."""


def save(draw: Callable[[], Any], file: Path) -> None:
    """Draw a figure for each kind of page: FILE.svg becomes FILE-light.svg and FILE-dark.svg.

    Lines and texts of the figure get the ink of the page; the background is transparent.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    for page, ink in INKS.items():
        inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
        style = {
            **dict.fromkeys(inks, ink),
            "grid.color": ink,
            "legend.framealpha": 0,
            "font.sans-serif": ["DejaVu Sans"],
            "svg.fonttype": "none",  # text stays text
            "svg.hashsalt": file.stem,  # the same file for the same figures
        }
        with pyplot.rc_context(style):
            figure = draw()
            target = file.with_name(f"{file.stem}-{page}.svg")
            figure.savefig(target, transparent=True, metadata={"Date": None})
            pyplot.close(figure)
