"""Write, change and read the files of a test."""

import numpy as np
import pytest


def save(path, **tensors):
    """Save tensors in the format of a path; an .npy file holds the first one alone."""
    if path.suffix == ".npy":
        np.save(path, next(iter(tensors.values())))
    elif path.suffix == ".npz":
        np.savez(path, **tensors)
    else:
        pytest.importorskip("safetensors.numpy").save_file(tensors, path)
    return path


def contents(folder, all_files=True):
    """Return the contents of all files, also or not those of staging folders."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and (all_files or ".splitjit-" not in str(path))
    }


def change(path, name):
    """Add one to the last number of a tensor, and keep all metadata."""
    safetensors = pytest.importorskip("safetensors.numpy")
    held = safetensors.load_file(path)
    held[name] = held[name].copy()
    held[name].reshape(-1)[-1] += 1
    with safetensors.safe_open(path, "numpy") as opened:
        safetensors.save_file(held, path, opened.metadata())
