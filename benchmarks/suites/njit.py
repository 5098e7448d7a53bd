"""Time of a split inside compiled code, compared with Numba's np.split followed by a copy."""

import numpy as np
from numba import njit

import splitjit
from benchmarks.contenders import cases

CASES = cases("njit")


@njit
def _ours(x, n, axis):
    return splitjit.split(x, num_splits=n, axis=axis)


@njit
def _ours_into(x, outs, n, axis):
    splitjit.split_into(x, outs, x.shape[axis] // n, axis)


def _numbas(axis):
    """Return the same two functions by Numba's `np.split`, whose axis is a constant."""

    @njit
    def fresh(x, n, _):
        return [part.copy() for part in np.split(x, n, axis)]

    @njit
    def into(x, outs, n, _):
        for out, part in zip(outs, np.split(x, n, axis)):  # noqa: B905  Numba has no strict=
            out[:] = part

    return fresh, into


class InCompiledCode:
    """Fresh parts, dropped at once, and copies into existing parts."""

    version = "1"
    params = (list(CASES), ["fresh", "out"], ["splitjit", "numba"])
    param_names = ("case", "target", "by")

    def setup(self, case, target, by):
        """Compile the function, and touch the pages that are reused."""
        of = CASES[case]
        x, n, axis = of.array(), len(of.sizes), of.axis
        fresh, into = (_ours, _ours_into) if by == "splitjit" else _numbas(axis)
        outs = tuple(splitjit.split(x, num_splits=n, axis=axis))
        calls = {"fresh": lambda: fresh(x, n, axis), "out": lambda: into(x, outs, n, axis)}
        self.call = calls[target]
        for _ in range(2):
            self.call()

    def time_split(self, case, target, by):
        self.call()
