"""Draw the history at the milestones, from the results of asv that are committed.

Run it from a checkout: ``python benchmarks/steps.py docs/history.svg``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import figures
from benchmarks.harness import ROOT

RESULTS = ROOT / "benchmarks" / "results"
MACHINE = "xeon-2"
RATIO, LIMIT = "track_time_over_numpy", "track_time_over_limit"
PROCESS = "track_process"

Values = dict[str, list[float]]  # by case or number: one value a milestone, NaN if it has none


def history(track: str) -> Values:
    """Return the values of a benchmark of `benchmarks.history.History` at each milestone."""
    from asv.results import Results

    name = f"history.History.{track}"
    benchmark = json.loads((RESULTS / "benchmarks.json").read_text("utf-8"))[name]
    names = [param.strip("'") for param in benchmark["params"][0]]
    columns = []
    for commit in (ROOT / "benchmarks" / "milestones.txt").read_text("utf-8").split():
        files = list((RESULTS / MACHINE).glob(f"{commit[:8]}-*.json"))
        found = Results.load(str(files[0])) if files else None
        values = found.get_result_value(name, benchmark["params"]) if found else [None] * len(names)
        columns.append([math.nan if value is None else value for value in values])
    return {case: [column[i] for column in columns] for i, case in enumerate(names)}


def draw():
    """Draw a panel for each case, and for each number of new processes."""
    from matplotlib import pyplot

    ratios, limits, processes = (history(track) for track in (RATIO, LIMIT, PROCESS))
    shares = {name: [1 / value for value in values] for name, values in limits.items()}
    count = len(ratios) + len(processes)
    # 4 inches are 400 px at the usual 100 px an inch, where 7 points can be read.
    rows = math.ceil(count / 2)
    figure, panels = pyplot.subplots(rows, 2, figsize=(4, 0.6 + 1.15 * rows), layout="constrained")
    for panel, (name, values) in zip(panels.flat, (ratios | processes).items(), strict=False):
        steps = [i for i, value in enumerate(values, 1) if not math.isnan(value)]
        measured = [values[i - 1] for i in steps]
        panel.plot(steps, measured, "o-", markersize=2.5, linewidth=1, label="time over NumPy's")
        if name in shares:
            steps = [i for i, value in enumerate(shares[name], 1) if not math.isnan(value)]
            measured = [shares[name][i - 1] for i in steps]
            panel.plot(steps, measured, "s--", markersize=2, label="share of the limit")
        panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
        panel.set_title(name, fontsize=7)
        panel.set_xticks(range(1, len(values) + 1, 2))
        panel.tick_params(labelsize=6)
        panel.grid(alpha=0.3)
    for panel in panels.flat[count:]:
        panel.axis("off")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=7)
    figure.supxlabel("milestone", fontsize=7)
    return figure


def main() -> None:
    """Write the two files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, metavar="FILE", help="FILE-light.svg and FILE-dark.svg")
    figures.save(draw, parser.parse_args().file)


if __name__ == "__main__":
    main()
