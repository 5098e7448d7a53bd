"""Measure the milestones of the project with asv, and show them on the page history.md.

``--measure`` measures everything in one go: the history at all milestones, and all suites at the
newest ones. The results replace those in benchmarks/results only if they are complete.
"""

import argparse
import datetime
import importlib
import inspect
import json
import math
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness, suites
from benchmarks.documentation import filled
from benchmarks.harness import ROOT

RESULTS = ROOT / "benchmarks" / "results"
CHART = ROOT / "benchmarks" / "charts" / "history.svg"
PAGE = ROOT / "benchmarks" / "history.md"
NEWEST = 2
"""How many milestones run all suites, so that each graph of asv's pages has a line."""
MINUTES = {"History": 0.6, ".": 5.0}
"""Minutes that a milestone takes on two cores, by the regular expression of its benchmarks."""
RATIO, LIMIT, PROCESS = "track_time_over_numpy", "track_time_over_limit", "track_process"


def milestones() -> dict[str, str]:
    """Return the commits of the milestones, the oldest first, and their names."""
    lines = (ROOT / "benchmarks" / "milestones.txt").read_text("utf-8").splitlines()
    return dict(line.split(" ", 1) for line in lines)


def measure(machine: str, newest: bool = False) -> None:
    """Measure the history of all milestones, and all suites at the newest; keep the results.

    If `newest`, the results of the older milestones stay as they are.
    """
    from asv.machine import Machine

    made = ROOT / ".asv" / "results"
    shutil.rmtree(made, ignore_errors=True)
    asv = [sys.executable, "-m", "asv"]
    facts = {**Machine.get_defaults(), "machine": machine}  # asv adds none to a given name
    described = [f"--{name}={fact}" for name, fact in facts.items()]
    subprocess.run([*asv, "machine", "--yes", *described], cwd=ROOT, check=True)
    commits = [*milestones()]
    runs = {} if newest else {"History": commits[:-NEWEST]}
    runs["."] = commits[-NEWEST:]
    minutes = sum(MINUTES[name] * len(chosen) for name, chosen in runs.items())
    harness.say(f"{len(commits)} milestones: about {minutes:.0f} minutes")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "commits")
        for benchmarks, chosen in runs.items():
            file.write_text("\n".join(chosen) + "\n")
            run = [*asv, "run", "--machine", machine, "--bench", benchmarks, f"HASHFILE:{file}"]
            subprocess.run(run, cwd=ROOT, check=True)
    if newest:
        for old in RESULTS.glob(f"{machine}/*.json"):
            if not (made / machine / old.name).exists():
                shutil.copy(old, made / machine)
    if missing := gaps(made):
        raise SystemExit("\n".join([f"{made} is incomplete, so nothing was replaced:", *missing]))
    shutil.rmtree(RESULTS)
    shutil.copytree(made, RESULTS)


def suite_versions() -> dict[str, str]:
    """Return the version of each benchmark of the suites, by the name that asv gives it."""
    found = {}
    for module in pkgutil.iter_modules(suites.__path__):
        imported = importlib.import_module(f"{suites.__name__}.{module.name}")
        for name, suite in inspect.getmembers(imported, inspect.isclass):
            ours = suite.__module__ == imported.__name__ and not name.startswith("_")
            for track in dir(suite) if ours else ():
                if re.match("(time|timeraw|track|peakmem)_", track):
                    version = getattr(getattr(suite, track), "version", None) or suite.version
                    found[f"{module.name}.{name}.{track}"] = version
    return found


def gaps(results: Path = RESULTS) -> list[str]:
    """Return the benchmarks of which a milestone lacks a value; only the newest need all suites."""
    missing = []
    for i, commit in enumerate(reversed(milestones())):
        files = list(results.glob(f"*/{commit[:8]}-*.json"))
        found = json.loads(files[0].read_text("utf-8"))["results"] if files else {}
        for name, version in suite_versions().items():
            values, _, measured = found.get(name, (None, None, None))[:3]
            if (i < NEWEST or name.startswith("history.")) and (
                not values or measured != version or any(v is None or v != v for v in values)
            ):
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
        "of NumPy's time at milestone 18": many[17],
        "times NumPy's time at milestone 19": many[18],
        "times at the newest milestone": many[-1],
        "times the array at milestone 18": peak[17],
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
    """Measure if asked to; write the chart, and the figures of the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("file", type=Path, nargs="?", default=CHART)
    add("--measure", metavar="MACHINE", help="first measure all, on a machine that gets this name")
    add("--newest", action="store_true", help=f"only the newest {NEWEST}, on the same machine")
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.newest)
    harness.save(draw, options.file)
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
