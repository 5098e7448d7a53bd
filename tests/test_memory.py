"""No byte outside of a buffer is read or written.

Inputs and parts lie flush with protected pages, so that a single byte too far
ends the process: each batch has one of its own. ``SPLITJIT_MEMORY_CASES`` sets
how many cases each route gets; they are numbered, and a number is the same case
everywhere: ``python -m tests.guarded serial 17 18 /dev/null``.
"""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROUTES

CASES = int(os.environ.get("SPLITJIT_MEMORY_CASES", "1000"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no mprotect here")
@pytest.mark.parametrize("route", ROUTES)
def test_nothing_outside_of_a_buffer_is_touched(route, tmp_path):
    log = tmp_path / "case"
    first = 10**6 * list(ROUTES).index(route)
    result = subprocess.run(
        [sys.executable, "-m", "tests.guarded", route, str(first), str(first + CASES), str(log)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, f"{route} {log.read_text().strip()}: {result.stderr}"
    assert int(log.read_text()) == first + CASES - 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no mprotect here")
@pytest.mark.parametrize("flush_with_end", [False, True])
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
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.stdout == "alive\n"
    assert result.returncode < 0
