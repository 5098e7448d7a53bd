"""Time of joins, which write the parts of a split back into one array."""

import numpy as np

import splitjit
from benchmarks.contenders import cases

JOINED = cases("report", "joined", "cases")


class Joins:
    """Joins into new arrays and into one that exists; all pages are touched."""

    version = "1"
    params = (list(JOINED), ("fresh", "out"))
    param_names = ("case", "target")

    def setup(self, name, target):
        splitjit.warmup()
        case = JOINED[name]
        self.axis, x = case.axis, case.array()
        self.parts = [part.copy() for part in case.views(x)]
        self.out = np.zeros_like(x) if target == "out" else None
        for _ in range(2):
            self.time_join()

    def time_join(self, *_):
        splitjit.join(self.parts, self.axis, out=self.out)
