"""Queries, keys and values: into a cache
======================================

Write the keys and values of each step to their cache in one pass, and leave the queries as a view.

Attention in NumPy and PyTorch takes views of a fused projection, so a copy of all parts would be
lost time. The cache of keys and values is a copy in any case, which ``out=`` writes. Llama 3 has 32
query heads, 8 key heads and 8 value heads of width 128; this example has a quarter of them. It
requires only splitjit.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/qkv_cache.svg'

import numpy as np

import splitjit

tokens, step, heads, groups, width = 256, 64, 8, 2, 128
rng = np.random.default_rng(0)
x = rng.standard_normal((tokens, heads * width), dtype=np.float32)
weight = rng.standard_normal((heads * width, (heads + 2 * groups) * width), dtype=np.float32)
weight /= np.sqrt(heads * width, dtype=np.float32)

# The plan of keys and values prints as a drawing.
plan = splitjit.plan_split((step, 2 * groups * width), num_splits=2, axis=1)
print(plan)
plan  # a notebook shows this plan as a picture

# %%
# Each step writes its rows of the cache. Queries are a view of the projection.
cached_keys = np.empty((tokens, groups * width), np.float32)
cached_values = np.empty_like(cached_keys)


def by_head(part):
    """Return (tokens, heads * width) as (heads, tokens, width), as a view."""
    return part.reshape(len(part), -1, width).swapaxes(0, 1)


def attend(queries, keys, values):
    """Attend: each key and value head serves heads / groups consecutive query heads."""
    keys, values = (np.repeat(by_head(part), heads // groups, axis=0) for part in (keys, values))
    scores = by_head(queries) @ keys.swapaxes(1, 2) / np.sqrt(width, dtype=np.float32)
    asked, cached = scores.shape[1:]
    seen = np.tri(asked, cached, cached - asked, dtype=bool)  # a token sees no later ones
    scores[:, ~seen] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ values


attended = []
for start in range(0, tokens, step):
    end = start + step
    fused = x[start:end] @ weight
    queries, keys_and_values = splitjit.split(fused, [heads * width, -1], axis=1, copy=False)
    plan(keys_and_values, out=[cached_keys[start:end], cached_values[start:end]])
    attended.append(attend(queries, cached_keys[:end], cached_values[:end]))
attended = splitjit.join(attended, axis=1)

# %%
# The steps together give what one pass over all tokens gives.
at_once = attend(*np.split(x @ weight, [1024, 1280], axis=1))
np.testing.assert_allclose(attended, at_once, rtol=1e-4, atol=1e-5)
print("attention of shape", attended.shape, "is the same in steps and in one pass")
