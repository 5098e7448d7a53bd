"""Fixtures that make small arrays take each route, and the choice of long tests."""

import gc
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import splitjit
from splitjit import SplitPlan
from splitjit._abi.calls import AT, FEWEST_CHUNKS
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy import buffers, how
from splitjit._plan.plan import Plan
from splitjit._runtime import loading, threads
from splitjit._runtime.loading import LOADER

collect_ignore = ["fuzz", "elsewhere", "platforms"]

ROOT = Path(__file__).parents[1]
# From any folder, the processes that tests start import this checkout, whose kernels are compiled.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
UNTRACKED = pytest.StashKey[set]()
"""The files of the checkout before the run that git neither tracks nor ignores."""


SLOWEST = ("runtime", "njit", "kernels", "inputs", "copy")


def pytest_collection_modifyitems(config, items):
    """Leave out long tests, unless ``-m`` names them; begin with the folders of slow tests."""
    items.sort(key=lambda item: item.path.parent.name not in SLOWEST)
    if "long" not in config.option.markexpr:
        config.hook.pytest_deselected(items=[i for i in items if i.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def untracked():
    """Return the files of the checkout that git neither tracks nor ignores."""
    if not (ROOT / ".git").exists():
        return set()
    git = ["git", "ls-files", "--others", "--exclude-standard"]
    return {*subprocess.run(git, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()}


def pytest_sessionstart(session):
    """Note the files that are no test's, and compile all kernels: no test waits for another."""
    session.config.stash[UNTRACKED] = untracked()
    if not hasattr(session.config, "workerinput"):  # workers start after this
        subprocess.run([sys.executable, "-m", "splitjit", "warmup"], capture_output=True)


@pytest.fixture(scope="module", autouse=True)
def _few_objects():
    """Let a collection look only at what tests make: libraries would take it half a second."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session):
    """Let the run fail if tests left files in the checkout: users may commit them unseen."""
    left = untracked() - session.config.stash[UNTRACKED]
    if left and not hasattr(session.config, "workerinput"):  # workers leave it to their controller
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\ntests left these files in the checkout: {', '.join(sorted(left))}")


def pytest_terminal_summary(terminalreporter):
    """Name the libraries that are missing, so that tests were skipped."""
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    missing = {name for text in skipped for name in re.findall("could not import '([^'.]+)", text)}
    if missing:
        said = (
            f"tests were skipped, because these libraries are missing: {', '.join(sorted(missing))}"
        )
        terminalreporter.write_line(f"{said} (python -m pip install --group peers)")


settings.register_profile(
    "default",
    deadline=None,  # the first example of a test may compile a kernel
    max_examples=int(os.environ.get("SPLITJIT_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("default")

ROUTES = {
    # name: whether to compile at once or never, bytes of a chunk, bytes from which stores stream
    "slices": (False, 1 << 62, 1 << 62),
    "serial": (True, 1 << 62, 1 << 62),
    "parallel": (True, 1, 1 << 62),
    "serial-streamed": (True, 1 << 62, 0),
    "parallel-streamed": (True, 1, 0),
}


ASKED = {"wake_from": 0, "pause": 0, "asleep_share": 1, "awake_share": 1}
"""Thresholds of the team with which each copy in chunks asks a helper."""

needs_kernels = pytest.mark.skipif(loading.never_compiles(), reason="nothing is compiled")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
needs_signals = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def load_module(file):
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def new_pool(limit, setattr=None):
    """Return a pool that keeps at most so many bytes, and is ready.

    With `setattr`, that of a monkeypatch, all later copies use it.
    """
    LOADER.load("core", wait=True)
    pool = buffers._Pool(limit)
    pool.load()
    if setattr is not None:
        setattr(buffers, "POOL", pool)
        setattr(how, "shared_fields", pool.load)
        forget_copies(setattr)
    return pool


def call_at(line, change, call, *arguments):
    """Call a function, and another one before the nth line of splitjit's that it runs.

    Return the result, and whether there was such a line.
    """
    left = line

    def trace(frame, event, _):
        nonlocal left
        if not frame.f_globals["__name__"].startswith("splitjit"):
            return None
        left -= event == "line"
        if event == "line" and left == 0:
            change()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return call(*arguments), left <= 0
    finally:
        sys.settrace(before)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


@pytest.fixture(scope="module")
def warm():
    """Load all kernels."""
    splitjit.warmup(["u1"])


@pytest.fixture
def new_plans():
    """Forget the plans of other tests, and those of this one."""
    splitjit.clear_caches()
    yield
    splitjit.clear_caches()


def forget_copies(setattr):
    """Let plans forget how they copied: it is decided anew from now on."""
    slots = {}

    def slots_of(plan):
        if len(slots) > 100:  # a fuzzer makes plans without end
            slots.clear()
        new = {"plan": plan, "_hows": {}, "_how": None, "_join": None}
        return slots.setdefault(id(plan), new)

    def slot(name):
        def put(plan, how):
            if how is None:
                vars(Plan)[name].__set__(plan, None)
            slots_of(plan)[name] = how

        return property(lambda plan: slots_of(plan)[name], put)

    # The slots themselves hold what they held: plans are cached, and outlive the test. New plans
    # set both to nothing.
    put_hows = vars(Plan)["_hows"].__set__
    setattr(SplitPlan, "_hows", property(lambda plan: slots_of(plan)["_hows"], put_hows))
    for name in ("_how", "_join"):
        setattr(SplitPlan, name, slot(name))


def send_down(route, monkeypatch):
    """Make every split take one route, independent of its size."""
    take(route, monkeypatch.setattr)


def take(route, setattr):
    """Make every split take one route; `setattr` is that of a monkeypatch."""
    compiles, chunk, stream = ROUTES[route]
    forget_copies(setattr)
    sizes = ("load_from", "load_after", "compile_from", "compile_after")
    for name in sizes:
        setattr(THRESHOLDS, name, 0 if compiles else 1 << 62)
    if not compiles:
        setattr(LOADER, "loaded", {})
    setattr(THRESHOLDS, "large", FEWEST_CHUNKS * chunk)
    setattr(THRESHOLDS, "stream_from", (stream, stream))
    setattr(threads, "allowed", lambda now: 2)
    setattr(threads.TEAM, "limits_until", float("-inf"))
    for name, value in {**ASKED, "chunk": chunk}.items():
        setattr(threads.TEAM.word(getattr(AT, name)), "value", value)


def long(*values, if_not=()):
    """Mark parameters as long, but for some of them."""
    return [v if v in if_not else pytest.param(v, marks=pytest.mark.long) for v in values]


def routes(*usual):
    """Return the names of all routes as parameters; those that are not usual are long."""
    marks = {name: [needs_kernels] * (name != "slices") for name in ROUTES}
    marks |= {name: [pytest.mark.long, *marks[name]] for name in ROUTES if name not in usual}
    return [pytest.param(name, marks=marks[name]) for name in ROUTES]


@pytest.fixture(params=routes(*ROUTES))
def route(request, monkeypatch):
    """Run a test once per route, and make every split take that route."""
    send_down(request.param, monkeypatch)
    return request.param
