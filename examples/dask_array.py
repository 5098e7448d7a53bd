"""Dask: an array larger than memory
=================================

Split an array that may be larger than memory: Dask makes, splits and reduces its chunks.

Requires Dask: pip install ".[dask]"
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/dask_array.svg'

import dask
import dask.array as da
import numpy as np

import splitjit

# Fused projections to queries, keys and values, with 1024 tokens in each chunk. The number of
# tokens is not limited by memory: Dask only keeps about one chunk per thread.
tokens, width = 8192, 768
fused = da.random.default_rng(0).normal(size=(tokens, 3 * width), chunks=(1024, 3 * width))

# Three Dask arrays. Dask computes nothing yet.
queries, keys, values = splitjit.split(fused, num_splits=3, axis=1)
print(queries)
queries  # a notebook shows the chunks as a picture

# %%
# Compute all results in one call. Then each chunk is made only once.
scores, mean = dask.compute((queries * keys).sum(axis=1), values.mean(axis=0))
print("scores", scores.shape, "mean of the values", mean.shape)

np.testing.assert_allclose(mean, fused[:, 2 * width :].mean(axis=0).compute())
