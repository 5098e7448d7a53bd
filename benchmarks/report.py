"""Compare splitjit with its peers and the limit, as Markdown tables and a plot."""

import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import geometric_mean

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import CASES, LIMIT, OURS, PEERS, Case, cases, prepared, prepared_joins
from benchmarks.harness import Result

QUICK_BYTES = 40_000_000  # --quick skips larger cases


GROUPS = CASES["report"]
"""Cases with common goals; `more` are contenders besides splitjit, its peers and the limit. With
`joins`, parts are joined."""
SWEEPS = {title: cases("sweeps", title).values() for title in CASES["sweeps"]}
"""The plot shows each of these splits over the array size."""


def run(place: str, cases: Iterable[Case], fresh: bool, quick: bool) -> list[Result]:
    """Time the cases one by one; each frees its memory before the next starts."""
    results, more = [], GROUPS.get(place, {}).get("more", ())
    for case in cases:
        if quick and case.nbytes > QUICK_BYTES:
            continue
        harness.say(case)
        rounds = 3 if quick else 5 if case.nbytes > QUICK_BYTES else 7
        names = OURS, *more, *PEERS, *LIMIT
        if GROUPS.get(place, {}).get("joins"):
            calls = prepared_joins(case, names, harness.THREADS)
        else:
            calls = prepared(case, fresh, names, harness.THREADS)
        results.append(Result(place, str(case), harness.measure(calls, rounds), case.nbytes))
    return results


def by_place(results: Iterable[Result], places: Iterable[str]) -> dict[str, list[Result]]:
    """Return the results of each place that has some."""
    found = {place: [r for r in results if r.place == place] for place in places}
    return {place: results for place, results in found.items() if results}


def tables(results: list[Result]) -> str:
    """Return a table for each group that has results, and its summary, as Markdown."""
    head = ["case", *harness.RANKED[:-1], "limit", "share of limit", harness.RANKED[-1]]
    sections = []
    for name, found in by_place(results, GROUPS).items():
        rows = []
        for result in found:
            *times, others = result.ranked()
            limit = harness.time_text(result.limit)
            rows.append([result.case, *times, limit, result.share, others])
        summary = _summary(name, found)
        sections += [f"## {GROUPS[name]['title']}", harness.table(head, rows), summary]
    return "\n\n".join(sections)


def _summary(name: str, results: list[Result]) -> str:
    """Return the smallest and the mean values of a group, next to its goals."""
    goals = GROUPS[name]
    ratios = [result.ratio() for result in results]
    shares = [result.share for result in results if result.share is not None]
    facts = [("best peer / ours, least", min(ratios), goals.get("each"))]
    facts.append(("geometric mean", geometric_mean(ratios), goals.get("mean")))
    if shares:
        facts.append(("share of the limit, least", min(shares), goals.get("share")))
        facts.append(("geometric mean", geometric_mean(shares), None))
    if name == "large" and len(shares) == len(goals["cases"]):
        facts.append(("share at 1 GB over share at 32 MB", shares[-1] / shares[0], 0.8))
    return "; ".join(f"{fact} {_against(value, goal)}" for fact, value, goal in facts) + "."


def _against(value: float, goal: float | None) -> str:
    verdict = "**missed**" if goal and harness.below(value, goal) else "met"
    return f"{value:.2f} (goal {goal}: {verdict})" if goal else f"{value:.2f}"


def draw(results: list[Result], file: Path) -> None:
    """Draw the speed over the size of the array for the sweeps."""
    shown = by_place(results, SWEEPS)
    harness.save(lambda: _figure(shown), file)


def _figure(shown: dict[str, list[Result]]):
    from matplotlib import pyplot

    # One panel below the other, so that the text is readable on a narrow screen.
    figure, panels = pyplot.subplots(
        len(shown), 1, figsize=(4.5, 8), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    limit = {"linestyle": "--", "color": pyplot.rcParams["text.color"]}
    styles = {name: {"marker": "o", "markersize": 4} for name in (OURS, *PEERS)}
    styles[OURS] |= {"linewidth": 3, "zorder": 3}
    for panel, (title, results) in zip(panels[:, 0], shown.items(), strict=True):
        across = [result.nbytes for result in results]
        for name, style in (styles | {"": limit}).items():
            speeds = [result.speed(name) for result in results]
            if any(speeds):
                panel.plot(across, speeds, label=name or "limit: plain copy in C", **style)
        panel.set(title=title, xlabel="bytes of the array", xscale="log", yscale="log")
        panel.grid(alpha=0.3)
        panel.set_ylabel("GB/s, read and written")
    panels[0, 0].legend(fontsize="small")
    return figure


def main() -> None:
    """Parse the arguments, measure the chosen groups, and write the chosen files."""
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="3 rounds, and no large cases")
    add("--group", choices=GROUPS, action="append", help="only this one; repeatable")
    add("--plot", type=Path, metavar="FILE", help="also draw the speed over sizes")
    options = parser.parse_args()
    machine = harness.describe()
    machine += " A quick run: for a first look only." * options.quick
    asked = [
        (name, cases("report", name, "cases").values(), "fresh" in GROUPS[name], options.quick)
        for name in options.group or GROUPS
    ]
    if options.plot:
        asked += [(title, sweep, False, options.quick) for title, sweep in SWEEPS.items()]
    results = [result for given in asked for result in run(*given)]
    harness.finish(options, machine, tables(results), results)
    if options.plot:
        draw(results, options.plot)


if __name__ == "__main__":
    main()
