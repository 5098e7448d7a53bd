"""How every comparison measures: turns in random order, rests, bursts, medians, and workers.

Thread pools spin for a while after their work, which slows down the next contender. So the order is
random in every round, and each contender rests before its turn. The first split after the rest
counts, as it does in a program: there, a barrier waits for a late thread. Compare only ratios of
one run.

The speed of a split also depends on the state of its process: the places of its pages in memory,
its pools of threads, and what a library remembers of earlier calls. A worker is a process that
holds one contender and sleeps on a pipe until it gets an order. An order is the name of a method of
`Contender` with its arguments; orders and answers are lines of JSON::

    parent                                        worker
    Worker("torch").ask("prepare", case, "out")   Contender("torch").prepare(case, "out")

All results are seconds of contenders for a case, somewhere; tables and pages are made of them.
"""

import argparse
import contextlib
import dataclasses
import datetime
import faulthandler
import importlib.metadata
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

if not __package__:  # run as a worker, or from a script
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import contenders
from benchmarks.contenders import BEFORE, CORES, LIMIT, OURS, PEERS, Call, Case

ROOT = Path(__file__).resolve().parents[1]
THREADS = 2
"""Threads that each contender of the report and of the history may use, on any machine."""
PATIENCE = 120
"""Seconds after which a worker ends itself if it has not finished its order."""
REST, REST_FROM_ORT = 0.008, 0.04
"""Seconds of sleep before a turn: OpenMP's idle threads spin for 6 ms, ONNX Runtime's for 29."""
WARM, WARM_SECONDS = Case.of("QKV of 512 tokens"), 0.3
"""What a process splits first, and how long, if it pays to load kernels and to start threads."""


def rest_among(contenders: Iterable[str]) -> float:
    """Return how many seconds each of these contenders sleeps before its turn."""
    return REST_FROM_ORT if "onnxruntime" in contenders else REST


def burst(call: Call, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds per call, over at least 3 calls and 10 ms."""
    count, batch = 0, 3
    start = clock()
    while True:
        for _ in range(batch):
            call()
        count += batch
        elapsed = clock() - start
        if elapsed >= 0.01:
            return elapsed / count
        batch = count  # double the count, so that the clock is rarely read


def iterate(step: Call, call: Call, seconds: float) -> tuple[float, float]:
    """Return the mean seconds of an iteration, a step and then a call, and of its call alone.

    A third of the seconds is not counted.
    """
    clock = time.perf_counter
    step(), call()  # the first ones may compile
    for counted in (seconds / 3, seconds * 2 / 3):
        own, count = 0.0, 0
        begun = now = clock()
        while now < begun + counted:
            step()
            before = clock()
            call()
            now = clock()
            own, count = own + now - before, count + 1
    return (now - begun) / count, own / count


def in_turns(names: Iterable[str], rounds: int, turn: Callable[[str], Any]) -> dict[str, list]:
    """Visit all contenders in each round, in random order; return the results of their turns."""
    results: dict[str, list] = {name: [] for name in names}
    for _ in range(rounds):
        for name in random.sample([*results], len(results)):
            results[name].append(turn(name))
    return results


def measure(
    calls: dict[str, Call], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median seconds per call of each contender, whose bursts take turns.

    The clock `time.process_time` leaves out the time of other programs, for calls on one thread.
    """
    rest = rest_among(calls)

    def turn(name: str) -> float:
        time.sleep(rest)
        return burst(calls[name], clock)

    return {name: statistics.median(s) for name, s in in_turns(calls, rounds, turn).items()}


class Worker:
    """A process that holds one contender of a checkout. Use it as a context manager."""

    def __init__(self, contender: str, checkout: str | os.PathLike[str] = ROOT, **environment: str):
        self.contender = contender
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness", contender, Path(checkout).resolve()],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip

    def send(self, order: str, *arguments: object) -> None:
        """Give an order and do not wait for its result."""
        print(json.dumps([order, *arguments], default=dataclasses.astuple), file=self.process.stdin)
        self.process.stdin.flush()

    def receive(self):
        """Wait for the result of the order given last."""
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the worker of {self.contender} ended before it answered")
        return json.loads(answer)

    def ask(self, order: str, *arguments: object):
        """Give an order and return its result."""
        self.send(order, *arguments)
        return self.receive()

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def team_of(stack: contextlib.ExitStack, names: Iterable[str], before: Path | None) -> dict:
    """Start a worker for each contender; `BEFORE` runs the splitjit of another checkout."""
    checkouts = {BEFORE: before or ROOT}
    return {name: stack.enter_context(Worker(name, checkouts.get(name, ROOT))) for name in names}


def turns(team: dict, case: Case, outputs: str, rounds: int, *order: object) -> dict[str, list]:
    """Give an order in turns to each worker that can do a case; return the answers."""
    able = [name for name, worker in team.items() if not worker.ask("prepare", case, outputs)]
    return in_turns(able, rounds, lambda name: team[name].ask(*order))


def together(team: list[Worker], order: str, *arguments: object) -> list:
    """Give all workers of a team the same order at once; return their results."""
    for worker in team:
        worker.send(order, *arguments)
    return [worker.receive() for worker in team]


SPIN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


@contextlib.contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Run programs that each keep one core busy, until the ``with`` block ends."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            program = stack.enter_context(subprocess.Popen([sys.executable, "-c", SPIN]))
            stack.callback(program.kill)  # before the exit of Popen, which waits
        time.sleep(0.5 if count else 0)  # until the interpreters have started
        yield


class Contender:
    """One way to split, and the arrays of the case that it is prepared for."""

    def __init__(self, name: str):
        self.name = name
        self.call = self.x = None

    def prepare(self, case: list, outputs: str, kind: str = "arrays") -> str | None:
        """Allocate, call once and verify; return a reason if the contender cannot do it."""
        shape, axis, sizes, *more = case
        case = Case(tuple(shape), axis, tuple(sizes), *more)
        x, out = case.array(), contenders.allocate(case, outputs)
        try:
            if kind == "tensors":
                from torch import from_numpy

                x, out = from_numpy(x), out and [from_numpy(part) for part in out]
            self.call = contenders.verified(self.name, case, x, out, CORES)
        except (ImportError, NotImplementedError) as error:
            return f"{self.name}: {error}"
        self.x = x  # some calls hold only the address of x
        return None

    def release(self) -> None:
        """Drop the arrays of the case."""
        self.call = self.x = None

    def burst(self, cpu: bool = False, rest: float = REST) -> float:
        """Sleep; then return the seconds a call takes, by the clock or of the processor."""
        time.sleep(rest)
        return burst(self.call, time.process_time if cpu else time.perf_counter)

    def between(self, program: str, seconds: float) -> tuple[float, float] | None:
        """Return the mean seconds of an iteration of a program, and of the call in it alone."""
        try:
            return iterate(contenders.step_of(program), self.call, seconds)
        except ImportError:
            return None

    def slow(self, seconds: float, copy: bool) -> None:
        """Plant a delay in each call, and a copy of the array."""
        call, x = self.call, self.x

        def slowed():
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass
            if copy:
                x.copy()
            return call()

        self.call = slowed

    def calls(self, seconds: float, rest: float = REST, pause: float = 0) -> dict:
        """Sleep; then call for some seconds, after a pause each.

        Return the nanoseconds of each call, and the seconds of the processor that a call takes in
        all threads.
        """
        time.sleep(rest)
        call, clock, times = self.call, time.perf_counter_ns, []
        used, before = time.process_time(), clock()
        end = before + int(seconds * 1e9)
        while before < end:
            if pause:
                time.sleep(pause)
                before = clock()
            call()
            now = clock()
            times.append(now - before)
            before = now
        return {"times": times, "cpu": (time.process_time() - used) / len(times)}

    def narrow(self, everything: bool) -> None:
        """Leave one core to the main thread, or to every thread that the process has now."""
        core = min(os.sched_getaffinity(0))
        for thread in os.listdir("/proc/self/task") if everything else ("0",):
            with contextlib.suppress(ProcessLookupError):  # the thread has ended meanwhile
                os.sched_setaffinity(int(thread), {core})


def serve(contender: str, checkout: str) -> None:
    """Carry out the orders on standard input, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets Ctrl-C, too, and kills workers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not garble answers
    sys.path.insert(0, checkout)  # `benchmarks` is already loaded from the parent's checkout
    holder = Contender(contender)
    for line in sys.stdin:
        order, *arguments = json.loads(line)
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        result = getattr(holder, order)(*arguments)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(result), file=answers, flush=True)


def commit(folder: Path = ROOT) -> str:
    """Return the commit of a checkout, marked if files differ from the commit."""
    command = ["git", "describe", "--always", "--dirty"]
    git = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return git.stdout.strip() or "unknown commit"


def describe(threads: int = THREADS) -> str:
    """Return one line about the machine, the date, the load and the versions."""
    import splitjit

    processor, cpuinfo = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        processor = next(named, processor)
    where = [str(datetime.date.today()), platform.system(), processor, f"{threads} threads"]
    where += [f"load of {os.getloadavg()[0]:.1f} before"] if hasattr(os, "getloadavg") else []
    versions = [f"Python {platform.python_version()}"]
    versions += [f"splitjit {splitjit.__version__} ({commit()})"]
    for package in ("numba", "numpy", "torch", "onnxruntime", "openvino", "opencv-python-headless"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return f"{', '.join(where)}; {', '.join(versions)}."


def parser(doc: str, before: bool = False, **options: tuple) -> argparse.ArgumentParser:
    """Return a parser with what commands have in common, and with more options.

    An option has choices, which are all taken by default, or a default number and a help text.
    """
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    add = made.add_argument
    for name, given in options.items():
        if isinstance(given[0], str):
            text = f"some of {', '.join(map(repr, given))}; all by default"
            add(f"--{name}", nargs="+", choices=given, default=[*given], metavar="NAME", help=text)
        else:
            add(f"--{name}", type=type(given[0]), default=given[0], help=given[1])
    add("--json", type=Path, metavar="FILE", help="write all results")
    add("--markdown", type=Path, metavar="FILE", help="write the tables")
    if before:
        add("--before", type=Path, metavar="DIR", help="another checkout to measure")
    return made


def finish(options: argparse.Namespace, machine: str, report: str, results: list) -> None:
    """Print the report, and write it and the results to the chosen files."""
    report = f"{machine}\n\n{report}\n"
    print(report)
    if options.markdown:
        options.markdown.write_text(report, encoding="utf-8")
    if options.json:
        data = {"machine": machine, "cores": CORES, "commit": commit(), "results": results}
        text = json.dumps(data, indent=1, default=dataclasses.asdict)
        options.json.write_text(f"{text}\n", encoding="utf-8")


NAMES = {
    "numpy": "`np.split`",
    "NumPy, split": "`np.split`",
    "NumPy, slices": "NumPy's slices",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "opencv": "OpenCV",
    "splitjit, one thread": "splitjit on one thread",
    "splitjit, unstack": "`unstack`",
    "splitjit, bind": "a binding",
}
"""What tables call a contender."""
RANKED = [OURS, "fastest peer", "its time", "over ours", "the others"]
"""The columns that `ranked` fills."""
NUMBER = re.compile(r"\W*\d[\d.]*( (ns|µs|ms|s|B|[kKMG]B))?( \([^()]*\))?\W*|-|")


@dataclasses.dataclass(frozen=True)
class Result:
    """The seconds that each contender took for a case, in a group, a situation or a program.

    If it was measured, also the 99th percentiles, and the seconds of the processor.
    """

    place: str
    case: str
    seconds: dict[str, float]
    nbytes: int = 0
    p99: dict[str, float] = dataclasses.field(default_factory=dict)
    cpu: dict[str, float] = dataclasses.field(default_factory=dict)

    def best(self, peers: Iterable[str] = PEERS) -> str | None:
        """Return the fastest peer."""
        return min(self.seconds.keys() & {*peers}, key=self.seconds.__getitem__, default=None)

    def ratio(self, peers: Iterable[str] = PEERS, ours: str = OURS) -> float | None:
        """Return the time of the fastest peer over ours: above 1, splitjit is faster."""
        best = self.best({*peers} - {ours})
        return self.seconds[best] / self.seconds[ours] if best and ours in self.seconds else None

    @property
    def limit(self) -> float | None:
        """Time of the faster plain copy, if there is a compiler."""
        best = self.best(LIMIT)
        return self.seconds[best] if best else None

    @property
    def share(self) -> float | None:
        """Time of the faster plain copy over the time of splitjit: 1 is the limit."""
        return self.limit / self.seconds[OURS] if self.limit else None

    def speed(self, name: str = "") -> float | None:
        """GB/s, read and written, of a contender or of the limit."""
        seconds = self.seconds.get(name) if name else self.limit
        return 2e-9 * self.nbytes / seconds if seconds else None

    def ranked(self, peers: Iterable[str] = PEERS) -> list[str]:
        """Return splitjit's time, its fastest peer and the ratio of both, and the others.

        A ratio that prints as less than 1, a loss, is bold.
        """
        shown = {name: time_text(time) for name, time in self.seconds.items() if name not in LIMIT}
        shown |= {n: f"{shown[n]} ({time_text(p99)})" for n, p99 in self.p99.items()}
        best = self.best(peers) if OURS in shown else None
        others = sorted(shown.keys() - {OURS, best}, key=self.seconds.__getitem__)
        rest = ", ".join(f"{NAMES.get(name, name)} {shown[name]}" for name in others)
        if best is None:
            return [shown.get(OURS, "-"), "-", "-", "-", rest]
        ratio = self.ratio(peers)
        text = f"**{ratio:.2f}**" if below(ratio, 1) else f"{ratio:.2f}"
        return [shown[OURS], NAMES.get(best, best), shown[best], text, rest]


def below(ratio: float, goal: float) -> bool:
    """Return whether a ratio misses a goal, as tables print it: 1.00 is not below 1."""
    return round(ratio, 2) < goal


def sections(results: list[Result], peers: Iterable[str], *ours: str) -> str:
    """Return a table for each place, and how the best peer compares with each of ours."""
    lines = []
    for place in dict.fromkeys(result.place for result in results):
        found = [result for result in results if result.place == place]
        rows = [[result.case, *result.ranked(peers)] for result in found]
        lines += [f"### {place[0].upper()}{place[1:]}", table(["split", *RANKED], rows)]
    return "\n\n".join(filter(None, [*lines, *(summary(results, peers, one) for one in ours)]))


def summary(results: Iterable[Result], peers: Iterable[str] = PEERS, ours: str = OURS) -> str:
    """Return the ratios of the best peer to one contender, or nothing if it has none."""
    ratios = [x for result in results if (x := result.ratio(peers, ours)) is not None]
    if not ratios:
        return ""
    low = sum(below(ratio, 0.9) for ratio in ratios)
    text = f"Best peer over {ours}: geometric mean {statistics.geometric_mean(ratios):.2f}, "
    return f"{text}least {min(ratios):.2f}; {low} of {len(ratios)} below 0.9."


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; numbers have two digits after the point, and None is a dash.

    Columns of numbers are aligned right, all others left.
    """

    def written(cell: object) -> str:
        return f"{cell:.2f}" if isinstance(cell, float) else "-" if cell is None else str(cell)

    head, lines = list(head), [[*map(written, row)] for row in rows]
    columns = zip_longest(*lines, fillvalue="")
    rules = ["--:" if all(map(NUMBER.fullmatch, column)) else "---" for column in columns]
    lines = [head, [*rules, *["---"] * (len(head) - len(rules))], *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def time_text(seconds: float | None) -> str:
    """Write a time with three digits."""
    if seconds is None:
        return "-"
    unit, scale = ("s", 1) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    return f"{seconds * scale:.3g} {unit}"


INK = "#1f2328"
"""The color of lines and text, which becomes that of the reader's color scheme."""

SCHEMES = (
    "svg { color: #1f2328; background: #ffffff } "
    "@media (prefers-color-scheme: dark) { svg { color: #e6edf3; background: #14181e } }"
)
"""A style sheet for SVG files. With a background, they are readable on a page of either scheme."""


def save(draw: Callable[[], Any], file: Path) -> None:
    """Draw a figure as an SVG file that follows the reader's color scheme."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style = {"legend.framealpha": 0, "font.sans-serif": ["DejaVu Sans"]}
    style |= {"svg.fonttype": "none", "svg.hashsalt": file.stem}  # equal figures, equal files
    with pyplot.rc_context({**style, **dict.fromkeys((*inked, "grid.color"), INK)}):
        figure = draw()
        figure.savefig(file, transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    text = file.read_text("utf-8").replace(INK, "currentColor")
    file.write_text(text.replace("</style>", f"{SCHEMES}</style>", 1), "utf-8")


def say(*words: object) -> None:
    """Tell the progress, on the standard error stream."""
    print(*words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
