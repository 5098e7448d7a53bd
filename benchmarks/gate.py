"""Say which splits became slower than in another version, and exit with 1 if one did."""

import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import comb
from pathlib import Path
from statistics import median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.contenders import OURS, targets
from benchmarks.harness import ROOT, Worker, commit, say

STRIDED, LARGE = targets("gate", "strided"), targets("gate", "large")
CASES = targets("gate", "calls") | STRIDED | LARGE

ALONE, WARM = "splitjit, one thread", "splitjit, warm"
_LONG = ("F, 4 bytes, 64 MB, out", "objects, fresh", *LARGE)  # too long for CI
_COLD = {"splitjit, cold": ["F, 8 bytes, 500 KB, fresh"]}  # alone: kernels would stay loaded
SMALL = {ALONE: [case for case in CASES if case not in _LONG]} | _COLD
FULL = {ALONE: [case for case in CASES if case not in LARGE]} | _COLD
FULL |= {WARM: [*STRIDED], "splitjit, bind": ["QKV of 1 token, out"]}
FULL[OURS] = ["pixels, out", "runs of 40 bytes, out", "long runs, out", "axis 0, fresh", *LARGE]
"""By contender, the cases to time."""

FIRST, SECOND = 5, 9
"""Pairs of processes: for all cases, and once more for each suspicious one."""
SUSPICIOUS, SLOWER = 1.08, 1.12
"""Ratios of time: the least median for a second look, and the least lower bound for an alarm."""
CONFIDENCE = 0.93

CACHE = Path("splitjit", "_kernels", "__pycache__")
"""Where a checkout has its compiled kernels. Versions with the same kernels share their names."""

Key = tuple[str, str]  # contender and case


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the median between the narrowest ranks that have the true one with `CONFIDENCE`.

    A ratio is below the true median with a probability of one half, whatever the distribution of
    the ratios. So the number of ratios below the true median has a binomial distribution. Five
    ratios give the least and the greatest, nine ratios the second and the last but one.
    """
    ordered, n = sorted(ratios), len(ratios)
    rank = 0
    while 1 - 2 * sum(comb(n, k) for k in range(rank + 2)) / 2**n >= CONFIDENCE:
        rank += 1
    return (ordered[rank], median(ordered), ordered[n - 1 - rank])


def look(
    keys: list[Key], checkouts: tuple[Path, Path], pairs: int, plant: float
) -> dict[Key, list[float]]:
    """Time cases in pairs of new processes; return a ratio, new over base, for each pair.

    Cases that a version cannot do are left out. ``plant`` slows down the new version, to test the
    gate: by these seconds in each call, and by a copy of the array if it has 1 MB or more.
    """
    ratios: dict[Key, list[float]] = {}
    began = time.monotonic()
    for i in range(pairs if keys else 0):
        for contender in dict.fromkeys(key[0] for key in keys):
            names = [case for found, case in keys if found == contender]
            with Worker(contender, checkouts[0]) as base, Worker(contender, checkouts[1]) as new:
                for name in random.sample(names, len(names)):
                    ratio = _ratio(base, new, name, plant)
                    if ratio is not None:
                        ratios.setdefault((contender, name), []).append(ratio)
        seconds = (time.monotonic() - began) / (i + 1) * (pairs - i - 1)
        say(f"pair {i + 1} of {pairs}, about {seconds:.0f} s left")
    return ratios


def _ratio(base: Worker, new: Worker, name: str, plant: float) -> float | None:
    """Return the median ratio of bursts that follow each other, over new arrays."""
    ratios = []
    # On one thread, CPU time leaves out the time of other programs, and no idle thread spins on
    # after a burst.
    cpu = base.contender not in (OURS, WARM)
    rest = 0 if cpu else harness.REST
    for _ in range(3):
        for worker in (base, new):
            if reason := worker.ask("prepare", *CASES[name]):
                say(reason)
                return None
        if plant:
            new.ask("slow", plant, CASES[name][0].nbytes >= 1e6)
        for _ in range(2 if cpu else 4):
            pair = random.sample((base, new), 2)
            seconds = {worker: worker.ask("burst", cpu, rest) for worker in pair}
            ratios.append(seconds[new] / seconds[base])
    for worker in (base, new):
        worker.ask("release")
    return median(ratios)


def judge(
    keys: list[Key], checkouts: tuple[Path, Path], plant: float = 0
) -> tuple[dict[Key, tuple], list[Key]]:
    """Time all cases, and suspicious ones again; return the intervals and the slower cases.

    A second look uses new ratios only. With the first ones, the choice of the greatest would
    remain in the result.
    """
    ratios = look(keys, checkouts, FIRST, plant)
    found = {key: interval(ratios[key]) for key in keys if key in ratios}
    suspicious = [key for key, first in found.items() if first[1] > SUSPICIOUS]
    if suspicious:
        say(f"{len(suspicious)} of {len(found)} cases took more than {SUSPICIOUS} times as long.")
        say(f"A run takes longer then: {SECOND} new pairs tell slower code from a busy minute.")
    second = look(suspicious, checkouts, SECOND, plant)
    found |= {key: interval(second[key]) for key in second}
    return found, [key for key in second if found[key][0] > SLOWER]


@contextlib.contextmanager
def checkout(version: str) -> Iterator[Path]:
    """Yield the folder of a version: a folder, or a git revision that is checked out to one."""
    if Path(version, "splitjit").is_dir():
        yield Path(version)
        return
    git = ["git", "-C", str(ROOT), "worktree"]
    with tempfile.TemporaryDirectory(prefix="splitjit-gate-") as folder:
        base = Path(folder, "base")
        command = [*git, "add", "--quiet", "--detach", str(base), version]
        if subprocess.run(command, check=False).returncode:
            say(f"{version!r} is no git revision, and no checkout of splitjit")
            raise SystemExit(2)
        kernels = ROOT / CACHE
        kernels.mkdir(exist_ok=True)
        shutil.copytree(kernels, base / CACHE, ignore=shutil.ignore_patterns("*.pyc"))
        try:
            yield base
        finally:
            subprocess.run([*git, "remove", "--force", str(base)], check=True)


def main() -> int:
    """Compare two versions, print the ratios, and return the exit status."""
    parser = harness.parser(__doc__, case=[*CASES])
    add = parser.add_argument
    add("base", metavar="BASE", help="a git revision, or the folder of a checkout")
    add("--new", default=str(ROOT), metavar="NEW", help="the same; this checkout by default")
    add("--small", action="store_true", help="calls on one thread only, for CI")
    add("--plant", type=float, default=0, metavar="SECONDS",
        help="test the gate: slow down NEW by SECONDS a call, and a copy from 1 MB on")  # fmt: skip
    options = parser.parse_args()
    groups = SMALL if options.small else FULL
    keys = [(by, case) for by, cases in groups.items() for case in cases if case in options.case]

    with checkout(options.base) as base, checkout(options.new) as new:
        versions = [commit(folder) for folder in (base, new)]
        for folder in (base, new):  # a version without kernels would be compared in NumPy's copies
            subprocess.run([sys.executable, "-m", "splitjit", "warmup"], cwd=folder, check=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
        seconds = FIRST * (0.5 * len(keys) + 2 * len({by for by, _ in keys}))  # on two cores
        say(f"{versions[0]} is the base of {versions[1]}: {len(keys)} cases, {FIRST} pairs of")
        say(f"processes, about {seconds:.0f} s")
        found, slower = judge(keys, (base, new), options.plant)
    rows = []
    for key, (low, ratio, high) in found.items():
        of = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
        rows.append([*key, of, "**slower**" if key in slower else ""])
    head = ["contender", "case", f"time of {versions[1]} over {versions[0]}", ""]
    verdict = "\n".join(f"slower beyond doubt: {case} ({by})" for by, case in slower)
    report = f"{harness.table(head, rows)}\n\n{verdict or 'no case is slower beyond doubt'}"
    named = [[*key, *of, key in slower] for key, of in found.items()]
    harness.finish(options, harness.describe(), report, named)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
