"""Compiled code: split inside @njit
=================================

Use split and split_into inside functions that Numba compiles, serial and parallel.

Importing splitjit is enough, and Numba can cache such functions. Requires only splitjit.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/inside_njit.svg'

import numba
import numpy as np
from numba import njit, prange

import splitjit


@njit(cache=True)
def normalized(fused, lengths):
    """Split each row, and divide each part of it by its Euclidean norm."""
    parts = splitjit.split(fused, lengths, axis=1)
    for part in parts:
        for row in part:
            row /= np.sqrt(np.sum(row * row))
    return parts


@njit(parallel=True, cache=True)
def split_batches(batches, left, right):
    """Split each batch on one thread, directly into its place in `left` and `right`."""
    for i in prange(len(batches)):
        splitjit.split_into(batches[i], (left[i], right[i]), (48, 16), axis=1)


# %%
# Call both functions, and compare their parts with NumPy's slices.

rng = np.random.default_rng(0)
fused = rng.standard_normal((1000, 64))
for part, cut in zip(normalized(fused, (32, 24, 8)), ([0, 32], [32, 56], [56, 64]), strict=True):
    expected = fused[:, slice(*cut)]
    expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(part, expected)
    print("normalized", part.shape, "norms", np.linalg.norm(part, axis=1).round(6)[:3])

batches = rng.standard_normal((100, 128, 64))
left, right = np.empty((100, 128, 48)), np.empty((100, 128, 16))
split_batches(batches, left, right)
np.testing.assert_array_equal(np.concatenate([left, right], axis=2), batches)
print(f"batches {batches.shape} on {numba.get_num_threads()} threads", left.shape, right.shape)

try:
    normalized(fused, (32, 24))
except splitjit.SplitError as error:
    print("refused:", error)
