"""Time of splits over layouts and dtypes, of splits of small arrays, and of plans."""

from dataclasses import replace

import numpy as np

import splitjit
from benchmarks.contenders import cases

LAYOUTS, SMALL = cases("layouts"), cases("small")
TARGETS = ("fresh", "out")


class _Split:
    """An array to split, and `out` if the target is "out"; all pages are touched."""

    version = "2"

    def prepare(self, case, target):
        """Load all kernels, and split twice, to touch the pages that are reused.

        Without `warmup`, NumPy would still copy small arrays when they are timed.
        """
        splitjit.warmup()
        self.x, self.rule = case.array(), case.rule
        self.plan = splitjit.plan_split(case.shape, **self.rule)
        self.out = self.plan.empty(case.dtype) if target == "out" else None
        for _ in range(2):
            self.time_split()

    def time_split(self, *_):
        """Split once and drop fresh parts."""
        splitjit.split(self.x, **self.rule, out=self.out)


class Layouts(_Split):
    """Splits of arrays that do not fit into the cache of a core."""

    params = (list(LAYOUTS), ["uint8", "float32", "complex128"], TARGETS)
    param_names = ("layout", "dtype", "target")

    def setup(self, layout, dtype, target):
        self.prepare(replace(LAYOUTS[layout], dtype=dtype), target)


class NewShapes:
    """Splits of arrays whose shapes were never split before, as in batches of variable length."""

    version = "1"
    params = ("splitjit", "NumPy")
    param_names = ("library",)
    number = repeat = 1

    def setup(self, library):
        random = np.random.default_rng(0)
        x = np.ones(50_000, np.float32)  # 200 KB
        self.cases = []
        for _ in range(20_000):
            items = int(10 ** random.uniform(2.4, 4.69))
            rows = int(random.integers(1, 2 * int(items**0.5)))
            array = x[: items // rows * rows].reshape(rows, -1)
            axis = int(random.integers(2))
            cuts = np.sort(random.integers(0, array.shape[axis] + 1, 3)).tolist()
            sizes = np.diff([0, *cuts, array.shape[axis]]).tolist()
            self.cases.append((array, sizes, cuts, axis))

    def time_split(self, library):
        if library == "NumPy":
            for x, _, cuts, axis in self.cases:
                [part.copy() for part in np.split(x, cuts, axis)]
        else:
            splitjit.clear_caches()
            for x, sizes, _, axis in self.cases:
                splitjit.split(x, sizes, axis=axis)


class Small(_Split):
    """Splits of small arrays, which measure the cost of a call."""

    params = (list(SMALL), TARGETS)
    param_names = ("case", "target")

    def setup(self, case, target):
        self.prepare(SMALL[case], target)

    def time_call_plan(self, case, target):
        self.plan(self.x, self.out)


class Gaps(_Split):
    """Splits of small arrays to slices of a larger array, and joins of these slices."""

    params = tuple(SMALL)
    param_names = ("case",)

    def setup(self, case):
        self.prepare(SMALL[case], "fresh")
        block = np.zeros([n + 1 for n in self.plan.shape], self.x.dtype)
        whole = block[tuple(map(slice, self.plan.shape))]
        self.out = [whole[index] for index in self.plan.slices]
        for _ in range(2):
            self.time_split(case)
            self.time_join(case)

    def time_join(self, case):
        self.plan.join(self.out)


class Views:
    """Views of small arrays, which copy nothing."""

    version = "1"
    params = tuple(SMALL)
    param_names = ("case",)

    def setup(self, case):
        self.x, self.rule = SMALL[case].array(), SMALL[case].rule
        for _ in range(2):
            self.time_views(case)

    def time_views(self, case):
        splitjit.split(self.x, **self.rule, copy=False)


class Plan:
    """The plan alone, from the cache and newly made."""

    version = "1"
    params = ("3", "100", "10000")
    param_names = ("parts",)

    def setup(self, parts):
        self.shape, self.n = (16, 16 * int(parts)), int(parts)
        self.sizes = (16,) * self.n
        for _ in range(2):
            self.time_plan(parts)
            self.time_plan_new(parts)

    def time_plan(self, parts):
        splitjit.plan_split(self.shape, axis=1, num_splits=self.n)

    def time_plan_new(self, parts):
        splitjit.SplitPlan(self.shape, 1, self.sizes)
