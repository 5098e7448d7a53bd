"""SwiGLU: the halves of one projection
====================================

One projection computes the gate and the values that it multiplies; split it in half.

A model calls this layer for every batch of tokens. Each split therefore writes the halves into
the same memory, and allocates nothing. Requires only splitjit.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/swiglu.svg'

import numpy as np

import splitjit

tokens, width, hidden = 64, 256, 688
rng = np.random.default_rng(0)
weight = rng.standard_normal((width, 2 * hidden), dtype=np.float32) / 16
down = rng.standard_normal((hidden, width), dtype=np.float32) / 26

fused = np.empty((tokens, 2 * hidden), np.float32)
plan = splitjit.plan_split(fused.shape, num_splits=2, axis=-1)
gate, up = halves = plan.empty(fused.dtype)
plan  # a notebook shows this plan as a picture

# %%
# The function, and three batches.


def silu(x):
    """Return x times its sigmoid."""
    return x / (1 + np.exp(-x))


for step in range(3):
    x = rng.standard_normal((tokens, width), dtype=np.float32)
    np.matmul(x, weight, out=fused)
    plan(fused, out=halves)
    y = (silu(gate) * up) @ down

    expected = (silu(fused[:, :hidden]) * fused[:, hidden:]) @ down
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    print(f"step {step}: {fused.shape} into gate and up {gate.shape}, out {y.shape} {y.std():.3f}")
