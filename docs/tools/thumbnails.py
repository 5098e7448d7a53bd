"""Small pictures for the gallery, one for each example that draws none itself.

``write(folder)`` writes them as SVG. Their colors suit light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

WIDTH, HEIGHT = 200, 140
COLORS = ("#5b9bd0", "#f2a65a", "#7cc28a", "#b58ed1", "#e07a7a")
INK = "#7d8590"


def _box(x: float, y: float, width: float, height: float, color: int | str, label: str = "") -> str:
    fill = COLORS[color % len(COLORS)] if isinstance(color, int) else color
    box = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"/>'
    return box + (_text(x + width / 2, y + height / 2 + 5, label, "#1b1f24") if label else "")


def _text(x: float, y: float, words: str, color: str = INK) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="middle" fill="{color}">{words}</text>'


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    angle = math.degrees(math.atan2(to_y - y, to_x - x))
    return (
        f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{INK}" stroke-width="2"/>'
        f'<path d="M0 0L-7 -4V4Z" fill="{INK}" transform="translate({to_x:g} {to_y:g}) '
        f'rotate({angle:.0f})"/>'
    )


def qkv_cache() -> str:
    """Draw one projection above queries, keys and values."""
    lengths, labels, drawn, x = (96, 24, 24), "qkv", "", 28
    for i, (length, label) in enumerate(zip(lengths, labels, strict=True)):
        left = x + 10 * (i - 1)
        drawn += _box(x, 20, length, 36, i) + _arrow(x + length / 2, 60, left + length / 2, 80)
        drawn += _box(left, 84, length, 36, i, label)
        x += length
    return drawn


def audio_chunks() -> str:
    """Draw a wave in chunks, the last one shorter."""
    drawn = ""
    for i in range(44):
        height = 12 + 80 * abs(math.sin(0.35 * i) * math.cos(0.06 * i))
        drawn += _box(12 + 4 * i, 70 - height / 2, 3, height, i // 10)
    return drawn


def table_sets() -> str:
    """Draw rows of a table in three colors."""
    drawn = ""
    for row in range(13):
        color = 0 if row < 9 else 1 if row < 11 else 2
        for column in range(4):
            drawn += _box(32 + 34 * column, 10 + 9.4 * row, 32, 7.5, color)
    return drawn


def data_loader() -> str:
    """Draw samples that two workers split."""
    drawn = "".join(_box(14, 18 + 13 * row, 44, 11, "#9aa4b0") for row in range(8))
    for worker, y in enumerate((20, 84)):
        drawn += _arrow(62, 70, 84, y + 18) + _box(88, y, 30, 36, "#9aa4b0", f"{worker}")
        drawn += _arrow(121, y + 18, 137, y + 18)
        drawn += "".join(_box(141 + 16 * i, y, 14, 36, i) for i in range(3))
    return drawn


def checkpoint_ranks() -> str:
    """Draw weights that two ranks share, and the way back."""
    drawn = _box(72, 8, 28, 44, 0) + _box(100, 8, 28, 44, 1) + _arrow(80, 56, 52, 82)
    drawn += _arrow(148, 82, 120, 56)
    for rank, x in enumerate((20, 124)):
        drawn += _box(x, 86, 56, 44, rank, f"rank {rank}")
    return drawn


def out_loop() -> str:
    """Draw frames that go one after the other into the same planes."""
    drawn = _box(14, 26, 60, 44, "#9aa4b0") + _box(23, 35, 60, 44, "#9aa4b0")
    drawn += "".join(_box(32, 44 + 15 * i, 60, 14, i) for i in range(3))
    drawn += "".join(_arrow(98, 66, 124, 30 + 40 * i) for i in range(3))
    return drawn + "".join(_box(130, 14 + 40 * i, 54, 32, i) for i in range(3))


def torch_module() -> str:
    """Draw a module that splits what its layer computes."""
    drawn = f'<rect x="10" y="12" width="180" height="116" rx="8" fill="none" stroke="{INK}"/>'
    drawn += _box(22, 50, 56, 40, "#9aa4b0", "Linear")
    for i, label in enumerate("qkv"):
        drawn += _arrow(82, 70, 116, 36 + 34 * i) + _box(122, 22 + 34 * i, 54, 28, i, label)
    return drawn


def swiglu() -> str:
    """Draw the halves of a projection, and their product."""
    drawn = _box(30, 16, 70, 40, 0, "gate") + _box(100, 16, 70, 40, 1, "up")
    drawn += _arrow(65, 60, 92, 82) + _arrow(135, 60, 108, 82)
    return drawn + _box(70, 86, 60, 40, 2, "gate·up")


def inside_njit() -> str:
    """Draw a compiled function."""
    drawn = _text(52, 30, "@njit") + _text(74, 56, "def f(x):")
    drawn += "".join(_box(52 + 34 * i, 72, 30, 44, i) for i in range(3))
    return drawn + f'<line x1="36" y1="64" x2="36" y2="120" stroke="{INK}" stroke-width="2"/>'


def dask_array() -> str:
    """Draw the chunks of a lazy array, cut by columns."""
    drawn = ""
    for row in range(4):
        for column in range(3):
            drawn += _box(28 + 50 * column, 12 + 30 * row, 46, 26, column)
    return drawn


def reference_evaluator() -> str:
    """Draw a node of a model."""
    drawn = _box(60, 14, 80, 34, "#9aa4b0", "Split-18") + _arrow(100, 0, 100, 13)
    for i in range(3):
        drawn += _arrow(100, 50, 44 + 56 * i, 84) + _box(22 + 56 * i, 88, 44, 36, i)
    return drawn


DRAWINGS: dict[str, Callable[[], str]] = {
    draw.__name__: draw
    for draw in (
        audio_chunks,
        checkpoint_ranks,
        dask_array,
        data_loader,
        inside_njit,
        out_loop,
        qkv_cache,
        reference_evaluator,
        swiglu,
        table_sets,
        torch_module,
    )
}


def write(folder: Path) -> None:
    """Write a file for each example."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        (folder / f"{name}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{2 * WIDTH}" height="{2 * HEIGHT}" font-family="monospace" font-size="14">'
            f"{draw()}</svg>\n",
            "utf-8",
        )
