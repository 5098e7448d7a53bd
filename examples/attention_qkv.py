"""Attention: queries, keys and values
===================================

Grouped-query attention: one projection computes queries, keys and values; split it by lengths.

Llama 3 has 32 query heads, 8 key heads and 8 value heads of width 128: lengths 4096, 1024, 1024.
This example uses a quarter of the heads. Requires only splitjit.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/attention_qkv.svg'

import numpy as np

import splitjit

tokens, heads, groups, width = 256, 8, 2, 128
rng = np.random.default_rng(0)
x = rng.standard_normal((tokens, heads * width), dtype=np.float32)
weight = rng.standard_normal((heads * width, (heads + 2 * groups) * width), dtype=np.float32)
fused = x @ weight / np.sqrt(heads * width, dtype=np.float32)

# Make the plan once; it splits every array of this shape.
plan = splitjit.plan_split(fused.shape, [heads * width, groups * width, groups * width], axis=1)
print(plan)
plan  # a notebook shows this plan as a picture

# %%
# Because each part is contiguous, reshaping it to heads copies nothing.


def by_head(part):
    """Return (tokens, heads * width) as (heads, tokens, width), as a view."""
    return part.reshape(tokens, -1, width).swapaxes(0, 1)


def attend(queries, keys, values):
    """Attend: each key and value head serves heads / groups consecutive query heads."""
    keys, values = (np.repeat(heads_of, heads // groups, axis=0) for heads_of in (keys, values))
    scores = queries @ keys.swapaxes(1, 2) / np.sqrt(width, dtype=np.float32)
    scores[:, ~np.tri(tokens, dtype=bool)] = -np.inf  # a token must not see later tokens
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ values


# %%
queries, keys, values = (by_head(part) for part in plan(fused))
print("queries", queries.shape, "keys", keys.shape, "values", values.shape)
attended = attend(queries, keys, values)

# Slices, like np.split, return views into `fused`, with rows 1536 elements apart.
sliced = [by_head(fused[:, :1024]), by_head(fused[:, 1024:1280]), by_head(fused[:, 1280:])]
for part, view in zip((queries, keys, values), sliced, strict=True):
    np.testing.assert_array_equal(part, view)
np.testing.assert_allclose(attended, attend(*sliced), rtol=1e-5, atol=1e-6)
print("attention", attended.shape, "equals that of NumPy's slices")
