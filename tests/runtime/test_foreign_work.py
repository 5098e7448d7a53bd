"""While other code imports Numba or compiles, no split waits, and kernels copy.

`SPLITJIT_REPEATS` sets how many times the slow tests run.
"""

import os

import pytest

from tests.conftest import long, needs_fork, needs_signals
from tests.processes import CHILD, HANDLER, ON_IMPORT, SPLIT, YAML, run

REPEATS = int(os.environ.get("SPLITJIT_REPEATS", "1"))


# Foreign work that another thread does: it imports Numba, and then compiles until the end.
FOREIGN = """
def work():
    import numba
    started.set()
    numba.njit(lambda a: np.sin(a).sum() + np.sort(a)[0])(x[0])

started = threading.Event()
"""

# Foreign work that sleeps, so that no other work disturbs the clock: in the import of Numba, and
# with the compiler's lock.
SLEEPING = """
def work():
    from numba.core.compiler_lock import global_compiler_lock
    end.clear()
    with global_compiler_lock:
        started.set()
        end.wait()

started, end = threading.Event(), threading.Event()
foreign = threading.Thread(target=work, daemon=True)
foreign.start()
for _ in range(2):
    started.wait()
    started.clear()
    check()  # loads kernels
    times = []
    for _ in range(50):
        began = time.perf_counter()
        check()
        times.append(time.perf_counter() - began)
        time.sleep(0.001)
    assert LOADER.loaded
    DURING
    end.set()
foreign.join()
check()
assert "core" in LOADER.loaded
"""

FORKS = """
import multiprocessing

with beside(1, work):
    for _ in range(10):
        child()
        time.sleep(0.05)
    started.wait()
    for _ in range(5):
        child()
        child(splitjit.warmup)
        time.sleep(0.05)
    with multiprocessing.get_context("fork").Pool(2, signal.alarm, (60,)) as pool:
        for result in [pool.apply_async(check) for _ in range(6)]:
            result.get()
check_loads()
child()
"""

THREADS = """
def split():
    for _ in range(50):
        began, loaded = time.perf_counter(), len(LOADER.loaded)
        check()
        if len(LOADER.loaded) == loaded and not LOADER._loading:
            times.append(time.perf_counter() - began)

times = []
with beside(1, work):
    run_in_threads(2, split)
check_loads()
assert sorted(times)[len(times) // 2] < 0.05
"""

# The splits of a signal handler, during the user's own import of Numba, and first compilations.
# Before Python 3.12, an import in a handler may break the import that it interrupts. So there, the
# handler has nothing to import.
SIGNALS = (
    HANDLER
    + """
if sys.version_info < (3, 12):
    import llvmlite.binding
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
import numba
for _ in range(3):
    numba.njit(lambda a: np.sin(a).sum() + np.sort(a)[0])(x[0])
signal.setitimer(signal.ITIMER_REAL, 0)
assert handled > 10
check_loads()
"""
)

# What such a handler does, at each import of a module, and in each compilation.
NESTED = """
count = 0

def split(name):
    global count
    check()
    splitjit.warmup(["u1"])
    count += 1

on_import(split)
FIRST
import numba
del sys.meta_path[0]
assert count
check_loads()

from numba.extending import overload
@overload(check)
def check_while_numba_compiles():
    split("a compilation")
    return lambda: None
numba.njit(lambda: check())()
"""


@pytest.mark.slow
@pytest.mark.parametrize("repeat", range(REPEATS))
@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(FOREIGN + FORKS, id="forks", marks=[needs_fork, pytest.mark.long]),
        pytest.param(FOREIGN + THREADS, id="threads"),
        pytest.param(SIGNALS, id="signals", marks=[needs_signals, pytest.mark.long]),
    ],
)
def test_beside_foreign_work(situation, repeat, tmp_path):
    run(tmp_path, SPLIT + CHILD + situation)


@pytest.mark.parametrize(
    "during",
    [
        pytest.param("assert max(times) < 0.1, max(times)", id="split"),
        pytest.param("child(); child(splitjit.warmup)", id="forked child", marks=needs_fork),
    ],
)
def test_nobody_waits(during, tmp_path):
    (tmp_path / "yaml.py").write_text(YAML)
    code = CHILD.replace("alarm(60)", "alarm(10)") + SLEEPING.replace("DURING", during)
    run(tmp_path, SPLIT + code, timeout=40)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["", *long("import ctypes.util, llvmlite.binding")])
def test_half_made_modules(first, tmp_path):
    run(tmp_path, SPLIT + ON_IMPORT + NESTED.replace("FIRST", first))


WAITING = "threading.Thread(target=threading.Event().wait, daemon=True).start()"


@needs_fork
@pytest.mark.parametrize(
    ("before", "loads"),
    [
        ("", True),
        (WAITING, False),
        ("import llvmlite.binding", True),
        (f"import llvmlite.binding\n{WAITING}", True),
    ],
)
def test_a_child_loads_if_no_thread_can_be_importing_at_the_fork(before, loads, tmp_path):
    code = f"""
def load():
    before = {{*sys.modules}}
    check()
    assert bool(LOADER.loaded) == {loads} and "numba" not in sys.modules
    if "llvmlite.binding" in before:  # a thread could have been importing anything else
        assert {{*sys.modules}} == before, {{*sys.modules}} - before

{before}
child(load)
"""
    run(tmp_path, SPLIT + CHILD + code)


# Another thread is busy at the fork: it imports llvmlite, it compiles, it loads a kernel, or it
# has loaded kernels before. What it does, what is prepared, and whether a child loads kernels.
BUSY = {
    "imports llvmlite": (
        "import llvmlite.binding",
        """
import ctypes
CDLL = ctypes.CDLL
ctypes.CDLL = lambda *arguments: pause() or CDLL(*arguments)
""",
        False,
    ),
    "holds the lock of LLVM": (
        "with llvmlite.binding.ffi.lib._lock: pause()",
        "import llvmlite.binding",
        False,
    ),
    "compiles": (
        "import numba; numba.njit(lambda: 1)()",
        """
import llvmlite.binding
parse = llvmlite.binding.parse_assembly
llvmlite.binding.parse_assembly = lambda *arguments: pause() or parse(*arguments)
import numba.core.codegen
""",
        True,
    ),
    "reads a kernel": (
        "LOADER.load('plain')",
        """
from splitjit._runtime import kernel_files
read = kernel_files.read
kernel_files.read = lambda name: pause() or read(name)
""",
        True,
    ),
    "has loaded": ("check(); pause(); check()", "", True),
}


@needs_fork
@pytest.mark.parametrize("work", BUSY)
def test_a_fork_beside_a_busy_thread(work, tmp_path):
    does, prepare, loads = BUSY[work]
    code = f"""
main = os.getpid()
started, end = threading.Event(), threading.Event()

def pause():
    if os.getpid() == main and threading.current_thread() is busy:
        started.set()
        end.wait()

def work():
    {does}

{prepare}
def split():
    splitjit.warmup()
    check()
    assert bool(LOADER.loaded) == {loads}

busy = threading.Thread(target=work, daemon=True)
busy.start()
started.wait()
child(split)
end.set()
busy.join()
check_loads()
"""
    run(tmp_path, SPLIT + CHILD.replace("alarm(60)", "alarm(20)") + code, timeout=60)
