"""Measure the milestones of the project with asv, and draw them: the steps of docs/history.md."""

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.harness import ROOT

RESULTS = ROOT / "benchmarks" / "results"
CHART = ROOT / "docs" / "charts" / "history.svg"
RATIO, LIMIT, PROCESS = "track_time_over_numpy", "track_time_over_limit", "track_process"

Values = dict[str, list[float]]  # by case or number: one value a milestone, NaN if it has none


def milestones() -> dict[str, str]:
    """Return the commits of the milestones, the oldest first, and their names."""
    lines = (ROOT / "benchmarks" / "milestones.txt").read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def measure(machine: str, complete: int) -> None:
    """Measure the history of all milestones, and all suites at the last ones; keep the results."""
    made = ROOT / ".asv" / "results"
    shutil.rmtree(made, ignore_errors=True)
    asv = [sys.executable, "-m", "asv"]
    subprocess.run([*asv, "machine", "--yes", "--machine", machine], cwd=ROOT, check=True)
    commits = [*milestones()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "commits")
        for suites, chosen in {"History": commits, "^(?!history)": commits[-complete:]}.items():
            file.write_text("\n".join(chosen) + "\n")
            run = [*asv, "run", "--machine", machine, "--bench", suites, f"HASHFILE:{file}"]
            subprocess.run(run, cwd=ROOT, check=True)
    shutil.rmtree(RESULTS)
    shutil.copytree(made, RESULTS)


def history(track: str) -> Values:
    """Return the values of a benchmark of the suite `History` at each milestone."""
    from asv.results import Results

    name = f"history.History.{track}"
    benchmark = json.loads((RESULTS / "benchmarks.json").read_text("utf-8"))[name]
    names = [param.strip("'") for param in benchmark["params"][0]]
    columns = []
    for commit in milestones():
        files = list(RESULTS.glob(f"*/{commit[:8]}-*.json"))
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
        for numbers, style, label in [
            (values, {"marker": "o"}, "time over NumPy's"),
            (shares.get(name, []), {"marker": "s", "linestyle": "--"}, "share of the limit"),
        ]:
            found = {i: value for i, value in enumerate(numbers, 1) if not math.isnan(value)}
            if found:
                panel.plot(*zip(*found.items(), strict=True), **style, ms=2.5, lw=1, label=label)
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
    """Measure if asked to, and write the two files of the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("file", type=Path, nargs="?", default=CHART, help="FILE-light.svg and FILE-dark.svg")
    add("--measure", metavar="MACHINE", help="first measure all, on a machine that gets this name")
    add("--complete", type=int, default=3, help="milestones that run all suites, from the last on")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.complete)
    harness.save(draw, options.file)


if __name__ == "__main__":
    main()
