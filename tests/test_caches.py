"""For any state of the cache, a process runs kernels of this source for this processor, or none."""

import importlib
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import splitjit
from splitjit._copy import cache_folder, compiled, loading, object_files, recipe, threads
from splitjit._kernels import table
from tests.conftest import needs_kernels, take
from tests.processes import finish, run, start

pytestmark = needs_kernels

PROCESSES = int(os.environ.get("SPLITJIT_PROCESSES", "16"))
FLIPS = int(os.environ.get("SPLITJIT_FLIPS", "20"))

SPLIT = """
import sys
import numpy as np, splitjit
from splitjit._copy import crossovers
from splitjit._copy.loading import LOADER

crossovers._STREAM_FROM = 1 << 62  # by the same loop on all machines

def check():
    x = np.arange(2**22, dtype=np.int32).reshape(1024, -1)  # 16 MB, which loads kernels
    parts = splitjit.split(x, [1000, 3096], axis=1)
    assert np.array_equal(parts[0], x[:, :1000]) and np.array_equal(parts[1], x[:, 1000:])

check()
"""


@pytest.fixture(scope="module")
def objects():
    """Return the object of each kernel."""
    splitjit.warmup()
    codes = {name: object_files.read(name) for name in table.KERNELS}
    assert all(codes.values())
    return codes


@pytest.fixture
def build(objects, tmp_path, monkeypatch):
    """Use an empty cache folder, and compile nothing; return the kernels that would be compiled."""
    names = []

    def compile_kernel(name):
        names.append(name)
        return objects[name]

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    importlib.import_module("splitjit._kernels.build")
    monkeypatch.setattr("splitjit._kernels.build.compile_kernel", compile_kernel)
    return names


@pytest.fixture
def split(build, monkeypatch):
    """Return a function that splits as a new process does, and returns its loader."""

    def split():
        loader = loading._Loader()
        for module in (compiled, recipe, threads):
            monkeypatch.setattr(module, "LOADER", loader)
        take("serial", monkeypatch.setattr)
        x = np.arange(60).reshape(6, 10)
        parts = splitjit.split(x, [3, 7], axis=1)
        assert [part.tolist() for part in parts] == [x[:, :3].tolist(), x[:, 3:].tolist()]
        return loader

    return split


def files_in(folder, suffix=""):
    return sorted(file for file in folder.rglob(f"*{suffix}") if file.is_file())


def test_a_kernel_is_compiled_once(split, build, tmp_path):
    assert set(split().compiled) == set(build) == {"copy", "entry"}
    assert len(files_in(tmp_path)) == 2
    assert split()._loaded
    assert len(build) == 2


def test_numpy_copies_while_another_process_compiles(split, build, tmp_path):
    split()
    (kernel,) = files_in(tmp_path, "copy-*.o")
    kernel.unlink()
    mark = kernel.with_name(f"{kernel.name}.compiling")
    mark.touch()
    build.clear()
    assert not split()._loaded
    assert not build
    os.utime(mark, (0, 0))  # the process that left it has ended
    assert split()._loaded
    assert build == ["copy"]
    assert not mark.exists()


def flipped(data):
    return [
        (data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        for at, bit in [(random.randrange(len(data)), random.randrange(8)) for _ in range(FLIPS)]
    ]


def damaged(data):
    """Return what disks, other programs and killed processes leave in place of a file."""
    random.seed(0)
    cuts = [0, 1, 17, 18, 30, 49, 50, 51, len(data) // 2, len(data) - 1]
    return [
        *flipped(data),
        *[data[:cut] for cut in cuts],
        *[data[cut:] for cut in (1, 18, 50)],
        bytes(len(data)),
        data[:50] + bytes(len(data) - 50),
        data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
        random.randbytes(len(data)),
        data + b"\0",
        data.replace(b"splitjit kernel 1", b"splitjit kernel 2"),
        data[:18] + bytes(32) + data[50:],
    ]


def test_damaged_files_are_compiled_again(split, build, tmp_path):
    split()
    (file,) = files_in(tmp_path, "copy-*.o")
    whole = file.read_bytes()
    damages = damaged(whole)
    assert len(damages) >= 40 or FLIPS < 20
    for data in damages:
        assert data != whole
        file.write_bytes(data)
        build.clear()
        assert split().compiled == build == ["copy"]
        assert file.read_bytes() == whole


def foreign(objects):
    """Return other objects than the kernel's: other code, and what cannot be linked."""
    from llvmlite import binding

    def assembled(source):
        target = binding.Target.from_default_triple().create_target_machine()
        return target.emit_object(binding.parse_assembly(source))

    calls = "define void @copy(i64, i64, i64) { call void @f() ret void } declare void @f()"
    return {
        "another kernel": objects["team"],
        "unknown symbol": assembled(calls.replace("@f", "@no_such_function")),
        "symbol of Numba": assembled(calls.replace("@f", "@NRT_Free")),
        "no symbol": assembled("define void @other() { ret void }"),
        "private symbol": assembled("define internal void @copy() { ret void }"),
        "no object": b"text",
        "empty object": b"",
        "noise": random.Random(0).randbytes(8000),
        "half": objects["copy"][:4000],
        "zeros": bytes(8000),
    }


FOREIGN = [
    *("another kernel", "unknown symbol", "symbol of Numba", "no symbol", "private symbol"),
    *("no object", "empty object", "noise", "half", "zeros"),
]


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_object_is_never_run(kind, objects, split, build, tmp_path):
    """Its hash is right, so only the linker can refuse it."""
    split()
    (file,) = files_in(tmp_path, "copy-*.o")
    whole = file.read_bytes()
    file.write_bytes(object_files._sealed(str(file), foreign(objects)[kind]))
    build.clear()
    assert split().compiled == build == ["copy"]
    assert file.read_bytes() == whole


@pytest.mark.parametrize("name", ["entry-{}.o", "copy-{:.23}g.o"])
def test_a_renamed_file_is_not_read(name, objects, split, build, tmp_path):
    """An object of another kernel, or of another digest, is whole but not right."""
    split()
    (file,) = files_in(tmp_path, "copy-*.o")
    renamed = name.format(object_files._digest())
    assert renamed != file.name
    file.write_bytes(object_files._sealed(renamed, objects["copy"]))
    build.clear()
    assert split().compiled == build == ["copy"]


def test_a_kernel_that_cannot_be_compiled(split, build, monkeypatch):
    """NumPy copies, and the kernel is not tried again."""

    def fail(name):
        build.append(name)
        raise NotImplementedError

    monkeypatch.setattr("splitjit._kernels.build.compile_kernel", fail)
    loader = split()
    assert build == ["copy"]
    assert not loader._loaded
    assert loader.load("copy") is None
    assert build == ["copy"]


def test_an_object_that_cannot_be_linked_here(split, build, monkeypatch):
    def link(*_):
        raise RuntimeError("no format of objects")

    monkeypatch.setattr(loading, "_link", link)
    assert not split()._loaded


CHANGES = {
    "python": ("sys.version", "3.99"),
    "numpy": ("numpy.__version__", "3.0"),
    "llvmlite": ("llvmlite.__version__", "1.0"),
    "machine": ("platform.machine", lambda: "riscv64"),
    "processor": ("llvmlite.binding.get_host_cpu_name", lambda: "486"),
    "features": (
        "llvmlite.binding.get_host_cpu_features",
        lambda: type("Features", (dict,), {"flatten": lambda self: "-avx2"})(),
    ),
    "system": ("sys.platform", "plan9"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_versions_and_processors_share_no_file(change, monkeypatch):
    """Machines of a cluster, and several versions of Python, may share one cache folder."""
    digest = object_files._digest.__wrapped__
    before = digest()
    assert digest() == before
    monkeypatch.setattr(*CHANGES[change])
    assert digest() != before


def test_a_changed_source_is_noticed_where_neither_time_nor_size_tell(tmp_path, monkeypatch):
    """Reproducible builds give all files the same date."""
    folder = shutil.copytree(cache_folder.SOURCE, tmp_path / "kernels")
    monkeypatch.setattr(cache_folder, "SOURCE", str(folder))
    digests = set()
    for file in ["copy.py", "runs.py", "table.py", "build.py"]:
        digests.add(object_files._digest.__wrapped__())
        status, text = (folder / file).stat(), (folder / file).read_text()
        (folder / file).write_text(text.replace("a", "b", 1))
        os.utime(folder / file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (folder / file).stat().st_size == status.st_size
    assert len(digests) == 4


# ---- folders -----------------------------------------------------------------------------


def test_a_frozen_application_has_no_source(split, tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache_folder, "user_cache", lambda: str(tmp_path))
    monkeypatch.setattr(cache_folder, "SOURCE", str(tmp_path / "missing"))
    monkeypatch.setattr(object_files, "_digest", object_files._digest.__wrapped__)
    assert split().compiled
    assert not split().compiled
    assert len(files_in(tmp_path / "splitjit")) == 2


def test_the_cache_folder(tmp_path, monkeypatch):
    source, user = tmp_path / "source", tmp_path / "user"
    source.mkdir()
    monkeypatch.setattr(cache_folder, "SOURCE", str(source))
    monkeypatch.setattr(cache_folder, "user_cache", lambda: str(user))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    assert cache_folder.folder() == str(source / "__pycache__")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cache_folder.folder() == str(user / "splitjit")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert cache_folder.folder() == str(tmp_path / "splitjit")


def test_no_place_for_a_cache(split, build, tmp_path):
    (tmp_path / "cache").write_text("not a folder")
    assert split().compiled
    assert split().compiled
    assert (tmp_path / "cache").read_text() == "not a folder"


def test_a_folder_in_place_of_a_file(split, tmp_path):
    split()
    for file in files_in(tmp_path):
        file.unlink()
        file.mkdir()
    assert len(split().compiled) == 2
    assert not files_in(tmp_path)


def test_a_full_disk(split, tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        assert split().compiled
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not files_in(tmp_path)


def test_an_older_cache_is_removed(tmp_path, monkeypatch):
    caching = pytest.importorskip("numba.core.caching")
    source = tmp_path / "_kernels"
    numbas = tmp_path / "cache" / caching._CacheLocator.get_suitable_cache_subpath(
        str(source / "table.py")
    )  # fmt: skip
    older = [
        folder / f"copy.copy-28.py311{suffix}"
        for folder in (source / "__pycache__", numbas)
        for suffix in (".nbi", ".1.nbc", ".sha256", ".lock")
    ]
    kept = [source / "__pycache__" / name for name in ("copy-0123.o", "copy.cpython-311.pyc")]
    kept += [tmp_path / "cache" / "other_0123" / "f.nbi", source / "a.lock"]
    for file in [*older, *kept]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    monkeypatch.setattr(cache_folder, "SOURCE", str(source))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    splitjit.warmup()
    assert files_in(tmp_path) == sorted(kept)


def warmup_check(folder):
    """Run ``splitjit warmup --check``; return its status, and what it says of each kernel."""
    command = [sys.executable, "-m", "splitjit", "warmup", "--check"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    lines = ended.stdout.splitlines()[1:]
    return ended.returncode, dict(line.split(": ", 1) for line in lines)


@pytest.mark.slow
def test_the_command_says_whether_each_object_is_whole(objects, tmp_path):
    folder = tmp_path / "splitjit"
    folder.mkdir()
    for file in Path(cache_folder.folder()).glob(f"*-{object_files._digest()}.o"):
        shutil.copy(file, folder)
    whole = dict.fromkeys(table.KERNELS, "whole")
    assert warmup_check(tmp_path) == (0, whole)
    (file,) = folder.glob("overload-*")
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    (folder / os.path.basename(object_files.path("team"))).unlink()
    compiled_now = dict.fromkeys(("overload", "team"), "missing or damaged, compiled now")
    assert warmup_check(tmp_path) == (1, {**whole, **compiled_now})
    assert warmup_check(tmp_path) == (0, whole)


# ---- processes ---------------------------------------------------------------------------


@pytest.mark.long
def test_processes_that_start_at_once(tmp_path):
    """On an empty cache, one of them compiles, or a few at the same time; the last rename wins."""
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = (tmp_path, "-c", SPLIT)
    finish(*[start(*command, **variables) for _ in range(PROCESSES)], timeout=600)
    files = {file: file.stat().st_mtime_ns for file in files_in(tmp_path)}
    assert {file.name.partition("-")[0] for file in files} >= {"copy", "entry", "team"}
    warm = (tmp_path, "-c", SPLIT + "assert not LOADER.compiled and 'numba' not in sys.modules")
    finish(*[start(*warm, **variables) for _ in range(PROCESSES)])
    assert files == {file: file.stat().st_mtime_ns for file in files_in(tmp_path)}


@pytest.mark.slow
def test_a_damaged_kernel_in_a_new_process(tmp_path):
    cache = tmp_path / "cache" / "splitjit"
    cache.mkdir(parents=True)
    for name in table.KERNELS:
        shutil.copy(object_files.path(name), cache)
    (file,) = cache.glob("copy-*")
    whole = file.read_bytes()
    for data in (whole[:-1], object_files._sealed(str(file), b"no object")):
        file.write_bytes(data)
        code = SPLIT + "assert LOADER.compiled == ['copy']"
        run(tmp_path, code, NUMBA_CACHE_DIR=str(cache.parent))
        assert file.read_bytes()[:18] == whole[:18]
        run(tmp_path, SPLIT + "assert not LOADER.compiled", NUMBA_CACHE_DIR=str(cache.parent))


@pytest.mark.slow
def test_an_upgrade(tmp_path):
    """The new file has the same date and size."""
    source = Path(splitjit.__file__).parent
    package = shutil.copytree(
        source, tmp_path / source.name, ignore=shutil.ignore_patterns("__pycache__")
    )
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    run(tmp_path, SPLIT, **variables)
    file = package / "_kernels" / "copy.py"
    date, text = file.stat().st_mtime_ns, file.read_text()
    changed = text.replace("while first < last:", "while first > last:")
    assert changed != text, "the quoted line has changed"
    file.write_text(changed)
    os.utime(file, ns=(date, date))
    code = SPLIT.replace("\ncheck()", """
try:
    check()
except AssertionError:
    sys.exit()
sys.exit("the old kernel was run")
""")  # fmt: skip
    run(tmp_path, code, **variables)
