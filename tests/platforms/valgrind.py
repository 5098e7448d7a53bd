"""Run the cases of tests/guarded.py under valgrind: ``valgrind.py [CASES [ROUTE ...]]``.

Without a route, all routes run.

valgrind reports accesses to memory that nobody owns, and decisions by values that nobody has
written. It also reports many of CPython, NumPy and LLVM. So only reports from compiled code count:
the function that makes the access, or that calls C's `memcpy` for it, lies in no file.

valgrind does not know AVX-512, so Numba compiles for a generic processor. LLVM takes very long
under valgrind. So each case first runs without it, and the kernels come from the cache afterwards.
Only compiled code of users is compiled under valgrind.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]

# Compiled code reads a byte behind 100 bytes of C's malloc: valgrind must report it.
CONTROL = """
import numba, numpy as np

@numba.njit
def read(x, i):
    return x[i]

print(read(np.zeros(100, np.uint8), 100))
"""


SETTINGS = {"NUMBA_CPU_NAME": "generic", "PYTHONMALLOC": "malloc", "NUMBA_NUM_THREADS": "2"}


def reports_of(*arguments):
    """Run Python under valgrind; return its exit status and the reports from compiled code."""
    environment = {**os.environ, **SETTINGS}
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log.xml")
        options = ["--quiet", "--xml=yes", f"--xml-file={log}", "--smc-check=all-non-file"]
        ended = subprocess.run(
            ["valgrind", *options, *command],
            cwd=ROOT, env=environment, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        errors = ElementTree.parse(log).getroot().iter("error")
        return ended.returncode, [error for error in errors if is_compiled(error.find("stack"))]


def is_compiled(stack):
    """Return whether a stack begins in compiled code, or in valgrind's `memcpy` called by it."""
    for frame in stack.iter("frame"):
        file = frame.findtext("obj", "")
        if "vgpreload" not in file:
            return not file
    return False


def main(cases, chosen):
    """Run the control, and `cases` cases of each chosen route; return whether all is right."""
    _, found = reports_of("-c", CONTROL)
    print(f"control: {len(found)} reports of the wrong read", flush=True)
    right = bool(found)
    sys.path.insert(0, str(ROOT))
    from tests.conftest import ROUTES

    routes = [*ROUTES, "compiled", "compiled-streamed"]
    for route in chosen or routes:
        i = routes.index(route)
        first = i * 10**6  # as in tests/kernels/test_memory.py
        numbers = [str(number) for number in (first, first + cases)]
        status, found = reports_of("-m", "tests.guarded", route, *numbers, os.devnull)
        print(f"{route}: {cases} cases, exit status {status}, {len(found)} reports", flush=True)
        for error in found[:3]:
            print(ElementTree.tostring(error, encoding="unicode"))
        right = right and not status and not found
    return right


if __name__ == "__main__":
    if not shutil.which("valgrind"):
        sys.exit("valgrind is missing: apt-get install valgrind")
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:]))
