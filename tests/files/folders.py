"""Write, change, split, join and compare the files of a test."""

import contextlib
import shutil
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit import files
from splitjit._plan.rules import PARAMETERS
from splitjit.files.checkpoints import operations

TENSORS = ["*.qkv.weight=0:8,4,4", "*.qkv.bias=0:8,4,4", "*.o.weight=1"]
"""How the tensors of the fixture `model` are split."""


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


@contextlib.contextmanager
def refused(folder, message, error=splitjit.SplitError):
    """Check that a block raises an error, and changes nothing below a folder."""

    def found():
        return sorted(folder.rglob("*")), contents(folder)

    before = found()
    with pytest.raises(error, match=message) as raised:
        yield raised
    assert found() == before


def split_file(path, *split, **options):
    return list(files.split_files(path, *split, **options).targets)


def split_refused(paths, message, *split, error=splitjit.SplitError, **options):
    """Check that files are not split: into two parts, unless other rules are given."""
    if not (split or {*PARAMETERS} & {*options}):
        options["num_splits"] = 2
    folder = Path(paths[0] if isinstance(paths, list) else paths).parent
    with refused(folder, message, error):
        files.split_files(paths, *split, **options)


def shard(path, out, patterns=TENSORS, **rule):
    """Split a checkpoint; return the folders of the ranks."""
    files.split_files(path, tensors=patterns, layout="ranks", out=out, **rule)
    return sorted(out.iterdir())


def assert_patterns_do_the_same(planned, path, tp_plan=True, **options):
    """Check that the patterns of a plan of the model split everything like this plan."""
    told = operations.describe(planned)
    again = files.plan_files(path, tensors=told["patterns"], force=True, **options)
    assert operations.describe(again)["files"] == told["files"]
    return told["patterns"]


def assert_joined(parts, whole, **options):
    """Join parts beside the whole file or folder, and check that each byte comes back."""
    joined = whole.with_name(f"joined{whole.suffix}")
    files.join_files(parts, joined, **options)
    if whole.is_dir():
        assert contents(joined) == contents(whole)
        shutil.rmtree(joined)
    else:
        assert joined.read_bytes() == whole.read_bytes()
        joined.unlink()


def change(path, name):
    """Add one to the last number of a tensor, and keep all metadata."""
    safetensors = pytest.importorskip("safetensors.numpy")
    held = safetensors.load_file(path)
    held[name] = held[name].copy()
    held[name].reshape(-1)[-1] += 1
    with safetensors.safe_open(path, "numpy") as opened:
        safetensors.save_file(held, path, opened.metadata())
