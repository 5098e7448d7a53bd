"""For any state of the cache, a process runs kernels of this source for this processor, or none."""

import gc
import importlib.util
import json
import logging
import os
import platform
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import splitjit
from splitjit._abi.kernels import KERNELS, processor
from splitjit._cli.lines import amount
from splitjit._cli.main import main
from splitjit._copy import how
from splitjit._runtime import kernel_files, loading
from tests import processes
from tests.conftest import needs_kernels, take
from tests.processes import limited, python, run

pytestmark = needs_kernels

PROCESSES = int(os.environ.get("SPLITJIT_PROCESSES", "16"))
FLIPS = int(os.environ.get("SPLITJIT_FLIPS", "20"))

SPLIT = f"""
{processes.SPLIT}
THRESHOLDS.stream_from = (1 << 62, 1 << 62)  # by the same loop on all machines
check()
"""


@pytest.fixture(scope="module")
def objects():
    """Return the object of each kernel."""
    splitjit.warmup()
    codes = {name: kernel_files.read(name) for name in KERNELS}
    assert all(codes.values())
    return codes


@pytest.fixture
def build(objects, tmp_path, monkeypatch, caplog):
    """Use an empty cache folder, and compile nothing; return the kernels that would be compiled."""
    names = []
    caplog.set_level(logging.DEBUG, "splitjit")

    def compile_kernel(name):
        names.append(name)
        return objects[name]

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    importlib.import_module("splitjit._kernels.compiling")
    monkeypatch.setattr("splitjit._kernels.compiling.compile_kernel", compile_kernel)
    return names


@pytest.fixture
def split(build, monkeypatch):
    """Return a function that splits as a new process does, and returns its loader."""

    def split():
        loader = loading._Loader()
        monkeypatch.setattr(how, "LOADER", loader)
        take("serial", monkeypatch.setattr)
        x = np.arange(60).reshape(6, 10)
        parts = splitjit.split(x, [3, 7], axis=1)
        assert [part.tolist() for part in parts] == [x[:, :3].tolist(), x[:, 3:].tolist()]
        return loader

    return split


def files_in(folder, suffix=""):
    return sorted(file for file in folder.rglob(f"*{suffix}") if file.is_file())


@pytest.fixture
def digest():
    """Return the function that computes the digest in the names of files, each time anew."""
    return kernel_files._digest.__wrapped__


@pytest.fixture
def plain(split, build, tmp_path):
    """Split, and return the file of the kernel `plain`."""
    split()
    build.clear()
    (file,) = files_in(tmp_path, "plain-*.o")
    return file


def test_a_kernel_is_compiled_once(split, build, tmp_path, caplog):
    assert set(split().compiled) == set(build) == {"core", "plain"}
    assert len(files_in(tmp_path)) == 2
    assert split().loaded
    assert len(build) == 2
    said = [text.split(" in ")[0] for text in caplog.messages]
    assert sorted(said) == ["compiled core", "compiled plain"]


def test_numpy_copies_while_another_process_compiles(split, build, plain):
    mark = plain.replace(plain.with_name(f"{plain.name}.compiling"))
    assert "plain" not in split().loaded
    assert not build
    os.utime(mark, (0, 0))  # the process that left it has ended
    assert split().loaded
    assert build == ["plain"]
    assert not mark.exists()


@pytest.mark.parametrize("ahead", [2, 3600])
def test_a_mark_from_the_future_blocks_nothing(ahead, split, build, plain):
    """A file server's clock may be ahead of this machine's."""
    mark = plain.replace(plain.with_name(f"{plain.name}.compiling"))
    os.utime(mark, (time.time() + ahead,) * 2)
    assert split().loaded
    assert build == ["plain"]


def damaged(data):
    """Return what disks, other programs and killed processes leave in place of a file."""
    random.seed(0)
    flips = [(random.randrange(len(data)), random.randrange(8)) for _ in range(FLIPS)]
    cuts = [0, 1, 17, 18, 30, 49, 50, 51, len(data) // 2, len(data) - 1]
    return [
        *[data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :] for at, bit in flips],
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


def test_damaged_files_are_compiled_again(split, build, plain, caplog):
    whole = plain.read_bytes()
    damages = damaged(whole)
    assert len(damages) >= 40 or FLIPS < 20
    for data in damages:
        assert data != whole
        plain.write_bytes(data)
        build.clear()
        caplog.clear()
        assert split().compiled == build == ["plain"]
        assert caplog.messages[0] == f"the cached kernel {plain} is damaged"
        assert plain.read_bytes() == whole


def assembled(source):
    """Return the object file of code in LLVM's language."""
    from llvmlite import binding

    target = binding.Target.from_default_triple().create_target_machine()
    return target.emit_object(binding.parse_assembly(source))


def calling(name):
    code = "define void @plain(i64, i64, i64) { call void @f() ret void } declare void @f()"
    return assembled(code.replace("@f", name))


FOREIGN = {
    # other code, and what cannot be linked, in place of the kernel
    "another kernel": lambda objects: objects["core"],
    "unknown symbol": lambda objects: calling("@no_such_function"),
    "symbol of Numba": lambda objects: calling("@NRT_Free"),
    "no symbol": lambda objects: assembled("define void @other() { ret void }"),
    "private symbol": lambda objects: assembled("define internal void @plain() { ret void }"),
    "no object": lambda objects: b"text",
    "empty object": lambda objects: b"",
    "noise": lambda objects: random.Random(0).randbytes(8000),
    "half": lambda objects: objects["plain"][:4000],
    "zeros": lambda objects: bytes(8000),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_foreign_object_is_never_run(kind, objects, split, build, plain):
    """Its hash is right, so only the linker can refuse it."""
    whole = plain.read_bytes()
    plain.write_bytes(kernel_files._sealed(str(plain), FOREIGN[kind](objects)))
    assert split().compiled == build == ["plain"]
    assert plain.read_bytes() == whole


@pytest.mark.parametrize("name", ["entry-{}.o", "plain-{:.23}g.o"])
def test_a_renamed_file_is_not_read(name, objects, split, build, plain):
    """An object of another kernel, or of another digest, is whole but not right."""
    renamed = name.format(kernel_files._digest())
    assert renamed != plain.name
    plain.write_bytes(kernel_files._sealed(renamed, objects["plain"]))
    assert split().compiled == build == ["plain"]


def test_a_kernel_that_cannot_be_compiled(split, build, caplog, monkeypatch):
    """NumPy copies, and the kernel is not tried again."""

    def fail(name):
        build.append(name)
        raise NotImplementedError

    monkeypatch.setattr("splitjit._kernels.compiling.compile_kernel", fail)
    loader = split()
    assert build == ["core"]
    assert loader.loaded == {}
    assert loader.load("core") is None
    assert build == ["core"]
    (message,) = caplog.messages
    assert message.startswith("the kernel core cannot be loaded: NotImplementedError(")


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
    "numba": ("splitjit._runtime.kernel_files.find_spec", lambda name: another_numba),
}

another_numba = importlib.util.spec_from_loader("numba", None, origin="")


@pytest.mark.parametrize("change", CHANGES)
def test_versions_and_processors_share_no_file(change, digest, tmp_path, monkeypatch):
    """Machines of a cluster, and several versions of Python, may share one cache folder."""
    (tmp_path / "_version.py").write_text("another version")  # which shares this llvmlite
    another_numba.origin = str(tmp_path / "__init__.py")
    before = digest()
    assert digest() == before
    monkeypatch.setattr(*CHANGES[change])
    assert digest() != before
    assert digest().partition("-")[0] == before.partition("-")[0]  # of the same source


# ---- settings of Numba -------------------------------------------------------------------

OTHER_TARGETS = [
    ("NUMBA_CPU_NAME", "generic"),
    ("NUMBA_CPU_FEATURES", "-avx"),
    ("NUMBA_CPU_FEATURES", "+sse2"),
    ("NUMBA_ENABLE_AVX", "0"),
]
OTHER_CODE = {
    # settings of Numba that would change the code of kernels
    **dict.fromkeys(["BOUNDSCHECK", "DEBUGINFO", "DEBUG_ARRAY_OPT_RUNTIME", "DEBUG_JIT"], "1"),
    **dict.fromkeys(["DEBUG_NRT", "EXTEND_VARIABLE_LIFETIMES"], "1"),
    "OPT": "0",
}

COMPILE = """
import hashlib
from splitjit._runtime import kernel_files
from splitjit._runtime.loading import LOADER

functions = LOADER.load("plain", wait=True)
assert functions and LOADER.compiled == COMPILED, LOADER.compiled
print(hashlib.sha256(kernel_files.read("plain")).hexdigest(), file=open("digest", "a"))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="features of x86")
@pytest.mark.parametrize(("name", "value"), OTHER_TARGETS)
def test_other_targets_have_other_names(name, value, digest, monkeypatch):
    """Else a process of another setting would die of SIGILL."""
    before = digest()
    monkeypatch.setenv(name, value)
    assert digest() != before
    assert kernel_files.remove(older=True) == {}  # other processes may use these files


def test_features_that_a_virtual_machine_lacks_are_never_used(monkeypatch):
    """LLVM would expect them of the processor's name: a znver4 without AVX-512 exists."""
    from llvmlite import binding

    lacks = binding.FeatureMap(avx512f=False, avx2=True, rtm=False)
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: lacks)
    monkeypatch.setenv("NUMBA_CPU_FEATURES", "+sse2")
    assert processor() == (binding.get_host_cpu_name(), "-avx512f,-rtm,+sse2")
    monkeypatch.setenv("NUMBA_CPU_NAME", "haswell")
    assert processor() == ("haswell", "+sse2")
    monkeypatch.delenv("NUMBA_CPU_FEATURES")
    monkeypatch.setenv("NUMBA_ENABLE_AVX", "0")
    assert processor() == ("haswell", "-avx2,-avx512f,-rtm")


@pytest.mark.long
def test_settings_of_the_compiler_do_not_change_kernels(tmp_path):
    """With NUMBA_OPT=0 of one process, all others were four times as slow."""
    others = {f"NUMBA_{name}": value for name, value in OTHER_CODE.items()}
    for cache, settings in ("usual", {}), ("other", others):
        code = COMPILE.replace("COMPILED", "['plain']")
        run(tmp_path, code, NUMBA_CACHE_DIR=str(tmp_path / cache), **settings)
    usual, other = (tmp_path / "digest").read_text().split()
    assert usual == other


def test_our_settings_end_with_the_compilation(monkeypatch):
    compiling = importlib.import_module("splitjit._kernels.compiling")
    config = compiling.config
    config.reload_config()  # other tests have changed the environment
    monkeypatch.setattr(config, "OPT", type(config.OPT)(0))
    before = dict(vars(config))
    monkeypatch.setattr(config, "DEBUG_JIT", 1)
    with compiling._own_settings():
        assert (config.OPT, config.DEBUG_JIT) == (3, 0)
        assert gc.isenabled()
        gc.disable()  # as another thread may do
    try:
        assert not gc.isenabled()
    finally:
        gc.enable()
    before.update(DEBUG_JIT=1)
    assert {name: vars(config)[name] for name in before} == before


def test_a_changed_source_is_noticed_where_neither_time_nor_size_tell(
    digest, tmp_path, monkeypatch
):
    """Reproducible builds give all files the same date."""
    folder = shutil.copytree(kernel_files.FOLDER, tmp_path / "kernels")
    monkeypatch.setattr(kernel_files, "FOLDER", str(folder))
    digests = set()
    for file in ["loops/plain.py", "core/entry.py", "ir/llvm.py", "compiling.py"]:
        digests.add(digest())
        status, text = (folder / file).stat(), (folder / file).read_text()
        (folder / file).write_text(text.replace("a", "b", 1))
        os.utime(folder / file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert (folder / file).stat().st_size == status.st_size
    assert len(digests) == 4


# ---- folders -----------------------------------------------------------------------------


def test_a_frozen_application_has_no_source(split, digest, tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kernel_files, "user_cache", lambda: str(tmp_path))
    monkeypatch.setattr(kernel_files, "FOLDER", str(tmp_path / "missing"))
    monkeypatch.setattr(kernel_files, "_digest", digest)
    assert split().compiled
    assert not split().compiled
    assert not (tmp_path / "missing").exists()
    assert len(files_in(tmp_path / "splitjit")) == 2


def test_the_folders_of_kernel_files(tmp_path, monkeypatch):
    source, user = tmp_path / "source", tmp_path / "user"
    source.mkdir()
    monkeypatch.setattr(kernel_files, "FOLDER", str(source))
    monkeypatch.setattr(kernel_files, "user_cache", lambda: str(user))
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    assert kernel_files.folders() == [str(source / "__pycache__"), str(user / "splitjit")]
    source.rmdir()
    assert kernel_files.folders() == [str(user / "splitjit")]
    monkeypatch.setattr(kernel_files, "user_cache", lambda: "~/.cache")  # of a user without home
    assert kernel_files.folders() == []
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert kernel_files.folders() == [str(tmp_path / "splitjit")]


def test_kernels_are_read_from_each_folder_and_written_to_the_first_writable_one(
    split, build, tmp_path, monkeypatch
):
    folders = [tmp_path / name for name in ("not a folder", "first", "second")]
    folders[0].touch()
    monkeypatch.setattr(kernel_files, "folders", lambda: [str(folder) for folder in folders])
    split()
    assert len(files_in(folders[1])) == 2
    folders[1].rename(folders[2])
    build.clear()
    assert split().loaded
    assert not build
    (kernel,) = files_in(folders[2], "plain-*.o")
    folders[1].mkdir()
    (folders[1] / kernel.name).write_bytes(b"damaged")
    assert split().loaded
    assert not build
    kernel.unlink()
    kernel.with_name(f"{kernel.name}.compiling").touch()  # by another process, in any folder
    assert "plain" not in split().loaded
    assert not build


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
    with limited("RLIMIT_FSIZE", 1000):
        assert split().compiled
    assert not files_in(tmp_path)


def test_objects_of_older_versions_are_removed(objects, tmp_path, monkeypatch):
    """Not those for other processors, nor those of processes that are writing just now."""
    folder = tmp_path / "splitjit"
    folder.mkdir()
    source, other = kernel_files._digest().partition("-")[0], "0123456789abcdef"
    older = [
        f"copy-{other}-{other}.o",
        f"parallel-{other}-{other}.o.compiling",
        f"copy-{source}-{other}.o.{other}",
    ]
    kept = [
        f"copy-{source}-{other}.o",
        f"entry-{source}-{other}.o.{other}",
        *("copy-0123.o", "copy.o", f"copy-{other}-{other}.npy", f"Copy-{other}-{other}.o"),
    ]
    for name in older + kept:
        (folder / name).touch()
    os.utime(folder / older[-1], (0, 0))  # its process was killed
    (folder / f"copy-{other}-{source}.o").mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    splitjit.warmup()
    assert {file.name for file in files_in(folder)} == {*kept}


@pytest.fixture
def full(objects, tmp_path):
    """Return a cache folder that has all kernels; it is not used yet."""
    folder = tmp_path / "full" / "splitjit"
    folder.mkdir(parents=True)
    for name in KERNELS:
        shutil.copy(next(filter(os.path.exists, kernel_files._paths(name))), folder)
    return folder


def test_the_command_cache(full, monkeypatch, capsys):
    nbytes = sum(file.stat().st_size for file in files_in(full))
    (full / "notes.txt").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(full.parent))
    row = {"path": str(full), "files": len(KERNELS), "bytes": nbytes}
    assert main(["cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"cleared": False, "folders": [row]}
    assert main(["cache", "--clear"]) == 0
    said = capsys.readouterr().out
    assert said == f"{full}: removed {len(KERNELS)} files, {amount(nbytes)}\n"
    assert [file.name for file in files_in(full)] == ["notes.txt"]
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{full}: 0 files, 0 bytes\n"


# ---- processes ---------------------------------------------------------------------------


@pytest.mark.long
def test_processes_that_start_at_once(tmp_path):
    """On an empty cache, one of them compiles, or a few at the same time; the last rename wins."""

    def start(code):
        python("-c", code, timeout=600, NUMBA_CACHE_DIR=str(tmp_path / "cache"))

    def at_once(code):
        with ThreadPoolExecutor(PROCESSES) as pool:
            list(pool.map(start, [code] * PROCESSES))

    at_once(SPLIT)
    files = {file: file.stat().st_mtime_ns for file in files_in(tmp_path)}
    assert {file.name.partition("-")[0] for file in files} >= {"core", "plain"}
    at_once(SPLIT + "assert not LOADER.compiled and 'numba' not in sys.modules")
    assert files == {file: file.stat().st_mtime_ns for file in files_in(tmp_path)}
