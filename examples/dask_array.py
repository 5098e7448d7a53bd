"""Split an array that need not fit into memory: Dask makes, splits and reduces its chunks.

Needs Dask, the extra `dask` of splitjit: pip install .[dask]
"""

import dask
import dask.array as da
import numpy as np

import splitjit

# Projections fused to queries, keys and values, 1024 tokens to a chunk. There may be
# any number of tokens: as many chunks are in memory as Dask has threads.
tokens, width = 8192, 768
fused = da.random.default_rng(0).normal(size=(tokens, 3 * width), chunks=(1024, 3 * width))

# Three Dask arrays; nothing is computed yet.
queries, keys, values = splitjit.split(fused, num_splits=3, axis=1)
print(queries)

# Compute what you need of all parts in one call: each chunk is then split once.
scores, mean = dask.compute((queries * keys).sum(axis=1), values.mean(axis=0))
print("scores", scores.shape, "mean of the values", mean.shape)

np.testing.assert_allclose(mean, fused[:, 2 * width :].mean(axis=0).compute())
