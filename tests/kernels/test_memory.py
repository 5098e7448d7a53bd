"""splitjit touches no byte outside of a buffer: buffers begin or end at a protected page.

A case depends only on its number: ``python -m tests.guarded serial 17 18 /dev/null`` runs one.
"""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROUTES, long, needs_kernels, routes
from tests.processes import CHILD, python, run

COMPILED = ["compiled", "compiled-streamed"]
CASES = int(os.environ.get("SPLITJIT_MEMORY_CASES", "200"))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs mprotect")
@pytest.mark.parametrize(
    "route",
    [
        *routes("slices", "serial", "parallel-streamed"),
        pytest.param("compiled", marks=needs_kernels),
        pytest.param("compiled-streamed", marks=[needs_kernels, pytest.mark.long]),
    ],
)
def test_nothing_outside_of_a_buffer_is_touched(route, tmp_path):
    log = tmp_path / "case"
    first = 10**6 * [*ROUTES, *COMPILED].index(route)
    try:
        helped = int(python("-m", "tests.guarded", route, first, first + CASES, log))
    except AssertionError as error:
        error.add_note(f"{route} {log.read_text().strip()}")
        raise
    assert int(log.read_text()) == first + CASES - 1
    assert (helped > CASES // 20) == route.startswith(("parallel", "compiled"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs mprotect")
@pytest.mark.parametrize("flush_with_end", [*long(False), True])
def test_a_protected_page_ends_the_process(flush_with_end):
    code = f"""
from tests.guarded import guarded
memory = guarded(100, {flush_with_end})
memory[0] = memory[-1] = 1
address = memory.ctypes.data + {100 if flush_with_end else -1}
import ctypes
print("alive", flush=True)
ctypes.string_at(address, 1)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == "alive\n"
    assert result.returncode < 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on address space")
def test_parts_that_do_not_fit_are_refused_before_anything_is_touched():
    code = """
import numpy as np, resource, splitjit
splitjit.warmup(["f8"])  # with the limit below, nothing could be imported or compiled
x = np.arange(1 << 22, dtype=np.float64)
splitjit.split(x, num_splits=2)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), resource.RLIM_INFINITY))
kept = splitjit.split(x, num_splits=2)  # reuses the idle block
for fits, array, keywords in [
    (False, x, {"num_splits": 4}),
    (False, np.broadcast_to(x, (10**6, x.size)), {"num_splits": 10}),
    (False, np.broadcast_to(np.float32(1), (1 << 40,)), {"split": 1 << 39}),
    (True, x[: 1 << 10], {"num_splits": 2}),
    (True, x[: 1 << 19], {"num_splits": 2}),
]:
    try:
        parts = splitjit.split(array, **keywords)
    except MemoryError:
        assert not fits
    else:
        assert fits
        del parts
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
assert np.array_equal(np.concatenate(kept), x)
assert np.array_equal(x, np.arange(1 << 22))
print("sound")
"""
    assert python("-c", code) == "sound\n"


LAST_MEMORY = """
CALLS = {
    "large": "splitjit.split(x, num_splits=2)",
    "large, compiled": "in_two(x)",
    "many, compiled": "in_two(bits, 1 << 20)",
    "small": "splitjit.split(short, num_splits=2)",
    "small, of a new shape": "splitjit.split(short[1:], num_sections=2)",
    "small, compiled": "in_two(short)",
    "empty": "plan.empty('f8')",
    "objects": "splitjit.split(objects, num_splits=2)",
    "empty objects": "plan.empty(object)",
}

import contextlib, os, resource, signal
import numba
import numpy as np
import splitjit
from splitjit._copy.buffers import POOL

@numba.njit
def in_two(x, n=2):
    return splitjit.split(x, num_splits=n)

splitjit.warmup()
x, short = np.zeros(1 << 24), np.zeros(50_001)[:50_000]
bits, objects = np.zeros(1 << 20, np.uint8), np.full(40_000, None)
plan = splitjit.plan_split((40_000,), num_splits=2)
for array in x, short:
    in_two(array), splitjit.split(array, num_splits=2)
in_two(bits), splitjit.split(objects, num_splits=2)
splitjit.clear_caches()
[splitjit.split(np.zeros(125 << 17), num_splits=2) for _ in range(2)]
assert POOL.kept > 249 << 20

def split_with_the_last_memory():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    held = []
    with contextlib.suppress(MemoryError):
        while name.startswith(("small", "objects", "empty")):
            held.append(np.empty(100_000, np.uint8))
    parts = eval(CALLS[name])
    held.clear()
    assert POOL.kept == 0, name
    assert len(parts) == (1 << 20 if name.startswith("many") else 2), name

for name in CALLS:
    child(split_with_the_last_memory)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on address space")
@needs_kernels
def test_idle_blocks_are_freed_before_memory_runs_out(tmp_path):
    """Each child has the idle blocks of its parent, and a limit of its own."""
    run(tmp_path, CHILD.replace("function=check", "function") + LAST_MEMORY)
