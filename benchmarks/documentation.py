"""Measure all figures of the documentation in one go, and write them to its pages.

A run that was cut off goes on where it stopped: steps that were measured at this commit, on as many
cores, are not measured again. docs/measured keeps the results; ``--from docs/measured`` writes the
pages without measuring.
"""

import argparse
import itertools
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from statistics import median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import busy, harness, in_program, landscape, processes, report
from benchmarks.contenders import CASES, CORES, LIMIT, OURS
from benchmarks.harness import ROOT, time_text

KEPT = ROOT / "docs" / "measured"
_BUSY = "busy --seconds 0.35 --outputs"
_BETWEEN = "in_program --seconds 0.3 --kind"
STEPS = {  # minutes on two cores, the command, and what --quick adds
    "report": (6, "report --plot build/sizes.svg", "--quick"),
    "busy": (4, f"{_BUSY} fresh --size '2.4 MB' '11 MB' '50 MB'", "--seconds 0.05"),
    "planes": (2, f"{_BUSY} out --size '4K frame'", "--seconds 0.05"),
    "processes": (2, "processes --processes 3 --rounds 7", "--processes 1 --rounds 1"),
    "arrays_in_programs": (5, f"{_BETWEEN} arrays", "--processes 1"),
    "tensors_in_programs": (2, f"{_BETWEEN} tensors --program torch none", "--processes 1"),
    "landscape": (3, "map --total 64K 1M 16M 64M --rounds 3 --parts 2 3 8 32", "--run 1 64 1K"),
}
NUMPY, POOLS = "NumPy, slices", ("torch", "onnxruntime")
_NAMES = {("arrays", in_program.HAND): NUMPY, ("arrays", in_program.OURS): OURS}
_NAMES |= {("tensors", in_program.TORCH): "torch", ("tensors", in_program.OURS): OURS}
"""The contenders of other tables that the ways of `in_program` are."""
PLANES = (OURS, "opencv", NUMPY, "splitjit, unstack", "splitjit, bind")
"""The contenders that the page about planes compares."""


class Measured:
    """The results of one run, in the forms that its tools write."""

    def __init__(self, folder: Path):
        data = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in STEPS}
        runs = {(of["commit"], of["cores"]) for of in data.values()}
        if len(runs) > 1:
            raise SystemExit(f"the results are of several commits or machines: {runs}")
        ((self.commit, self.cores),) = runs
        self.machine = data["report"]["machine"]
        groups = data["report"]["results"].items()
        self.report = {name: [report.Result(**result) for result in of] for name, of in groups}
        self.busy = data["busy"]["results"] + data["planes"]["results"]
        self.processes = {tuple(key): times for *key, times in data["processes"]["results"]}
        between = (data[f"{kind}_in_programs"]["results"] for kind in ("arrays", "tensors"))
        self.in_programs = in_program.by_case(itertools.chain(*between))
        cells = data["landscape"]["cells"]
        self.landscape = [landscape.Found(landscape.Cell(*c[:4]), *c[4:]) for c in cells]
        self.cases: dict[tuple[str, ...], dict[str, float]] = {}  # seconds by contender
        for name, found in self.report.items():
            self.cases |= {("report", name, r.case): r.seconds for r in found}
        for r in self.busy:
            key = ("busy", r["situation"], f"{r['size']}, {r['outputs']}")
            self.cases.setdefault(key, {})[r["contender"]] = r["mean"]
        for (outputs, name, case), times in self.processes.items():
            self.cases.setdefault(("processes", outputs, case), {})[name] = median(times)
        for (program, kind, outputs), ways in self.in_programs.items():
            for size in ways[in_program.OURS]:
                seconds = {_NAMES.get((kind, way), way): ways[way][size] for way in ways}
                case = f"{kind}, {outputs}, {size}"
                place = "no other steps" if program == "none" else f"between steps of {program}"
                self.cases["in_program", place, case] = seconds


def cost(found: Measured) -> str:
    """Return README's table of costs, with the fastest time of each row in bold."""
    rows = []
    for title, *keys in CASES["readme"]["rows"]:
        for key, seconds in found.cases.items():
            if all(map(str.startswith, key, keys)):
                limits = [seconds[n] for n in LIMIT if n in seconds and "fresh" not in title]
                rows.append([title, *_times(seconds), time_text(min(limits)) if limits else ""])
    head = ["split", OURS, "NumPy, by hand", "fastest other library", "limit"]
    return harness.table(head, rows)


def _times(seconds: dict[str, float]) -> list[str]:
    others = [name for name in report.PEERS[2:] if name in seconds]
    names = [OURS, NUMPY, *([min(others, key=seconds.__getitem__)] if others else [])]
    cells = [time_text(seconds[name]) for name in names]
    fastest = min(names, key=seconds.__getitem__)
    if not harness.below(seconds[fastest] / seconds[OURS], 1):
        fastest = OURS
    cells[names.index(fastest)] = f"**{cells[names.index(fastest)]}**"
    return [*cells[:2], f"{harness.NAMES.get(names[2], names[2])} {cells[2]}" if others else ""]


def lost(found: Measured) -> str:
    """Return the cases in which a peer is faster than splitjit, as Markdown."""
    peers, rows = {*report.PEERS, "NumPy, split"}, []
    for (tool, place, case), seconds in found.cases.items():
        shown = {name: seconds[name] for name in seconds if name in {OURS, *peers}}
        times = harness.ranked(shown, peers)[:-1]
        if times[-1].startswith("**"):
            rows.append([case, f"{tool}, {place}", *times])
    head = ["case", "measured by", *harness.RANKED[:-1]]
    return f"{len(rows)} of {len(found.cases)} cases:\n\n{harness.table(head, rows)}"


def frames(found: Measured) -> str:
    """Return the splits of frames into planes, as Markdown."""
    rows = []
    for group, results in found.report.items():
        for result in results:
            shape, _, rule = result.case.partition(" uint8, axis 2 → ")
            if rule == "3x1":
                shown = {name: s for name, s in result.seconds.items() if name in PLANES}
                outputs = "fresh" if report.GROUPS[group].fresh else "`out=`"
                *times, others = harness.ranked(shown, ["opencv"])
                rows.append(
                    (result.nbytes, outputs, [shape, outputs, times[0], *times[2:], others])
                )
    head = ["frame, uint8", "planes", OURS, "`cv2.split`", "over ours", "the others"]
    return harness.table(head, [row for *_, row in sorted(rows, key=lambda row: row[:2])])


def ratios(found: Measured) -> dict[str, list[float]]:
    """Return ratios by the words that follow them in a sentence: "0.4 to 0.8 of the speed"."""
    large = [r for r in found.report["long"] + found.report["short"] if r.limit]
    tiny = [r for r in found.report["tiny"] + found.report["small"] if r.nbytes < 9300]
    scattered = {r.case for r in large if re.search(r"→ (1[6-9]|[2-9]\d)x1$", r.case)}
    fresh = [
        min(seconds[name] for name in POOLS if name in seconds) / seconds[OURS]
        for (tool, outputs, case), seconds in found.cases.items()
        if (tool, outputs) == ("processes", "fresh") and {*POOLS} & {*seconds}
        if 1e6 < processes.CASES[case].nbytes < 5e6
    ]

    def over(name, some):
        return [r.seconds[name] / r.seconds[OURS] for r in some]

    loaded = [s for (tool, of, _), s in found.cases.items() if tool == "busy" and of != "quiet"]
    copies = [*large, *found.report["fresh"]]
    return {
        "of the time of `np.split`": [1 / x for x in over("numpy", copies)],
        "of the (?:limit's )?speed": [r.share for r in large if r.case not in scattered],
        "when rows scatter": [r.share for r in large if r.case in scattered],
        "times as fast as NumPy for pixels": over("numpy", found.report["short"]),
        "times for transposed": over("numpy", found.report["transposed"]),
        "times as long as splitjit": fresh,
        "times as long as NumPy's slices": [s[OURS] / s[NUMPY] for s in loaded],
        "% less time": [100 - 100 * x for x in over(NUMPY, tiny)],
    }


def with_ratios(text: str, found: Measured) -> str:
    """Write the ratios into the sentences of a page, whatever its line breaks."""
    for words, values in ratios(found).items():
        if values:
            least, most = f"{min(values):.2g}", f"{max(values):.2g}"
            if words.startswith("%"):
                least, most = "up", f"{max(0, math.ceil(max(values)))}"
            following = words.replace(" ", r"\s+")
            pattern = rf"(?:up|[\d.]+)(\s+to\s+)[\d.]+(?=\s+{following})"
            text = re.sub(pattern, rf"{least}\g<1>{most}", text)
    return text


def filled(text: str, **made: str) -> str:
    """Return a page with new contents between ``<!-- name -->`` and ``<!-- end of name -->``."""
    for name, content in made.items():
        start, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        (before, rest) = text.split(start)
        text = f"{before}{start}{content}{end}{rest.split(end)[1]}"
    return text


def pages(found: Measured) -> dict[Path, str]:
    """Return the pages that have figures, with the measured ones."""
    date, _, processor = found.machine.split(f", {harness.THREADS} threads")[0].split(", ", 2)
    when = f"on {date}, on {found.cores} cores of {processor} (commit {found.commit})"
    times = f"Median times of one call {when}; in the last two rows, mean times. Less is better."
    planes = f"Median times of one call {when}:"
    made = {
        "README.md": {"when": textwrap.fill(times, 100), "times": cost(found)},
        "docs/howto/planes.md": {"frames": f"{textwrap.fill(planes, 100)}\n\n{frames(found)}"},
        "docs/performance.md": {},
        "docs/results.md": {
            "machine": found.machine,
            "lost": lost(found),
            "report": report.tables(found.report),
            "valleys": landscape.valleys(found.landscape, 10).strip(),
            "processes": processes.tables(found.processes).strip(),
            "busy": busy.tables(found.busy),
            "programs": in_program.report(found.in_programs),
        },
    }
    texts = {ROOT / name: (ROOT / name).read_text("utf-8") for name in made}
    return {
        page: with_ratios(filled(text, **new), found)
        for (page, text), new in zip(texts.items(), made.values(), strict=True)
    }


def is_measured(file: Path) -> bool:
    """Return whether a file has results of this commit, on as many cores."""
    if not file.exists():
        return False
    data = json.loads(file.read_text("utf-8"))
    commit = harness.commit()
    return (data["commit"], data["cores"]) == (commit, CORES) and "dirty" not in commit


def main() -> None:
    """Measure if asked to, and write the pages, the charts and the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--from", dest="folder", type=Path, metavar="DIR", help="do not measure: read the results")
    add("--quick", action="store_true", help="a first look, in 10 minutes; do not commit its pages")
    add("--step", nargs="+", choices=STEPS, default=[*STEPS], help="repeat only these measurements")
    options = parser.parse_args()
    folder = options.folder or ROOT / "build" / "measured"  # git ignores it: no dirty commits
    if not options.folder:
        folder.mkdir(parents=True, exist_ok=True)
        steps = {name: STEPS[name] for name in options.step}
        minutes = 10 if options.quick else sum(step[0] for step in steps.values())
        harness.say(f"{', '.join(steps)}: about {minutes} minutes")
        for name, (_, command, less) in steps.items():
            if options.step == [*STEPS] and is_measured(folder / f"{name}.json"):
                harness.say(f"== {name}: measured before")
                continue
            harness.say(f"== {name}")
            words = shlex.split(f"{command} {less * options.quick}")
            run = [sys.executable, "-m", "benchmarks", *words, "--json", folder / f"{name}.json"]
            subprocess.run(run, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    found = Measured(folder)
    if not options.folder:  # before the other pages change, so that the commit is not dirty
        mechanisms = [sys.executable, "-m", "benchmarks", "mechanisms", "--page"]
        subprocess.run(mechanisms, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    for page, text in pages(found).items():
        page.write_text(text, "utf-8")
    if folder.resolve() != KEPT:
        shutil.copytree(folder, KEPT, dirs_exist_ok=True)
    report.draw(found.report, ROOT / "docs" / "charts" / "sizes.svg")
    landscape.draw(found.landscape, ROOT / "docs" / "charts")


if __name__ == "__main__":
    main()
