"""Measure all figures of the documentation in one go, and write them to its pages.

A run that was cut off goes on where it stopped: steps that were measured at this commit, on as many
cores, are not measured again. benchmarks/measured keeps the results, and
``--from benchmarks/measured`` writes the pages without measuring.
"""

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import busy, harness, in_program, landscape, processes, report
from benchmarks.contenders import CASES, CORES, OURS, PEERS
from benchmarks.harness import ROOT, Result, time_text

KEPT = ROOT / "benchmarks" / "measured"
CHARTS = ROOT / "benchmarks" / "charts"
_BUSY = "busy --seconds 0.35 --outputs"
_BETWEEN = "in_program --processes 8 --seconds 0.15 --kind"
_CELLS = "--total 64K 1M 16M 64M --parts 2 3 8 32"
STEPS = {  # minutes on two cores, the command, and what --quick adds
    "report": (6, "report --plot build/sizes.svg", "--quick"),
    "busy": (5, f"{_BUSY} fresh --size '2.4 MB' '11 MB' '50 MB'", "--seconds 0.05"),
    "planes": (2, f"{_BUSY} out --size '4K frame'", "--seconds 0.05"),
    "processes": (2, "processes --processes 3 --rounds 7", "--processes 1 --rounds 1"),
    "arrays_in_programs": (13, f"{_BETWEEN} arrays", "--processes 1"),
    "tensors_in_programs": (7, f"{_BETWEEN} tensors --program torch none", "--processes 1"),
    "landscape": (3, f"landscape --rounds 3 {_CELLS}", "--run 1 64 1K"),
}
NUMPY, POOLS = "NumPy, slices", ("torch", "onnxruntime")
WHERE = {
    "busy": "beside other programs",
    "processes": "in a process of its own",
    "in_program": "in a program",
}
PLANES = (OURS, "opencv", NUMPY, "splitjit, unstack", "splitjit, bind")  # of their page


class Measured:
    """The results of one run, by tool, and all cases by tool, place and case."""

    def __init__(self, folder: Path):
        data = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in STEPS}
        machines = {of["cores"] for of in data.values()}
        if len(machines) > 1:
            raise SystemExit(f"the results are of machines with {machines} cores")
        (self.cores,) = machines
        self.commit = " and ".join(sorted({of["commit"] for of in data.values()}))
        self.machine = data["report"]["machine"]
        self.landscape = [landscape.Found(**one) for one in data.pop("landscape")["results"]]
        self.of: dict[str, list[Result]] = {}
        for name, step in data.items():
            results = [Result(**result) for result in step["results"]]
            self.of.setdefault(STEPS[name][1].split()[0], []).extend(results)
        self.cases = {(tool, r.place, r.case): r for tool, of in self.of.items() for r in of}


def cost(found: Measured) -> str:
    """Return README's table of costs, with the fastest time of each row in bold."""
    rows = []
    for title, *keys in CASES["readme"]["rows"]:
        for key, result in found.cases.items():
            if all(map(str.startswith, key, keys)):
                limit = time_text(result.limit) if result.limit and "fresh" not in title else ""
                rows.append([title, *_times(result.seconds), limit])
    head = ["split", OURS, "NumPy, by hand", "fastest other library", "limit"]
    return harness.table(head, rows)


def _times(seconds: dict[str, float]) -> list[str]:
    others = [name for name in PEERS[2:] if name in seconds]
    by_hand = NUMPY if NUMPY in seconds else "numpy"  # which joins by `np.concatenate`
    names = [OURS, by_hand, *([min(others, key=seconds.__getitem__)] if others else [])]
    cells = [time_text(seconds[name]) for name in names]
    fastest = min(names, key=seconds.__getitem__)
    if not harness.below(seconds[fastest] / seconds[OURS], 1):
        fastest = OURS
    cells[names.index(fastest)] = f"**{cells[names.index(fastest)]}**"
    return [*cells[:2], f"{harness.NAMES.get(names[2], names[2])} {cells[2]}" if others else ""]


def lost(found: Measured) -> str:
    """Return the cases in which a peer, or in a program another way, is faster, as Markdown."""
    rows = []
    for (tool, place, case), result in found.cases.items():
        peers = in_program.RIVALS if tool == "in_program" else (*PEERS, "NumPy, split")
        if (ratio := result.ratio(peers)) and harness.below(ratio, 1):
            rows.append([case, _where(tool, place), *result.ranked(peers)[:-1]])
    head = ["case", "where", *harness.RANKED[:-1]]
    return f"{len(rows)} of {len(found.cases)} cases:\n\n{harness.table(head, rows)}"


def _where(tool: str, place: str) -> str:
    """Say where a case was measured, in the words of the tables."""
    if tool == "report":
        title: str = report.GROUPS.get(place, {}).get("title", place)  # or the title of a sweep
        return title
    return f"{WHERE[tool]}: {place}"


def frames(found: Measured) -> str:
    """Return the splits of frames into planes, as Markdown."""
    rows = []
    for result in found.of["report"]:
        shape, _, rule = result.case.partition(" uint8, axis 2 → ")
        if rule == "3x1" and result.place != "joined":
            seconds = {name: s for name, s in result.seconds.items() if name in PLANES}
            outputs = "fresh" if "fresh" in report.GROUPS[result.place] else "`out=`"
            *times, others = replace(result, seconds=seconds).ranked(["opencv"])
            cells = [shape, outputs, times[0], *times[2:], others]
            rows.append((result.nbytes, outputs, cells))
    head = ["frame, uint8", "planes", OURS, "`cv2.split`", "over ours", "the others"]
    return harness.table(head, [row for *_, row in sorted(rows, key=lambda row: row[:2])])


def ratios(found: Measured) -> dict[str, list[float]]:
    """Return ratios by the words that follow them in a sentence: "2 to 16 times as fast as …"."""
    groups = report.by_place(found.of["report"], report.GROUPS)
    large = [r for r in groups["long"] + groups["short"] if r.limit]
    tiny = [r for r in groups["tiny"] + groups["small"] if r.nbytes < 9300]
    scattered = {r.case for r in large if re.search(r"→ (1[6-9]|[2-9]\d)x1$", r.case)}
    fresh = [(r.nbytes, r) for r in groups["fresh"]]  # every tool that measures them
    fresh += [
        (processes.CASES[r.case].nbytes, r) for r in found.of["processes"] if r.place == "fresh"
    ]
    loaded = [r for r in found.of["busy"] if r.place not in ("quiet", "a split every 5 ms")]
    programs = [r for r in found.of["in_program"] if r.place.endswith("iteration")]
    programs = [r for r in programs if not r.place.startswith("none")]

    def over(name, some):
        return [r.seconds[name] / r.seconds[OURS] for r in some]

    return {
        "times as fast as `np.split`": over("numpy", large + groups["fresh"]),
        "of a plain copy's speed": [r.share for r in large if r.case not in scattered],
        "when rows scatter": [r.share for r in large if r.case in scattered],
        "times as fast as NumPy for pixels": over("numpy", groups["short"]),
        "times for transposed": over("numpy", groups["transposed"]),
        "times as fast as the faster of torch": [
            r.ratio(POOLS) for nbytes, r in fresh if 1e6 < nbytes < 5e6 and r.best(POOLS)
        ],
        "times as fast as NumPy beside busy programs": over(NUMPY, loaded),
        "times as fast as with the fastest other way": [
            r.ratio(in_program.RIVALS) for r in programs if r.case.startswith("arrays")
        ],
        "times as fast as with torch's own operator": over(
            "torch", [r for r in programs if "torch" in r.seconds]
        ),
        "times as fast as slices written by hand": over(NUMPY, tiny),
    }


def with_ratios(text: str, found: Measured) -> str:
    """Write the ratios into the sentences of a page."""
    for words, values in ratios(found).items():
        if values:
            least, most = f"{min(values):.2g}", f"{max(values):.2g}"
            following = words.replace(" ", r"\s+")
            given = rf"(?:[\d.]+\s+to\s+)?[\d.]+(?=\s+{following})"
            text = re.sub(given, least if least == most else f"{least} to {most}", text)
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
    times = f"Times of one call, {when}: medians, or means beside other work. Less is better."
    planes = f"Median times of one call {when}:"
    made = {
        "README.md": {"when": textwrap.fill(times, 100), "times": cost(found)},
        "docs/howto/planes.md": {"frames": f"{textwrap.fill(planes, 100)}\n\n{frames(found)}"},
        "docs/performance.md": {},
        "docs/results.md": {
            "machine": found.machine,
            "lost": lost(found),
            "report": report.tables(found.of["report"]),
        },
        "benchmarks/notebook.md": {
            "valleys": landscape.valleys(found.landscape, 10).strip(),
            "processes": processes.tables(found.of["processes"]),
            "busy": busy.tables(found.of["busy"]),
            "programs": in_program.tables(found.of["in_program"]),
        },
    }
    texts = {ROOT / name: (ROOT / name).read_text("utf-8") for name in made}
    return {
        page: with_ratios(filled(text, **new), found)
        for (page, text), new in zip(texts.items(), made.values(), strict=True)
    }


def is_measured(file: Path) -> bool:
    """Return whether a file has results of this commit, on as many cores."""
    data = json.loads(file.read_text("utf-8")) if file.exists() else {}
    known, commit = (data.get("commit"), data.get("cores")), harness.commit()
    return known == (commit, CORES) and "dirty" not in commit


def run_tool(name: str, *options: str | Path) -> None:
    """Run a tool, which must succeed."""
    run = [sys.executable, ROOT / "benchmarks" / f"{name}.py", *options]
    subprocess.run(run, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


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
        # The small cases of a tool would otherwise compile no kernel, and NumPy would copy.
        subprocess.run([sys.executable, "-m", "splitjit", "warmup"], cwd=ROOT, check=True)
        harness.say(f"about {sum(step[0] for step in steps.values())} minutes")
        for name, (_, command, less) in steps.items():
            file = folder / f"{name}.json"
            if options.step != [*STEPS] or not is_measured(file):
                harness.say(f"== {name}")
                run_tool(*shlex.split(f"{command} {less * options.quick}"), "--json", file)
    found = Measured(folder)
    if not options.folder:  # before the other pages change, so that the commit is not dirty
        run_tool("mechanisms", "--page")
    for page, text in pages(found).items():
        page.write_text(text, "utf-8")
    if folder.resolve() != KEPT:
        shutil.copytree(folder, KEPT, dirs_exist_ok=True)
    report.draw(found.of["report"], CHARTS / "sizes.svg")
    landscape.draw(found.landscape, CHARTS)


if __name__ == "__main__":
    main()
