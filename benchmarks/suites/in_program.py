"""Time of a split between other steps of a program, whose threads use the same cores.

`benchmarks/in_program.py` also compares with torch and ONNX Runtime, which asv's environments lack.
"""

from benchmarks import in_program

PROGRAMS = ("BLAS", "prange", "none")


class InProgram:
    """The mean time of splits of arrays; one number a process, since pages lie where they lie."""

    version = "1"
    timeout = 120
    params = (PROGRAMS, list(in_program.SHAPES), ("fresh", "out"))
    param_names = ("program", "size", "target")
    unit = "seconds"

    def track_mean(self, program, size, target):
        """Split after each step for 0.3 s."""
        step = in_program.step_of(program)
        split = in_program.split_of(in_program.OURS, "arrays", target, in_program.SHAPES[size])
        return in_program.mean_seconds(split, step, 0.3)
