"""The share of the limit over run length, number of parts and bytes, as maps and tables."""

import argparse
import contextlib
import functools
import itertools
import random
import re
import sys
from dataclasses import astuple, dataclass
from operator import attrgetter
from pathlib import Path
from timeit import timeit

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import CORES, LIMIT, OURS, Case, allocate, prepared

NUMPY = "NumPy, slices"
RUNS = [4**k for k in range(11)]
PARTS = [2, 3, 4, 8, 16, 32, 64]
TOTALS = [4**k for k in range(7, 14)]
OUTPUTS = {"fresh": "fresh", "plan.empty": "into plan.empty", "out": "into separate numpy.empty"}

LARGE, SHARE, RATIO = 1 << 24, 0.75, 0.9
"""Goals: from this total size on the share of the limit; in each cell NumPy's time over ours."""


@dataclass(frozen=True)
class Cell:
    """One split of the landscape: a place on a map."""

    outputs: str
    total: int  # bytes of the array, or a little less
    parts: int
    run: int  # bytes of a part in each row

    @property
    def case(self) -> Case:
        """Rows of equal runs, of the widest items up to 4 bytes that a run is a multiple of."""
        itemsize = 4 if self.run % 4 == 0 else 2 if self.run % 2 == 0 else 1
        dtype = {1: "uint8", 2: "uint16", 4: "float32"}[itemsize]
        rows, length = self.total // (self.run * self.parts), self.run // itemsize
        return Case((rows, self.parts * length), 1, (length,) * self.parts, dtype)


@dataclass(frozen=True)
class Found(Cell):
    """What was measured in a cell."""

    share: float  # time of the better plain copy over ours
    ratio: float  # time of NumPy over ours


def sample(cell: Cell, pool: np.ndarray, rounds: int) -> dict[str, float]:
    """Split touched memory; return the seconds of a call of each contender."""
    case = cell.case
    x = pool[: case.nbytes].view(case.dtype).reshape(case.shape)
    out = allocate(case, cell.outputs)
    calls = prepared(case, out is None, (NUMPY, *LIMIT, OURS), CORES, x, out)
    rough = {name: timeit(calls[name], number=1) for name in (OURS, NUMPY)}
    if rough[NUMPY] > max(0.02, 4 * rough[OURS]):  # it need not be exact, and could take minutes
        del calls[NUMPY]
    return rough | harness.measure(calls, rounds)


def survey(cells: list[Cell], rounds: int) -> list[Found]:
    """Measure cells, small arrays first; an interrupt leaves out the rest."""
    found: list[Found] = []
    cells = random.sample(cells, len(cells))  # or slow drift would look like a valley
    cells.sort(key=lambda cell: cell.total)
    pool = np.random.default_rng(0).integers(0, 127, cells[-1].total, np.uint8)
    with contextlib.suppress(KeyboardInterrupt):
        for i, cell in enumerate(cells, 1):
            harness.say(f"{i} of {len(cells)}: {cell.outputs}, {cell.case}")
            times = sample(cell, pool, rounds)
            limit = min(times[name] for name in LIMIT if name in times)
            found.append(Found(*astuple(cell), limit / times[OURS], times[NUMPY] / times[OURS]))
    return sorted(found, key=astuple)


def valleys(found: list[Found], count: int) -> str:
    """Return the lowest cells as Markdown: by share, and by ratio to NumPy."""
    lines = []
    for title, cells, name, goal in [
        (f"shares of the limit from {size(LARGE)} on", LARGE, "share", SHARE),
        ("ratios to NumPy", 0, "ratio", RATIO),
    ]:
        ranking = [f for f in found if f.total >= cells]
        ranking.sort(key=attrgetter(name))
        missed = sum(harness.below(getattr(f, name), goal) for f in ranking)
        rows = [
            [f.case, OUTPUTS[f.outputs], size(f.total), f.share, f.ratio] for f in ranking[:count]
        ]
        lines += [f"Lowest {title}; {missed} of {len(ranking)} cells are below {goal}:"]
        lines += [harness.table(["case", "outputs", "size", "share", "NumPy / ours"], rows)]
    return "\n\n".join(lines)


def size(nbytes: int) -> str:
    """Write bytes in binary units; `parse_size` reads them."""
    power = min((nbytes.bit_length() - 1) // 10, 3)
    return f"{nbytes / 1024**power:.3g} {('B', 'KB', 'MB', 'GB')[power]}"


def parse_size(text: str) -> int:
    """Read "16", "16K", "16 KB" and the like."""
    match = re.fullmatch(r"(\d+) ?([KMG]?)B?", text, re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, such as 16K")
    return int(match[1]) * 1024 ** " KMG".index(match[2].upper() or " ")


def draw(found: list[Found], folder: Path) -> None:
    """Draw one figure per total size, one map per kind of outputs; cells hold per cent."""
    folder.mkdir(parents=True, exist_ok=True)
    for total in {f.total: None for f in found}:
        cells = [f for f in found if f.total == total]
        file = folder / f"landscape-{size(total).replace(' ', '')}.svg"
        harness.save(functools.partial(_figure, total, cells), file)


def _figure(total: int, found: list[Found]):
    from matplotlib import pyplot

    kinds = [kind for kind in OUTPUTS if any(f.outputs == kind for f in found)]
    # 4 inches are 400 px at the usual 100 px an inch, where 7 points can be read.
    figure, panels = pyplot.subplots(
        len(kinds), figsize=(4, 0.6 + 2.1 * len(kinds)), squeeze=False, layout="constrained"
    )
    for kind, panel in zip(kinds, panels[:, 0], strict=True):
        _map(panel, [f for f in found if f.outputs == kind])
        panel.set_title(OUTPUTS[kind], fontsize=8)
        panel.set_xlabel("bytes of a run", fontsize=8)
    figure.suptitle(f"{size(total)}: % of the speed of a plain copy", fontsize=9)
    figure.supxlabel(f"framed: slower than {RATIO} of NumPy", fontsize=7)
    return figure


def _map(panel, found: list[Found]) -> None:
    from matplotlib.patches import Rectangle

    runs, parts = (sorted({getattr(f, name) for f in found}) for name in ("run", "parts"))
    grid = np.full((len(parts), len(runs)), np.nan)
    for f in found:
        x, y = runs.index(f.run), parts.index(f.parts)
        grid[y, x] = f.share
        color = "black" if f.share > 0.6 else "white"  # cividis is light above the middle
        style = {"ha": "center", "va": "center", "color": color, "fontsize": 7}
        panel.text(x + 0.5, y + 0.5, f"{100 * f.share:.0f}", **style)
        if harness.below(f.ratio, RATIO):
            frame = {"fill": False, "edgecolor": "#d55e00", "linewidth": 1.8}
            panel.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, **frame))
    panel.pcolormesh(grid, cmap="cividis", vmin=0.2, vmax=1)
    panel.invert_yaxis()
    panel.set_xticks(np.arange(len(runs)) + 0.5, [size(n).replace(" ", "")[:-1] for n in runs])
    panel.set_yticks(np.arange(len(parts)) + 0.5, parts)
    panel.tick_params(labelsize=7, length=0)
    panel.set_ylabel("parts", fontsize=8)


def main() -> None:
    """Measure the selected cells, then list valleys and draw maps."""
    parser = harness.parser(__doc__, outputs=[*OUTPUTS], rounds=(5, "bursts in a cell"))
    add = parser.add_argument
    add("--run", nargs="+", type=parse_size, default=RUNS, metavar="SIZE")
    add("--parts", nargs="+", type=int, default=PARTS, metavar="N")
    add("--total", nargs="+", type=parse_size, default=TOTALS, metavar="SIZE")
    add("--plot", type=Path, metavar="DIR", help="draw a map per total size")
    add("--count", type=int, default=15, metavar="N", help="valleys to list per table")
    options = parser.parse_args()
    every = itertools.product(options.outputs, options.total, options.parts, options.run)
    cells = [cell for cell in itertools.starmap(Cell, every) if cell.run * cell.parts <= cell.total]
    machine, found = harness.describe(), survey(cells, options.rounds)
    harness.finish(options, machine, valleys(found, options.count), found)
    if options.plot:
        draw(found, options.plot)


if __name__ == "__main__":
    main()
