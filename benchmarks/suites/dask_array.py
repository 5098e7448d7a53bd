"""Time of Dask splits: all parts computed, the same with Dask's slices, and the graph alone."""

import splitjit

CHUNKS = {
    # Rows per chunk, and number of chunks. Each row has 6144 float32 and is split into 3.
    "few large": (1024, 8),
    "many small": (32, 256),
}


class Parts:
    """All parts of an array whose chunks are in memory, on Dask's threads."""

    version = "1"
    params = tuple(CHUNKS)
    param_names = ("chunks",)

    def setup(self, chunks):
        try:
            import dask
            import dask.array as da
            import numpy as np
        except ImportError as error:
            raise NotImplementedError(f"{error.name} is not installed") from error

        rows, count = CHUNKS[chunks]
        self.compute = lambda parts: dask.persist(*parts, scheduler="threads")
        self.contiguous = np.ascontiguousarray
        x = da.ones((rows * count, 6144), np.float32, chunks=(rows, 6144))
        (self.x,) = self.compute([x])
        self.parts = lambda: splitjit.split(self.x, num_splits=3, axis=1)
        for _ in range(2):
            self.time_split(chunks)
            self.time_slices(chunks)

    def time_plan(self, chunks):
        self.parts()

    def time_split(self, chunks):
        self.compute(self.parts())

    def time_slices(self, chunks):
        parts = splitjit.split(self.x, num_splits=3, axis=1, copy=False)
        self.compute([part.map_blocks(self.contiguous) for part in parts])
