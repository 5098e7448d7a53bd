"""Helpers: they copy, keep out of the program's way, and nobody waits for them."""

import os
import sys

import pytest

from tests.conftest import long, needs_kernels, needs_signals, on_linux
from tests.processes import CHILD, HANDLER, MANY_CORES, SPLIT, TWO_CORES, run

SECONDS = float(os.environ.get("SPLITJIT_SECONDS", "0.15"))

pytestmark = needs_kernels

# A loop whose chunks take a moment, so that helpers certainly come. It counts each chunk, and gives
# a wrong number if the job has other chunks. Its `Arguments`: microseconds, counts, chunks, and a
# slow chunk with its microseconds.
SLOW_LOOP = """
LOOP, loop = assembled("loop", '''
declare i32 @usleep(i32)
define void @loop(i64 %chunk, i64 %chunks, i64 %arguments) {
    %words = inttoptr i64 %arguments to i64*
    %given = load i64, i64* %words
    %at1 = getelementptr i64, i64* %words, i64 1
    %counts = load i64, i64* %at1
    %at2 = getelementptr i64, i64* %words, i64 2
    %expected = load i64, i64* %at2
    %at3 = getelementptr i64, i64* %words, i64 3
    %slow = load i64, i64* %at3
    %slow_chunk = lshr i64 %slow, 32
    %is_it = icmp eq i64 %slow_chunk, %chunk
    %has_slow = icmp ne i64 %slow, 0
    %is_slow = and i1 %is_it, %has_slow
    %longer = and i64 %slow, 4294967295
    %time = select i1 %is_slow, i64 %longer, i64 %given
    %time32 = trunc i64 %time to i32
    %sleeps = icmp ne i32 %time32, 0
    br i1 %sleeps, label %sleep, label %count
sleep:
    %slept = call i32 @usleep(i32 %time32)
    br label %count
count:
    %is_one = icmp eq i64 %chunks, 1
    %is_right = icmp eq i64 %chunks, %expected
    %fits = or i1 %is_one, %is_right
    %more = select i1 %fits, i64 1, i64 99
    %first = inttoptr i64 %counts to i64*
    %place = getelementptr i64, i64* %first, i64 %chunk
    %before = atomicrmw add i64* %place, i64 %more seq_cst
    ret void
}''')

def run_loop(helpers, chunks, microseconds=1000, slow=(0, 0)):
    counts = np.zeros(chunks, np.int64)
    job = microseconds, counts.ctypes.data, chunks, slow[0] << 32 | slow[1]
    let(allowed=helpers)
    nbytes = chunks * word("CHUNK")
    team = threads.TEAM.address
    shared.call(loading.NATIVE.share, job, team, loop, nbytes, kind=shared.WITHOUT_GIL)
    return counts.tolist()

def asks(chunks, *arguments):  # or one call of the loop is for all chunks
    before = word("GENERATION")
    counts = run_loop(1, chunks, *arguments)
    has_asked = word("GENERATION") > before
    assert counts == ([1] * chunks if has_asked else [1] + [0] * (chunks - 1))
    return has_asked

def wait_until(is_so):
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)

def is_asleep():
    return threads.TEAM.word(shared.AT.helpers).value == 1

assert LOADER.load("core", wait=True)
"""


def run_helpers(folder, code, cores=2, **variables):
    cores_of_it = TWO_CORES if cores == 2 else f"{MANY_CORES}have({cores})\n"
    run(folder, SPLIT + cores_of_it + code, **{"NUMBA_NUM_THREADS": str(cores), **variables})


# ---- who copies --------------------------------------------------------------------------


SCRIPTS = {
    "helpers copy in the first large split": """
y = np.ones((4096, 6144), np.float32)
parts = splitjit.split(y, num_splits=3, axis=1)
assert word("STARTED") == 1
for _ in range(20):  # other tests may keep the cores busy
    if word("HELPED") == 0:
        splitjit.split(y, num_splits=3, axis=1)
assert word("HELPED") > 0
assert all((part == 1).all() for part in parts)
assert "numba" not in sys.modules
assert not [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
""",
    "eight threads split": """
small = np.arange(600).reshape(20, 30)
barrier = threading.Barrier(8)

def work():
    barrier.wait()
    for i in range(200):
        check()
        parts = splitjit.split(small + i, num_splits=3, axis=1)
        assert np.array_equal(np.concatenate(parts, 1), small + i)

run_in_threads(8, work)
assert word("BUSY") == word("ACTIVE") == word("OPEN") == 0
check_loads()
assert not LOADER._loading
""",
    "small stacks": """
# Each loop copies by stores that bypass the cache, in a small thread and in a helper.
import faulthandler
from splitjit._abi.thresholds import THRESHOLDS
from splitjit._copy.how import lay_out

faulthandler.enable()
splitjit.warmup(["u1"])
splitjit.SplitPlan._hows = property(lambda plan: {}, lambda plan, hows: None)  # keep nothing
splitjit.SplitPlan._how = property(lambda plan: None, lambda plan, how: None)
THRESHOLDS.stream_from = (0, 0)

def split():
    loops = set()
    for columns, count in [(60, 2), (8, 8), (20, 20), (2000, 2)]:
        y = np.arange(2**14 * columns).astype(np.uint8).reshape(-1, columns)
        plan = splitjit.plan_split(y.shape, num_splits=count, axis=1)
        loops.add(lay_out(plan, y.strides, y.itemsize).loop)
        for part, index in zip(plan(y), plan.slices, strict=True):
            assert np.array_equal(part, y[index])
    assert loops == {"stream", "deinterleave", "transpose"}

threading.stack_size(52 * 1024)  # the least of Python 3.14
run_in_threads(1, split)
assert word("STARTED") == 1
""",
    "a user may start no threads": """
import mmap, resource  # the other user may not read them

splitjit.warmup(["u1"])
os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
for _ in range(3):
    check()
    assert word("STARTED") == word("HELPED") == word("BUSY") == 0
""",
    "interrupts leave no kernel locked": """
def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
interrupts = 0
while interrupts < 300:
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)
        for _ in range(100):  # not for ever: Python ignores an interrupt in a weakref's callback
            LOADER.loaded.clear()
            LOADER.load("plain")
    except KeyboardInterrupt:
        interrupts += 1
LOADER.loaded.clear()
assert LOADER.load("plain")
""",
    "others copy while one thread loads, and warmup waits": """
from splitjit._abi.kernels import KERNELS
started, end = threading.Event(), threading.Event()
link = loading._link

def slow(*arguments):
    started.set()
    end.wait()
    return link(*arguments)

loading._link = slow
thread = threading.Thread(target=LOADER.load, args=("plain",))
thread.start()
started.wait()
check()
assert not LOADER.loaded
threading.Timer(0.2, end.set).start()
splitjit.warmup(["u1"])
assert set(LOADER.loaded) == set(KERNELS)
""",
}
MARKS = {
    "eight threads split": pytest.mark.slow,
    "small stacks": pytest.mark.slow,
    "a user may start no threads": [
        on_linux,
        pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="changes its user"),
    ],
    "interrupts leave no kernel locked": [pytest.mark.slow, needs_signals],
    "others copy while one thread loads, and warmup waits": pytest.mark.slow,
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SCRIPTS]
)
def test_helpers(name, tmp_path):
    run_helpers(tmp_path, SCRIPTS[name])


def test_a_second_caller_copies_alone(tmp_path):
    code = """
before = word("GENERATION")
first = threading.Thread(target=run_loop, args=(1, 32, 20_000))
first.start()
while word("GENERATION") == before:
    time.sleep(0.001)
began = word("GENERATION")
assert run_loop(1, 32, 0) == [1] + [0] * 31  # one call of the loop for all
assert word("BUSY") == 1 and word("GENERATION") == began
first.join()
"""
    run_helpers(tmp_path, SLOW_LOOP + code)


def test_no_more_helpers_than_the_record_has_lines_for(tmp_path):
    code = """
assert run_loop(1000, 256) == [1] * 256
assert word("STARTED") == word("ASKED") == shared.MOST_HELPERS
"""
    run_helpers(tmp_path, SLOW_LOOP + code, cores=48)


def test_each_chunk_is_copied_once_by_the_caller_or_a_helper(tmp_path):
    code = """
most = 0
for helpers in (1, 3, 7, 1):
    before = word("HELPED")
    assert run_loop(helpers, 32) == [1] * 32
    assert before + 4 <= word("HELPED") < before + 32
    most = max(most, helpers)
    assert word("ASKED") == helpers and word("STARTED") == most
    assert word("OPEN") == word("ACTIVE") == word("BUSY") == 0
"""
    run_helpers(tmp_path, SLOW_LOOP + code, cores=8)


MANY_HELPERS = """
big = np.arange(2**23, dtype=np.int32).reshape(4096, -1)  # 256 chunks

def check_big():
    parts = splitjit.split(big, num_splits=2, axis=1)
    assert np.array_equal(parts[0], big[:, :1024]) and np.array_equal(parts[1], big[:, 1024:])

def go_on():
    while True:
        check_big()

def interrupt(*_):
    raise KeyboardInterrupt

for _ in range(20):
    check_big()
assert word("ASKED") == word("STARTED") == 31
splitjit.split(big[:256, :512], num_splits=2, axis=1)
assert word("ASKED") == 3
for chunks in (4, 33, 512):
    for microseconds in (0, 200):
        assert run_loop(31, chunks, microseconds) == [1] * chunks
        time.sleep(0.001)
before = word("HELPED")
assert run_loop(31, 512) == [1] * 512
assert word("HELPED") - before > 31 * 8  # the helpers that the caller wakes have woken others

if hasattr(os, "fork"):
    for _ in range(5):
        child(lambda: (check_big(), check_big()))
        check_big()
if hasattr(signal, "setitimer"):
    signal.signal(signal.SIGALRM, interrupt)
    for _ in range(20):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            go_on()
        except KeyboardInterrupt:
            pass
    check_big()
assert word("BUSY") == word("ACTIVE") == word("OPEN") == 0
threading.Thread(target=go_on, daemon=True).start()  # still copies at the end
"""


@pytest.mark.long
def test_31_helpers_on_two_cores(tmp_path):
    run_helpers(tmp_path, CHILD + SLOW_LOOP + MANY_HELPERS, cores=32)


# ---- the four rules ------------------------------------------------------------------------

RULES = {
    "0: a helper stays off its caller's core": """
check()
while word("NUMBERED") == 0:
    check()
(helper,) = {int(task) for task in os.listdir("/proc/self/task")} - before

def is_off(core):
    return os.sched_getaffinity(helper) == os.sched_getaffinity(0) - {core}

all_cores, moves = os.sched_getaffinity(0), 0
for core in [*all_cores] * 4:
    os.sched_setaffinity(0, {core})  # the caller moves while the helper sleeps
    os.sched_setaffinity(0, all_cores)
    check()
    wait_until(lambda: is_asleep() and is_off(word("CORE")))
    with open(f"/proc/self/task/{helper}/stat") as file:
        ran_on = int(file.read().rsplit(")", 1)[1].split()[36])
    assert ran_on != word("CORE")
    moves += word("CORE") == core
assert moves > len(all_cores)
for kept in [{*sorted(all_cores)[:2]}, all_cores]:
    os.sched_setaffinity(0, kept)
    check()
    wait_until(lambda: is_asleep() and is_off(word("CORE")))
""",
    "1: a helper stays awake while a split is going on": """
let(awake=200_000_000, turn=10**10)  # other programs may have its core for a while
for _ in range(20):
    before = word("HELPED")
    caller = threading.Thread(target=run_loop, args=(1, 32, 0, (0, 900_000)))
    caller.start()
    while word("HELPED") == before and caller.is_alive():
        time.sleep(0.001)
    time.sleep(0.4)
    if caller.is_alive():
        assert not is_asleep()
        break
    caller.join()
assert caller.is_alive()
caller.join()
wait_until(is_asleep)
""",
    "1: but no longer than its turn": """
let(awake=200_000_000)
caller = threading.Thread(target=run_loop, args=(1, 32, 0, (0, 5_000_000)))
caller.start()
wait_until(lambda: word("NUMBERED") and is_asleep())
assert caller.is_alive()
caller.join()
""",
    "1: and for a moment after it": """
let(awake=10**15)
assert asks(32)
wait_until(lambda: word("NUMBERED"))
time.sleep(0.2)
assert not is_asleep()
""",
    "2: a sleeping helper is woken from a size on": """
let(**of_team | {"pause": 0})
enough = of_team["wake_from"] >> 17
for _ in range(3):
    assert not asks(enough - 1)  # of 128 KB
    time.sleep(0.01)
assert asks(enough)
wait_until(is_asleep)
before = word("HELPED")
while word("HELPED") == before:
    assert asks(enough)
    wait_until(is_asleep)
""",
    "2: below it helpers are asked in a row of copies": """
let(**of_team | {"in_a_row": 0, "awake": 10**15, "pause": 0, "ended": -(10**16)})
assert not asks(4) and not asks(4)
let(in_a_row=10**15)
assert asks(4)
let(awake_share=1 << 20)
assert not asks(7) and asks(8)
""",
    "2: small copies are in no row": """
let(**of_team | {"in_a_row": 10**15, "awake": 10**15, "pause": 0, "ended": -(10**16)})
assert not asks(3) and not asks(4) and asks(4)
""",
    "3: helpers that do not come are left alone": """
let(pause=20, awake=10**9, started=1)  # the record has a helper that does not exist
assert asks(32, 100)  # it might have been asleep
assert word("PAUSED") == 0
began = time.monotonic()
assert asks(32, 100)  # it must have been awake
took = time.monotonic() - began
assert took > 0.0032
assert not asks(32)
time.sleep(max(0, began + 15 * 0.0032 - time.monotonic()))
assert not asks(32)
time.sleep(21 * took)
assert asks(32)
""",
    "3: helpers that are stopped are left alone": """
let(pause=20)
for stopped in (10**12, 200_000):
    let(stopped=stopped)
    for _ in range(10):
        began = time.monotonic()
        assert asks(32, 100, (31, 20_000))  # a helper copies the last chunk first
        took = time.monotonic() - began
        if word("PAUSED"):
            break
    assert (word("PAUSED") == 0) == (stopped == 10**12)
assert not asks(32)
time.sleep(0.1)
assert not asks(32)
time.sleep(21 * took)
assert asks(32)
""",
}


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[on_linux] * rule.startswith("0")) for rule in RULES]
)
def test_the_rules_say_who_is_asked(rule, tmp_path):
    tasks = ""
    if rule.startswith("0"):
        if len(os.sched_getaffinity(0)) < 2:
            pytest.skip("needs two cores")
        tasks = "splitjit.warmup(['u1'])\nbefore = {*map(int, os.listdir('/proc/self/task'))}\n"
    run_helpers(tmp_path, SLOW_LOOP + tasks + RULES[rule])


def test_each_helper_gets_enough(tmp_path):
    """Of 4 MB, one that sleeps gets 1 MB, and one that is awake 256 KB."""
    code = """
let(**of_team | {"awake": 10**15, "pause": 0, "ended": -(10**16)})
for asked in (4, 16):
    run_loop(31, 32)
    assert word("ASKED") == asked
"""
    run_helpers(tmp_path, SLOW_LOOP + code, cores=32)


# ---- users' compiled code ------------------------------------------------------------------

COMPILED = """
import numba

@numba.njit
def in_two(x):
    return splitjit.split(x, num_splits=2, axis=1)

def asks():
    before = word("GENERATION")
    for _ in range(3):
        assert all((part == 1).all() for part in in_two(y))
    return word("GENERATION") > before

y = np.ones((1024, 1024))
"""
LIMITED = {
    "numba.set_num_threads": ("numba.set_num_threads(1)", "numba.set_num_threads(2)"),
    "one_thread": (
        "alone = threads.one_thread(); alone.__enter__()",
        "alone.__exit__(*[None] * 3)",
    ),
    "the affinity of the caller": ("CORES[0] = 0b10", "CORES[0] = 0b11"),
}


@pytest.mark.parametrize("first", long(*LIMITED, if_not=("one_thread",)))
def test_compiled_splits_obey_limits(first, tmp_path):
    """One limit before the first split, and all limits after it."""
    code = f"kept = make_cores()\n{COMPILED}"
    for narrow, widen in (LIMITED[first], *LIMITED.values()):
        code += f"{narrow}\nassert not asks()\n{widen}\nassert asks()\n"
    run_helpers(tmp_path, code)


@pytest.mark.long
def test_compiled_splits_ask_no_helper_if_the_user_chose_numbas_threads(tmp_path):
    run_helpers(tmp_path, f"{COMPILED}assert not asks()", SPLITJIT_THREADS="numba")


# ---- how many ----------------------------------------------------------------------------


def test_a_process_that_is_narrowed_asks_fewer_helpers(tmp_path):
    code = """
quota = threads.quota

def narrow(code, asked):
    exec(code, globals())
    threads._quota_at.cache_clear()
    threads.TEAM.limits_until = float("-inf")
    let(asked=0)
    for _ in range(20):
        check()
    assert word("ASKED") == asked and word("ALLOWED") in (asked, 7), (code, word("ASKED"))
    threads.quota = quota
    have(8)

check()
assert word("STARTED") == word("ASKED") == 7
time.sleep(0.2)
narrow("have(1)", 0)
narrow("CORES[0] = 0b1110", 2)
narrow("threads.quota = lambda: 2.7", 1)
narrow("import numba; numba.set_num_threads(2)", 1)
narrow("numba.set_num_threads(8); numba.config.NUMBA_NUM_THREADS = 3", 2)
assert word("STARTED") == 7
"""
    run_helpers(tmp_path, code, cores=8)


NONE_STARTED = "check(); assert word('STARTED') == word('ASKED') == 0"


def test_numbas_environment_variable_limits_helpers(tmp_path):
    run_helpers(tmp_path, NONE_STARTED, NUMBA_NUM_THREADS="1")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs an affinity")
def test_one_core(tmp_path):
    narrowed = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    run(tmp_path, SPLIT + narrowed + NONE_STARTED)


# ---- the system --------------------------------------------------------------------------


@needs_signals
def test_signal_handlers_run_in_the_main_thread_and_may_split(tmp_path):
    """The first signals arrive while kernels are loaded."""
    code = """
before = handler

def handler(*arguments):
    assert threading.current_thread() is threading.main_thread()
    before(*arguments)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
while handled < 300:
    check()
signal.setitimer(signal.ITIMER_REAL, 0)
assert word("STARTED") == 1
"""
    run_helpers(tmp_path, HANDLER + code)


@on_linux
def test_helpers_receive_no_signal_but_their_own_faults(tmp_path):
    code = """
def blocked():
    masks = {}
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/status") as file:
            masks[int(task)] = int(file.read().split("SigBlk:")[1].split()[0], 16)
    return masks

splitjit.warmup(["u1"])
before = blocked()
check()
while word("NUMBERED") < 3:
    check()
helpers = [mask for task, mask in blocked().items() if task not in before]
assert len(helpers) == 3
faults = {signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV}
never = {signal.SIGKILL, signal.SIGSTOP}
for mask in helpers:
    found = {number for number in signal.valid_signals() if mask >> number - 1 & 1}
    assert found == signal.valid_signals() - faults - never, found

for number in awaited:  # a signal to the process is for the thread that waits for it
    os.kill(os.getpid(), number)
    check()
    assert signal.sigtimedwait({number}, 10).si_signo == number
"""
    block = """
import signal
awaited = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGALRM}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)  # before NumPy starts threads
"""
    code = f"{block}{SPLIT}{MANY_CORES}have(4)\n{code}"
    run(tmp_path, code, NUMBA_NUM_THREADS="4")


@pytest.mark.parametrize("during", ["", *long("time.sleep(0.001)", "check()"), "sys.exit()"])
def test_the_end_of_a_process_waits_for_no_helper(during, tmp_path):
    code = f"""
def work():
    while True:
        check()

check()
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
{during}
"""
    for _ in range(3):
        run_helpers(tmp_path, code, timeout=20)


@pytest.mark.parametrize("refusal", [-1, 0xFFFFFFFF])  # in 64 bits, or in 32 as on Windows
def test_threads_that_do_not_start(refusal, tmp_path):
    """Two threads start, and the system refuses all others."""
    code = f"refusal = {refusal}"
    code += """
import ctypes

kind = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
start_thread = kind(("PyThread_start_new_thread", ctypes.pythonapi))
calls = []

@kind
def start_two(function, argument):
    calls.append(argument)
    return start_thread(function, argument) if len(calls) <= 2 else refusal

link_with("PyThread_start_new_thread", ctypes.cast(start_two, ctypes.c_void_p).value)
for _ in range(10):
    check()
assert word("STARTED") == word("ASKED") == 2
assert len(calls) == 2 + 10 and {*calls} == {threads.TEAM.address}
"""
    run_helpers(tmp_path, code, cores=8)


# The team's code once more, which a test changes before it is compiled.
ANOTHER_TEAM = """
import importlib.util
from splitjit._kernels.core import team as original
from splitjit._kernels.compiling import jit, object_code

spec = importlib.util.spec_from_file_location("another_team", original.__file__)
team = importlib.util.module_from_spec(spec)
spec.loader.exec_module(team)

def use_it():
    exported = kernels.KERNELS["core"]["core.team"]
    kernels.KERNELS["another"] = {"core.team": exported}
    functions = [getattr(team, name) for name in exported]
    vars(loading.NATIVE).update(loading._link("another", object_code(functions)))
"""


# ---- late at each step ---------------------------------------------------------------------

# Threads sometimes sleep before they use a word: as many microseconds as `DELAYS` has for it. Its
# last numbers are for the sleep mark, for each chunk, the odds, and the next random number.
DELAYED = """
MARK = shared.AT.helpers // shared.SPACING
CHUNK, ODDS, RANDOM = range(MARK + 1, MARK + 4)
DELAYS = np.zeros(MARK + 4, np.int64)
ADDRESS = DELAYS.ctypes.data
import types
from splitjit._kernels.core.c_api import usleep

release = team.c_api.release
read_word, exchange, add_to = team.read_word, team.exchange, team.add_to
call_address, words_at = team.call_address, team.words_at
SPACING, TEAM = shared.SPACING, threads.TEAM.address

@jit
def word_at(address):
    return min((address - TEAM) // SPACING, MARK)

@jit
def delay(word):
    numbers = words_at(ADDRESS)
    if numbers[word]:
        numbers[RANDOM] = numbers[RANDOM] * 6364136223846793005 + 1442695040888963407
        if (numbers[RANDOM] >> 33) % numbers[ODDS] == 0:
            usleep(numbers[word])

@jit
def _read(address):
    delay(word_at(address))
    return read_word(address)

@jit
def _exchange(address, value):
    delay(word_at(address))
    return exchange(address, value)

@jit
def _add(address, value):
    delay(word_at(address))
    return add_to(address, value)

@jit
def _release(lock):
    delay(MARK)
    release(lock)

@jit
def _call(loop, arguments):
    delay(CHUNK)
    return call_address(loop, arguments)

team.read_word, team.exchange, team.add_to, team.call_address = _read, _exchange, _add, _call
c_api = types.ModuleType("c_api")
vars(c_api).update({**vars(team.c_api), "release": _release})
team.c_api = c_api
use_it()
from splitjit._abi.thresholds import THRESHOLDS
let(chunk=1 << 12, asleep_share=1, awake_share=1)
THRESHOLDS.large = 1 << 14
"""

# Old outputs are filled with a pattern, which no helper may change any more.
LATE = """
SHAPES = [(64, 3000), (9, 40_000), (1, 70_001), (16_000, 16)]
rng = np.random.default_rng(0)
sources = [rng.integers(0, 256, shape, np.uint8) for shape in SHAPES]
plans = [splitjit.plan_split(y.shape, num_outputs=2 + i % 2, axis=1)
         for i, y in enumerate(sources)]
words = "OPEN TAKEN GENERATION ACTIVE ASKED JOB CORE HELPED NUMBERED".split()
words = [getattr(shared.AT, name.lower()) // SPACING for name in words]
ALL = slice(0, CHUNK + 1)
places = [ALL, words[:2]] * 6 + words + [MARK, CHUNK]
helped = []
for i, place in enumerate(places):
    before, old = word("HELPED"), []
    end = time.monotonic() + SECONDS
    count = 0
    DELAYS[ODDS] = (2, 4, 8, 16, 32, 64)[i // 2] if i < 12 else 1
    while time.monotonic() < end or count < 20:
        DELAYS[place] = (0, 20, 200)[count % 3]
        plan, y = plans[count % len(plans)], sources[count % len(plans)]
        out = plan(y, plan.empty(y.dtype))
        for part, index in zip(out, plan.slices, strict=True):
            assert np.array_equal(part, y[index]), place
            part.fill(0xA5)
        old.append(out)
        for chunks in range(4, 33, 4):
            assert run_loop(1 + count % 2, chunks, 0) == [1] * chunks, place
        if len(old) > 8:
            assert all((part == 0xA5).all() for part in old.pop(0)), place
        count += 1
        if count % 7 == 0:
            time.sleep(0.002)  # helpers fall asleep
    DELAYS[ALL] = 0
    time.sleep(0.01)
    assert all((part == 0xA5).all() for out in old for part in out), place
    helped.append(word("HELPED") - before)
assert word("BUSY") == word("ACTIVE") == 0
assert sum(count > 0 for count in helped) > len(helped) // 2, helped
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs usleep")
@pytest.mark.parametrize("helpers", [*long(1), 3])
def test_helpers_that_are_late_at_each_step(helpers, tmp_path):
    code = f"SECONDS = {SECONDS}\n" + SLOW_LOOP + ANOTHER_TEAM + DELAYED + LATE
    run_helpers(tmp_path, code, cores=helpers + 1, timeout=100 + 20 * SECONDS)


# ---- Numba's threads ---------------------------------------------------------------------


def test_numbas_threads_if_the_user_chooses_them(tmp_path):
    code = """
assert "numba" not in sys.modules
check()
import numba
assert word("STARTED") == 0
assert numba.threading_layer()  # a parallel region has run
assert splitjit.explain(x, [300, 724], axis=1).threads == 2
for _ in range(20):
    check()
run_in_threads(1, check)
numba.set_num_threads(1)
check()
"""
    run_helpers(tmp_path, code, SPLITJIT_THREADS="numba")


def test_an_unknown_choice_of_threads_is_a_warning(tmp_path):
    code = """
import warnings
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    import splitjit
(warning,) = found
assert issubclass(warning.category, RuntimeWarning)
assert str(warning.message) == "SPLITJIT_THREADS='both' must be 'helpers' or 'numba'; helpers copy"
"""
    code += f"{SPLIT}{TWO_CORES}check(); assert word('STARTED') == 1"
    run(tmp_path, code, SPLITJIT_THREADS="both")
