"""The formats, and a small checkpoint, for the tests of files."""

import json

import numpy as np
import pytest


@pytest.fixture(params=["npy", "npz", "safetensors"])
def kind(request):
    """Run a test once per format."""
    return request.param


@pytest.fixture
def model(tmp_path):
    """Write a checkpoint of two files with an index, as transformers writes it."""
    sn = pytest.importorskip("safetensors.numpy")
    folder = tmp_path / "model"
    folder.mkdir()
    rng = np.random.default_rng(3)
    names, total, count = {}, 0, 0
    for i in range(2):
        tensors = {
            f"layers.{i}.qkv.weight": rng.normal(size=(16, 8)).astype("f4"),
            f"layers.{i}.qkv.bias": rng.normal(size=16).astype("f2"),
            f"layers.{i}.o.weight": rng.normal(size=(8, 8)).astype("f4"),
            f"layers.{i}.norm.weight": np.ones(8, "f4"),
            f"layers.{i}.scale": np.array(i, "f4"),
        }
        name = f"model-{i}.safetensors"
        sn.save_file(tensors, folder / name, {"format": "pt", "b": "2", "a": "1"})
        names |= dict.fromkeys(tensors, name)
        total += sum(x.nbytes for x in tensors.values())
        count += sum(x.size for x in tensors.values())
    metadata = {"total_parameters": count, "total_size": total}
    content = {"metadata": metadata, "weight_map": dict(sorted(names.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(content, indent=2) + "\n")
    return folder
