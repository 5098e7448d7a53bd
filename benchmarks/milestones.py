"""Measure the milestones of the project with asv, and show them on the page history.md.

``--measure`` measures the suite `history` at all milestones in one go. The results replace those in
benchmarks/results only if they are complete. `asv continuous` compares two commits by all suites.
"""

import argparse
import datetime
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.documentation import filled
from benchmarks.harness import ROOT
from benchmarks.suites.history import History

RESULTS = ROOT / "benchmarks" / "results"
CHART = ROOT / "benchmarks" / "charts" / "history.svg"
PAGE = ROOT / "benchmarks" / "history.md"
MINUTES = 1.3
"""How long a milestone takes on two cores."""
RATIO, LIMIT, PROCESS = "track_time_over_numpy", "track_time_over_limit", "track_process"


def milestones() -> dict[str, str]:
    """Return the commits of the milestones, the oldest first, and their names."""
    lines = (ROOT / "benchmarks" / "milestones.txt").read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def measure(machine: str) -> None:
    """Measure the history of all milestones, and keep the results."""
    from asv.machine import Machine, MachineCollection

    made = ROOT / ".asv" / "results"
    shutil.rmtree(made, ignore_errors=True)
    # `asv machine` keeps no fact of a new name that equals its default.
    MachineCollection.save(machine, {**Machine.get_defaults(), "machine": machine})
    commits = [*milestones()]
    harness.say(f"{len(commits)} milestones: about {MINUTES * len(commits):.0f} minutes")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "commits")
        file.write_text("\n".join(commits) + "\n")
        asv = [sys.executable, "-m", "asv", "run", "--machine", machine, "--bench", "History"]
        subprocess.run([*asv, f"HASHFILE:{file}"], cwd=ROOT, check=True)
    keep(made)


def keep(made: Path) -> None:
    """Let results of asv replace those in `RESULTS`, if they are complete."""
    if missing := gaps(made):
        raise SystemExit("\n".join([f"{made} is incomplete, so nothing was replaced:", *missing]))
    shutil.rmtree(RESULTS)
    shutil.copytree(made, RESULTS)
    file = RESULTS / "benchmarks.json"  # asv's pages have a graph for each benchmark in it
    known = json.loads(file.read_text("utf-8"))
    shown = {name: of for name, of in known.items() if name.startswith(("history.", "version"))}
    file.write_text(json.dumps(shown, indent=4) + "\n", "utf-8")


def gaps(results: Path) -> list[str]:
    """List the benchmarks that lack a value, with the milestone where they lack it.

    A value from an older version of the benchmark counts as missing.
    """
    tracks = [name for name in dir(History) if re.match("(time|timeraw|track|peakmem)_", name)]
    missing = []
    for commit in milestones():
        files = list(results.glob(f"*/{commit[:8]}-*.json"))
        found = json.loads(files[0].read_text("utf-8"))["results"] if files else {}
        for track in tracks:
            version = getattr(getattr(History, track), "version", None) or History.version
            name = f"history.History.{track}"
            values, _, measured = found.get(name, (None, None, None))[:3]
            has_all = values and all(v is not None and not math.isnan(v) for v in values)
            if measured != version or not has_all:
                missing.append(f"{commit[:8]} {name}")
    return missing


def history(track: str) -> dict[str, list[float]]:
    """Return a benchmark of the suite `History` by case: a value, or NaN, for each milestone."""
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


def facts() -> dict[str, float]:
    """Return the figures of history.md, by the words that follow them in a sentence."""
    many = history(RATIO)["10000 into 10000, fresh"]
    peak = history(PROCESS)["peak memory of parts over the array"]
    return {
        "of NumPy's time at milestone 8": many[7],
        "times NumPy's time at milestone 9": many[8],
        "times at the newest milestone": many[-1],
        "times the array at milestone 8": peak[7],
        "times the array at the newest milestone": peak[-1],
    }


def where() -> str:
    """Return when, where and with what the newest milestone was measured, as a sentence."""
    (file,) = RESULTS.glob(f"*/{[*milestones()][-1][:8]}-*.json")
    found = json.loads(file.read_text("utf-8"))
    values = found["results"][f"history.History.{RATIO}"]
    began = values[found["result_columns"].index("started_at")] / 1000
    day, of = datetime.datetime.fromtimestamp(began, datetime.UTC).date(), found["params"]
    text = f"asv measured the milestones on {day} on {of['num_cpu']} cores of {of['cpu']}, with "
    text += f"Python {of['python']}, Numba {of['numba']} and NumPy {of['numpy']}."
    return textwrap.fill(text, 100)


def written(text: str) -> str:
    """Return history.md with the figures of the results, whatever its line breaks."""
    text = filled(text, where=where())
    for words, value in facts().items():
        following = words.replace(" ", r"\s+")
        text, count = re.subn(rf"[\d.]+(?=\s+{following}\b)", f"{value:.2f}", text)
        if count != 1:
            raise ValueError(f"{count} sentences of {PAGE.name} say: {words}")
    return text


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
        panel.set_xticks(range(1, len(values) + 1))
        panel.tick_params(labelsize=6)
        panel.grid(alpha=0.3)
    for panel in panels.flat[count:]:
        panel.axis("off")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, fontsize=7)
    figure.supxlabel("milestone", fontsize=7)
    return figure


def main() -> None:
    """Measure if asked to; write the chart, and the figures of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("file", type=Path, nargs="?", default=CHART)
    add("--measure", metavar="MACHINE", help="first measure all, on a machine that gets this name")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    harness.save(draw, options.file)
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
