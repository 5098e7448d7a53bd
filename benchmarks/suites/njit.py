"""Time of a split inside compiled code, compared with Numba's np.split followed by a copy."""

import numpy as np
from numba import njit

import splitjit

SHAPES = {
    "6 into 3": ((6,), 0, 3),
    "16 tokens qkv": ((16, 2304), 1, 3),
    "2000 short rows": ((2000, 30), 1, 3),
    "long runs": ((512, 8192), 1, 2),
    "short runs": ((400_000, 30), 1, 3),
}


@njit
def _ours(x, n, axis):
    return splitjit.split(x, num_splits=n, axis=axis)


@njit
def _numbas_first(x, n):
    return [part.copy() for part in np.split(x, n)]


@njit
def _numbas_last(x, n):
    return [part.copy() for part in np.split(x, n, 1)]


@njit
def _ours_into(x, outs, n, axis):
    splitjit.split_into(x, outs, x.shape[axis] // n, axis)


@njit
def _numbas_first_into(x, outs, n):
    for out, part in zip(outs, np.split(x, n)):  # noqa: B905  Numba's zip has no strict=
        out[:] = part


@njit
def _numbas_last_into(x, outs, n):
    for out, part in zip(outs, np.split(x, n, 1)):  # noqa: B905
        out[:] = part


class InCompiledCode:
    """Fresh parts, dropped at once, and copies into existing parts."""

    version = "1"
    params = (list(SHAPES), ["fresh", "out"], ["splitjit", "numba"])
    param_names = ("case", "target", "by")

    def setup(self, case, target, by):
        """Compile the functions, and touch the pages that are reused."""
        shape, axis, n = SHAPES[case]
        self.x = np.ones(shape, np.float32)
        if target == "fresh":
            calls = {
                "splitjit": lambda: _ours(self.x, n, axis),
                "numba": lambda: (_numbas_last if axis else _numbas_first)(self.x, n),
            }
        else:
            outs = tuple(splitjit.split(self.x, num_splits=n, axis=axis))
            numbas = _numbas_last_into if axis else _numbas_first_into
            calls = {
                "splitjit": lambda: _ours_into(self.x, outs, n, axis),
                "numba": lambda: numbas(self.x, outs, n),
            }
        self.call = calls[by]
        for _ in range(2):
            self.call()

    def time_split(self, case, target, by):
        self.call()
