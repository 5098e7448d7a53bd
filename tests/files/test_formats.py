"""File formats: each one compared with the package that defines it, and malformed files."""

import io
import json
import struct
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib import format as npy

import splitjit
from splitjit import files
from splitjit.files import formats, tiles
from splitjit.files.formats.base import Tensor
from splitjit.files.formats.npy import make_header
from tests.files.folders import assert_joined, contents, split_file, split_refused

safetensors = pytest.importorskip("safetensors")


def npy_bytes(header, data=b"", version=1):
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def fields(descr="'<f4'", shape="(2,)"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()


BAD_NPY = {
    "empty": b"",
    "text": b"a,b\n1,2\n",
    "magic only": b"\x93NUMPY\1\0",
    "version 9": npy_bytes(b"", version=9),
    "version 3": npy_bytes(fields("[('名', 'i4')]"), bytes(8), version=3),
    "no header": npy_bytes(b"\n"),
    "no UTF-8": npy_bytes(b"\xff\n", version=3),
    "header cut short": npy_bytes(fields(), version=3)[:20],
    "header too long": npy_bytes(b" " * 20_000, b"x" * 64),
    "header of 4 GB": b"\x93NUMPY\3\0\xff\xff\xff\xff" + fields(),
    "open bracket": npy_bytes(b"{'descr': (\n"),
    "deeply nested": npy_bytes(b"(" * 5000),
    "negative shape": npy_bytes(fields(shape="(-2,)")),
    "negative shapes": npy_bytes(fields(shape="(-2, -2)"), b"x" * 64),
    "immense shape": npy_bytes(fields(shape=f"({10**30},)")),
    "float shape": npy_bytes(fields(shape="(2.0,)"), b"x" * 64),
    "objects": npy_bytes(fields("'|O'"), b"x" * 64),
    "arrays": npy_bytes(fields("'(2,)<f4'"), b"x" * 64),
    "no dtype": npy_bytes(fields("'<q9'"), b"x" * 64),
    "truncated": npy_bytes(fields(shape="(9,)"), b"x" * 35),
    "two arrays": 2 * npy_bytes(fields(), b"x" * 8),
}


@pytest.mark.filterwarnings("ignore:Stored array in format 2.0")
@pytest.mark.parametrize("count", [300, 6000])
def test_a_header_that_numpy_writes_but_does_not_read(tmp_path, count):
    """np.save writes any number of fields. np.load refuses headers of more than 10 000 bytes."""
    x = np.zeros(6, [(f"a field with a long name {i}", "<f4") for i in range(count)])
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x)
    reason = r"Header info length \(\d{5,6}\) is large: np.load refuses more than 10000"
    with pytest.raises(ValueError, match="max_header_size"):
        np.load(tmp_path / "x.npy")
    for kind in ("npy", "npz"):
        split_refused(tmp_path / f"x.{kind}", reason)


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("shape", [(), (3,), (100, 3, 2)])
def test_npy_header_is_as_numpy_has_it(tmp_path, version, shape):
    x = np.asfortranarray(np.zeros(shape, "<f4,>i2"))
    with open(tmp_path / "x.npy", "wb") as file:
        npy.write_array(file, x, version)
    tensor = formats.read(tmp_path / "x.npy").tensor("")
    header = make_header(tensor)
    assert len(header) % npy.ARRAY_ALIGN == 0
    (tmp_path / "y.npy").write_bytes(header + x.tobytes("A"))
    y = np.load(tmp_path / "y.npy")
    assert (y.dtype, y.shape, y.flags.fnc) == (x.dtype, x.shape, x.flags.fnc)


def test_no_header_is_written_that_numpy_refuses(tmp_path):
    dtype = np.dtype([(f"field {i}", "f8") for i in range(600)])
    tensor = Tensor("", (4,), dtype, 8 * dtype.itemsize)
    with pytest.raises(ValueError, match="Header info length"):
        make_header(tensor)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, monkeypatch, save):
    monkeypatch.setattr(tiles, "TILE", 1000)
    x = np.arange(3000).reshape(30, 100)
    members = {"a": x, "b/c": x.astype("S7").T, "d": x.astype(">f2")[:, ::3], "e": x[0]}
    save(tmp_path / "x.npz", **members)
    paths = split_file(tmp_path / "x.npz", num_outputs=4, axis=0)
    assert [path.name for path in paths] == [f"x.{i}.npz" for i in range(4)]
    parts = [np.load(path) for path in paths]
    for name, member in members.items():
        right = splitjit.split(member, num_outputs=4, copy=False)
        for part, expected in zip(parts, right, strict=True):
            np.testing.assert_array_equal(part[name], expected, strict=True)
            assert part[name].flags.fnc == (name == "b/c")
    for path in paths:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "x.npz") as theirs:
            assert archive.testzip() is None
            for ours, info in zip(archive.infolist(), theirs.infolist(), strict=True):
                assert (ours.filename, ours.compress_type) == (info.filename, info.compress_type)


def test_npz_copies_what_is_no_array(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.arange(6), b=np.array([{}, "b"], object), c=np.float32(1))
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
        info = zipfile.ZipInfo("read.me", (2001, 2, 3, 4, 5, 6))
        info.external_attr = 0o640 << 16
        archive.writestr(info, "no array", zipfile.ZIP_LZMA)
        archive.writestr("bad.npy", "no array")
        archive.writestr("folder/", "")
    parts = split_file(tmp_path / "x.npz", num_splits=2, tensors=["a=0"])
    alike = split_file(tmp_path / "x.npz", num_splits=2, tensors=["[acrf]*"], name="{rank}.npz")
    assert [path.read_bytes() for path in alike] == [path.read_bytes() for path in parts]
    for path in parts:
        with np.load(path, allow_pickle=True) as part:
            assert list(part) == ["a", "b", "c", "read.me", "bad", "folder/"]
            assert part["b"].tolist() == [{}, "b"]
            assert part["c"] == 1
            assert part["read.me"] == b"no array"
            ours = part.zip.getinfo("read.me")
        assert ours.date_time == info.date_time
        assert ours.external_attr == info.external_attr
    says = {"b": "objects", "c": "rank 0", "read.me": "magic", "bad": "magic"}
    for name, message in says.items():
        split_refused(tmp_path / "x.npz", rf"x\.npz.*{name}.*{message}", tensors=[name])
    assert len(contents(tmp_path)) == 5
    np.savez(tmp_path / "y.npz", c=np.float32(1))
    split_refused(tmp_path / "y.npz", "rank 0")


DATA = b"12345678" * 8


def zipped(*more, length=16, data=DATA, compression=zipfile.ZIP_STORED):
    """Return an archive of a .npy file with numbers of 4 bytes, and of `more` members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("a.npy", npy_bytes(fields(shape=f"({length},)"), data))
        for member in more:
            archive.writestr(*member)
    return file.getvalue()


def patched(content, before, after, count=-1):
    assert before in content
    return content.replace(before, after, count)


def in_directory(content, offset, value):
    """Return an archive with a byte of its first directory entry changed."""
    at = content.index(b"PK\1\2") + offset
    return content[:at] + bytes([value]) + content[at + 1 :]


DEFLATED = zipped(compression=zipfile.ZIP_DEFLATED)
BAD_NPZ = {
    "empty": b"",
    "npy": npy_bytes(fields(), b"x" * 8),
    "cut at the end": zipped()[:-30],
    "cut at the front": zipped()[30:],
    "two of a name": zipped(("a", npy_bytes(fields(), bytes(8)))),
    "encrypted": in_directory(zipped(), 8, 1),
    "unknown compression": in_directory(zipped(), 10, 99),
    "larger than it is": in_directory(patched(zipped(), b"(16,)", b"(99,)"), 25, 9),
    "header": patched(zipped(), b"NUMPY", b"NuMPY"),
    "two arrays": zipped(data=DATA + npy_bytes(fields(), bytes(8))),
    "more data than there is": patched(zipped(), b"(16,)", b"(17,)"),
    "damaged": patched(zipped(), b"12345678", b"12345679", 1),
    "damaged where deflated": DEFLATED[:60] + b"\xff" * 9 + DEFLATED[69:],
}


DAMAGED = {
    "a member that is copied": patched(
        zipped(("b", "b" * 200_000)), b"b" * 100_000, b"b" * 99_999 + b"c", 1
    ),
    "an array": patched(
        zipped(length=50_000, data=bytes(200_000)), bytes(150_000), bytes(149_999) + b"c"
    ),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_each_member_is_read_through_to_its_checksum(tmp_path, case):
    (tmp_path / "x.npz").write_bytes(DAMAGED[case])
    split_refused(tmp_path / "x.npz", "damaged: Bad CRC-32", tensors=["a=0"])


BITS = {"F64": 64, "I64": 64, "F32": 32, "I32": 32, "BF16": 16, "U16": 16, "F8_E4M3": 8, "BOOL": 8}


def described(dtype, shape, start, stop):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def file_of(header, data=b"", length=None):
    if not isinstance(header, bytes):
        header = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)  # as the package writes it
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def write(path, tensors, metadata=None):
    """Write tensors, given by name as dtype, shape and bytes, in their order."""
    header = {} if metadata is None else {"__metadata__": metadata}
    start = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = described(dtype, shape, start, start + len(data))
        start += len(data)
    path.write_bytes(file_of(header, b"".join([data for _, _, data in tensors.values()])))


def read(path):
    """Read a file with the safetensors package; return the arguments of `write`."""
    with safetensors.safe_open(path, "numpy") as opened:
        metadata = opened.metadata()
    tensors = {
        name: (tensor["dtype"], tensor["shape"], bytes(tensor["data"]))
        for name, tensor in safetensors.deserialize(path.read_bytes())
    }
    return tensors, metadata


@st.composite
def checkpoints(draw):
    """Draw an axis, and tensors for `write` with equal lengths along this axis."""
    axis = draw(st.integers(-2, 1))
    length = draw(st.integers(1, 9))
    tensors = {}
    for name in draw(st.lists(st.text(max_size=5), min_size=1, max_size=5, unique=True)):
        shape = [draw(st.integers(0, 5)), draw(st.integers(0, 5))]
        shape[axis] = length
        dtype = draw(st.sampled_from(sorted(BITS)))
        nbytes = shape[0] * shape[1] * BITS[dtype] // 8
        tensors[name] = dtype, shape, draw(st.binary(min_size=nbytes, max_size=nbytes))
    return axis, tensors


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(
    checkpoints(),
    st.integers(1, 4),
    st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3)),
    st.sampled_from([1, 30, 1 << 20]),
)
def test_safetensors(checkpoint, count, metadata, tile):
    axis, tensors = checkpoint
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "TILE", tile)
        path = Path(folder, "m.safetensors")
        write(path, tensors, metadata)
        paths = split_file(path, axis=axis, num_outputs=count)
        assert [path.name for path in paths] == [f"m.{i}.safetensors" for i in range(count)]
        parts = [read(path) for path in paths]
        assert_joined(paths, path)
        again = files.reshard_files(paths, num_outputs=5 - count, out=Path(folder, "again"))
        assert_joined(again.targets, path)
        written = [path.read_bytes() for path in paths]
    for content in written:
        (length,) = struct.unpack("<Q", content[:8])
        assert length % 8 == 0
        for tensor in json.loads(content[8 : 8 + length]).values():
            if "dtype" in tensor:  # aligned, unlike the data of the whole file
                assert tensor["data_offsets"][0] % (BITS[tensor["dtype"]] // 8) == 0
    for held, about in parts:
        assert held.keys() == tensors.keys()
        assert json.loads(about.pop("splitjit"))["count"] == count
        assert about == (metadata or {})
    for name, (dtype, shape, data) in tensors.items():
        whole = np.frombuffer(data, np.dtype((np.void, BITS[dtype] // 8))).reshape(shape)
        right = splitjit.split(whole, axis=axis, num_outputs=count)
        for (held, _), expected in zip(parts, right, strict=True):
            assert held[name] == (dtype, list(expected.shape), expected.tobytes())


def test_patterns_and_their_axes(tmp_path):
    path = tmp_path / "m.safetensors"
    data = bytes(range(16))
    tensors = {name: ("U8", [4, 4], data) for name in ["a.q", "a.k", "a.o", "b.o", "norm[0]"]}
    tensors["scale"] = ("F32", [], b"abcd")
    write(path, tensors)
    matrix = np.frombuffer(data, "u1").reshape(4, 4)
    tensors_of = ["a.o=1", "*.[ok]=0", "a.?=-1"]
    for others in ["copy", "skip"]:
        paths = split_file(
            path, num_splits=2, tensors=tensors_of, others=others, out=tmp_path / others
        )
        for i, part in enumerate(paths):
            held, _ = read(part)
            rows, columns = matrix[2 * i :][:2], matrix[:, 2 * i :][:, :2]
            expected = {"a.q": columns, "a.k": rows, "a.o": columns, "b.o": rows}
            for name, x in expected.items():
                assert held.pop(name) == ("U8", list(x.shape), x.tobytes())
            copied = {name: tensors[name] for name in ["norm[0]", "scale"]}
            assert held == (copied if others == "copy" else {})


def test_a_pattern_must_match_in_some_file(tmp_path):
    paths = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for i, path in enumerate(paths):
        write(path, {f"{i}": ("U8", [2], b"ab")})
    split_refused(paths, "pattern '2': must match", tensors=["*=0", "2=0"])
    files.split_files(paths, num_splits=2, tensors=["1=0"])
    assert read(tmp_path / "1.1.safetensors")[0] == {"0": ("U8", [2], b"ab")}
    assert read(tmp_path / "2.1.safetensors")[0] == {"1": ("U8", [1], b"b")}
    planned = files.plan_files(paths, num_splits=2, tensors=["1=0"], others="skip", force=True)
    assert [len(file.targets) for file in planned.files] == [0, 2]


def test_packed_elements(tmp_path):
    path = tmp_path / "m.safetensors"
    try:
        write(path, {"a": ("F4", [3, 4], b"abcdef")})
        formats.read(path)
    except splitjit.SplitError as error:
        pytest.skip(f"this safetensors does not know the dtype: {error}")
    held = [read(part)[0]["a"] for part in split_file(path, num_splits=2, axis=1)]
    assert held == [("F4", [3, 2], b"ace"), ("F4", [3, 2], b"bdf")]
    split_refused(path, r"F4 of shape .* must be whole bytes", [1, 3], axis=1)
    write(path, {"a": ("F4", [2, 3], b"abc")})  # a row is not whole bytes, but no row is cut
    (part,) = split_file(path, num_splits=1, axis=1, force=True)
    assert read(part)[0]["a"] == ("F4", [2, 3], b"abc")


ONE = described("U8", [1], 0, 1)
BAD_SAFETENSORS = {
    "empty": b"",
    "text": b"no tensors",
    "length": b"\1\0\0\0",
    "length beyond the file": file_of({}, b"", 100),
    "length of 8 EB": file_of({}, b"", 2**63),
    "header of 1 GB": file_of({}, b"", 2**30),
    "no UTF-8": file_of(b"\xff\xff"),
    "no JSON": file_of(b"{'a': 1}"),
    "nested": file_of(b'{"a":' * 5000),
    "no object": file_of(b"[]"),
    "no tensor": file_of({"a": 1}),
    "no dtype": file_of({"a": {"shape": [1], "data_offsets": [0, 1]}}, b"x"),
    "unknown dtype": file_of({"a": described("Q8", [1], 0, 1)}, b"x"),
    "negative shape": file_of({"a": described("U8", [-1], 0, 1)}, b"x"),
    "immense shape": file_of({"a": described("U8", [2**40, 2**40], 0, 1)}, b"x"),
    "size of the dtype": file_of({"a": described("F32", [1], 0, 1)}, b"x"),
    "offsets that overlap": file_of({"a": ONE, "b": ONE}, b"x"),
    "a gap": file_of({"a": described("U8", [1], 1, 2)}, b"xx"),
    "backwards": file_of({"a": described("U8", [1], 1, 0)}, b"x"),
    "beyond the file": file_of({"a": ONE}),
    "more data": file_of({"a": ONE}, b"xx"),
    "metadata": file_of({"__metadata__": {"a": 1}, "a": ONE}, b"x"),
    "two metadata": file_of(b'{"__metadata__":{},"__metadata__":{}}'),
    "two of a name, other bytes": file_of(
        f'{{"a":{json.dumps(ONE)},"a":{json.dumps(described("U8", [1], 1, 2))}}}'.encode(), b"xx"
    ),
}


BAD = {
    "npy": (BAD_NPY, r"x\.npy: not a \.npy file"),
    "npz": (BAD_NPZ, r"x\.npz.*: (not a \.np. file|damaged|truncated)"),
    "safetensors": (BAD_SAFETENSORS, r"x\.safetensors: not a \.safetensors file"),
}


@pytest.mark.filterwarnings("default")  # NumPy warns about some of these headers
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, (contents, _) in BAD.items() for name in contents]
)
def test_bad_files(tmp_path, kind, name):
    bad, message = BAD[kind]
    (tmp_path / f"x.{kind}").write_bytes(bad[name])
    split_refused(tmp_path / f"x.{kind}", message, num_splits=1)


def test_without_the_safetensors_package(tmp_path, monkeypatch):
    write(tmp_path / "x.safetensors", {"a": ("U8", [1], b"x")})
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(splitjit.SplitError, match=r"pip install safetensors"):
        formats.read(tmp_path / "x.safetensors")
    with pytest.raises(FileNotFoundError):
        formats.read(tmp_path / "none.safetensors")


@pytest.mark.slow
@given(st.data())
def test_any_damage_is_refused_or_harmless(data):
    """Change one byte of a file: the split works, or it is refused and leaves no parts."""
    with tempfile.TemporaryDirectory() as folder:
        kind = data.draw(st.sampled_from(["npy", "npz", "safetensors"]))
        path = Path(folder, f"x.{kind}")
        if kind == "npy":
            np.save(path, np.arange(24, dtype="i2").reshape(4, 6))
        elif kind == "npz":
            np.savez_compressed(path, a=np.arange(24, dtype="i2").reshape(4, 6))
        else:
            write(path, {"a": ("U16", [4, 6], bytes(48)), "b": ("U8", [6], b"abcdef")})
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content)
        before = contents(path.parent)
        with warnings.catch_warnings(action="ignore"):  # NumPy warns about unusual headers
            try:
                split_file(path, 1)
            except (splitjit.SplitError, OSError):
                assert contents(path.parent) == before
