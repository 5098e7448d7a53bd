"""Parts that say how they were split: records, joins without patterns, and `reshard`."""

import contextlib
import copy
import json
import os
import re
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit import files
from splitjit._cli.main import main
from splitjit.files import staging, tiles
from splitjit.files.checkpoints.index import MANIFEST
from splitjit.files.checkpoints.record import KEY
from tests.conftest import long
from tests.files.folders import TENSORS, assert_joined, change, contents, refused, save, shard
from tests.files.test_checkpoints import forget, join_refused, load

sn = pytest.importorskip("safetensors.numpy")

RULES = [{"num_splits": n} for n in (1, 2, 4)] + [{"num_outputs": 3}, {"num_sections": 3}]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_join_needs_no_patterns(model, tmp_path, rule):
    assert_joined(shard(model, tmp_path / "out", **rule), model)


@pytest.mark.parametrize("rule", [{"split": 3}, {"split": [3, 5]}, {"indices": [1, -2]}], ids=str)
def test_every_rule_and_format(tmp_path, kind, rule):
    a = np.asfortranarray(np.arange(24, dtype="f4").reshape(8, 3))
    path = save(tmp_path / f"m.{kind}", a=a, n=np.ones(3, "f2"))
    patterns = None if kind == "npy" else ["a"]
    done = files.split_files(path, layout="ranks", out=tmp_path / "o", tensors=patterns, **rule)
    parts = sorted((tmp_path / "o").iterdir())
    assert len(parts) == len(done.files[0].targets)
    if kind == "safetensors":  # a folder needs an index, or this name
        for part in parts:
            (part / "model.safetensors.index.json").unlink()
    files.join_files(parts[::-1], tmp_path / "j")
    assert (tmp_path / "j" / path.name).read_bytes() == path.read_bytes()
    files.reshard_files(parts, num_splits=4, out=tmp_path / "r")
    options = {"num_splits": 4, "layout": "ranks", "out": tmp_path / "direct"}
    files.split_files(path, tensors=patterns, **options)
    assert contents(tmp_path / "r") == contents(tmp_path / "direct")


def test_fine_tunes_with_equal_names_sizes_and_times(tmp_path, kind):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        path = tmp_path / name / f"m.{kind}"
        path.parent.mkdir()
        save(path, w=rng.random((64, 64)), norm=np.ones(64))
        os.utime(path, (0, 0))
        patterns = None if kind == "npy" else ["w"]
        out = tmp_path / f"{name}.out"
        files.split_files(path, num_splits=2, tensors=patterns, layout="ranks", out=out)
    ranks_of_both = [tmp_path / "a.out" / "rank-0", tmp_path / "b.out" / "rank-1"]
    join_refused(tmp_path, ranks_of_both, "two different splits")
    described = files.describe_files(ranks_of_both)
    assert described["complete"] is False
    assert str(ranks_of_both[1]) in described["problem"]
    with pytest.raises(splitjit.SplitError, match="two different splits"):
        files.reshard_files(ranks_of_both, num_splits=4, out=tmp_path / "r")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_mixture_of_two_splits_is_refused(tmp_path, monkeypatch, kind, ranks):
    """A process is killed after each of its moves over the ranks of an earlier split."""
    path, out = tmp_path / f"m.{kind}", tmp_path / "o"
    move, refusals, left = staging.Staged.move, 0, 0

    def killed(self, force):
        nonlocal left
        left -= 1
        if not left:
            raise SystemExit
        move(self, force)

    while left == 0:
        for i in range(2):
            save(path, x=np.arange(24.0).reshape(8, 3) + i)
            with monkeypatch.context() as patch, contextlib.suppress(SystemExit):
                if i:
                    left = 2 + refusals
                    patch.setattr(staging.Staged, "move", killed)
                files.split_files(path, num_splits=ranks, layout="ranks", out=out, force=True)
        if left == 0:
            parts = sorted(out.iterdir())
            join_refused(tmp_path, parts, "two different splits|contradicts|another|not finish")
            with contextlib.suppress(splitjit.SplitError):  # a rank contradicts itself
                assert files.describe_files(parts)["complete"] is False
            refusals += 1
    assert refusals == 1 + ranks * (1 + (kind == "safetensors"))


def test_the_parts_depend_on_the_contents_alone(tmp_path, kind):
    """Not on the time of the file, nor on its name in a cache."""
    path = save(tmp_path / f"m.{kind}", x=np.arange(1 << 18, dtype="f4"))
    made = []
    for name in ("now", "touched", "linked"):
        if name == "touched":
            os.utime(path, (0, 0))
        elif name == "linked":
            path.rename(tmp_path / "0123abcd")
            path.symlink_to(tmp_path / "0123abcd")
        files.split_files(path, num_splits=2, layout="ranks", out=tmp_path / name)
        made.append(contents(tmp_path / name))
    assert made[0] == made[1] == made[2]


def test_a_header_in_another_order_than_its_data(tmp_path):
    """Other programs write such files; the package reads them. A joined file has one order."""
    order = ["b", "a", "d", "c"]
    header = {"__metadata__": {"by": "hand"}}
    for name in order:
        start = 8 * "abcd".index(name)
        header[name] = {"dtype": "F32", "shape": [2], "data_offsets": [start, start + 8]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + np.arange(8, dtype="f4").tobytes())
    parts = files.split_files(path, num_splits=2, axis=0).targets
    files.join_files(parts, tmp_path / "j.safetensors")
    again = files.reshard_files(parts, num_splits=1, out=tmp_path / "o").targets
    files.join_files(again, tmp_path / "k.safetensors")
    for joined in (tmp_path / "j.safetensors", tmp_path / "k.safetensors"):
        held = sn.load_file(joined)
        whole = sn.load_file(path)
        assert held.keys() == whole.keys()
        assert all(np.array_equal(held[name], x) for name, x in whole.items())
        assert joined.stat().st_size == path.stat().st_size


def test_parts_of_earlier_versions_join(tmp_path):
    """Their record has no order of the data, and its digest is of names, sizes and times."""
    sn.save_file({"a": np.arange(8, dtype="f4"), "n": np.ones(3)}, tmp_path / "m.safetensors")
    old = tmp_path / "old"
    old.mkdir()
    parts = []
    for i in range(2):
        record = {
            **{"version": 1, "checkpoint": "0123456789abcdef", "rank": i, "count": 2},
            **{"rule": {"num_splits": 2}, "file": "m.safetensors", "bare": True},
            "tensors": {"n": None, "a": {"axis": 0, "sections": [8]}},
        }
        parts.append(old / f"{i}.safetensors")
        held = {"n": np.ones(3), "a": np.arange(8, dtype="f4")[4 * i :][:4]}
        sn.save_file(held, parts[-1], {KEY: json.dumps(record)})
    assert_joined(parts[::-1], tmp_path / "m.safetensors")


@pytest.mark.parametrize("command", ["join", "reshard"])
def test_configurations_come_back(model, tmp_path, monkeypatch, capsys, command):
    held = {"config.json": "{}", "generation_config.json": "[1]", "tokenizer.json": "a"}
    for name, text in held.items():
        (model / name).write_text(text)
    ranks = shard(model, tmp_path / "o", num_splits=2)
    arguments = [command, *map(str, ranks), f"--out={tmp_path}/j"]
    arguments += ["--num-splits=1"] if command == "reshard" else []
    joined = tmp_path / "j" / ("rank-0" if command == "reshard" else "")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", None)  # a file may be larger than memory
        assert main(arguments) == 0
    assert held.items() <= {path.name: path.read_text() for path in joined.glob("*.json")}.items()
    if command == "join":
        assert contents(joined) == contents(model)
    (ranks[1] / "tokenizer.json").write_text("b")
    capsys.readouterr()
    assert main([*arguments, "--force"]) == 2
    message = capsys.readouterr().err
    assert str(ranks[0] / "tokenizer.json") in message
    assert "--no-copy-config" in message
    shutil.rmtree(tmp_path / "j")
    assert main([*arguments, "--no-copy-config"]) == 0
    assert not held.keys() & {path.name for path in joined.iterdir()}


def test_a_folder_of_ranks(model, tmp_path, capsys):
    shard(model, tmp_path / "o", num_splits=2)
    (tmp_path / "o" / "logs").mkdir()
    files.join_files([tmp_path / "o"], tmp_path / "j")
    assert contents(tmp_path / "j") == contents(model)
    again = files.reshard_files(tmp_path / "o", num_splits=1, out=tmp_path / "r")
    assert again.targets[0].parent == tmp_path / "r" / "rank-0"
    assert files.describe_files(tmp_path / "o")["complete"]
    assert main(["info", f"{tmp_path}/o"]) == 0
    assert "all 2 parts of one split by" in capsys.readouterr().out
    np.save(tmp_path / "o" / "x.0.npy", np.ones(1))
    join_refused(tmp_path, [tmp_path / "o"], r"folders such as rank-. and parts such as x\.0\.npy")


ODD = "a\nb\x1b" if os.name == "posix" else "a b"
NUMBERED = [
    # how parts are named, what is given, and what is joined
    *[("o/rank-{}/model.safetensors", given, "j") for given in ("o", "o/*")],
    *[(f"o/{ODD}.{{}}.npy", given, "j.npy") for given in ("o", "o/*")],
    ("o/part{}of12.npz", "o/*", "j.npz"),
    ("{}/x.npy", "*/*", "j.npy"),
]


@pytest.mark.parametrize(("name", "given", "out"), NUMBERED)
def test_parts_without_records_are_in_the_order_of_numbers(tmp_path, capsys, name, given, out):
    x, out = np.arange(24.0).reshape(12, 2), tmp_path / out
    for rank, part in enumerate(np.split(x, 12)):
        path = tmp_path / name.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        save(path, x=part)
    paths = sorted(map(str, tmp_path.glob(given)))  # 10 before 2
    assert main(["join", *paths, f"--out={out}", "--axis=0"]) == 0
    assert ("order of their numbers" in capsys.readouterr().err) == ("*" in given)
    held = np.load(out) if out.suffix else sn.load_file(out / "model.safetensors")
    np.testing.assert_array_equal(held if out.suffix == ".npy" else held["x"], x)


@pytest.mark.parametrize("layout", ["files", "ranks"])
def test_parts_of_any_name_are_found(tmp_path, kind, layout):
    whole = save(tmp_path / f"{ODD}.{kind}", x=np.arange(8))
    how = {"num_splits": 2, "axis": 0, "layout": layout}
    files.split_files(whole, out=tmp_path / "o", **how)
    out = tmp_path / (f"j.{kind}" if layout == "files" else "j")
    files.join_files([tmp_path / "o"], out, axis=0)
    assert (out if out.suffix else out / whole.name).read_bytes() == whole.read_bytes()
    if os.name == "posix" and (
        kind == "safetensors" or layout == "ranks"
    ):  # the record could not name it
        whole = whole.rename(tmp_path / f"a:b.{kind}")
        with refused(tmp_path, "records cannot hold this name"):
            files.split_files(whole, out=tmp_path / "p", **how)


def test_ranks_that_do_not_fit(model, tmp_path):
    parts = shard(model, tmp_path / "two", num_splits=2)
    four = shard(model, tmp_path / "four", num_splits=4)
    axes = shard(model, tmp_path / "axes", ["*.o.weight=0"], num_splits=2)
    join_refused(tmp_path, [four[0], four[1], four[3]], r"3 of 4 ranks: rank 2 missing")
    join_refused(tmp_path, parts[:1], "rank 1 missing")
    join_refused(tmp_path, four[::2], "rank 1, rank 3 missing")
    join_refused(tmp_path, [parts[0], four[1]], "two different splits")
    join_refused(tmp_path, [parts[0], axes[1]], "two different splits")
    twice = shutil.copytree(parts[1], tmp_path / "twice")
    join_refused(tmp_path, [*parts, twice], "both are rank 1 of 2")
    forget(parts[1])
    join_refused(tmp_path, parts, "only one of them says")
    join_refused(tmp_path, parts[::-1], "only one of them says")


def test_a_rank_whose_files_are_of_two_splits(model, tmp_path):
    two = shard(model, tmp_path / "two", num_splits=2)
    four = shard(model, tmp_path / "four", num_splits=4)
    name = "model-1.safetensors"
    (two[1] / name).write_bytes((four[1] / name).read_bytes())
    join_refused(tmp_path, two, rf"contradicts {MANIFEST}")
    for part in two:
        (part / MANIFEST).unlink()
    join_refused(tmp_path, two, "of another rank or split")


@pytest.mark.parametrize("options", [["--tensor=*.o.weight=0"], ["--axis=0"]], ids=str)
def test_the_record_counts_and_not_a_pattern(model, tmp_path, capsys, options):
    parts = shard(model, tmp_path / "out", num_splits=2)
    assert main(["join", *map(str, parts), f"--out={tmp_path}/joined", *options]) == 0
    assert "the parts say themselves how they were split" in capsys.readouterr().err
    assert contents(tmp_path / "joined") == contents(model)


def test_metadata_with_the_key_of_a_record_comes_back(tmp_path):
    path = tmp_path / "m.safetensors"
    for mine in ("mine", ""):
        sn.save_file({"a": np.arange(8)}, path, {KEY: mine, "a": "b"})
        assert_joined(files.split_files(path, num_splits=2, force=True).targets, path)
    assert not (tmp_path / MANIFEST).exists()


def test_parts_of_parts(model, tmp_path):
    parts = shard(model, tmp_path / "two", num_splits=2)
    inner = shard(parts[0], tmp_path / "inner", ["*.o.weight=0"], num_splits=2)
    files.join_files(inner, tmp_path / "outer")
    before = contents(parts[0])
    del before[MANIFEST]
    assert contents(tmp_path / "outer") == before


@pytest.mark.parametrize("tile", [1, *long(64), 1 << 23])
@pytest.mark.parametrize("count", [*long(1), 2, *long(4), 8])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("lengths", ["16,4,2@2", "16,6@3,2@2", "16@2,2@1,4@4"])
def test_key_heads_that_several_parts_share(tmp_path, monkeypatch, lengths, axis, count, tile):
    """Eight heads of queries, two of keys and one of values."""
    monkeypatch.setattr(tiles, "TILE", tile)
    _, keys_end, rows = np.cumsum([int(item.split("@")[0]) for item in lengths.split(",")])
    whole = np.arange(rows * 5, dtype="i4").reshape(rows, 5)
    x = whole if axis == 0 else np.ascontiguousarray(whole.T)
    sn.save_file({"qkv": x, "n": np.ones(3, "f4")}, tmp_path / "m.safetensors")
    pattern = f"qkv={axis}:{lengths}"
    options = {"num_splits": count, "tensors": [pattern]}
    done = files.split_files(tmp_path / "m.safetensors", **options)
    for i, target in enumerate(done.targets):
        queries = whole[:16].reshape(count, -1, 5)[i]
        keys = whole[16:keys_end].reshape(min(count, 2), -1, 5)[i * min(count, 2) // count]
        expected = np.concatenate([queries, keys, whole[keys_end:]])
        held = sn.load_file(target)["qkv"]
        np.testing.assert_array_equal(held if axis == 0 else held.T, expected)
    for more in ({}, {"tensors": [pattern]}):
        assert_joined(done.targets, tmp_path / "m.safetensors", **more)
    (described,) = files.describe_files(done.targets[0])["checkpoints"][0]["files"]
    (head,) = [one["head"] for one in described["tensors"] if one["name"] == "qkv"]
    assert head == {"16,4,2@2": 2, "16,6@3,2@2": (0, 3, 2), "16@2,2@1,4@4": (2, 1, 4)}[lengths]
    for other in (1, 2, 4, 8):
        out = tmp_path / f"again-{other}"
        files.reshard_files(done.targets, num_splits=other, out=out)
        options |= {"num_splits": other, "out": out / "direct"}
        for target in files.split_files(tmp_path / "m.safetensors", **options).targets:
            assert (out / target.name).read_bytes() == target.read_bytes()
    if count > 2:  # the copies of a head must be equal
        change(done.targets[1], "qkv")
        join_refused(tmp_path, done.targets, "qkv in .* must be equal")


@pytest.mark.parametrize(
    ("pattern", "rule", "message"),
    [
        ("a=0:12@4", {"num_splits": 2}, "its 3 heads of length 4 do not go into 2 parts whole"),
        ("a=0:12@5", {"num_splits": 2}, "must be a multiple of the head length 5"),
        ("a=0:8@2,4@3", {"num_splits": 2}, "section of length 4: must be a multiple of the head"),
        ("a=0:6@2,6@3", {"num_splits": 2}, "its 3 heads of length 2 do not go into 2 parts whole"),
        ("a=0:8@4,4", {"split": 2}, "must be multiples of the head length 4"),
        ("a=0:8,4@4", {"num_splits": 4}, "at least one section must have a head for each part"),
        ("a=0:12@4", {"split": 6}, "must be multiples of the head length 4"),
        ("a=0:8,4@4", {"split": 4}, "same number of parts"),
        ("a=0:8,4", {"split": 4}, "all sections must have the same number"),
        ("a=0:8,4", {"indices": [2]}, "a in [8, 4]: the parts would not record where sections of"),
        ("a=0:8,4", {"split": [3, -1]}, "give layout='ranks', which records it"),
        ("a=0/6,6@4", {"num_splits": 2}, "with :SECTIONS, :SECTIONS@HEAD"),
        ("a=0/3,3,6", {"num_splits": 2}, "the rule makes 2 parts of each tensor"),
    ],
)
def test_heads_that_would_be_cut(tmp_path, pattern, rule, message):
    np.savez(tmp_path / "m.npz", a=np.zeros((12, 2)))
    with refused(tmp_path, re.escape(message)):
        files.split_files(tmp_path / "m.npz", tensors=[pattern], **rule)


@pytest.mark.parametrize("tile", [1, 40, 1 << 23])
@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2), (4, 1), (1, 4), (2, 2)])
def test_reshard_equals_a_split_of_the_whole(model, tmp_path, monkeypatch, before, after, tile):
    monkeypatch.setattr(tiles, "TILE", tile)
    (model / "config.json").write_text("{}")
    parts = shard(model, tmp_path / "before", num_splits=before)
    direct = shard(model, tmp_path / "direct", num_splits=after)
    assert (direct[0] / "config.json").exists()
    out = tmp_path / "after"
    arguments = ["--num-splits", str(after), "--out", str(out), "--quiet"]
    assert main(["reshard", *map(str, parts[::-1]), *arguments]) == 0
    assert contents(out) == contents(tmp_path / "direct")


def test_reshard_by_patterns(model, tmp_path):
    parts = shard(model, tmp_path / "out", num_splits=2)
    for part in parts:
        forget(part)
    with pytest.raises(splitjit.SplitError, match="reshard: .*do not say how they were split"):
        files.reshard_files(parts, num_splits=4, out=tmp_path / "four")
    files.reshard_files(parts, num_splits=4, tensors=TENSORS, out=tmp_path / "four")
    files.join_files(sorted((tmp_path / "four").iterdir()), tmp_path / "joined")
    assert load(tmp_path / "joined").keys() == load(model).keys()


def test_reshard_refuses(model, tmp_path, monkeypatch):
    parts = shard(model, tmp_path / "out", num_splits=2)
    for given, rule, message in [
        (parts, {"num_splits": 3}, "^reshard .*: the axis length 8 must be a multiple of 3"),
        (parts[:1], {"num_splits": 4}, "^reshard: .*rank 1 missing"),
        (parts, {"num_splits": 4, "tensors": ["none"]}, "^reshard: pattern 'none'"),
    ]:
        with refused(tmp_path, message):
            files.reshard_files(given, out=tmp_path / "new", **rule)
    for new in (None, "new-{stem}.safetensors"):  # nor its index or manifest
        how = {"num_splits": 2, "name": new, "out": tmp_path / "out", "force": True}
        with refused(tmp_path, "would replace an input"):
            files.reshard_files(parts, **how)
    change(parts[1] / "model-1.safetensors", "layers.1.norm.weight")
    with refused(tmp_path, "norm.weight in .* must be equal"):
        files.reshard_files(parts, num_splits=4, out=tmp_path / "new")


def records_of(part):
    """Return a function that reads, and one that writes the record of a file."""
    data = part.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])

    def write(text):
        header["__metadata__"][KEY] = text
        made = json.dumps(header).encode()
        part.write_bytes(struct.pack("<Q", len(made)) + made + data[8 + length :])

    return json.loads(header["__metadata__"][KEY]), write


def changed(record, path, value):
    made = copy.deepcopy(record)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return made


HOSTILE = [None, True, -1, 1.0, 2**70, "", "0", [], {}, [[]], [0, 0], {"a": 1}, KeyError]
PATHS = [
    *[(key,) for key in ("version", "checkpoint", "rank", "count", "rule", "tensors", "file")],
    *[(key,) for key in ("bare", "outer", "more")],
    *[("rule", key) for key in ("num_splits", "split")],
    *[("tensors", key) for key in ("a", "other")],
    *[("tensors", "a", key) for key in ("axis", "sections", "lengths", "head", "shared", "x")],
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(path))
def test_hostile_records(tmp_path, path):
    """Each wrong value is refused, or the parts are joined as they should be."""
    whole = {"a": np.arange(8, dtype="f4"), "norm": np.ones(3, "f4")}
    sn.save_file(whole, tmp_path / "m.safetensors")
    parts = files.split_files(tmp_path / "m.safetensors", num_splits=2, tensors=["a"]).targets
    (first, write_first), (second, write_second) = map(records_of, parts)
    out = tmp_path / "j.safetensors"
    refusals = 0
    for value in HOSTILE:
        for both in (False, True):
            if value is KeyError and path[-1] not in str(first):
                continue
            try:
                write_first(json.dumps(changed(first, path, value)))
            except KeyError:
                continue
            write_second(json.dumps(changed(second, path, value) if both else second))
            before = contents(tmp_path)
            try:
                files.join_files(parts, out)
            except splitjit.SplitError as error:
                refusals += 1
                assert "\n" not in str(error)
                assert len(str(error)) < 1000
                assert contents(tmp_path) == before
            else:
                held = sn.load_file(out)
                assert all(np.array_equal(held[name], x) for name, x in whole.items())
                out.unlink()
    assert refusals


@pytest.mark.parametrize("text", ["", "null", "[]", "{", "1", '{"a":' * 100_000, "1" * 5000])
def test_records_that_are_no_objects(tmp_path, text):
    sn.save_file({"a": np.arange(8, dtype="f4")}, tmp_path / "m.safetensors")
    parts = files.split_files(tmp_path / "m.safetensors", num_splits=2).targets
    for part in parts:
        records_of(part)[1](text)
    join_refused(tmp_path, parts, "not a record of a split")
    files.split_files(parts[0], num_splits=2)  # nothing but a join reads it


def test_records_that_ask_for_much_memory(tmp_path):
    """A record may name any number of parts, but not make the process plan them."""
    sn.save_file({"a": np.zeros((2, 0), "f4")}, tmp_path / "m.safetensors")
    parts = files.split_files(tmp_path / "m.safetensors", num_splits=2).targets
    for rule, count in [
        ({"num_splits": 2**31 - 1}, 2**31 - 1),
        ({"num_splits": 2**31 - 1}, 2),
        ({"split": 1}, 2),
    ]:
        for part in parts:
            record, write = records_of(part)
            record |= {"rule": rule, "count": count}
            record["tensors"]["a"]["sections"] = [2**62]
            write(json.dumps(record))
        join_refused(tmp_path, parts, "missing|make 2 parts|otherwise")


BAD_MANIFESTS = [b"", b"[]", b"{}", b'{"files": []}', b'{"files": {"x.npy": []}}']
BAD_MANIFESTS += [b'{"version": 1, "files": {"x.npy": {"tensors": {}}}}']
BAD_MANIFESTS += [b'{"files": {"../x.npy": {}}}', b'{"files": {"/etc/x.npy": {}}}']
BAD_MANIFESTS += [b'{"files": {"": {}}}', b'{"files": {"..": {}}}']


@pytest.mark.parametrize("content", BAD_MANIFESTS)
def test_hostile_manifests(tmp_path, content):
    np.save(tmp_path / "x.npy", np.arange(8))
    files.split_files(tmp_path / "x.npy", num_splits=2, layout="ranks", out=tmp_path / "o")
    parts = sorted((tmp_path / "o").iterdir())
    for part in parts:
        (part / MANIFEST).write_bytes(content)
    join_refused(tmp_path, parts, MANIFEST)


def test_a_whole_name_that_leads_elsewhere(model, tmp_path):
    """The name of the whole file comes from the record, and must stay in the folder."""
    parts = shard(model, tmp_path / "out", num_splits=2)
    for name in ["../x.safetensors", "/tmp/x.safetensors", "a/b.safetensors", ".."]:
        for part in parts:
            content = json.loads((part / MANIFEST).read_bytes())
            content["files"]["model-0.safetensors"]["file"] = name
            (part / MANIFEST).write_text(json.dumps(content))
        join_refused(tmp_path, parts, "a field is missing, unknown or not of its kind")
