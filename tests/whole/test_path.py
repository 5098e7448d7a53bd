"""The path of a call is short enough to be followed by eye; see docs/architecture.md."""

from tests.conftest import needs_kernels
from tests.processes import TWO_CORES, python

MOST = (7, 31), (3, 3)
"""The most modules of splitjit that a first call enters, and its changes of module; then the most
of a later call."""

WALK = """
import itertools, sys
import numpy as np
import splitjit
from splitjit._runtime.threads import TEAM

splitjit.warmup(["f4"])
entered = []

def note(frame, event, argument):
    module = frame.f_globals.get("__name__", "")
    if event == "call" and module.startswith("splitjit."):
        entered.append(module)

for rows in (8, 512, 4096):
    x = np.zeros((rows, 768), np.float32)
    TEAM.limits_until = float("inf")  # they are read again ten times a second
    for call in range(5):
        entered[:] = [""]
        sys.setprofile(note)
        splitjit.split(x, [300, 468], axis=1)
        sys.setprofile(None)
        print(call, len({*entered}) - 1, len([*itertools.groupby(entered)]) - 1)
"""


@needs_kernels
def test_a_call_enters_few_modules():
    for line in python("-c", TWO_CORES + WALK).splitlines():
        call, *counts = map(int, line.split())
        assert all(a <= b for a, b in zip(counts, MOST[call > 1], strict=True)), line
