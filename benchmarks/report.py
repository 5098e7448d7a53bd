"""Compare splitjit with its peers and the limit, as Markdown tables and a plot."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean

if not __package__:  # run as a script: import this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import CASES, CORES, LIMIT, OURS, PEERS, Case, prepared

QUICK_BYTES = 40_000_000  # --quick skips larger cases


@dataclass(frozen=True)
class Group:
    """Cases with common goals: for the ratio to the best peer, and for the share of the limit.

    ``more`` are contenders besides splitjit, its peers and the limit.
    """

    title: str
    cases: tuple[Case, ...]
    fresh: bool = False
    each: float | None = None
    mean: float | None = None
    share: float | None = None
    more: tuple[str, ...] = ()


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
# Splits of arrays that no cache holds, for the curve over the number of threads.
THREADED = {
    "long runs": Case((2048, 22016), 1, (11008,) * 2),
    "short runs": Case((2_000_000, 12), 1, (3,) * 4),
}


@dataclass(frozen=True)
class Result:
    """The seconds that each contender took for one case."""

    case: str
    nbytes: int
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
    def limit(self) -> float | None:
        """Time of the faster plain copy, if there is a compiler."""
        return min((self.seconds[name] for name in LIMIT if name in self.seconds), default=None)

    @property
    def share(self) -> float | None:
        """Time of the faster plain copy over the time of splitjit: 1 is the limit."""
        return self.limit / self.seconds[OURS] if self.limit else None

    def speed(self, name: str = "") -> float | None:
        """GB/s, read and written, of a contender or of the limit."""
        seconds = self.seconds.get(name) if name else self.limit
        return 2e-9 * self.nbytes / seconds if seconds else None


Results = dict[str, list[Result]]  # by the name of a group, or the title of a sweep


def run(cases: Sequence[Case], fresh: bool, quick: bool, more: Sequence[str] = ()) -> list[Result]:
    """Time the cases one by one; each frees its memory before the next starts."""
    results = []
    for case in cases:
        if quick and case.nbytes > QUICK_BYTES:
            continue
        harness.say(case)
        rounds = 3 if quick else 5 if case.nbytes > QUICK_BYTES else 7
        calls = prepared(case, fresh, (OURS, *more, *PEERS, *LIMIT), harness.THREADS)
        seconds = harness.measure(calls, rounds)
        results.append(Result(str(case), case.nbytes, seconds))
    return results


def scale(counts: Sequence[int], rounds: int) -> Results:
    """Time splitjit and the limit with each number of threads."""
    results: Results = {name: [] for name in THREADED}
    for name, case in THREADED.items():
        for threads in counts:
            harness.say(f"{name}, {threads} threads")
            seconds = harness.measure(prepared(case, False, (OURS, *LIMIT), threads), rounds)
            results[name].append(Result(str(case), case.nbytes, seconds))
    return results


# ---- Markdown -------------------------------------------------------------------------


def tables(results: Results) -> str:
    """Return a table for each group that has results, and its summary, as Markdown."""
    head = ["case", *harness.RANKED[:-1], "limit", "share of limit", harness.RANKED[-1]]
    sections = []
    for name, group in GROUPS.items():
        rows = []
        for result in results.get(name, ()):
            seconds = {who: s for who, s in result.seconds.items() if who not in LIMIT}
            *times, others = harness.ranked(seconds, PEERS)
            limit = harness.time_text(result.limit)
            rows.append([result.case, *times, limit, result.share, others])
        if rows:
            summary = _summary(group, results[name])
            sections += [f"## {group.title}", harness.table(head, rows), summary]
    return "\n\n".join(sections)


def threads_table(results: Results, counts: Sequence[int]) -> str:
    """Return the speeds for each number of threads, as Markdown."""
    head = ["case", "threads", "GB/s", "limit", "share of limit", "times the fewest threads"]
    rows = [
        [f"{name}: {r.case}", threads, speed, r.speed(), r.share, speed / found[0].speed(OURS)]
        for name, found in results.items()
        for threads, r in zip(counts, found, strict=True)
        for speed in [r.speed(OURS)]
    ]
    return f"## Threads, `out=`\n\n{harness.table(head, rows)}"


def _summary(group: Group, results: list[Result]) -> str:
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
    verdict = "**missed**" if goal and harness.below(value, goal) else "met"
    return f"{value:.2f} (goal {goal}: {verdict})" if goal else f"{value:.2f}"


# ---- plot -----------------------------------------------------------------------------


def draw(results: Results, file: Path, counts: Sequence[int] = ()) -> None:
    """Draw the speed over the size of the array for the sweeps, or over numbers of threads."""
    shown = results if counts else {title: results[title] for title in SWEEPS}
    harness.save(lambda: _figure(shown, counts), file)


def _figure(shown: Results, counts: Sequence[int]):
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
        across = counts or [result.nbytes for result in results]
        for name, style in (styles | {"": limit}).items():
            speeds = [result.speed(name) for result in results]
            if any(speeds):
                panel.plot(across, speeds, label=name or "limit: plain copy in C", **style)
        if counts:
            panel.set(title=title, xlabel="threads", xticks=counts, ylim=(0, None))
        else:
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
    add(
        "--threads", type=int, nargs="+", metavar="N", help="how splits scale with threads, instead"
    )
    options = parser.parse_args()
    counts = sorted(options.threads or [])
    if counts and not 1 <= counts[0] <= counts[-1] <= CORES:
        parser.error(f"--threads: this machine runs 1 to {CORES} threads at once")
    machine = harness.describe(counts or [harness.THREADS])
    machine += " A quick run: for a first look only." * options.quick
    if counts:
        results = scale(counts, 3 if options.quick else 9)
        text = threads_table(results, counts)
    else:
        groups = {name: GROUPS[name] for name in options.group or GROUPS}
        results = {name: run(g.cases, g.fresh, options.quick, g.more) for name, g in groups.items()}
        text = tables(results)
        sweeps = SWEEPS if options.plot else {}
        results |= {title: run(cases, False, options.quick) for title, cases in sweeps.items()}
    data = {name: [asdict(result) for result in found] for name, found in results.items()}
    harness.finish(options, machine, text, {"results": data})
    if options.plot:
        draw(results, options.plot, counts)


if __name__ == "__main__":
    main()
