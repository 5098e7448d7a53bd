"""The share of the limit over run length, number of parts and bytes, as maps and tables.

Run it from a checkout: ``python benchmarks/landscape.py --help``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import random
import re
import sys
import time
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from statistics import median

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import figures, harness
from benchmarks.contenders import CORES, LIMIT, OURS, PREPARE, Case, allocate, verified

NUMPY = "NumPy, slices"
RUNS = [4**k for k in range(11)]
PARTS = [2, 3, 4, 8, 16, 32, 64]
TOTALS = [4**k for k in range(7, 16)]
OUTPUTS = {"fresh": "fresh", "plan.empty": "into plan.empty", "out": "into separate numpy.empty"}

LARGE, SHARE = 1 << 24, 0.75
"""From this total size on, the goal is a share of the limit of at least `SHARE`."""
RATIO = 0.9
"""The goal for NumPy's time over splitjit's, in every cell."""

Data = dict[str, list]
"""The contents of the file: the machine of each run, and the samples of each cell."""


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
class Found:
    """Medians over the samples of a cell."""

    cell: Cell
    share: float  # time of the better plain copy over ours
    ratio: float  # time of NumPy over ours


# ---- measuring ------------------------------------------------------------------------


def sample(cell: Cell, pool: np.ndarray, seconds: float) -> dict[str, float]:
    """Split touched memory for some seconds, and at least three rounds; return seconds a call."""
    case, calls = cell.case, {}
    x = pool[: case.nbytes].view(case.dtype).reshape(case.shape)
    out = allocate(case, cell.outputs)
    for name in (NUMPY, *LIMIT):
        # Only x86-64 has streaming stores. Without memcpy there is no limit.
        with contextlib.suppress(*[NotImplementedError] if name == "streaming" else []):
            calls[name] = PREPARE[name](case, x, out, CORES)
    calls[OURS] = verified(OURS, case, x, out, CORES)

    rough = {}
    for name in (OURS, NUMPY):
        start = time.perf_counter()
        calls[name]()
        rough[name] = time.perf_counter() - start
    slow = rough[NUMPY] > 0.02 and rough[NUMPY] > 4 * rough[OURS]
    if slow:  # this ratio need not be exact, and NumPy could take minutes
        del calls[NUMPY]

    rounds: list[dict[str, float]] = []
    end = time.perf_counter() + seconds
    while len(rounds) < 3 or time.perf_counter() < end:
        rounds.append(harness.measure(calls, 1))
    found = {name: median(times[name] for times in rounds) for name in calls}
    return found | ({NUMPY: rough[NUMPY]} if slow else {})


def survey(cells: list[Cell], data: Data, options: argparse.Namespace) -> None:
    """Measure the cells that have too few samples yet; save each at once."""
    samples = {Cell(**entry["cell"]): entry["samples"] for entry in data["cells"]}
    todo = [cell for cell in cells if len(samples.get(cell, ())) < options.samples]
    if not todo:
        return
    data["runs"].append({"machine": harness.describe()})
    random.shuffle(todo)  # otherwise slow drift of the machine would look like a valley
    todo.sort(key=lambda cell: cell.total)
    pool = np.random.default_rng(0).integers(0, 127, todo[-1].total, np.uint8)
    for i, cell in enumerate(todo, 1):
        harness.say(f"{i} of {len(todo)}: {cell.outputs}, {cell.case}")
        if cell not in samples:
            samples[cell] = []
            data["cells"].append({"cell": asdict(cell), "samples": samples[cell]})
        samples[cell].append(sample(cell, pool, options.seconds))
        if options.json:  # an interrupt leaves the old file or the new one
            draft = options.json.with_suffix(".tmp")
            draft.write_text(json.dumps(data) + "\n", encoding="utf-8")
            draft.replace(options.json)


# ---- reading --------------------------------------------------------------------------


def findings(data: Data, cells: list[Cell]) -> list[Found]:
    """Return the medians over the samples of each cell."""
    wanted, found = set(cells), []
    for entry in data["cells"]:
        cell, samples = Cell(**entry["cell"]), entry["samples"]
        if cell not in wanted or not samples:
            continue
        share = median(min(s[name] for name in LIMIT if name in s) / s[OURS] for s in samples)
        found.append(Found(cell, share, median(s[NUMPY] / s[OURS] for s in samples)))
    return sorted(found, key=lambda f: astuple(f.cell))


def beside(found: list[Found]) -> dict[Cell, float]:
    """Return for each cell the median share of its neighbours in run length and parts."""
    shares = {f.cell: f.share for f in found}
    runs, parts = (sorted({getattr(c, name) for c in shares}) for name in ("run", "parts"))
    medians = {}
    for cell in shares:
        i, j = runs.index(cell.run), parts.index(cell.parts)
        square = itertools.product(parts[max(j - 1, 0) : j + 2], runs[max(i - 1, 0) : i + 2])
        around = [Cell(cell.outputs, cell.total, *place) for place in square]
        others = [shares[other] for other in around if other != cell and other in shares]
        medians[cell] = median(others) if others else shares[cell]
    return medians


def valleys(found: list[Found], count: int) -> str:
    """Return the lowest cells as Markdown: by share, by ratio to NumPy, by neighbours."""
    around = beside(found)
    large = [f for f in found if f.cell.total >= LARGE]
    missed = sum(f.share < SHARE for f in large), sum(f.ratio < RATIO for f in found)
    rankings = {
        f"Lowest shares of the limit from {size(LARGE)} on; {missed[0]} of {len(large)} cells "
        f"are below {SHARE}": sorted(large, key=lambda f: f.share),
        f"Lowest ratios to NumPy; {missed[1]} of {len(found)} cells are below {RATIO}": sorted(
            found, key=lambda f: f.ratio
        ),
        "Lowest shares relative to those of the cells around them": sorted(
            found, key=lambda f: f.share / around[f.cell]
        ),
    }
    head = ["outputs", "case", "size", "share", "around it", "NumPy / ours"]
    lines = []
    for title, ranking in rankings.items():
        rows = [
            [OUTPUTS[c.outputs], c.case, size(c.total), f.share, around[c], f.ratio]
            for f in ranking[:count]
            for c in [f.cell]
        ]
        lines += ["", f"{title}:", "", harness.table(head, rows)]
    return "\n".join(lines)


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


# ---- maps -----------------------------------------------------------------------------


def draw(found: list[Found], folder: Path) -> None:
    """Draw one figure per total size, one map per kind of outputs; cells hold per cent."""
    folder.mkdir(parents=True, exist_ok=True)
    for total in {f.cell.total: None for f in found}:
        cells = {f.cell: f for f in found if f.cell.total == total}
        file = folder / f"landscape-{size(total).replace(' ', '')}.svg"
        figures.save(functools.partial(_figure, total, cells), file)


def _figure(total: int, cells: dict[Cell, Found]):
    from matplotlib import pyplot

    kinds = [kind for kind in OUTPUTS if any(cell.outputs == kind for cell in cells)]
    # 4 inches are 400 px at the usual 100 px an inch, where 7 points can be read.
    figure, panels = pyplot.subplots(
        len(kinds), figsize=(4, 0.6 + 2.1 * len(kinds)), squeeze=False, layout="constrained"
    )
    for kind, panel in zip(kinds, panels[:, 0], strict=True):
        _map(panel, {cell: f for cell, f in cells.items() if cell.outputs == kind})
        panel.set_title(OUTPUTS[kind], fontsize=8)
        panel.set_xlabel("bytes of a run", fontsize=8)
    figure.suptitle(f"{size(total)}: % of the speed of a plain copy", fontsize=9)
    figure.supxlabel(f"framed: slower than {RATIO} of NumPy", fontsize=7)
    return figure


def _map(panel, cells: dict[Cell, Found]) -> None:
    from matplotlib.patches import Rectangle

    runs, parts = (sorted({getattr(cell, name) for cell in cells}) for name in ("run", "parts"))
    grid = np.full((len(parts), len(runs)), np.nan)
    for cell, found in cells.items():
        x, y = runs.index(cell.run), parts.index(cell.parts)
        grid[y, x] = found.share
        color = "black" if found.share > 0.6 else "white"  # cividis is light above the middle
        percent = f"{100 * found.share:.0f}"
        panel.text(x + 0.5, y + 0.5, percent, ha="center", va="center", color=color, fontsize=7)
        if found.ratio < RATIO:
            style = {"fill": False, "edgecolor": "#d55e00", "linewidth": 1.8}
            panel.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, **style))
    panel.pcolormesh(grid, cmap="cividis", vmin=0.2, vmax=1)
    panel.invert_yaxis()
    panel.set_xticks(
        [x + 0.5 for x in range(len(runs))], [size(run).replace(" ", "")[:-1] for run in runs]
    )
    panel.set_yticks([y + 0.5 for y in range(len(parts))], parts)
    panel.tick_params(labelsize=7, length=0)
    panel.set_ylabel("parts", fontsize=8)


# ---- command --------------------------------------------------------------------------


def main() -> None:
    """Measure the selected cells that the file lacks, then list valleys and draw maps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--run", nargs="+", type=parse_size, default=RUNS, metavar="SIZE")
    add("--parts", nargs="+", type=int, default=PARTS, metavar="N")
    add("--total", nargs="+", type=parse_size, default=TOTALS, metavar="SIZE")
    add("--largest", type=parse_size, default=1 << 26, metavar="SIZE", help="64M by default")
    add("--outputs", nargs="+", choices=OUTPUTS, default=list(OUTPUTS))
    add("--seconds", type=float, default=0.5, help="turns per cell; at least three rounds")
    add("--samples", type=int, default=1, metavar="N", help="per cell, with those in the file")
    add("--json", type=Path, metavar="FILE", help="read it, add the missing cells, write it")
    add("--plot", type=Path, metavar="DIR", help="draw a map per total size")
    add("--count", type=int, default=15, metavar="N", help="valleys to list per table")
    options = parser.parse_args()

    every = itertools.product(options.outputs, options.total, options.parts, options.run)
    cells = [
        cell
        for cell in itertools.starmap(Cell, every)
        if cell.run * cell.parts <= cell.total <= options.largest
    ]
    data: Data = {"runs": [], "cells": []}
    if options.json and options.json.exists():
        data = json.loads(options.json.read_text("utf-8"))
    try:
        survey(cells, data, options)
    except KeyboardInterrupt:
        print("interrupted: the rest is left out", file=sys.stderr)
    found = findings(data, cells)
    if not found:
        parser.error("nothing has been measured")
    print(*(run["machine"] for run in data["runs"]), valleys(found, options.count), sep="\n")
    if options.plot:
        draw(found, options.plot)


if __name__ == "__main__":
    main()
