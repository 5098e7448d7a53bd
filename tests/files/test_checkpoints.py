"""Checkpoints: indexes, ranks, fused weights, patterns, warnings, and the way back."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit import files
from splitjit._cli.main import main
from splitjit.files import formats, tiles
from splitjit.files.checkpoints import index
from tests.files.folders import (
    TENSORS,
    assert_joined,
    contents,
    refused,
    save,
    shard,
    split_refused,
)

safetensors = pytest.importorskip("safetensors")
sn = pytest.importorskip("safetensors.numpy")

INDEX = "model.safetensors.index.json"


def load(folder, load_file=sn.load_file):
    """Read all tensors of a folder by its index."""
    weights = json.loads((folder / INDEX).read_text())["weight_map"]
    held = {}
    for name in sorted({*weights.values()}):
        held |= load_file(folder / name)
    assert held.keys() == weights.keys()
    return held


def forget(part):
    """Remove the records of a part, as if another program had written it."""
    if part.is_dir():
        (part / "splitjit.json").unlink()
    for path in part.glob("*.safetensors") if part.is_dir() else [part]:
        if path.suffix == ".safetensors":
            with safetensors.safe_open(path, "numpy") as opened:
                metadata = opened.metadata()
            del metadata["splitjit"]
            sn.save_file(sn.load_file(path), path, metadata)


# ---- ranks and indexes ----------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
def test_indexes_and_manifests_grant_no_more_than_the_files(model, tmp_path):
    (model / "model-0.safetensors").chmod(0o640)
    (model / "model-1.safetensors").chmod(0o604)
    out, joined = tmp_path / "out", tmp_path / "joined"
    files.split_files(model, num_splits=2, tensors=TENSORS, layout="ranks", out=out)
    files.join_files(sorted(out.iterdir()), out=joined)
    made = [*out.rglob("*.json"), joined / INDEX]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o600] * 5


@pytest.mark.parametrize("tile", [1, 40, 1 << 23])
@pytest.mark.parametrize("given", ["folder", "index"])
def test_ranks(model, tmp_path, given, tile, monkeypatch):
    monkeypatch.setattr(tiles, "TILE", tile)
    path = model if given == "folder" else model / INDEX
    out = tmp_path / "out"
    planned = files.split_files(path, num_splits=2, tensors=TENSORS, layout="ranks", out=out)
    assert planned.warnings == ()
    whole = load(model)
    for rank in range(2):
        folder = out / f"rank-{rank}"
        names = ["model-0.safetensors", "model-1.safetensors", INDEX, "splitjit.json"]
        assert sorted(contents(folder)) == names
        held = load(folder)
        for name, x in held.items():
            expected = whole[name]
            if "qkv" in name:
                sections = np.split(expected, [8, 12])
                expected = np.concatenate([np.split(one, 2)[rank] for one in sections])
            elif ".o." in name:
                expected = np.split(expected, 2, 1)[rank]
            np.testing.assert_array_equal(x, expected, strict=True)
        metadata = json.loads((folder / INDEX).read_text())["metadata"]
        assert metadata["total_size"] == sum(x.nbytes for x in held.values())
        assert metadata["total_parameters"] == sum(x.size for x in whole.values())
    assert_joined(sorted(out.iterdir()), model, tensors=TENSORS)


def test_rank_folders_beside_the_checkpoint_and_a_folder_without_an_index(model):
    for path in [model / INDEX, model / "model-1.safetensors"]:
        path.unlink()
    (model / "model-0.safetensors").rename(model / "model.safetensors")
    before = contents(model)
    files.split_files(model, num_splits=4, tensors=TENSORS, layout="ranks")
    ranks = [model / f"rank-{i}" for i in range(4)]
    assert load(ranks[3])["layers.0.o.weight"].shape == (8, 2)
    out = model.parent / "whole"
    assert files.join_files(ranks, out, tensors=TENSORS) == (out / "model.safetensors",)
    assert contents(out) == before
    tensors = [*formats.read(out / "model.safetensors").tensors.values()]
    content = index.make({"more": 1, "weight_map": {}}, [("model.safetensors", tensors)])
    (out / INDEX).write_bytes(index.dump(content))
    assert_joined(shard(out, model.parent / "again", num_splits=4), out)


def test_ranks_of_all_formats(tmp_path):
    x = np.arange(24, dtype="f4").reshape(4, 6)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "y.npz", a=x, b=np.float32(1))
    paths = [save(tmp_path / "a.safetensors", a=x), tmp_path / "x.npy", tmp_path / "y.npz"]
    planned = files.split_files(paths, num_splits=2, axis=0, layout="ranks", out=tmp_path / "o")
    assert [path.name for path, _ in planned.indexes[2:]] == ["splitjit.json"] * 2
    np.testing.assert_array_equal(np.load(tmp_path / "o/rank-1/x.npy"), x[2:])
    assert np.load(tmp_path / "o/rank-1/y.npz")["b"] == 1
    split_refused([*(tmp_path / "o").iterdir()], "reshard splits them again", axis=0)
    for given in ("*", "*/*.index.json"):
        *joined, _ = files.join_files((tmp_path / "o").glob(given), tmp_path / "j", force=True)
        assert [path.read_bytes() for path in joined] == [path.read_bytes() for path in paths]


def test_a_checkpoint_and_another_file_in_the_same_ranks(model, tmp_path):
    paths = [model, save(tmp_path / "extra.safetensors", e=np.arange(4.0))]
    how = {"num_splits": 2, "tensors": [*TENSORS, "e"], "layout": "ranks", "out": tmp_path / "o"}
    (model / "config.json").write_text("{}")
    (tmp_path / "config.json").write_text("[]")
    split_refused(paths, r"config\.json: must be alike in all inputs; copy_config=False", **how)
    (tmp_path / "config.json").unlink()
    same = save(tmp_path / "model-1.safetensors", e=np.arange(4.0))
    name = "{stem}-{part}.safetensors"
    split_refused([model, same], "parts of two files of one name", name=name, **how)
    files.split_files(paths, **how)
    files.join_files(tmp_path / "o", tmp_path / "j")
    assert load(tmp_path / "j").keys() == {*load(model), "e"}
    assert (tmp_path / "j" / "config.json").exists()


def test_no_part_of_an_empty_axis(tmp_path):
    path = save(tmp_path / "x.safetensors", w=np.zeros((0, 4)), n=np.arange(3.0))
    done = files.split_files(path, 5, tensors=["w"])
    assert (done.targets, done.warnings[-1][:18]) == ((), "no part is written")


def test_each_checkpoint_keeps_its_own_configuration(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        save(tmp_path / name / "model.safetensors", w=np.arange(4.0))
        (tmp_path / name / "config.json").write_text(f'"{name}"')
    files.split_files([tmp_path / "a", tmp_path / "b"], num_splits=2, axis=0, layout="ranks")
    for name in "ab":
        assert (tmp_path / name / "rank-1" / "config.json").read_text() == f'"{name}"'


def test_links_into_a_cache(model, tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    for i, path in enumerate(sorted(model.iterdir())):
        path.rename(blobs / str(i))
        (snapshot / path.name).symlink_to(blobs / str(i))
    before = contents(blobs)
    files.split_files(snapshot, num_splits=2, tensors=TENSORS, out=snapshot)
    assert contents(blobs) == before
    assert (snapshot / "model-0.1.safetensors").is_file()
    assert not (snapshot / "model-0.1.safetensors").is_symlink()
    files.split_files(snapshot, num_splits=2, tensors=TENSORS, layout="ranks")
    assert contents(blobs) == before
    assert load(snapshot / "rank-1")["layers.1.o.weight"].shape == (8, 4)


@pytest.mark.parametrize("name", ["rank{rank}.safetensors", "m-{rank:02}.safetensors"])
def test_flat_names_hold_all_tensors_of_a_rank(model, tmp_path, name):
    planned = files.split_files(model, num_splits=2, tensors=TENSORS, name=name, out=tmp_path)
    assert [path.name for path in planned.targets] == [name.format(rank=i) for i in range(2)]
    whole = load(model)
    parts = [sn.load_file(path) for path in planned.targets]
    for key, x in whole.items():
        assert all(key in part for part in parts)
        if ".o." in key:
            np.testing.assert_array_equal(np.concatenate([p[key] for p in parts], 1), x)
    joined = tmp_path / "joined.safetensors"
    files.join_files(planned.targets, joined, tensors=TENSORS)
    for key, x in sn.load_file(joined).items():
        np.testing.assert_array_equal(x, whole[key], strict=True)


@pytest.mark.parametrize("metadata", [None, {"format": "np"}])
def test_files_may_have_different_metadata_but_merged_ones_must_not(model, tmp_path, metadata):
    tensors = sn.load_file(model / "model-1.safetensors")
    sn.save_file(tensors, model / "model-1.safetensors", metadata)
    split_refused(model, "same metadata", tensors=TENSORS, name="{rank}.safetensors")
    assert_joined(shard(model, tmp_path / "out", num_splits=2), model, tensors=TENSORS)


@pytest.mark.parametrize("given", ["folder", "index", "file", "archive"])
def test_a_checkpoint_is_not_cut_everywhere_unless_asked(model, tmp_path, capsys, given):
    """Without a word about its tensors, norms and biases were cut, too."""
    if given == "archive":
        np.savez(model / "model-0.npz", **sn.load_file(model / "model-0.safetensors"))
    names = {"index": INDEX, "file": "model-0.safetensors", "archive": "model-0.npz"}
    path = model / names.get(given, "")
    before = contents(model)
    arguments = ["split", str(path), "--num-splits=2", f"--out={tmp_path}/o"]
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert all(option in message for option in ("--tp-plan", "--tensor", "--axis"))
    assert not (tmp_path / "o").exists()
    split_refused(path, "tp_plan=True", layout="ranks")
    assert main([*arguments, "--axis=0"]) == 0
    read, suffix = (np.load, ".npz") if given == "archive" else (sn.load_file, ".safetensors")
    assert read(tmp_path / "o" / f"model-0.1{suffix}")["layers.0.norm.weight"].size == 4
    assert contents(model) == before


@pytest.mark.parametrize("name", [[], ["--name=rank{rank}.safetensors"]])
def test_parts_do_not_lie_among_the_files_of_a_checkpoint(model, capsys, name):
    before = contents(model)
    arguments = ["split", str(model), "--num-splits=2", *[f"--tensor={one}" for one in TENSORS]]
    assert main([*arguments, *name]) == 2
    assert "--out" in capsys.readouterr().err
    assert contents(model) == before
    assert main([*arguments, *name, f"--out={model}"]) == 0
    assert contents(model).keys() > before.keys()


# ---- hostile indexes ------------------------------------------------------------------


def index_of(**weights):
    return json.dumps({"weight_map": weights}).encode()


BAD_INDEXES = {
    **{"empty": b"", "text": b"no index", "no UTF-8": b"\xff\xff\xff"},
    "nested": b'{"a":' * 100_000,
    **{"a list": b"[]", "no weight_map": b"{}", "empty weight_map": index_of()},
    "weight_map of a list": b'{"weight_map": ["a"]}',
    "metadata of a list": b'{"metadata": [], "weight_map": {"a": "b.safetensors"}}',
}
BAD_NAMES = [1, None, "", "..", "../x.safetensors", "b/../../x.safetensors", "/etc/x.safetensors"]
BAD_NAMES += ["C:x.safetensors", "..\\x.safetensors", "b/x.safetensors", "x\0.safetensors", "x.npy"]
BAD_NAMES += ["x\ud800.safetensors", INDEX, "other.safetensors.index.json"]
BAD_INDEXES |= {ascii(name): index_of(a=name) for name in BAD_NAMES}


@pytest.mark.parametrize("content", BAD_INDEXES.values(), ids=BAD_INDEXES)
@pytest.mark.parametrize("verb", ["split", "join"])
def test_bad_indexes(tmp_path, content, verb):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / INDEX).write_bytes(content)
    with refused(tmp_path, r"index\.json: not an index"):
        if verb == "split":
            files.split_files(folder, num_splits=1)
        else:
            files.join_files([folder, folder], tmp_path / "out")


def test_an_index_that_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_MOST", 100)
    (tmp_path / INDEX).write_bytes(b" " * 101)
    split_refused(tmp_path, "more than 100 bytes", num_splits=1)


def test_an_index_that_names_missing_files(model, tmp_path, capsys):
    (model / "model-1.safetensors").unlink()
    split_refused(model, r"model-1\.safetensors", tensors=TENSORS, error=FileNotFoundError)
    before = contents(tmp_path)
    assert main(["split", str(model), "--num-splits", "2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert contents(tmp_path) == before


@pytest.mark.parametrize("change", ["missing", "more", "elsewhere"])
def test_an_index_and_files_that_disagree(model, change):
    content = json.loads((model / INDEX).read_text())
    weights = content["weight_map"]
    if change == "missing":
        weights["layers.9.o.weight"] = "model-0.safetensors"
    elif change == "more":
        del weights["layers.0.o.weight"]
    else:
        weights["layers.0.o.weight"] = "model-1.safetensors"
    (model / INDEX).write_text(json.dumps(content))
    split_refused(model, r"layers\.[09]\.o\.weight.*(lacks|holds)", tensors=TENSORS)


@pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
def test_two_names_of_one_file(model, kind):
    (model / "model-1.safetensors").unlink()
    getattr(model / "model-1.safetensors", kind)(model / "model-0.safetensors")
    split_refused(model, "holds it, unlike the index", tensors=TENSORS)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_an_index_that_is_a_pipe(model):
    (model / INDEX).unlink()
    os.mkfifo(model / INDEX)
    split_refused(model, "not a regular file", error=OSError)


def test_folders_without_or_with_several_indexes(tmp_path, model):
    split_refused(tmp_path, "no index")
    (model / "b.safetensors.index.json").write_bytes((model / INDEX).read_bytes())
    plan = files.plan_files(model, num_splits=2, tensors=TENSORS, layout="ranks")
    assert len(plan.files) == 2
    (model / INDEX).rename(model / "a.safetensors.index.json")
    split_refused(model, r"a\.safetensors\.index\.json, b\.", tensors=TENSORS)


def test_a_tensor_in_two_files_of_a_rank(model):
    tensors = sn.load_file(model / "model-0.safetensors")
    sn.save_file(tensors, model / "copy.safetensors")
    paths = [model / "model-0.safetensors", model / "copy.safetensors"]
    split_refused(paths, "only one file of a rank", tensors=TENSORS, layout="ranks")
    for layout, name in [("ranks", "all.safetensors"), ("files", "{rank}.safetensors")]:
        options = {"tensors": TENSORS, "layout": layout, "name": name}
        split_refused(paths, "^split: .* only one file of a rank", **options)


# ---- patterns -------------------------------------------------------------------------


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("tile", [1, 200, 1 << 20])
@pytest.mark.parametrize("rule", [{"num_splits": 2}, {"num_outputs": 3}, {"split": 2}], ids=str)
def test_sections(tmp_path, monkeypatch, rule, tile, axis, order):
    monkeypatch.setattr(tiles, "TILE", tile)
    sections = [4, 4] if "split" in rule else [6, 2]
    x = np.arange(8**3, dtype="i2").reshape((8, 8, 8), order=order)
    np.savez(tmp_path / "x.npz", x=x)
    pattern = f"x={axis}:{sections[0]},{sections[1]}"
    done = files.split_files(tmp_path / "x.npz", tensors=[pattern], **rule)
    cut = [splitjit.split(s, axis=axis, **rule) for s in np.split(x, [sections[0]], axis)]
    expected = [np.concatenate(pieces, axis) for pieces in zip(*cut, strict=True)]
    for target, part in zip(done.targets, expected, strict=True):
        np.testing.assert_array_equal(np.load(target)["x"], part, strict=True)
    assert_joined(done.targets, tmp_path / "x.npz", tensors=[pattern])


@pytest.mark.parametrize("lengths", ["3,5", "3,-1"])
def test_lengths_of_one_tensor(tmp_path, lengths):
    a, b = np.arange(16).reshape(8, 2), np.arange(8)
    np.savez(tmp_path / "m.npz", a=a, b=b)
    patterns = [f"a=0/{lengths}", "b"]
    done = files.split_files(tmp_path / "m.npz", num_splits=2, tensors=patterns)
    parts = [np.load(target) for target in done.targets]
    assert [part["a"].shape for part in parts] == [(3, 2), (5, 2)]
    assert [part["b"].shape for part in parts] == [(4,), (4,)]
    assert_joined(done.targets, tmp_path / "m.npz", tensors=patterns)
    path = save(tmp_path / "m.safetensors", a=a, b=b[:4])
    assert_joined(files.split_files(path, 2, tensors=patterns).targets, path)
    with pytest.raises(splitjit.SplitError, match=r"lengths \[3, 5\]"):
        files.join_files(done.targets, tmp_path / "k.npz", tensors=["a=0/5,3", "b"])


BAD_PATTERNS = [
    ("a=0:3,4", "must sum to the axis length 8"),
    *[(one, "with :SECTIONS") for one in ("a=0:4,4,", "a=0:4@2@2,4", "a=0:,", f"a={'9' * 5000}")],
    ("a=0/3,4", "must sum to the axis length 8"),
    ("a=0/3,3,2", "same number of parts"),
    ("a=0:7,1", "must be a multiple of 2"),
    ("a=2:4,4", "axis must be in"),
    ("a=0;4,4", "must be an integer, with :SECTIONS"),
    (3, "must be a string"),
]


def test_a_pattern_that_matches_nothing_shows_the_nearest_names(tmp_path):
    held = {f"layers.{i}.{name}.weight": np.zeros(2) for i in range(50) for name in ("up", "down")}
    sn.save_file(held, tmp_path / "m.safetensors")
    with pytest.raises(splitjit.SplitError) as raised:
        files.plan_files(tmp_path / "m.safetensors", num_splits=2, tensors=["*.7.upp.weight"])
    message = str(raised.value)
    assert "layers.7.up.weight" in message
    assert message.count(".weight'") == 6  # the pattern and five names
    assert "and 95 more" in message


@pytest.mark.parametrize(("pattern", "message"), BAD_PATTERNS)
def test_bad_patterns(tmp_path, pattern, message):
    np.savez(tmp_path / "m.npz", a=np.zeros((8, 2)), b=np.zeros(8))
    split_refused(tmp_path / "m.npz", message, tensors=[pattern, "b"])


# ---- warnings -------------------------------------------------------------------------

WEIGHT = np.zeros((8, 4), "f4")
MISMATCHES = [
    ({"bias": (8,)}, ["*.weight"], "bias is copied whole, but {weight} is split along axis 0"),
    ({"bias": (8,)}, ["*.weight=1"], None),
    ({"bias": (8,)}, ["*.bias"], "bias is split along axis 0, but {weight} is copied whole"),
    ({"bias": (8,)}, ["*"], None),
    ({"bias": (8,)}, ["*.weight=1", "*.bias"], "bias is split along axis 0, .* split along axis 1"),
    ({"weight_scale": (8, 1)}, ["*.weight"], "weight_scale is copied whole"),
    ({"weight_scale": (8, 1)}, ["*.weight=1"], None),
    ({"weight_scale_inv": (8, 2)}, ["*.weight=1"], "weight_scale_inv is copied whole"),
    ({"scales": (1,)}, ["*.weight"], None),
    ({"scale": ()}, ["*.weight"], None),
    ({"zero_point": (8,)}, ["*.weight"], "zero_point is copied whole"),
    ({"zeros": (8,)}, ["*.zeros"], "zeros is split along axis 0, but {weight} is copied"),
    ({"weight_scale": (8, 2)}, ["*.weight", "*_scale=1"], "weight_scale is split along axis 1"),
    ({"weight_scales": (8,)}, ["*.weight"], "weight_scales is copied whole"),
    ({"weight_scale_2": ()}, ["*.weight"], None),
    ({"biases": (8, 2)}, ["*.weight"], "biases is copied whole"),
    ({"SCB": (8,), "weight_format": ()}, ["*.weight"], "SCB is copied whole"),
    ({"SCB": (8,), "weight_format": (1,)}, ["*.weight=1"], None),
    ({"weight.absmax": (16,)}, ["*.weight"], "weight.absmax is copied whole"),
    ({"weight.nested_absmax": (2,)}, ["*.weight"], "weight.nested_absmax is copied whole"),
    ({"weight.quant_map": (2,), "weight.quant_state.b__nf4": (9,)}, ["*.weight"], None),
    ({"weight.absmax": (16,)}, ["*.weight*"], None),
    ({"weight.quant_map": (16,), "weight.nested_quant_map": (16,)}, ["*.weight*"], None),
    *[
        ({name: (16,)}, [f"l.{i}.q.{name}" for i in range(3)] + ["*.weight"], f"{name} is split")
        for name in ("weight.quant_map", "codebooks", "tables2")  # each part needs it whole
    ],
    ({"g_idx": (4,)}, ["*.weight=1", "*.g_idx"], None),
    ({"g_idx": (4,)}, ["*.weight=1"], "g_idx is copied whole, but {weight} is split along"),
    ({"g_idx": (4,)}, ["*.weight"], None),
    ({"g_idx": (4,)}, ["*.weight", "*.g_idx"], "g_idx is split .* {weight} is split along"),
    # cuts at other features
    ({"bias": (8,)}, ["*.weight=0/3,5", "*.bias=0/4,4"], r"bias is split into \[4, 4\], .*3, 5"),
    ({"bias": (8,)}, ["*.weight=0:4,4", "*.bias"], r"bias is split into \[4, 4\], .*\[2, 2\]\]"),
    ({"bias": (8,)}, ["*=0:4,4"], None),
    ({"bias": (8,)}, ["*.weight=0:4,4", "*.bias=0:2,2,2,2"], "bias is split into"),
    ({"weight_scale": (4, 2)}, ["*.weight=0/2,6", "*_scale=0/1,3"], None),
    ({"weight_scale": (4, 2)}, ["*.weight=0/4,4", "*_scale=0/1,3"], "weight_scale is split into"),
    ({"weight_scale": (3, 2)}, ["*.weight=0/6,2", "*_scale=0/2,1"], None),  # of 3 rows, the last 2
    ({"weight_scale": (3, 2)}, ["*.weight", "*_scale=0/2,1"], "weight_scale is split into"),
    ({"bias": (16,)}, ["*.weight=0/3,5", "*.bias=0/6,10"], None),  # two rows packed into one
]


@pytest.mark.parametrize(("others", "patterns", "message"), MISMATCHES)
def test_warnings(tmp_path, capsys, others, patterns, message):
    arrays = {f"l.{i}.q.{name}": np.zeros(s, "f4") for i in range(3) for name, s in others.items()}
    weights = {f"l.{i}.q.weight": WEIGHT for i in range(3)}
    sn.save_file(weights | arrays, tmp_path / "m.safetensors")
    split = ["split", f"{tmp_path}/m.safetensors", "--num-splits=2"]
    split += [f"--tensor={pattern}" for pattern in patterns]
    for more in (["--dry-run"], []):
        assert main([*split, *more]) == 0
        err = capsys.readouterr().err
        if message is None:
            assert err == ""
        else:
            warning, *rest = err.splitlines()
            message = message.format(weight=r"l\.\*\.q\.weight")
            assert re.search(rf"warning: l\.\*\.q\.{message}.* \(3 tensors\)$", warning)
            assert all("of the bytes are split" in line for line in rest)


FOUR_BITS = {  # a packed weight of 104 input features, with scales for 16 or for 8 of them
    "packed": ("q.weight_packed", (4, 52), "q.weight_scale", (4, 7), 1, ("32,20", "4,3")),
    "bytes": ("q.weight", (4, 104), "q.scales", (4, 13), 1, ("56,48", "7,6")),
    "GPTQ": ("q.qweight", (13, 8), "q.scales", (7, 8), 0, ("8,5", "4,3")),
}


@pytest.mark.parametrize("case", FOUR_BITS)
def test_scales_are_cut_like_their_weight(tmp_path, capsys, case):
    weight, shape, scale, scales, axis, cuts = FOUR_BITS[case]
    held = {weight: np.zeros(shape, "u1"), scale: np.zeros(scales, "f2")}
    split = ["split", str(save(tmp_path / "m.npz", **held)), "--dry-run", f"--axis={axis}"]
    assert main([*split, "--num-splits=2"]) == 2
    assert "num-outputs" not in capsys.readouterr().err  # it would cut through groups
    for rule in ("outputs", "sections"):
        assert main([*split, f"--num-{rule}=2"]) == 0
        assert "their parts hold other features" in capsys.readouterr().err
    right = [f"--tensor={weight}={axis}/{cuts[0]}", f"--tensor={scale}={axis}/{cuts[1]}"]
    assert main([*split, "--num-splits=2", *right]) == 0
    assert capsys.readouterr().err == ""


CODES = {  # the tensor that stands for the weight, and the table that each part needs whole
    **{"codes": "codebooks", "vq_codes": "vq_codebook", "indices": "centroids.weight"},
    **{"weight": "tables2", "_weight_qdata": "weight.quant_map"},
}


@pytest.mark.parametrize(("codes", "table"), CODES.items())
def test_patterns_for_codes_do_not_cut_their_table(tmp_path, codes, table):
    shapes = {codes: (8, 64), "vq_scales": (8, 1), table: (4, 8), "codebook_of_recipes": (4,)}
    held = {f"l.0.gate_proj.{name}": np.ones(shape, "u1") for name, shape in shapes.items()}
    held["recipes.codebook"] = np.ones(4, "u1")
    path = save(tmp_path / "m.npz", **held)
    for how in ({"tensors": ["*.gate_proj.*", "recipes*"]}, {"axis": 0}):
        planned = files.split_files(path, num_splits=2, force=True, **how)
        axes = {plan.name: plan.axis for plan in planned.files[0].tensors}
        assert [name for name, axis in axes.items() if axis is None] == [f"l.0.gate_proj.{table}"]
        assert planned.warnings == ()
        assert_joined(planned.targets, path, **how)
    split_refused(path, "no tensor would be split", tensors=[f"*.{table}"])
    two = [save(tmp_path / f"{one}.npz", **{f"m.{one}": np.eye(4)}) for one in (codes, table)]
    files.split_files(two, num_splits=2, axis=0)
    assert_joined([tmp_path / f"{table}.{i}.npz" for i in range(2)], two[1], axis=0)
    if codes != "indices":  # whose rows may stand for anything
        how = {"tensors": [f"*.{codes}", "recipes*"]}
        (warning,) = files.plan_files(path, num_splits=2, force=True, **how).warnings
        assert "vq_scales is copied whole" in warning


def test_empty_tensors_have_no_parts(tmp_path):
    path = save(tmp_path / "m.npz", **{"q.weight": np.zeros((0, 8)), "q.bias": np.zeros(0)})
    assert files.plan_files(path, 2, axis=0).targets == ()


FUSED = [
    # the shape of each weight, patterns, whether they are warned about
    ({"qkv_proj": (12, 4)}, ["*.weight", "*.bias"], True),
    ({"gate_up_proj": (12, 4)}, ["*.weight", "*.bias"], True),
    ({"query_key_value": (12, 4)}, ["*=0:4,4,4"], False),
    ({"query_key_value": (12, 4)}, ["*=0:12@6"], False),
    ({"qkv_proj": (12, 4)}, ["*.weight=1"], False),
    ({"c_attn": (4, 12)}, ["*.weight=1", "*.bias"], True),
    ({"c_attn": (4, 12)}, ["*.weight=1:4,4,4", "*.bias=0:4,4,4"], False),
    # another module shows that rows are input features
    ({"c_proj": (8, 8), "c_fc": (4, 12)}, ["*c_fc.weight=1", "*c_fc.bias", "*.weight"], False),
    # nothing shows whether the rows or the columns are the output features, as the bias is
    ({"c_proj": (8, 8)}, ["*.weight=0"], False),
    ({"c_proj": (8, 8)}, ["*.weight=1"], False),
]


@pytest.mark.parametrize(("weights", "patterns", "warns"), FUSED, ids=str)
def test_warnings_about_fused_weights(tmp_path, weights, patterns, warns):
    held = {f"h.0.{name}.weight": np.zeros(shape, "f4") for name, shape in weights.items()}
    held |= {f"h.0.{name}.bias": np.zeros(max(shape)) for name, shape in weights.items()}
    sn.save_file(held, tmp_path / "m.safetensors")
    planned = files.plan_files(tmp_path / "m.safetensors", num_splits=2, tensors=patterns)
    assert ["usually fused" in line for line in planned.warnings] == [True] * warns


# ---- join -----------------------------------------------------------------------------


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_join_npz(tmp_path, save):
    save(tmp_path / "x.npz", a=np.arange(24).reshape(4, 6), b=np.float32(2), c=np.arange(4))
    path = tmp_path / "x.npz"
    assert_joined(files.split_files(path, num_splits=2, axis=0).targets, path, axis=0)
    targets = files.split_files(path, num_splits=2, tensors=["a=1"], force=True).targets
    assert_joined(targets, path, tensors=["a=1"])


def join_refused(tmp_path, parts, message, **options):
    out = options.pop("out", tmp_path / f"joined{Path(parts[0]).suffix}")
    with refused(tmp_path, message, (splitjit.SplitError, OSError)):
        files.join_files(parts, out, **options)


def test_join_refuses_parts_that_do_not_fit(tmp_path):
    x = np.zeros((2, 3), "f4")
    arrays = {"a": x, "b": np.zeros((2, 4), "f4"), "c": x.astype("f8"), "d": np.zeros(2, "f4")}
    arrays |= {"f": np.asfortranarray(x), "s": np.float32(1)}
    path = {name: save(tmp_path / f"{name}.npy", x=held) for name, held in arrays.items()}
    a, z = path["a"], save(tmp_path / "z.npz", a=x)
    join_refused(tmp_path, [a, path["b"]], "shape in all parts, except along axis 0", axis=0)
    join_refused(tmp_path, [a, path["c"]], r"3\) float64 in C order: must", axis=0)
    join_refused(tmp_path, [a, path["d"]], r"part 1 \(2,\) float32", axis=0)
    join_refused(tmp_path, [a, path["f"]], "Fortran order: must", axis=0)
    join_refused(tmp_path, [a, a], "joined with itself", axis=0)
    (tmp_path / "link.npy").symlink_to(a)  # as in a cache that holds equal parts once
    files.join_files([a, tmp_path / "link.npy"], tmp_path / "two.npy", axis=0)
    assert np.load(tmp_path / "two.npy").shape == (4, 3)
    join_refused(tmp_path, [a, path["b"]], "axis must be in", axis=2)
    join_refused(tmp_path, [path["s"], path["d"]], "rank 0", axis=0)
    join_refused(tmp_path, [a, z], "same format", axis=0)
    join_refused(tmp_path, [a, path["b"]], r"must end in \.npy", axis=1, out=tmp_path / "x.npz")
    join_refused(tmp_path, [a, path["b"]], "would replace an input", axis=1, out=a, force=True)
    join_refused(tmp_path, [a, path["b"]], r"must end in \.npy", axis=1, out=tmp_path)
    join_refused(tmp_path, [a, tmp_path / "none.npy"], "No such file")


def test_join_refuses_tensors_that_are_not_equal(tmp_path):
    for i in range(2):
        tensors = {"a": np.full(4, i, "f4"), "norm": np.full(3, i, "f4")}
        sn.save_file(tensors, tmp_path / f"{i}.safetensors")
    parts = [tmp_path / f"{i}.safetensors" for i in range(2)]
    join_refused(tmp_path, parts, r"norm in .*0\.safetensors.*must be equal", tensors=["a"])
    sn.save_file({"a": np.zeros(4, "f4")}, parts[1])
    join_refused(tmp_path, parts, "1.safetensors without 'norm'", tensors=["a"])
    sn.save_file(tensors, parts[1], {"format": "pt"})
    join_refused(tmp_path, parts, "same metadata", tensors=["a"])
    sn.save_file({**tensors, "a": np.zeros(1, "f4")}, parts[1])
    join_refused(tmp_path, parts, "parts are missing", tensors=["a=0:4,4", "norm"])
    join_refused(tmp_path, parts, "record no other rule", tensors=["a=0:2,3", "norm"])


@pytest.mark.parametrize("kind", ["ranks", "safetensors", "npz", "npy"])
def test_join_does_not_guess(model, tmp_path, capsys, kind):
    """A join would double copied tensors, and not see the axis of the others."""
    if kind == "ranks":
        parts = shard(model, tmp_path / "out", num_splits=2)
    else:
        path = save(tmp_path / f"m.{kind}", a=np.ones((4, 8)), norm=np.ones(3))
        how = {"axis": 1} if kind == "npy" else {"tensors": ["a=1"]}
        parts = files.split_files(path, num_splits=2, **how).targets
    for part in parts:
        forget(part)
    join_refused(tmp_path, parts, "do not say how they were split")
    out = tmp_path / f"joined.{kind}"
    for verb in (["join"], ["reshard", "--num-splits=1"]):
        assert main([*verb, *map(str, parts), "--out", str(out)]) == 2
        refusal = capsys.readouterr().err
        assert "--axis, the axis" in refusal
        assert ("patterns" in refusal) == (kind != "npy")
    files.join_files(parts, out, **({"tensors": TENSORS} if kind == "ranks" else how))
    assert kind != "ranks" or load(out).keys() == load(model).keys()


# ---- the module -----------------------------------------------------------------------


NAMES = ["x.safetensors", "{rank}.npy", "{rank}/x.safetensors", "../{rank}.safetensors"]
NAMES += ["{rank.real}.safetensors", "{rank!r}.safetensors", "{rank:{rank}}.safetensors"]
NAMES += ["{rank:999999999}.safetensors", "{other}{rank}.safetensors"]
NAMES += ["{rank.safetensors", "{}.safetensors"]
BAD_OPTIONS = [
    ({"others": "some"}, "others='some'"),
    ({"layout": "flat"}, "layout='flat'"),
    ({"tensors": ["none"]}, "pattern 'none'"),
    ({"tp_plan": True}, r"config\.json"),
    ({"paths": []}, "must name a file"),
    *[({"paths": one}, "must be a path") for one in (None, 5, [5], b"model")],
    *[({one: 5}, "5: must be a path") for one in ("name", "out", "config")],
    *[({"tensors": one}, "must be a list or a tuple") for one in ("w=0", 5)],
    *[({one: "a\0"}, "must not hold a null") for one in ("paths", "name", "out", "config")],
    *[({"tensors": TENSORS, "name": name}, "name=") for name in NAMES],
    ({"name": Path("{rank}.safetensors")}, "must be a string"),
    ({"tensors": TENSORS, "name": ".safetensors", "layout": "ranks"}, "names that end in"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=str)
def test_options_are_checked(model, options, message):
    with refused(model.parent, message):
        files.split_files(**{"paths": model, "num_splits": 2, **options})
