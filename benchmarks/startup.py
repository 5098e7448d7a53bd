"""What a new process pays: import, warm-up, first call, memory."""

import textwrap

import numpy as np

import splitjit

SPLIT = "splitjit.split(x, num_splits=4)"
PREPARE = "import numba, numpy, splitjit; x = numpy.ones(1 << 22, numpy.float32)"

# Numba reads NUMBA_CACHE_DIR when it is imported, hence before the rest.
COLD = """
import atexit, os, tempfile
folder = tempfile.TemporaryDirectory()
atexit.register(folder.cleanup)
os.environ["NUMBA_CACHE_DIR"] = folder.name
"""


class Import:
    """`import splitjit`, next to what it imports, or will on first use."""

    version = "1"
    params = ("numpy", "splitjit", "numba")
    param_names = ("module",)

    def timeraw_import(self, module):
        return f"import {module}"


class FirstCall:
    """The first split of 16 MB, and a warm-up, once Numba is imported."""

    version = "1"
    params = ("warm", "cold")
    param_names = ("cache",)
    timeout = 300

    def setup(self, cache):
        splitjit.warmup()  # fills the cache that the warm ones read

    def timeraw_first_call(self, cache):
        return SPLIT, self.preparation(cache)

    def timeraw_warmup(self, cache):
        return "splitjit.warmup()", self.preparation(cache)

    def preparation(self, cache):
        """Return what the process runs before the clock starts."""
        return textwrap.dedent(COLD if cache == "cold" else "") + PREPARE


class Memory:
    """Peak memory of a process that holds 64 MB: views add none, parts 64 MB."""

    version = "1"
    params = ("views", "parts")
    param_names = ("result",)

    def setup(self, result):
        # Counted, too, hence the same for both.
        splitjit.warmup(["float32"])
        self.x = np.ones(1 << 24, np.float32)
        for _ in range(2):
            splitjit.split(self.x[: 1 << 18], num_splits=4)

    def peakmem_split(self, result):
        splitjit.split(self.x, num_splits=4, copy=result == "parts")
