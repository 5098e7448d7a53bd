"""A checkpoint: two ranks, and back
=================================

Split the weights of a gated layer for two ranks, compute with both, and join the files again.

Requires safetensors: pip install ".[safetensors]"
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/checkpoint_ranks.svg'

import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from splitjit import files

rng = np.random.default_rng(0)
weights = {
    "mlp.gate_up.weight": rng.standard_normal((2 * 24, 16), dtype=np.float32),
    "mlp.down.weight": rng.standard_normal((16, 24), dtype=np.float32),
    "norm.weight": np.ones(16, np.float32),
}
temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
save_file(weights, folder / "model.safetensors")

# The rows of gate_up are two sections of 24 rows, and each rank gets half of each section. The
# columns of down belong to the same features. Each rank gets a copy of the norm.
patterns = ["*.gate_up.weight=0:24,24", "*.down.weight=1"]
model = folder / "model.safetensors"
files.split_files(model, num_splits=2, tensors=patterns, layout="ranks", out=folder)
ranks = [load_file(folder / f"rank-{rank}" / "model.safetensors") for rank in range(2)]
for rank in ranks:
    print({name: part.shape for name, part in rank.items()})

# %%
# Each rank computes its share of the layer. The sum of the shares is the output of the layer.


def layer(weights, x):
    """Return the output of the gated layer, or of a rank's share of it."""
    gate, up = np.split(x @ weights["mlp.gate_up.weight"].T, 2, axis=1)
    return (gate / (1 + np.exp(-gate)) * up) @ weights["mlp.down.weight"].T


x = rng.standard_normal((4, 16), dtype=np.float32)
shares = [layer(rank, x) for rank in ranks]
np.testing.assert_allclose(sum(shares), layer(weights, x), rtol=1e-4, atol=1e-3)
print("the shares of", len(shares), "ranks sum to the output", sum(shares).shape)

# %%
# The parts record how they were split, so join needs no patterns.
files.join_files([folder / "rank-0", folder / "rank-1"], out=folder / "joined")
joined = (folder / "joined" / "model.safetensors").read_bytes()
assert joined == model.read_bytes()
print("joined:", len(joined), "bytes, the same as before")
