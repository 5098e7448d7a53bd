"""A table: training, validation and test
======================================

Shuffle the rows of a table, and split them 70 : 15 : 15.

The same plan splits the features and the labels, so rows and labels stay together. Requires only
splitjit.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/table_sets.svg'

import numpy as np

import splitjit

rows = 1003
rng = np.random.default_rng(0)
features = rng.standard_normal((rows, 8), dtype=np.float32)
labels = (features.sum(axis=1) > 0).astype(np.int8)

# One length may be -1: it takes the rows that rounding leaves.
sizes = [rows * 70 // 100, rows * 15 // 100, -1]
plan = splitjit.plan_split(features.shape, sizes)
print(plan)
plan  # a notebook shows this plan as a picture

# %%
order = rng.permutation(rows)
train, validation, test = plan(features[order])
train_labels, *_, test_labels = splitjit.split(labels[order], plan.sizes)

np.testing.assert_array_equal((test.sum(axis=1) > 0).astype(np.int8), test_labels)
assert len(train) + len(validation) + len(test) == rows
print("train", train.shape, "validation", validation.shape, "test", test.shape)

# %%
# Folds for cross-validation, whose lengths differ by at most one row.
folds = splitjit.split(features[order], num_sections=5)
print("folds of", [len(fold) for fold in folds], "rows")
