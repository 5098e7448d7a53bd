"""What each mechanism saves: the same splits with it and without it, in new processes.

``--page`` writes the table to docs/architecture.md.
"""

import functools
import os
import subprocess
import sys
import tempfile
import tomllib
from contextlib import ExitStack
from pathlib import Path
from statistics import median

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import harness
from benchmarks.documentation import filled
from benchmarks.harness import ROOT, time_text

PAGE = ROOT / "docs" / "architecture.md"
GIVEN = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
MECHANISMS = {given["name"]: given for given in GIVEN["mechanism"]}


def seconds(mechanism: dict, without: bool, folder: Path) -> float:
    """Return the time that the program prints; of several processes, the longest time."""
    variables = dict(mechanism.get("variables", {})) if without else {}
    processes = mechanism.get("processes", 1)
    program = folder / f"program_{without}.py"  # a file, because Numba caches functions of files
    if not program.exists():
        code = [GIVEN["start"], mechanism.get("off", "") if without else "", mechanism["program"]]
        program.write_text("\n".join(code), "utf-8")
    with tempfile.TemporaryDirectory() as cache, harness.busy_programs(mechanism.get("busy", 0)):
        if processes > 1:
            variables["NUMBA_CACHE_DIR"] = cache
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
        run = functools.partial(
            subprocess.Popen, [sys.executable, program], env=environment, cwd=ROOT,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with ExitStack() as stack:
            programs = [stack.enter_context(run()) for _ in range(processes)]
            return max(float(program.communicate()[0].split()[-1]) for program in programs)


def rows(results: list[list]) -> str:
    """Return the table of mechanisms, as Markdown."""
    lines = []
    for name, *times in results:
        with_it, without = map(time_text, times)
        of = MECHANISMS[name]
        lines.append([name, of["where"], f"{of['task']}: {with_it}", without])
    return harness.table(["mechanism", "where", "with it", "without it"], lines)


def main() -> None:
    """Measure each mechanism, with it and without it in turns, and print the table."""
    parser = harness.parser(__doc__, processes=(3, "of each kind"))
    parser.add_argument("--only", default="", help="the mechanisms whose names contain this")
    parser.add_argument("--page", action="store_true", help="write docs/architecture.md")
    options = parser.parse_args()
    machine, results = harness.describe(), []
    for name, mechanism in MECHANISMS.items():
        if options.only in name:
            harness.say(name)
            with tempfile.TemporaryDirectory() as folder:
                turn = functools.partial(seconds, mechanism, folder=Path(folder))
                for without in (False, True):  # what is not in the cache is compiled
                    turn(without)
                turns = harness.in_turns((False, True), options.processes, turn)
            results.append([name, median(turns[False]), median(turns[True])])
    harness.finish(options, machine, rows(results), results)
    if options.page:
        text = filled(PAGE.read_text("utf-8"), mechanisms=f"{machine}\n\n{rows(results)}")
        PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
