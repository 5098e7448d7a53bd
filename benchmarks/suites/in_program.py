"""Time of a split between other steps of a program, and of a whole iteration, step and split.

`benchmarks/in_program.py` also compares with torch and ONNX Runtime, which asv's environments lack.
"""

import dataclasses

from benchmarks import harness
from benchmarks.in_program import SIZES

PROGRAMS = ("BLAS", "prange", "none", "BLAS, iteration", "prange, iteration")


class InProgram:
    """Mean times; one number a process, since pages lie where they lie."""

    version = "1"
    timeout = 120
    params = (PROGRAMS, list(SIZES), ("fresh", "out"))
    param_names = ("program", "size", "target")
    unit = "seconds"

    def track_mean(self, program, size, target):
        """Split after each step for 0.3 s."""
        contender = harness.Contender("splitjit, warm")
        contender.prepare(dataclasses.astuple(SIZES[size]), target)
        name, _, iteration = program.partition(", ")
        return contender.between(name, 0.3)[not iteration]
