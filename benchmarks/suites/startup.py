"""Cost in a new process: import, warm-up, first call and peak memory."""

import numpy as np

import splitjit

SPLIT = "splitjit.split(x, num_splits=4)"
PREPARE = "import numba, numpy, splitjit; x = numpy.ones(1 << 22, numpy.float32)"
# The first line runs before the import of Numba, which reads NUMBA_CACHE_DIR.
COLD = """import atexit, os, tempfile; folder = tempfile.TemporaryDirectory()
atexit.register(folder.cleanup); os.environ["NUMBA_CACHE_DIR"] = folder.name
"""
IMPORTS = {"warm": PREPARE, "cold": COLD + PREPARE}


class Import:
    """Time to import NumPy, splitjit with NumPy, or Numba, which the first use imports."""

    version = "1"
    params = ("numpy", "splitjit", "numba")
    param_names = ("module",)

    def timeraw_import(self, module):
        return f"import {module}"


class FirstCall:
    """The first split of 16 MB, and a warm-up, after the import of Numba."""

    version = "1"
    params = ("warm", "cold")
    param_names = ("cache",)
    timeout = 300

    def setup(self, cache):
        splitjit.warmup()  # fills the cache for the case "warm"

    def timeraw_first_call(self, cache):
        return SPLIT, IMPORTS[cache]

    def timeraw_warmup(self, cache):
        return "splitjit.warmup()", IMPORTS[cache]


class Memory:
    """Peak memory of a process that holds 64 MB: views add nothing, parts add 64 MB."""

    version = "1"
    params = ("views", "parts")
    param_names = ("result",)

    def setup(self, result):
        # Set-up counts for the peak, so both results have the same set-up.
        splitjit.warmup(["float32"])
        self.x = np.ones(1 << 24, np.float32)
        for _ in range(2):
            splitjit.split(self.x[: 1 << 18], num_splits=4)

    def peakmem_split(self, result):
        splitjit.split(self.x, num_splits=4, copy=result == "parts")
