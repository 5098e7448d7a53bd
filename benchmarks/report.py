"""Compare splitjit with its peers and the limit, as Markdown tables and a plot.

Run it from a checkout: ``python benchmarks/report.py --help``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import figures, harness, scaling
from benchmarks.contenders import CASES, LIMIT, OURS, PEERS, Case

QUICK_BYTES = 40_000_000  # --quick skips larger cases


@dataclass(frozen=True)
class Group:
    """Cases with common goals: for the ratio to the best peer, and for the share of the limit."""

    title: str
    cases: tuple[Case, ...]
    fresh: bool = False
    each: float | None = None
    mean: float | None = None
    share: float | None = None


GROUPS = {
    name: Group(**{**group, "cases": tuple(Case.of(*case) for case in group["cases"])})
    for name, group in CASES["report"].items()
}

# The plot shows each of these splits over the array size.
SWEEPS = {
    "long runs: (n, 2304) float32 → 3x768, out=": tuple(
        Case((4**k, 2304), 1, (768,) * 3) for k in range(8)
    ),
    "short runs: (n, 12) float32 → 4x3, out=": tuple(
        Case((192 * 4**k, 12), 1, (3,) * 4) for k in range(8)
    ),
}


@dataclass(frozen=True)
class Result:
    """The seconds that each contender took for one case."""

    case: Case
    seconds: dict[str, float]

    @property
    def best_peer(self) -> str:
        """The fastest peer."""
        return min((name for name in PEERS if name in self.seconds), key=self.seconds.__getitem__)

    @property
    def ratio(self) -> float:
        """Time of the best peer over the time of splitjit: above 1, splitjit is faster."""
        return self.seconds[self.best_peer] / self.seconds[OURS]

    @property
    def share(self) -> float | None:
        """Time of the faster plain copy over the time of splitjit: 1 is the limit."""
        limits = [self.seconds[name] for name in LIMIT if name in self.seconds]
        return min(limits) / self.seconds[OURS] if limits else None

    def as_dict(self) -> dict:
        """Return the result as a dict for JSON."""
        case = {"case": str(self.case), "nbytes": self.case.nbytes, "seconds": self.seconds}
        return case | {"best_peer": self.best_peer, "ratio": self.ratio, "share": self.share}


def run(cases: tuple[Case, ...], fresh: bool, quick: bool) -> list[Result]:
    """Time the cases one by one; each frees its memory before the next starts."""
    results = []
    for case in cases:
        if quick and case.nbytes > QUICK_BYTES:
            continue
        harness.say(case)
        rounds = 3 if quick else 9 if case.nbytes > QUICK_BYTES else 15
        seconds = harness.measure(harness.contenders(case, fresh=fresh), rounds)
        results.append(Result(case, seconds))
    return results


# ---- Markdown -------------------------------------------------------------------------


def table(group: Group, results: list[Result]) -> str:
    """Return the results of a group and its summary as Markdown."""
    head = ["case", "size", OURS, *PEERS, "best peer / ours", "share of limit"]
    rows = []
    for result in results:
        times = [_time(result.seconds.get(name)) for name in (OURS, *PEERS)]
        share = "-" if result.share is None else result.share
        size, verdict = _size(result.case.nbytes), _verdict(result, group)
        rows.append([result.case, size, *times, verdict, share])
    lines = [f"### {group.title}", "", harness.table(head, rows), "", summary(group, results)]
    return "\n".join(lines)


def _size(nbytes: int) -> str:
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} B"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _verdict(result: Result, group: Group) -> str:
    ratio = f"{result.ratio:.2f}"
    if result.ratio < 1:
        return f"**{ratio} loss** to {result.best_peer}"
    if group.each is not None and result.ratio < group.each:
        return f"{ratio}, below goal"
    return ratio


def summary(group: Group, results: list[Result]) -> str:
    """Return the smallest and the mean values of a group, next to its goals."""
    ratios = [result.ratio for result in results]
    shares = [result.share for result in results if result.share is not None]
    facts = [
        ("best peer / ours, least", min(ratios), group.each),
        ("geometric mean", geometric_mean(ratios), group.mean),
    ]
    if shares:
        facts.append(("share of the limit, least", min(shares), group.share))
        facts.append(("geometric mean", geometric_mean(shares), None))
    if group is GROUPS["large"] and len(shares) == len(group.cases):
        facts.append(("share at 1 GB over share at 32 MB", shares[-1] / shares[0], 0.8))
    return "; ".join(f"{name} {_against(value, goal)}" for name, value, goal in facts) + "."


def _against(value: float, goal: float | None) -> str:
    if goal is None:
        return f"{value:.2f}"
    return f"{value:.2f} (goal {goal}: {'met' if value >= goal else '**missed**'})"


# ---- plot -----------------------------------------------------------------------------


def _figure(sweeps: dict[str, list[Result]]):
    from matplotlib import pyplot

    # One panel below the other, so that the text is readable on a narrow screen.
    figure, panels = pyplot.subplots(
        len(sweeps), 1, figsize=(4.5, 8), sharex=True, sharey=True, layout="constrained"
    )
    for panel, (title, results) in zip(panels, sweeps.items(), strict=True):
        sizes = [result.case.nbytes for result in results]
        speeds = [
            {name: 2e-9 * result.case.nbytes / s for name, s in result.seconds.items()}
            for result in results
        ]
        for name in (OURS, *PEERS):
            if any(name in speed for speed in speeds):
                values = [speed.get(name) for speed in speeds]
                style = {"linewidth": 3, "zorder": 3} if name == OURS else {}
                panel.plot(sizes, values, label=name, marker="o", markersize=4, **style)
        limits = [max(speed.get(name, 0) for name in LIMIT) for speed in speeds]
        if all(limits):
            ink = pyplot.rcParams["text.color"]
            panel.plot(sizes, limits, "--", color=ink, label="limit: plain copy in C")
        panel.set(title=title, xlabel="bytes of the array", xscale="log", yscale="log")
        panel.grid(alpha=0.3)
        panel.set_ylabel("GB/s, read and written")
    panels[0].legend(fontsize="small")
    return figure


def main() -> None:
    """Parse the arguments, measure the chosen groups, and write the chosen files."""
    parser = harness.parser(__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="3 rounds, and no large cases")
    add("--group", choices=GROUPS, action="append", help="only this one; repeatable")
    add("--plot", type=Path, metavar="FILE", help="also sizes: FILE-light.svg, FILE-dark.svg")
    add("--threads", nargs="+", metavar="N", help="the same as benchmarks/scaling.py")
    options = parser.parse_args()
    if options.threads:
        scaling.main()
        return

    machine = harness.describe() + " A quick run: for a first look only." * options.quick
    groups = {name: GROUPS[name] for name in options.group or GROUPS}
    results = {name: run(g.cases, g.fresh, options.quick) for name, g in groups.items()}
    tables = [table(groups[name], found) for name, found in results.items() if found]
    if options.plot:
        sweeps = {title: run(cases, False, options.quick) for title, cases in SWEEPS.items()}
        figures.save(lambda: _figure(sweeps), options.plot)
        results |= sweeps
    data = {name: [result.as_dict() for result in found] for name, found in results.items()}
    harness.finish(options, machine, "\n\n".join(tables), {"results": data})


if __name__ == "__main__":
    main()
