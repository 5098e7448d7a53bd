"""The path of a call is short enough to be followed by eye; see docs/architecture.md."""

import pytest

from tests.conftest import needs_kernels
from tests.processes import TWO_CORES, python

MOST = (8, 31), (3, 3)
"""The most modules of splitjit that a first call enters, and its changes of module; then the most
of a later call."""

WALK = """
import itertools, sys
import numpy as np
import splitjit
from splitjit._runtime.threads import TEAM

splitjit.warmup()
TEAM.limits_until = float("inf")  # they are read again ten times a second
x, entered = np.zeros(SHAPE, np.float32), []

def note(frame, event, argument):
    module = frame.f_globals.get("__name__", "")
    if event == "call" and module.startswith("splitjit."):
        entered.append(module)

for call in range(5):
    entered[:] = [""]
    sys.setprofile(note)
    splitjit.split(x, [300, 468], axis=1)
    sys.setprofile(None)
    print(len({*entered}) - 1, len([*itertools.groupby(entered)]) - 1)
"""


@needs_kernels
@pytest.mark.parametrize("shape", [(8, 768), (512, 768), (4096, 768)], ids=str)
def test_a_call_enters_few_modules(shape):
    said = python("-c", f"SHAPE = {shape}" + TWO_CORES + WALK).split()
    counts = [*zip(map(int, said[::2]), map(int, said[1::2]), strict=True)]
    assert all(a <= b for got in counts for a, b in zip(got, MOST[0], strict=True)), counts
    for got in counts[2:]:
        assert all(a <= b for a, b in zip(got, MOST[1], strict=True)), counts
